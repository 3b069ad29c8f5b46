/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes of one machine share: the descriptors of the files that shared_file.c makes
 * go over the wire. Next: processes_meet.c. */
#include "comm/processes.h"
#include "comm/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#define SHARE_MS 60000 /* for the descriptors of ranks that are in the same call */

void rsi_share_came(rsi_group *g, int32_t from, const rsi_frame *head, int fd)
{
    rsd_error err;

    if (!rsi_peer_memory_add(&g->memory, from, head->number, fd, head->bytes)) {
        rsi_fail(&err, RSD_E_NOMEM, "rank %" PRId32 ": no memory to share", g->house->rank);
        err.rank = g->house->rank;
        err.nfailed = 1;
        rsi_house_break(g->house, &err);
    }
    if (fd >= 0)
        close(fd);
}

/* Tells the ranks of this machine, with a descriptor if there is one; `w` NULL: no memory. */
static bool tell_near(rsi_group *g, const rsi_window *w)
{
    rsi_house *h = g->house;
    rsi_frame  head = { .kind = RSI_FRAME_SHARE, .group = g->id, .number = g->memory.allocs };
    bool       ok = true;

    head.bytes = w ? rsi_whole_pages(w->bytes) : 0;
    for (int32_t i = 0; i < g->size && ok; i++) {
        int32_t to = g->ranks[i];
        int     copy = -1;

        if (to == h->rank || !h->wire[to].near)
            continue;
        if (w && w->fd >= 0)
            copy = fcntl(w->fd, F_DUPFD_CLOEXEC, 0);
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

        while (!rc && from != h->rank && h->wire[from].near &&
               !rsi_peer_memory_find(&g->memory, from, id)) {
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
    rsd_err     rc = rsi_house_enter(h, err);

    if (rc)
        return rc;
    w = rsi_shared_window(++g->memory.allocs, bytes, "reshard");
    if (!tell_near(g, w) || !w || !w->data)
        rc =
            rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks can reach", bytes);
    if (w)
        rsi_shared_window_close(w);
    if (!rc)
        rc = hear_near(g, g->memory.allocs, err);
    if (!rc) {
        rsi_window_add(&g->memory.windows, w);
        *out = w->data;
    } else if (w) {
        rsi_shared_window_free(w);
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

void rsi_processes_dealloc(void *self, void *data)
{
    rsi_group *g = self;
    rsi_house *h = g->house;

    if (h->pid != getpid())
        return;
    pthread_mutex_lock(&h->lock);
    rsi_shared_dealloc(&g->memory, data);
    pthread_mutex_unlock(&h->lock);
}

rsd_err rsi_processes_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                             rsd_error *err)
{
    rsi_group *g = self;
    rsd_err    rc;

    pthread_mutex_lock(&g->house->lock);
    rc = rsi_window_expose(&g->memory.windows, data, bytes, out, err);
    pthread_mutex_unlock(&g->house->lock);
    return rc;
}

static rsd_err reach_locked(rsi_group *g, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err)
{
    const rsi_house       *h = g->house;
    int32_t                rank = g->ranks[owner];
    const rsi_window      *w = rsi_window_find(&g->memory.windows, what->word[0]);
    const rsi_peer_memory *s = rsi_peer_memory_find(&g->memory, rank, what->word[0]);

    if (rank == h->rank && w)
        return rsi_window_reach(rank, what, w->base, w->bytes, out, err);
    if (rank != h->rank && !h->wire[rank].near)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "rank %" PRId32 " is on another machine", rank);
    if (!s)
        return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " has no such exposed memory", rank);
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
