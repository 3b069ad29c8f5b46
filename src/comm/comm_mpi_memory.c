/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of one machine share through an MPI window. If no window is available, it is
 * ordinary memory that can't be exposed: slower, never wrong. */
#include "comm/comm_mpi_end.h"
#include "base/mem.h"

#include <inttypes.h>

#define PAGE_BYTES RSI_WINDOW_PAGE

typedef struct rsi_mpi_window {
    rsi_window own;
    MPI_Win    window; /* MPI_WIN_NULL: ordinary memory */
} rsi_mpi_window;

static char *next_page(char *p)
{
    return p + (PAGE_BYTES - (uintptr_t)p % PAGE_BYTES) % PAGE_BYTES;
}

/* All ranks must complete a step before the next, which is collective. False: there is no window,
 * or some ranks lack it; then it stays unused until the end because freeing it takes all ranks. */
static bool open_window(rsi_mpi_end *me, rsi_mpi_window *w)
{
    MPI_Info info = MPI_INFO_NULL;
    int      code;
    bool     good;

    if (me->node == MPI_COMM_NULL && MPI_Comm_split_type(me->comm, MPI_COMM_TYPE_SHARED, 0,
                                                         MPI_INFO_NULL, &me->node) != MPI_SUCCESS)
        me->node = MPI_COMM_NULL;
    if (!rsi_mpi_all(me->comm, me->node != MPI_COMM_NULL))
        return false;
    /* Each rank has its own part, on pages that it touches first. */
    if (MPI_Info_create(&info) == MPI_SUCCESS)
        MPI_Info_set(info, "alloc_shared_noncontig", "true");
    MPI_Comm_set_errhandler(me->node, MPI_ERRORS_RETURN);
    code = MPI_Win_allocate_shared((MPI_Aint)(w->own.bytes + PAGE_BYTES), 1, info, me->node,
                                   &w->own.base, &w->window);
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    good = code == MPI_SUCCESS;
    if (good) {
        MPI_Win_set_errhandler(w->window, MPI_ERRORS_RETURN);
        /* One epoch for the window's whole life: loads and stores, ordered by messages. */
        good = MPI_Win_lock_all(MPI_MODE_NOCHECK, w->window) == MPI_SUCCESS;
    }
    return rsi_mpi_all(me->comm, good);
}

rsd_err rsi_mpi_alloc(void *self, size_t bytes, void **out, rsd_error *err)
{
    rsi_mpi_end    *me = self;
    rsi_mpi_window *w;
    char           *plain = NULL;
    rsd_err         rc = rsi_mpi_broken(me, err);

    if (rc)
        return rc;
    me->allocs++;
    w = bytes < PTRDIFF_MAX - 2 * PAGE_BYTES ? rsi_calloc(1, sizeof(*w)) : NULL;
    if (!rsi_mpi_all(me->comm, w != NULL)) {
        rsi_free(w);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes on each rank", bytes);
    }
    w->own = (rsi_window){ .id = me->allocs, .bytes = bytes };
    w->own.shared = open_window(me, w);
    if (w->own.shared) {
        w->own.data = next_page(w->own.base);
    } else {
        w->window = MPI_WIN_NULL;
        plain = rsi_alloc_aligned(PAGE_BYTES, bytes);
        if (!rsi_mpi_all(me->comm, plain != NULL)) {
            rsi_free(plain);
            rsi_free(w);
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes on each rank", bytes);
        }
        w->own.base = w->own.data = plain;
    }
    rsi_window_add(&me->windows, &w->own);
    *out = w->own.data;
    return RSD_OK;
}

void rsi_mpi_dealloc(void *self, void *data)
{
    rsi_mpi_end    *me = self;
    rsi_mpi_window *w = (rsi_mpi_window *)rsi_window_take(&me->windows, data);

    if (!w)
        return;
    if (w->window == MPI_WIN_NULL) {
        rsi_free(w->own.base);
    } else if (!me->family->broken) { /* else nobody knows which ranks would free it too */
        MPI_Win_unlock_all(w->window);
        MPI_Win_free(&w->window);
    }
    rsi_free(w);
}

rsd_err rsi_mpi_expose(void *self, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err)
{
    rsi_mpi_end *me = self;

    return rsi_window_expose(&me->windows, data, bytes, out, err);
}

rsd_err rsi_mpi_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                      rsd_error *err)
{
    rsi_mpi_end          *me = self;
    const rsi_mpi_window *w;
    MPI_Group             all, near;
    MPI_Aint              bytes = 0;
    int                   there = owner, here = MPI_UNDEFINED, unit, code;
    char                 *base = NULL;

    w = (const rsi_mpi_window *)rsi_window_find(&me->windows, what->word[0]);
    if (!w)
        return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " has no such exposed memory", owner);
    MPI_Comm_group(me->comm, &all);
    MPI_Comm_group(me->node, &near);
    MPI_Group_translate_ranks(all, 1, &there, near, &here);
    MPI_Group_free(&all);
    MPI_Group_free(&near);
    if (here == MPI_UNDEFINED)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "rank %" PRId32 " is on another machine", owner);
    code = MPI_Win_shared_query(w->window, here, &bytes, &unit, &base);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Win_shared_query", err);
    return rsi_window_reach(owner, what, base, (uint64_t)bytes, out, err);
}
