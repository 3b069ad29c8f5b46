/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of one machine share: others open the files that shared_file.c makes through
 * /proc. They recognise a file by its name, which holds a random number from the meeting: where the
 * process number means another process, or none, the memory can't be reached, and messages are
 * used. Next: comm_ucx_open.c. */
#include "comm/comm_ucx_end.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VOTE_MS 60000 /* for ranks that are in the same call */

enum { NAME_MAX_BYTES = 96 };

/* The file of a rank's alloc, whose descriptor stays open so that others find it. */
static void name_file(const rsi_ucx_card *of, uint64_t group, uint64_t id,
                      char name[NAME_MAX_BYTES])
{
    snprintf(name, NAME_MAX_BYTES, "reshard-%016" PRIx64 "%016" PRIx64 "-%" PRIx64 "-%" PRIu64,
             of->cookie[0], of->cookie[1], group, id);
}

rsd_err rsi_ucx_alloc(void *self, size_t bytes, void **out, rsd_error *err)
{
    rsi_ucx_end    *e = self;
    rsi_ucx_family *f = e->family;
    char            name[NAME_MAX_BYTES];
    rsi_window     *w;
    bool            all = false;
    rsd_err         rc = rsi_ucx_enter(f, err);

    if (rc)
        return rc;
    e->memory.allocs++;
    name_file(&f->peer[f->rank].card, e->id, e->memory.allocs, name);
    w = rsi_shared_window(e->memory.allocs, bytes, name);
    rc = rsi_ucx_all(f, e, w && w->data, VOTE_MS, &all, err);
    if (!rc && !all)
        rc =
            rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks can reach", bytes);
    if (!rc) {
        rsi_window_add(&e->memory.windows, w);
        *out = w->data;
    } else if (w) {
        rsi_shared_window_free(w);
    }
    rsi_ucx_unlock(f);
    return rc;
}

void rsi_ucx_dealloc(void *self, void *data)
{
    rsi_ucx_end *e = self;
    rsd_error    err;

    if (rsi_ucx_lock(e->family, &err))
        return;
    rsi_shared_dealloc(&e->memory, data);
    rsi_ucx_unlock(e->family);
}

rsd_err rsi_ucx_expose(void *self, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err)
{
    rsi_ucx_end *e = self;
    rsd_err      rc = rsi_ucx_lock(e->family, err);

    if (rc)
        return rc;
    rc = rsi_window_expose(&e->memory.windows, data, bytes, out, err);
    if (!rc)
        out->word[3] = (uint64_t)rsi_window_find(&e->memory.windows, out->word[0])->fd;
    rsi_ucx_unlock(e->family);
    return rc;
}

/* The file of another rank's alloc, if it is the one that the rank made; -1: it can't be opened. */
static int open_theirs(const rsi_ucx_end *e, int32_t owner, const rsd_exposed *what)
{
    const rsi_ucx_card *card = &e->family->peer[owner].card;
    char                path[64], link[NAME_MAX_BYTES + 32] = "", name[NAME_MAX_BYTES];
    ssize_t             len;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRIu64, card->pid, what->word[3]);
    name_file(card, e->id, what->word[0], name);
    len = readlink(path, link, sizeof(link) - 1);
    if (len > 0 && strncmp(link, "/memfd:", 7) == 0 && strncmp(link + 7, name, strlen(name)) == 0 &&
        strchr(" ", link[7 + strlen(name)]))
        return open(path, O_RDWR | O_CLOEXEC);
    return -1;
}

/* The share of that rank and alloc; opened at the first call. NULL: no memory. */
static const rsi_peer_memory *find_share(rsi_ucx_end *e, int32_t owner, const rsd_exposed *what)
{
    const rsi_peer_memory *s = rsi_peer_memory_find(&e->memory, owner, what->word[0]);
    struct stat            st = { 0 };
    int                    fd;

    if (s)
        return s;
    fd = open_theirs(e, owner, what);
    if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_size <= 0)) {
        close(fd);
        fd = -1;
    }
    s = rsi_peer_memory_add(&e->memory, owner, what->word[0], fd, (size_t)st.st_size);
    if (fd >= 0)
        close(fd);
    return s;
}

static rsd_err reach_locked(rsi_ucx_end *e, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err)
{
    const int32_t          rank = e->ranks[owner];
    const rsi_window      *w = rsi_window_find(&e->memory.windows, what->word[0]);
    const rsi_peer_memory *s;

    if (!w)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "memory was not allocated on all ranks");
    if (rank == e->family->rank)
        return rsi_window_reach(rank, what, w->base, w->bytes, out, err);
    s = find_share(e, rank, what);
    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to reach that of rank %" PRId32, rank);
    if (!s->base)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "the memory of rank %" PRId32 " can't be reached from here", rank);
    return rsi_window_reach(rank, what, s->base, s->bytes, out, err);
}

rsd_err rsi_ucx_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                      rsd_error *err)
{
    rsi_ucx_end *e = self;
    rsd_err      rc = rsi_ucx_lock(e->family, err);

    if (rc)
        return rc;
    rc = reach_locked(e, owner, what, out, err);
    rsi_ucx_unlock(e->family);
    return rc;
}
