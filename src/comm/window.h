/* SPDX-License-Identifier: Apache-2.0 */
/* The list of memory from alloc that one rank shares, for transports whose ranks are processes: the
 * nth alloc is the same on all ranks, so its number and an offset tell others where to look. */
#ifndef RSI_WINDOW_H
#define RSI_WINDOW_H

#include "base/error.h"
#include "base/mem.h"

#include <reshard/reshard_plugin.h>

#define RSI_WINDOW_PAGE 4096

typedef struct rsi_window {
    struct rsi_window *next;
    uint64_t           id;     /* number of the alloc that made it */
    bool               shared; /* else ordinary memory */
    char              *base;   /* where the shared memory begins, */
    char              *data;   /* and the first page in it */
    size_t             bytes;  /* from `data` on */
    int                fd;     /* of shared_file.c: its file; -1: none, or closed */
} rsi_window;

typedef struct rsi_windows {
    rsi_window *first;
} rsi_windows;

static inline void rsi_window_add(rsi_windows *all, rsi_window *w)
{
    w->next = all->first;
    all->first = w;
}

/* Takes the one that begins at `data` out of the list; NULL: none does. */
static inline rsi_window *rsi_window_take(rsi_windows *all, const void *data)
{
    rsi_window **at = &all->first;
    rsi_window  *w;

    while (*at && (*at)->data != data)
        at = &(*at)->next;
    w = *at;
    if (w)
        *at = w->next;
    return w;
}

/* NULL: no shared one has that number. */
static inline const rsi_window *rsi_window_find(const rsi_windows *all, uint64_t id)
{
    const rsi_window *w = all->first;

    while (w && (w->id != id || !w->shared))
        w = w->next;
    return w;
}

/* Fills *out with a window's number, the offset from its base, and the bytes. */
static inline rsd_err rsi_window_expose(const rsi_windows *all, const void *data, size_t bytes,
                                        rsd_exposed *out, rsd_error *err)
{
    uintptr_t at = (uintptr_t)data;

    for (const rsi_window *w = all->first; w; w = w->next) {
        uintptr_t from = (uintptr_t)w->data;

        if (!w->shared || at < from || at - from > w->bytes || bytes > w->bytes - (at - from))
            continue;
        *out = (rsd_exposed){ { w->id, (uint64_t)(at - (uintptr_t)w->base), bytes } };
        return RSD_OK;
    }
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "other ranks can reach only memory from rsd_comm_alloc, and not always that");
}

/* Finds what another rank exposed in its memory, which is mapped here. */
static inline rsd_err rsi_window_reach(int32_t owner, const rsd_exposed *what, char *base,
                                       uint64_t bytes, void **out, rsd_error *err)
{
    if (what->word[1] > bytes || what->word[2] > bytes - what->word[1])
        return rsi_fail(err, RSD_E_INVALID, "the range that rank %d exposed is outside its memory",
                        (int)owner);
    *out = base + what->word[1];
    return RSD_OK;
}

#endif
