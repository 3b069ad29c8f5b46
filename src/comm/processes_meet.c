/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks that are processes find each other: through bytes under keys, which the caller's
 * callbacks put and get. Each rank listens on an abstract Unix socket with a random name and tries
 * to connect to the lower ranks. Where that succeeds, the two are on one machine, in one network
 * namespace; host names play no part. All steps that can fail on one rank are followed by a round
 * in which rank 0 gathers how they went, so that all ranks fail or none. */
#include "comm/processes.h"
#include "comm/clock.h"
#include "comm/comm.h"
#include "comm/rounds.h"
#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define HELLO_MS 5000 /* for a stranger that connects and says nothing */
#define BACKLOG  4096
#define MAGIC    UINT64_C(0x3165736172687372) /* of this protocol and byte order */

/* How a rank can be found. */
typedef struct card {
    uint64_t magic, name[2], cookie[2], cookie_at;
} card;

/* The first bytes of a connection. */
typedef struct hello {
    uint64_t magic, cookie[2]; /* the listening rank's */
    int64_t  rank;             /* the connecting one */
} hello;

typedef struct meeting {
    rsi_house         *h;
    const rsd_meeting *with;
    rsi_rounds         rounds;
    int                listener;
    card              *cards; /* [size] */
    rsi_bytes          near;  /* int32_t: lower ranks that this one has connected to */
} meeting;

/* ---- listening and connecting ---- */

static socklen_t address_of(const uint64_t name[2], struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    /* the first byte stays 0: no name in the file system */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
                                        "reshard-%016" PRIx64 "%016" PRIx64, name[0], name[1]));
}

static rsd_err listen_here(meeting *m, card *mine, rsd_error *err)
{
    struct sockaddr_un addr;
    socklen_t          len;

    *mine = (card){ .magic = MAGIC, .cookie_at = (uint64_t)(uintptr_t)m->h->cookie };
    if (getrandom(mine->name, sizeof(mine->name), 0) != (ssize_t)sizeof(mine->name) ||
        getrandom(mine->cookie, sizeof(mine->cookie), 0) != (ssize_t)sizeof(mine->cookie))
        return rsi_fail_errno(err, RSD_E_COMM, errno, "no random numbers");
    memcpy(m->h->cookie, mine->cookie, sizeof(mine->cookie));
    m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0)
        return rsi_fail_errno(err, RSD_E_COMM, errno, "could not open a Unix socket");
    len = address_of(mine->name, &addr);
    if (bind(m->listener, (struct sockaddr *)&addr, len) != 0 || listen(m->listener, BACKLOG) != 0)
        return rsi_fail_errno(err, RSD_E_COMM, errno, "could not listen on a Unix socket");
    return RSD_OK;
}

/* Connects to a rank that may be on this machine. False: it is not. */
static bool connect_to(const meeting *m, int32_t rank)
{
    const card        *to = &m->cards[rank];
    struct sockaddr_un addr;
    socklen_t          len = address_of(to->name, &addr);
    hello              say = { MAGIC, { to->cookie[0], to->cookie[1] }, m->h->rank };
    int                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return false;
    if (connect(fd, (struct sockaddr *)&addr, len) != 0 ||
        send(fd, &say, sizeof(say), MSG_NOSIGNAL) != (ssize_t)sizeof(say)) {
        close(fd);
        return false;
    }
    m->h->wire[rank].fd = fd;
    m->h->wire[rank].near = true;
    return true;
}

static rsd_err connect_down(meeting *m, rsd_error *err)
{
    for (int32_t r = 0; r < m->h->rank && m->with->near != RSD_NEVER; r++)
        if (connect_to(m, r) && !rsi_bytes_add(&m->near, &r, sizeof(r)))
            return rsi_fail(err, RSD_E_NOMEM, "no memory to connect to %" PRId32 " ranks", r);
    return RSD_OK;
}

/* Takes the next connection, if it is from a rank that is expected. */
static bool accept_one(meeting *m, const bool *expected, int64_t wait_ms)
{
    struct pollfd p = { .fd = m->listener, .events = POLLIN };
    hello         said = { 0 };
    int           fd;
    bool          good;

    if (poll(&p, 1, (int)wait_ms) <= 0)
        return false;
    fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return false;
    p = (struct pollfd){ .fd = fd, .events = POLLIN };
    good = poll(&p, 1, HELLO_MS) > 0 && recv(fd, &said, sizeof(said), 0) == (ssize_t)sizeof(said) &&
           said.magic == MAGIC && memcmp(said.cookie, m->h->cookie, sizeof(said.cookie)) == 0 &&
           said.rank > m->h->rank && said.rank < m->h->size && expected[said.rank] &&
           m->h->wire[said.rank].fd < 0;
    if (!good) {
        close(fd);
        return false;
    }
    m->h->wire[said.rank].fd = fd;
    m->h->wire[said.rank].near = true;
    return true;
}

