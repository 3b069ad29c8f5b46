/* SPDX-License-Identifier: Apache-2.0 */
/* What comes over the socket between two ranks: frames are put together from what was read, and
 * each does its work on arrival. Nothing here waits. Next: processes_memory.c. */
#include "comm/processes.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_BYTES  ((size_t)64 << 20) /* of another process's memory in one call */
#define READ_ROUNDS 64                 /* from one socket, before the others get their turn */

/* Copies the other process's memory. False: not possible, or not any more. */
static bool read_process(const rsi_wire *w, uint64_t at, char *dst, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        size_t       rest = bytes - done;
        struct iovec to = { dst + done, rest < READ_BYTES ? rest : READ_BYTES };
        struct iovec from = { (void *)(uintptr_t)(at + done), to.iov_len };
        ssize_t      n = process_vm_readv(w->pid, &to, 1, &from, 1, 0);

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

void rsi_wire_pull(rsi_house *h, int32_t from, rsi_mail *m, uint64_t number, uint64_t at,
                   size_t bytes)
{
    rsi_wire *w = &h->wire[from];
    rsi_frame answer = { .kind = RSI_FRAME_WANT, .number = number };

    m->came = bytes;
    m->peer = number;
    if (bytes != m->bytes || (w->reads && read_process(w, at, m->dst, bytes))) {
        rsi_mail_put(&w->settling, m);
        return;
    }
    w->reads = false;
    m->number = answer.at = ++h->numbers;
    rsi_mail_put(&w->filling, m);
    if (!rsi_wire_send(h, from, &answer, NULL, 0, -1))
        rsi_house_no_memory(h, bytes);
}

/* A sender that broke the comm may have reused its memory, but it said so first. */
static void settle(rsi_house *h, int32_t from)
{
    rsi_wire *w = &h->wire[from];

    while (w->settling.first && !h->broken) {
        rsi_mail       *m = rsi_mail_take(&w->settling, 0, 0, w->settling.first);
        const rsi_frame answer = { .kind = RSI_FRAME_DONE, .number = m->peer };

        m->done = true;
        if (!rsi_wire_send(h, from, &answer, NULL, 0, -1))
            rsi_house_no_memory(h, 0);
    }
}

/* A short message: into the memory of its receive, or kept. */
static void begin_mail(rsi_house *h, int32_t from)
{
    rsi_wire  *w = &h->wire[from];
    rsi_group *g = rsi_house_group(h, w->head.group);
    rsi_mail  *m = g ? rsi_mail_take(&g->asked, from, w->head.tag, NULL) : NULL;

    w->rest = w->head.bytes;
    w->dst = NULL;
    w->into = NULL;
    if (!g)
        return;
    if (m) {
        m->came = w->rest;
        w->dst = m->came == m->bytes ? m->dst : NULL;
        w->into = m;
        return;
    }
    m = rsi_house_mail(h, w->rest);
    if (!m) {
        rsi_house_no_memory(h, w->rest);
        return;
    }
    *m = (rsi_mail){ .from = from, .to = h->rank, .tag = w->head.tag, .bytes = w->rest };
    m->group = w->head.group;
    m->eager = true;
    w->dst = m->data;
    w->into = m;
}

static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

/* All of it has come. Its receive may have been asked for meanwhile. */
static void end_mail(rsi_house *h, rsi_mail *m)
{
    rsi_group *g = rsi_house_group(h, m->group);
    rsi_mail  *asked;

    if (m->receive) {
        m->done = true;
        return;
    }
    asked = g ? rsi_mail_take(&g->asked, m->from, m->tag, NULL) : NULL;
    if (g && !asked) {
        rsi_mail_put(&g->waiting, m);
        return;
    }
    if (asked) {
        asked->came = m->bytes;
        copy(asked->dst, m->data, m->bytes == asked->bytes ? m->bytes : 0);
        asked->done = true;
    }
    rsi_house_drop(h, m);
}

static void take_offer(rsi_house *h, int32_t from)
{
    const rsi_frame *head = &h->wire[from].head;
    rsi_group       *g = rsi_house_group(h, head->group);
    rsi_mail        *m = g ? rsi_mail_take(&g->asked, from, head->tag, NULL) : NULL;

    if (m)
        rsi_wire_pull(h, from, m, head->number, head->at, head->bytes);
    if (!g || m)
        return;
    m = rsi_house_mail(h, 0);
    if (!m) {
        rsi_house_no_memory(h, head->bytes);
        return;
    }
    *m = (rsi_mail){ .from = from, .to = h->rank, .tag = head->tag, .bytes = head->bytes };
    m->group = head->group;
    m->number = head->number;
    m->at = head->at;
    rsi_mail_put(&g->waiting, m);
}

/* The other side asks for the bytes of a long message. */
static void take_want(rsi_house *h, int32_t from)
{
    rsi_wire *w = &h->wire[from];
    rsi_mail *m = rsi_mail_find(&w->offered, w->head.number);

    if (!m)
        return;
    rsi_mail_take(&w->offered, 0, 0, m);
    m->peer = w->head.at;
    rsi_mail_put(&w->streams, m);
    rsi_wire_flush(h, from);
}

static void begin_part_in(rsi_wire *w)
{
    rsi_mail *m = rsi_mail_find(&w->filling, w->head.number);

    w->rest = w->head.bytes;
    w->into = m;
    w->dst = m && w->rest <= m->bytes - m->moved ? (char *)m->dst + m->moved : NULL;
}

static void take_left(rsi_house *h, int32_t from)
{
    rsi_wire  *w = &h->wire[from];
    rsi_group *g = rsi_house_group(h, w->head.group);

    if (w->head.group == 0)
        w->left = true;
    for (int32_t i = 0; g && i < g->size; i++)
        g->left[i] = g->left[i] || g->ranks[i] == from;
}

static void take_share(rsi_house *h, int32_t from)
{
    rsi_wire  *w = &h->wire[from];
    rsi_group *g = rsi_house_group(h, w->head.group);
    int        fd = -1;

    if (w->head.at && w->nfds > 0) {
        fd = w->fds[0];
        w->nfds--;
        memmove(w->fds, w->fds + 1, (size_t)w->nfds * sizeof(w->fds[0]));
    }
    if (g)
        rsi_share_came(g, from, &w->head, fd);
    else if (fd >= 0)
        close(fd);
}

/* The bytes that belong to a frame have come. */
static void end_frame(rsi_house *h, int32_t from)
{
    rsi_wire *w = &h->wire[from];
    rsi_mail *m = w->into;

    w->into = NULL;
    w->have = 0;
    if (w->head.kind == RSI_FRAME_MAIL && m)
        end_mail(h, m);
    if (w->head.kind == RSI_FRAME_PART && m && w->dst)
        m->moved += w->head.bytes;
    if (w->head.kind == RSI_FRAME_STOP && !h->broken) {
        h->why = w->heard;
        h->broken = true;
    }
}

static void finish(rsi_mail_list *list, uint64_t number)
{
    rsi_mail *m = rsi_mail_find(list, number);

    if (m)
        rsi_mail_take(list, 0, 0, m)->done = true;
}

/* Acts on a frame's head. */
static void begin_frame(rsi_house *h, int32_t from)
{
    rsi_wire *w = &h->wire[from];

    w->rest = 0;
    w->into = NULL;
    switch (w->head.kind) {
    case RSI_FRAME_MAIL:
        begin_mail(h, from);
        break;
    case RSI_FRAME_OFFER:
        take_offer(h, from);
        break;
    case RSI_FRAME_WANT:
        take_want(h, from);
        break;
    case RSI_FRAME_PART:
        begin_part_in(w);
        break;
    case RSI_FRAME_LAST:
        finish(&w->filling, w->head.number);
        break;
    case RSI_FRAME_DONE:
        finish(&w->offered, w->head.number);
        break;
    case RSI_FRAME_SHARE:
        take_share(h, from);
        break;
    case RSI_FRAME_LEFT:
        take_left(h, from);
        break;
    case RSI_FRAME_STOP:
        w->rest = w->head.bytes;
        w->dst = w->rest == sizeof(w->heard) ? (char *)&w->heard : NULL;
        break;
    default:
        rsi_wire_lost(h, from, "it sent something else than a message");
        return;
    }
    if (w->rest == 0)
        end_frame(h, from);
}

/* Takes bytes that have been read. */
static void feed(rsi_house *h, int32_t from, const char *at, size_t n)
{
    rsi_wire *w = &h->wire[from];

    while (n > 0 && !w->gone) {
        bool   in_head = w->have < sizeof(w->head);
        size_t need = in_head ? sizeof(w->head) - w->have : w->rest;
        size_t k = n < need ? n : need;

        if (in_head) {
            memcpy((char *)&w->head + w->have, at, k);
            w->have += k;
            if (w->have == sizeof(w->head))
                begin_frame(h, from);
        } else {
            if (w->dst) {
                memcpy(w->dst, at, k);
                w->dst += k;
            }
            w->rest -= k;
            if (w->rest == 0)
                end_frame(h, from);
        }
        at += k;
        n -= k;
    }
}

static void keep_fds(rsi_wire *w, struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (w->nfds < RSI_FRAME_FDS)
                w->fds[w->nfds++] = fd;
            else
                close(fd);
        }
    }
}

