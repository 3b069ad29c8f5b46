/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets between ranks: frames that go out, in their order, withdrawing them, and waiting for
 * what comes in. Nothing here waits except rsi_house_pump. Next: processes_arrive.c. */
#include "comm/processes.h"
#include "comm/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SPARE_ROOM 256               /* bytes of a message that fit into a reusable record */
#define PART_BYTES ((size_t)1 << 18) /* of a stream in one frame: others come in between */
#define EVENTS     64
#define IS_PID     (UINT64_C(1) << 32)
#define IS_WAKE    (UINT64_C(1) << 33)

/* ---- records ---- */

rsi_mail *rsi_house_mail(rsi_house *h, size_t room)
{
    if (room > SPARE_ROOM)
        return rsi_calloc(1, sizeof(rsi_mail) + room);
    return rsi_free_list_take(&h->spares, sizeof(rsi_mail) + SPARE_ROOM);
}

void rsi_house_drop(rsi_house *h, rsi_mail *m)
{
    if (m->eager && m->bytes > SPARE_ROOM)
        rsi_free(m);
    else
        rsi_free_list_put(&h->spares, m);
}

rsi_group *rsi_house_group(const rsi_house *h, uint64_t id)
{
    rsi_group *g = h->groups;

    while (g && g->id != id)
        g = g->next;
    return g;
}

/* ---- going out ---- */

bool rsi_wire_empty(const rsi_wire *w)
{
    return !w->first && !w->in_part && !w->streams.first;
}

static void free_parcel(rsi_parcel *p)
{
    if (p->fd >= 0)
        close(p->fd);
    rsi_free(p);
}

/* The rank takes nothing more; reading from it will tell why. */
static void go_deaf(rsi_wire *w)
{
    w->deaf = true;
    while (w->first) {
        rsi_parcel *p = w->first;

        w->first = p->next;
        free_parcel(p);
    }
    w->end = &w->first;
    w->in_part = false;
    w->part_of = NULL;
}

/* Sends from byte `sent` of a frame on; returns the bytes taken. */
static size_t send_some(rsi_wire *w, const rsi_frame *head, const void *data, size_t bytes,
                        size_t sent, int fd)
{
    size_t       in_head = sent < sizeof(*head) ? sizeof(*head) - sent : 0;
    size_t       in_data = sent > sizeof(*head) ? sent - sizeof(*head) : 0;
    struct iovec v[2] = { { (char *)(uintptr_t)head + sent, in_head },
                          { (char *)(uintptr_t)data + in_data, bytes - in_data } };
    union {
        struct cmsghdr align;
        char           room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = in_head ? v : v + 1, .msg_iovlen = 1 };
    ssize_t       n;

    if (in_head && bytes > in_data)
        msg.msg_iovlen = 2;
    if (fd >= 0 && sent == 0) {
        memset(&control, 0, sizeof(control));
        control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.align), &fd, sizeof(fd));
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control.room);
    }
    n = sendmsg(w->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS)
        go_deaf(w);
    return n > 0 ? (size_t)n : 0;
}

static bool send_parcel(rsi_wire *w)
{
    rsi_parcel *p = w->first;

    p->sent += send_some(w, &p->head, p->data, p->bytes, p->sent, p->fd);
    if (w->deaf || p->sent < sizeof(p->head) + p->bytes)
        return false;
    w->first = p->next;
    if (!w->first)
        w->end = &w->first;
    free_parcel(p);
    return true;
}

static void begin_part(rsi_wire *w)
{
    rsi_mail *m = w->streams.first;
    size_t    rest = m->bytes - m->moved;

    w->part = (rsi_frame){ .kind = rest ? RSI_FRAME_PART : RSI_FRAME_LAST, .number = m->peer };
    w->part.bytes = rest < PART_BYTES ? rest : PART_BYTES;
    w->part_sent = 0;
    w->part_of = m;
    w->in_part = true;
}

/* False: the socket is full. The LAST frame of a withdrawn stream never goes out, so that nobody
 * takes the zeros for its bytes. */