/* `lists` says which ranks have connected to which. Accepts the connections to this one. */
static rsd_err accept_up(meeting *m, const rsi_bytes *lists, rsd_error *err)
{
    rsi_reader in = { lists->at, lists->at + lists->len, false };
    int32_t    size = m->h->size, missing = 0;
    bool      *expected = rsi_calloc((size_t)size, sizeof(expected[0]));

    if (!expected)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", size);
    for (int32_t r = 0; r < size; r++) {
        uint64_t n = 0;
        int32_t  to = -1;

        rsi_read_copy(&in, &n, sizeof(n));
        for (; n > 0 && !in.cut; n -= sizeof(to)) {
            rsi_read_copy(&in, &to, sizeof(to));
            expected[r] = expected[r] || to == m->h->rank;
        }
        missing += expected[r];
    }
    while (missing > 0 && rsi_clock_ms() < m->rounds.until)
        missing -= accept_one(m, expected, 1000);
    rsi_free(expected);
    if (missing > 0)
        return rsi_fail(err, RSD_E_TIMEOUT, "%" PRId32 " ranks did not connect", missing);
    return RSD_OK;
}

/* ---- links to other machines ---- */

/* All ranks know from the lists whether any two of them have no connection. */
static bool any_far(int32_t size, const rsi_bytes *lists)
{
    uint64_t connections = 0, n;

    for (rsi_reader in = { lists->at, lists->at + lists->len, false };
         rsi_read_copy(&in, &n, sizeof(n)) && n <= lists->len;) {
        connections += n / sizeof(int32_t);
        rsi_read_next(&in, n);
    }
    return connections < (uint64_t)size * (uint64_t)(size - 1) / 2;
}

static rsd_err dial_far(meeting *m, rsd_error *err)
{
    rsi_house *h = m->h;
    int32_t   *rank = rsi_calloc((size_t)h->size, sizeof(rank[0]));
    int       *fd = rsi_calloc((size_t)h->size, sizeof(fd[0]));
    int32_t    n = 0;
    rsd_err    rc = RSD_OK;

    for (int32_t r = 0; r < h->size && rank; r++)
        if (r != h->rank && h->wire[r].fd < 0)
            rank[n++] = r;
    if (!rank || !fd)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", h->size);
    else if (!m->with->dial)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                      n ? "rank %" PRId32 " is on another machine, and there is no link to it"
                        : "some ranks are on other machines, and there is no link to them",
                      rank[0]);
    else
        rc = m->with->dial(m->with->arg, n, rank, fd, err);
    for (int32_t i = 0; i < n && !rc; i++)
        h->wire[rank[i]].fd = fd[i];
    rsi_free(rank);
    rsi_free(fd);
    return rc;
}

/* ---- all together ---- */

/* Finds out what can be done with the process at the other end. */
static void know_process(rsi_house *h, int32_t rank, const card *c)
{
    rsi_wire    *w = &h->wire[rank];
    struct ucred who;
    socklen_t    len = sizeof(who);
    uint64_t     got[2] = { 0 };
    struct iovec to = { got, sizeof(got) };
    struct iovec from = { (void *)(uintptr_t)c->cookie_at, sizeof(got) };

    if (!w->near || getsockopt(w->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 || who.pid <= 0)
        return;
    w->pid = who.pid;
    w->pid_fd = (int)syscall(SYS_pidfd_open, who.pid, 0);
    if (w->pid_fd >= 0 && !rsi_house_watch(h, w->pid_fd, rank, true)) {
        close(w->pid_fd);
        w->pid_fd = -1;
    }
    w->reads = process_vm_readv(w->pid, &to, 1, &from, 1, 0) == (ssize_t)sizeof(got) &&
               memcmp(got, c->cookie, sizeof(got)) == 0;
}

static rsd_err watch_all(meeting *m, rsd_error *err)
{
    rsi_house *h = m->h;

    for (int32_t r = 0; r < h->size; r++) {
        if (r == h->rank)
            continue;
        if (!rsi_house_watch(h, h->wire[r].fd, r, false))
            return rsi_fail_errno(err, RSD_E_COMM, errno, "could not watch a socket");
        know_process(h, r, &m->cards[r]);
    }
    return RSD_OK;
}

static rsd_err take_cards(meeting *m, const rsi_bytes *all, rsd_error *err)
{
    rsi_reader in = { all->at, all->at + all->len, false };
    bool       good = true;

    m->cards = rsi_calloc((size_t)m->h->size, sizeof(m->cards[0]));
    if (!m->cards)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->h->size);
    for (int32_t r = 0; r < m->h->size && good; r++) {
        uint64_t n;

        good = rsi_read_copy(&in, &n, sizeof(n)) && n == sizeof(m->cards[r]) &&
               rsi_read_copy(&in, &m->cards[r], sizeof(m->cards[r])) && m->cards[r].magic == MAGIC;
    }
    return good
               ? RSD_OK
               : rsi_fail(err, RSD_E_MISMATCH,
                          "the ranks have different versions of the library or different machines");
}

