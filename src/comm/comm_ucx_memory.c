/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of one machine share: each rank's part of an alloc is an anonymous file, which
 * others open through /proc. That it is the one they mean is seen by its name, which holds a
 * random number from the meeting: where the process number means another process, or none, the
 * memory can't be reached, and messages are used. Nothing is left of it after a crash. Next:
 * comm_ucx_open.c. */
#include "comm/comm_ucx_end.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VOTE_MS 60000 /* for ranks that are in the same call */

enum { NAME_MAX_BYTES = 96 };

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

/* The file of a rank's alloc, whose descriptor stays open so that others find it. */
static void name_file(const rsi_ucx_card *of, uint64_t group, uint64_t id,
                      char name[NAME_MAX_BYTES])
{
    snprintf(name, NAME_MAX_BYTES, "reshard-%016" PRIx64 "%016" PRIx64 "-%" PRIx64 "-%" PRIu64,
             of->cookie[0], of->cookie[1], group, id);
}

/* ---- own memory ---- */

typedef struct window {
    rsi_window w; /* first */
    int        fd;
} window;

static void free_window(rsi_window *w)
{
    window *own = (window *)w;

    if (w->shared)
        munmap(w->base, whole_pages(w->bytes));
    else
        rsi_free(w->base);
    if (own->fd >= 0)
        close(own->fd);
    rsi_free(own);
}

static void open_window(const rsi_ucx_end *e, window *own)
{
    size_t bytes = whole_pages(own->w.bytes);
    char   name[NAME_MAX_BYTES];

    name_file(&e->family->peer[e->family->rank].card, e->id, own->w.id, name);
    own->fd = memfd_create(name, MFD_CLOEXEC);
    if (own->fd >= 0 && ftruncate(own->fd, (off_t)bytes) == 0)
        own->w.base = map(own->fd, bytes);
    own->w.shared = own->w.base != NULL;
    if (!own->w.base)
        own->w.base = rsi_alloc_aligned(RSI_WINDOW_PAGE, bytes);
    own->w.data = own->w.base;
}

rsd_err rsi_ucx_alloc(void *self, size_t bytes, void **out, rsd_error *err)
{
    rsi_ucx_end    *e = self;
    rsi_ucx_family *f = e->family;
    window         *own;
    bool            all = false;
    rsd_err         rc = rsi_ucx_enter(f, err);

    if (rc)
        return rc;
    own = bytes < SIZE_MAX - RSI_WINDOW_PAGE ? rsi_calloc(1, sizeof(*own)) : NULL;
    e->allocs++;
    if (own) {
        *own = (window){ .w = { .id = e->allocs, .bytes = bytes }, .fd = -1 };
        open_window(e, own);
    }
    rc = rsi_ucx_all(f, e, own && own->w.data, VOTE_MS, &all, err);
    if (!rc && !all)
        rc =
            rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks can reach", bytes);
    if (!rc) {
        rsi_window_add(&e->windows, &own->w);
        *out = own->w.data;
    } else if (own) {
        free_window(&own->w);
    }
    rsi_ucx_unlock(f);
    return rc;
}

rsd_err rsi_ucx_expose(void *self, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err)
{
    rsi_ucx_end *e = self;
    rsd_err      rc = rsi_ucx_lock(e->family, err);

    if (rc)
        return rc;
    rc = rsi_window_expose(&e->windows, data, bytes, out, err);
    if (!rc)
        out->word[3] = (uint64_t)((const window *)rsi_window_find(&e->windows, out->word[0]))->fd;
    rsi_ucx_unlock(e->family);
    return rc;
}

/* ---- memory of others ---- */

/* Frees those with one number, or all. */
static void free_shares(rsi_ucx_end *e, uint64_t id, bool all)
{
    rsi_share **at = &e->shares;

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

void rsi_ucx_memory_free(rsi_ucx_end *e)
{
    free_shares(e, 0, true);
    while (e->windows.first)
        free_window(rsi_window_take(&e->windows, e->windows.first->data));
}

void rsi_ucx_dealloc(void *self, void *data)
{
    rsi_ucx_end *e = self;
    rsi_window  *w;
    rsd_error    err;

    if (rsi_ucx_lock(e->family, &err))
        return;
    w = rsi_window_take(&e->windows, data);
    if (w) {
        free_shares(e, w->id, false);
        free_window(w);
    }
    rsi_ucx_unlock(e->family);
}

/* Opens the file if it is the one that the rank made. */
static void open_share(const rsi_ucx_end *e, rsi_share *s, uint64_t theirs)
{
    const rsi_ucx_card *card = &e->family->peer[s->owner].card;
    char                path[64], link[NAME_MAX_BYTES + 32] = "", name[NAME_MAX_BYTES];
    struct stat         st;
    ssize_t             len;
    int                 fd = -1;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRIu64, card->pid, theirs);
    name_file(card, e->id, s->id, name);
    len = readlink(path, link, sizeof(link) - 1);
    if (len > 0 && strncmp(link, "/memfd:", 7) == 0 && strncmp(link + 7, name, strlen(name)) == 0 &&
        strchr(" ", link[7 + strlen(name)]))
        fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
        s->bytes = (size_t)st.st_size;
        s->base = map(fd, s->bytes);
    }
    if (fd >= 0)
        close(fd);
}

/* The share of that rank and alloc; opened at the first call. NULL: no memory. */
static const rsi_share *find_share(rsi_ucx_end *e, int32_t owner, const rsd_exposed *what)
{
    rsi_share *s = e->shares;

    while (s && (s->owner != owner || s->id != what->word[0]))
        s = s->next;
    if (s)
        return s;
    s = rsi_calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    *s = (rsi_share){ .next = e->shares, .owner = owner, .id = what->word[0] };
    open_share(e, s, what->word[3]);
    e->shares = s;
    return s;
}

static rsd_err reach_locked(rsi_ucx_end *e, int32_t owner, const rsd_exposed *what, void **out,
                            rsd_error *err)
{
    const int32_t     rank = e->ranks[owner];
    const rsi_window *w = rsi_window_find(&e->windows, what->word[0]);
    const rsi_share  *s;

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
