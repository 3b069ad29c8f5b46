/* SPDX-License-Identifier: Apache-2.0 */
/* Distributes the reads of a load over threads. Views no larger than one thread's share are read in
 * parallel, small ones in groups; the few larger ones follow one by one, each read by all threads.
 * fetch.c reads one view. */
#include "read/fetch_all.h"
#include "base/mem.h"
#include "read/fetch.h"
#include "view/recast.h"

#include <stdlib.h>

#define GROUP_BYTES ((int64_t)1 << 20) /* bytes of small views per group */
#define GROUP_VIEWS 64
#define LARGE       ((int64_t)8 << 20) /* from this size on, using all threads pays off */

typedef struct group {
    size_t first, end; /* of order[] */
} group;

typedef struct fetching {
    rsd_ckpt            *ckpt;
    const rsi_want      *want;
    const rsd_read_opts *opts;
    rsi_fetch_tools      tools;
    size_t              *order; /* wants: groups first, then the large ones */
    group               *group;
    size_t               ngroups, nlarge;
} fetching;

static int64_t bytes_of(const fetching *f, size_t i)
{
    rsd_tensor_info info;

    f->ckpt->ops->tensor(f->ckpt, f->want[i].t, &info);
    return rsd_box_count(&f->want[i].view->box) * (int64_t)rsd_dtype_size(info.dtype);
}

static rsd_err fetch_one(const fetching *f, size_t i, rsi_workers *workers, rsd_error *err)
{
    const rsi_want *w = &f->want[i];
    rsi_fetch_tools tools = { .pool = f->tools.pool, .workers = workers, .taker = w->taker };
    rsi_recast      recast = { .to = w->view, .to_dtype = w->dtype };
    rsd_tensor_info info;
    rsd_view        view;

    f->ckpt->ops->tensor(f->ckpt, w->t, &info);
    if (info.dtype == w->dtype)
        return rsi_fetch_with(&tools, f->ckpt, w->t, w->view, f->opts, err);
    recast.from_dtype = info.dtype;
    rsi_recast_view(&recast, &view);
    return rsi_fetch_with(&tools, f->ckpt, w->t, &view, f->opts, err);
}

static rsd_err fetch_group(void *arg, size_t g, rsd_error *err)
{
    const fetching *f = arg;

    for (size_t k = f->group[g].first; k < f->group[g].end; k++) {
        rsd_err rc = fetch_one(f, f->order[k], NULL, err);

        if (rc)
            return rc;
    }
    return RSD_OK;
}

/* Fills order[] and group[]. */
static void share_out(fetching *f, size_t n)
{
    int64_t total = 0, threads = rsi_workers_count(f->tools.workers), in_group = 0;
    size_t  side = 0;

    for (size_t i = 0; i < n; i++)
        total += bytes_of(f, i);
    for (size_t i = 0; i < n; i++) {
        int64_t bytes = bytes_of(f, i);
        group  *last = f->ngroups ? &f->group[f->ngroups - 1] : NULL;

        if (threads > 1 && bytes >= LARGE && bytes > total / threads) {
            f->order[n - ++f->nlarge] = i;
            continue;
        }
        if (!last || in_group + bytes > GROUP_BYTES || last->end - last->first == GROUP_VIEWS) {
            last = &f->group[f->ngroups++];
            *last = (group){ .first = side };
            in_group = 0;
        }
        f->order[side++] = i;
        last->end = side;
        in_group += bytes;
    }
}

rsd_err rsi_fetch_all(rsd_ckpt *ckpt, const rsi_want *want, size_t n, const rsd_read_opts *opts,
                      rsd_error *err)
{
    fetching f = { .ckpt = ckpt, .want = want, .opts = opts };
    rsd_err  rc = RSD_OK;

    f.order = rsi_calloc(n, sizeof(f.order[0]));
    f.group = rsi_calloc(n, sizeof(f.group[0]));
    if (!f.order || !f.group)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", n);
    if (!rc)
        rc = rsi_workers_create(opts->threads, &f.tools.workers, err);
    if (!rc)
        rc = rsi_fetch_pool(opts->max_memory, &f.tools.pool, err);
    if (!rc) {
        share_out(&f, n);
        rc = rsi_workers_run(f.tools.workers, f.ngroups, fetch_group, &f, err);
    }
    for (size_t k = n - f.nlarge; k < n && !rc; k++)
        rc = fetch_one(&f, f.order[k], f.tools.workers, err);
    rsi_workers_free(f.tools.workers);
    rsi_pool_free(f.tools.pool);
    rsi_free(f.order);
    rsi_free(f.group);
    return rc;
}