static bool send_part(rsi_wire *w)
{
    static const char zeros[4096];
    rsi_mail         *m = w->part_of;
    size_t            all = sizeof(w->part) + w->part.bytes;
    size_t            bytes = w->part.bytes;
    const char       *data = m ? (const char *)m->src + m->moved : zeros;

    if (!m && w->part_sent >= sizeof(w->part)) { /* a piece of zeros for what is left */
        size_t  left = all - w->part_sent;
        ssize_t n = send(w->fd, zeros, left < sizeof(zeros) ? left : sizeof(zeros),
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        w->part_sent += n > 0 ? (size_t)n : 0;
        if (n <= 0)
            return false;
    } else {
        w->part_sent += send_some(w, &w->part, data, m ? bytes : 0, w->part_sent, -1);
        if (w->deaf || (w->part_sent < all && m))
            return false;
        if (!m && w->part_sent < sizeof(w->part))
            return false;
    }
    if (w->part_sent < all)
        return true;
    w->in_part = false;
    if (m)
        m->moved += bytes;
    if (m && w->part.kind == RSI_FRAME_LAST)
        rsi_mail_take(&w->streams, 0, 0, m)->done = true;
    w->part_of = NULL;
    return true;
}

/* Watches the socket for room while something waits for it. */
static void arm(rsi_house *h, int32_t to)
{
    rsi_wire          *w = &h->wire[to];
    bool               want = !rsi_wire_empty(w) && !w->deaf;
    struct epoll_event e = { .events = want ? EPOLLIN | EPOLLOUT : EPOLLIN };

    if (w->armed == want || w->fd < 0)
        return;
    e.data.u64 = (uint64_t)to;
    if (epoll_ctl(h->poll_fd, EPOLL_CTL_MOD, w->fd, &e) == 0)
        w->armed = want;
}

void rsi_wire_flush(rsi_house *h, int32_t to)
{
    rsi_wire *w = &h->wire[to];
    bool      more = w->fd >= 0 && !w->deaf;

    while (more) {
        if (w->in_part) {
            more = send_part(w);
        } else if (w->first) {
            more = send_parcel(w);
        } else if (w->streams.first) {
            begin_part(w);
        } else {
            more = false;
        }
    }
    arm(h, to);
}

bool rsi_wire_send(rsi_house *h, int32_t to, const rsi_frame *head, const void *data, size_t bytes,
                   int fd)
{
    rsi_wire   *w = &h->wire[to];
    rsi_parcel *p;
    size_t      sent = 0;

    if (w->fd >= 0 && !w->deaf && !w->first && !w->in_part)
        sent = send_some(w, head, data, bytes, 0, fd);
    if (w->fd < 0 || w->deaf || sent == sizeof(*head) + bytes) {
        if (fd >= 0)
            close(fd);
        return true;
    }
    p = rsi_calloc(1, sizeof(*p) + bytes);
    if (!p) {
        if (fd >= 0)
            close(fd);
        if (sent > 0) /* half of a frame is of no use to the other side */
            shutdown(w->fd, SHUT_RDWR);
        return false;
    }
    p->head = *head;
    p->bytes = bytes;
    p->sent = sent;
    p->fd = fd;
    if (bytes > 0)
        memcpy(p->data, data, bytes);
    *w->end = p;
    w->end = &p->next;
    arm(h, to);
    return true;
}

/* ---- breaking ---- */

void rsi_wire_tell(rsi_house *h, int32_t to)
{
    const rsi_frame head = { .kind = RSI_FRAME_STOP, .bytes = sizeof(h->why) };

    if (to == h->rank || h->wire[to].told)
        return;
    h->wire[to].told = true;
    rsi_wire_send(h, to, &head, &h->why, sizeof(h->why), -1);
}

void rsi_house_break(rsi_house *h, const rsd_error *why)
{
    if (h->broken)
        return;
    h->why = *why;
    h->broken = true;
    for (int32_t r = 0; r < h->size; r++)
        rsi_wire_tell(h, r);
    rsi_house_wake(h);
}

void rsi_house_no_memory(rsi_house *h, size_t bytes)
{
    rsd_error err;

    rsi_fail(&err, RSD_E_NOMEM, "rank %" PRId32 ": no memory for a message of %zu bytes", h->rank,
             bytes);
    err.rank = h->rank;
    err.nfailed = 1;
    rsi_house_break(h, &err);
}

/* A child that this process forked may have the descriptor too, and then closing does not end the
 * watching. */
static void close_watched(rsi_house *h, int *fd)
{
    if (*fd < 0)
        return;
    epoll_ctl(h->poll_fd, EPOLL_CTL_DEL, *fd, NULL);
    close(*fd);
    *fd = -1;
}

void rsi_wire_close(rsi_house *h, int32_t rank)
{
    rsi_wire *w = &h->wire[rank];

    go_deaf(w);
    w->gone = true;
    close_watched(h, &w->fd);
    close_watched(h, &w->pid_fd);
    while (w->nfds > 0)
        close(w->fds[--w->nfds]);
}

void rsi_wire_lost(rsi_house *h, int32_t rank, const char *reason)
{
    rsi_wire *w = &h->wire[rank];
    rsd_error err;

    if (w->gone)
        return;
    if (reason)
        rsi_fail(&err, RSD_E_COMM, "rank %" PRId32 " is gone: %s", rank, reason);
    else if (w->pid > 0)
        rsi_fail(&err, RSD_E_COMM, "rank %" PRId32 " is gone: its process %ld has ended", rank,
                 (long)w->pid);
    else
        rsi_fail(&err, RSD_E_COMM, "rank %" PRId32 " is gone: its connection was closed", rank);
    err.rank = rank;
    err.nfailed = 1;
    rsi_wire_close(h, rank);
    if (!w->left)
        rsi_house_break(h, &err);
}

/* ---- withdrawing ---- */

/* On a broken comm the bytes of a send may go: the other side learns of the break before it could
 * take them for good. */
static bool withdraw_send(rsi_house *h, rsi_mail *m)
{
    rsi_wire *w = &h->wire[m->to];

    if (!h->broken && !w->gone)
        return false;
    if (!w->gone)
        rsi_wire_tell(h, m->to);
    rsi_mail_take(&w->offered, 0, 0, m);
    rsi_mail_take(&w->streams, 0, 0, m);
    if (w->part_of == m)
        w->part_of = NULL;
    return true;
}

bool rsi_wire_withdraw(rsi_house *h, rsi_mail *m)
{
    rsi_group *g = rsi_house_group(h, m->group);
    rsi_wire  *w = &h->wire[m->receive ? m->from : m->to];

    if (m->done)
        return true;
    if (!m->receive && m->to != h->rank)
        return withdraw_send(h, m);
    if (g)
        rsi_mail_take(m->receive ? &g->asked : &g->waiting, 0, 0, m);
    rsi_mail_take(&w->filling, 0, 0, m);
    rsi_mail_take(&w->settling, 0, 0, m);
    if (w->into == m) {
        w->into = NULL;
        w->dst = NULL;
    }
    return true;
}

/* ---- waiting ---- */

bool rsi_house_watch(rsi_house *h, int fd, int32_t rank, bool is_pid)
{
    struct epoll_event e = { .events = EPOLLIN };

    e.data.u64 = rank < 0 ? IS_WAKE : (uint64_t)rank | (is_pid ? IS_PID : 0);
    return epoll_ctl(h->poll_fd, EPOLL_CTL_ADD, fd, &e) == 0;
}

void rsi_house_wake(rsi_house *h)
{
    const uint64_t one = 1;

    /* A full counter wakes too. */
    if (h->watching && write(h->wake_fd, &one, sizeof(one)) < 0)
        return;
    pthread_cond_broadcast(&h->change);
}

static void handle(rsi_house *h, const struct epoll_event *e)
{
    int32_t  rank = (int32_t)(e->data.u64 & UINT32_MAX);
    uint64_t seen;
    bool     all = true;

    if (e->data.u64 & IS_WAKE) {
        if (read(h->wake_fd, &seen, sizeof(seen)) < 0)
            return;
        return;
    }
    if (e->events & EPOLLOUT)
        rsi_wire_flush(h, rank);
    if (e->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        all = rsi_wire_read(h, rank);
    /* Children of the process may keep its end of the socket open. */
    if (e->data.u64 & IS_PID && all)
        rsi_wire_lost(h, rank, NULL);
}

static void wait_for_watcher(rsi_house *h, int64_t until)
{
    struct timespec t = { .tv_sec = (time_t)(until / 1000) };

    t.tv_nsec = (long)(until % 1000) * 1000000;
    pthread_cond_timedwait(&h->change, &h->lock, &t);
}

void rsi_house_pump(rsi_house *h, int64_t until)
{
    struct epoll_event event[EVENTS];
    int64_t            ms = until - rsi_clock_ms();
    int                n;

    if (h->watching) {
        if (ms > 0)
            wait_for_watcher(h, until);
        return;
    }
    h->watching = true;
    pthread_mutex_unlock(&h->lock);
    n = epoll_wait(h->poll_fd, event, EVENTS, ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms);
    pthread_mutex_lock(&h->lock);
    h->watching = false;
    for (int i = 0; i < n; i++)
        handle(h, &event[i]);
    pthread_cond_broadcast(&h->change);
}