/* Reads once: the bytes of a frame into their place, what follows into the buffer. False: nothing
 * is left, or the rank is gone. */
static bool read_once(rsi_house *h, int32_t from)
{
    rsi_wire    *w = &h->wire[from];
    size_t       direct = w->have == sizeof(w->head) && w->dst ? w->rest : 0;
    struct iovec v[2] = { { w->dst, direct }, { h->buffer, RSI_WIRE_BUFFER } };
    union {
        struct cmsghdr align;
        char           room[CMSG_SPACE(RSI_FRAME_FDS * sizeof(int))];
    } control;
    struct msghdr msg = { .msg_iov = direct ? v : v + 1, .msg_iovlen = direct ? 2 : 1 };
    ssize_t       n;
    size_t        got, k;

    msg.msg_control = w->near ? &control : NULL;
    msg.msg_controllen = w->near ? sizeof(control.room) : 0;
    n = recvmsg(w->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n <= 0) {
        rsi_wire_lost(h, from, NULL);
        return false;
    }
    if (w->near)
        keep_fds(w, &msg);
    got = (size_t)n;
    k = got < direct ? got : direct;
    if (k > 0) {
        w->dst += k;
        w->rest -= k;
        if (w->rest == 0)
            end_frame(h, from);
    }
    feed(h, from, h->buffer, got - k);
    return !w->gone;
}

bool rsi_wire_read(rsi_house *h, int32_t from)
{
    rsi_wire *w = &h->wire[from];
    int       rounds = 0;

    while (!w->gone && w->fd >= 0 && rounds < READ_ROUNDS && read_once(h, from))
        rounds++;
    if (rounds == READ_ROUNDS)
        return false;
    settle(h, from);
    return true;
}