static rsd_err meet(meeting *m, rsd_error *err)
{
    rsi_bytes all = { 0 }, lists = { 0 }, none = { 0 };
    card      mine;
    rsd_err   rc = listen_here(m, &mine, err);

    rc = rsi_round(&m->rounds, "card", rc, &mine, sizeof(mine), &all, err);
    if (rc)
        goto out;
    rc = take_cards(m, &all, err);
    if (!rc)
        rc = connect_down(m, err);
    rc = rsi_round(&m->rounds, "near", rc, m->near.at, m->near.len, &lists, err);
    if (rc)
        goto out;
    rc = accept_up(m, &lists, err);
    if (!rc && any_far(m->h->size, &lists))
        rc = dial_far(m, err);
    if (!rc)
        rc = watch_all(m, err);
    rc = rsi_round(&m->rounds, "done", rc, NULL, 0, &none, err);
out:
    rsi_free(all.at);
    rsi_free(lists.at);
    rsi_free(none.at);
    rsi_free(m->near.at);
    rsi_free(m->cards);
    if (m->listener >= 0)
        close(m->listener);
    return rc;
}

static void wire_init(rsi_wire *w)
{
    w->fd = w->pid_fd = -1;
    w->end = &w->first;
    w->offered.end = &w->offered.first;
    w->streams.end = &w->streams.first;
    w->filling.end = &w->filling.first;
    w->settling.end = &w->settling.first;
}

static rsi_house *house_create(int32_t rank, int32_t size)
{
    rsi_house         *h = rsi_calloc(1, sizeof(*h));
    pthread_condattr_t attr;

    if (!h)
        return NULL;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->change, &attr);
    pthread_condattr_destroy(&attr);
    h->pid = getpid();
    h->rank = rank;
    h->size = size;
    h->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->buffer = rsi_calloc(1, RSI_WIRE_BUFFER);
    h->wire = rsi_calloc((size_t)size, sizeof(h->wire[0]));
    for (int32_t r = 0; r < size && h->wire; r++)
        wire_init(&h->wire[r]);
    if (h->poll_fd >= 0 && h->wake_fd >= 0 && h->buffer && h->wire &&
        rsi_house_watch(h, h->wake_fd, -1, false))
        return h;
    rsi_house_free(h);
    return NULL;
}

/* The group of all ranks, whose id is 0. */
static rsi_group *open_all(rsi_house *h)
{
    int32_t   *ranks = rsi_calloc((size_t)h->size, sizeof(ranks[0]));
    rsi_group *g = NULL;

    for (int32_t r = 0; r < h->size && ranks; r++)
        ranks[r] = r;
    if (ranks)
        g = rsi_group_open(h, 0, h->rank, h->size, ranks);
    rsi_free(ranks);
    return g;
}

rsd_err rsd_comm_create_processes(int32_t rank, int32_t count, const rsd_meeting *with,
                                  rsd_comm **out, rsd_error *err)
{
    rsd_meeting known = { .size = 0 };
    meeting     m = { .with = &known, .listener = -1 };
    rsi_group  *g;
    rsd_err     rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    rc = rsi_meeting_take(rank, count, with, out, &known, err);
    if (rc)
        return rc;
    m.rounds = rsi_rounds_begin(rank, count, &known);
    m.h = house_create(rank, count);
    if (!m.h)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " processes", count);
    g = open_all(m.h);
    rc = g ? meet(&m, err) : rsi_fail(err, RSD_E_NOMEM, "no memory for a comm");
    if (!rc)
        rc = rsd_comm_create_custom(&rsi_processes_ops, g, out, err);
    if (!rc)
        m.h->meeting = known;
    else if (g)
        rsi_processes_ops.close(g);
    else
        rsi_house_free(m.h);
    return rc;
}
