/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes of one machine share: each rank's part of an alloc is an anonymous file,
 * whose descriptor goes over the wire. It has no name, so nothing is left of it after a crash, and
 * the size of /dev/shm does not matter. If no file can be had, it is ordinary memory that can't be
 * exposed: slower, never wrong. Next: processes_meet.c. */
#include "comm/processes.h"
#include "comm/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARE_MS 60000 /* for the descriptors of ranks that are in the same call */

/* Memory of another rank. */
typedef struct rsi_share {
    struct rsi_share *next;
    int32_t           owner; /* in the first group */
    uint64_t          id;    /* number of the alloc */
    char             *base;  /* NULL: it can't be mapped here */
    size_t            bytes;
} rsi_share;

static size_t whole_pages(size_t bytes)
{
    return (bytes ? bytes + RSI_WINDOW_PAGE - 1 : RSI_WINDOW_PAGE) / RSI_WINDOW_PAGE *
           RSI_WINDOW_PAGE;
}

static char *map(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

void rsi_share_came(rsi_group *g, int32_t from, const rsi_frame *head, int fd)
{
    rsi_share *s = rsi_calloc(1, sizeof(*s));
    rsd_error  err;

    if (s) {
        *s = (rsi_share){ .owner = from, .id = head->number, .bytes = head->bytes };
        if (fd >= 0)
            s->base = map(fd, s->bytes);
        s->next = g->shares;
        g->shares = s;
    } else {
        rsi_fail(&err, RSD_E_NOMEM, "rank %" PRId32 ": no memory to share", g->house->rank);
        err.rank = g->house->rank;
        err.nfailed = 1;
        rsi_house_break(g->house, &err);
    }
    if (fd >= 0)
        close(fd);
}

/* Frees those with one number, or all. */
static void free_shares(rsi_group *g, uint64_t id, bool all)
{
    rsi_share **at = &g->shares;

    while (*at) {
        rsi_share *s = *at;

        if (!all && s->id != id) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (s->base)
            munmap(s->base, s->bytes);
        rsi_free(s);
    }
}

static void free_window(rsi_window *w)
{
    if (w->shared)
        munmap(w->base, whole_pages(w->bytes));
    else
        rsi_free(w->base);
    rsi_free(w);
}

void rsi_shares_free(rsi_group *g)
{
    free_shares(g, 0, true);
    while (g->windows.first)
        free_window(rsi_window_take(&g->windows, g->windows.first->data));
}

static const rsi_share *find_share(const rsi_group *g, int32_t owner, uint64_t id)
{
    const rsi_share *s = g->shares;

    while (s && (s->owner != owner || s->id != id))
        s = s->next;
    return s;
}

/* Maps `w` on a new file; returns its descriptor, or -1. */
static int open_window(rsi_window *w)
{
    size_t bytes = whole_pages(w->bytes);
    int    fd = memfd_create("reshard", MFD_CLOEXEC);

    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)bytes) == 0)
        w->base = w->data = map(fd, bytes);
    w->shared = w->base;
    if (!w->shared) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Tells the ranks of this machine, with a descriptor if there is one. */
static bool tell_near(rsi_group *g, const rsi_window *w, int fd)
{
    rsi_house *h = g->house;
    rsi_frame  head = { .kind = RSI_FRAME_SHARE, .group = g->id, .number = w->id };
    bool       ok = true;

    head.bytes = whole_pages(w->bytes);
    for (int32_t i = 0; i < g->size && ok; i++) {
        int32_t to = g->ranks[i];
        int     copy = -1;

        if (to == h->rank || !h->wire[to].near)
            continue;
        if (fd >= 0)
            copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        head.at = copy >= 0;
        ok = rsi_wire_send(h, to, &head, NULL, 0, copy);
    }
    return ok;
}

/* Waits for the descriptors of the others. */
static rsd_err hear_near(rsi_group *g, uint64_t id, rsd_error *err)
{
    rsi_house *h = g->house;
    int64_t    until = rsi_clock_ms() + SHARE_MS;
    rsd_err    rc = RSD_OK;

    for (int32_t i = 0; i < g->size && !rc; i++) {
        int32_t from = g->ranks[i];

        while (!rc && from != h->rank && h->wire[from].near && !find_share(g, from, id)) {
            if (rsi_clock_ms() >= until)
                rc = rsi_fail(err, RSD_E_TIMEOUT, "rank %" PRId32 " shared no memory", from);
            rsi_house_pump(h, until);
            rc = rc ? rc : rsi_house_usable(h, err);
        }
    }
    return rc;
}

rsd_err rsi_processes_alloc(void *self, size_t bytes, void **out, rsd_error *err)
{
    rsi_group  *g = self;
    rsi_house  *h = g->house;
    rsi_window *w;
    int         fd = -1;
    rsd_err     rc = rsi_house_enter(h, err);

    if (rc)
        return rc;
    w = bytes < PTRDIFF_MAX - 2 * RSI_WINDOW_PAGE ? rsi_calloc(1, sizeof(*w)) : NULL;
    if (w) {
        *w = (rsi_window){ .id = g->allocs + 1, .bytes = bytes };
        fd = open_window(w);
        if (fd < 0)
            w->base = w->data = rsi_alloc_aligned(RSI_WINDOW_PAGE, whole_pages(bytes));
    }
    g->allocs++;
    if (!tell_near(g, w ? w : &(rsi_window){ .id = g->allocs }, fd) || !w || !w->data)
        rc =
            rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks can reach", bytes);
    if (fd >= 0)
        close(fd);
    if (!rc)
        rc = hear_near(g, g->allocs, err);
    if (!rc) {
        rsi_window_add(&g->windows, w);
        *out = w->data;
    } else if (w) {
        free_window(w);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void rsi_processes_dealloc(void *self, void *data)
{
    rsi_group  *g = self;
    rsi_house  *h = g->house;
    rsi_window *w;

    if (h->pid != getpid())
        return;
    pthread_mutex_lock(&h->lock);
    w = rsi_window_take(&g->windows, data);
    if (w) {
        free_shares(g, w->id, false);
        free_window(w);
    }
    pthread_mutex_unlock(&h->lock);
}

rsd_err rsi_processes_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                             rsd_error *err)
{
    rsi_group *g = self;
    rsd_err    rc;

    pthread_mutex_lock(&g->house->lock);
    rc = rsi_window_expose(&g->windows, data, bytes, out, err);
    pthread_mutex_unlock(&g->house->lock);
    return rc;
}

static rsd_err reach_locked(rsi_group *g, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err)
{
    const rsi_house  *h = g->house;
    int32_t           rank = g->ranks[owner];
    const rsi_window *w = rsi_window_find(&g->windows, what->word[0]);
    const rsi_share  *s = find_share(g, rank, what->word[0]);

    if (rank == h->rank && w)
        return rsi_window_reach(rank, what, w->base, w->bytes, out, err);
    if (rank != h->rank && !h->wire[rank].near)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "rank %" PRId32 " is on another machine", rank);
    if (!s)
        return rsi_fail(err, RSD_E_INVALID, "what rank %" PRId32 " exposed is not there", rank);
    if (!s->base)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "the memory of rank %" PRId32 " can't be mapped",
                        rank);
    return rsi_window_reach(rank, what, s->base, s->bytes, out, err);
}

rsd_err rsi_processes_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err)
{
    rsi_group *g = self;
    rsd_err    rc;

    pthread_mutex_lock(&g->house->lock);
    rc = reach_locked(g, owner, what, out, err);
    pthread_mutex_unlock(&g->house->lock);
    return rc;
}
