/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a caller's views with boxes of made tensors, block by block on all threads. made_read.c
 * brings the bytes. */
#include "base/checked.h"
#include "base/mem.h"
#include "plan/copy.h"
#include "read/made_read.h"
#include "shape/box.h"
#include "view/recast.h"
#include "view/views.h"

#define BLOCK ((int64_t)1 << 20) /* bytes made at once */
/* Bytes of one thread: a block, those of made_read.c, and a buffer of fetch.c. */
#define EACH (BLOCK + (int64_t)RSI_MADE_BYTES + ((int64_t)8 << 20))

typedef struct fetching {
    rsi_made_reader reader;
    rsi_pool       *pool;   /* blocks */
    const rsi_want *want;   /* [n] */
    int64_t        *before; /* [n + 1] blocks of the wants before each */
    size_t          n;
} fetching;

static int64_t elem_of(const fetching *f, const rsi_want *w)
{
    return (int64_t)rsd_dtype_size(f->reader.made->tensor[w->t].dtype);
}

/* Passes a packed box on to the caller's view. */
static rsd_err give(const fetching *f, const rsi_want *w, const rsd_box *box, void *packed,
                    rsd_error *err)
{
    rsi_recast recast = { .to = w->view,
                          .to_dtype = w->dtype,
                          .from_dtype = f->reader.made->tensor[w->t].dtype };
    rsd_view   view = *w->view;
    rsi_area   area = { .box = view.box, .data = view.data };

    if (recast.from_dtype != w->dtype)
        rsi_recast_view(&recast, &view);
    if (!view.data)
        return rsi_view_put(&view, box, elem_of(f, w), packed, err);
    for (int d = 0; d < view.box.ndim; d++)
        area.stride[d] = view.stride[d];
    rsi_unpack(box, elem_of(f, w), &area, packed);
    return RSD_OK;
}

static rsd_err fetch_block(void *arg, size_t k, rsd_error *err)
{
    const fetching *f = arg;
    size_t          lo = 0, hi = f->n;
    const rsi_want *w;
    int64_t         at, end, step;
    void           *buf;
    rsd_err         rc = rsi_pool_get(f->pool, &buf, err);

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (f->before[mid] <= (int64_t)k)
            lo = mid;
        else
            hi = mid;
    }
    w = &f->want[lo];
    step = BLOCK / elem_of(f, w);
    at = ((int64_t)k - f->before[lo]) * step;
    end = rsi_min(at + step, rsd_box_count(&w->view->box));
    while (at < end && !rc) {
        rsd_box box;

        at += rsi_range_box(w->view->box.ndim, w->view->box.len, at, end, &box);
        for (int d = 0; d < box.ndim; d++)
            box.off[d] += w->view->box.off[d];
        rc = rsi_made_read(&f->reader, w->t, &box, buf, err);
        if (!rc)
            rc = give(f, w, &box, buf, err);
    }
    if (buf)
        rsi_pool_put(f->pool, buf);
    return rc;
}

/* As many threads as memory allows. */
static rsd_err make_workers(const rsd_read_opts *opts, rsi_workers **out, rsd_error *err)
{
    int64_t memory = opts->max_memory ? (int64_t)opts->max_memory : (int64_t)64 << 20;
    int64_t most = rsi_max(1, memory / EACH);
    rsd_err rc = rsi_workers_create(opts->threads, out, err);

    if (rc || rsi_workers_count(*out) <= most)
        return rc;
    rsi_workers_free(*out);
    *out = NULL;
    return rsi_workers_create((int)most, out, err);
}

rsd_err rsi_made_fetch_all(const rsi_made *made, rsd_ckpt *source, const rsi_want *want, size_t n,
                           const rsd_read_opts *opts, rsd_error *err)
{
    rsi_fetch_tools tools = { 0 };
    rsi_workers    *workers = NULL;
    fetching        f = { .want = want, .n = n };
    size_t          threads;
    rsd_err         rc;

    if (n == 0)
        return RSD_OK;
    f.reader = (rsi_made_reader){ .made = made, .source = source, .tools = &tools, .opts = opts };
    f.before = rsi_calloc(n + 1, sizeof(f.before[0]));
    rc = f.before ? make_workers(opts, &workers, err)
                  : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", n);
    threads = (size_t)rsi_workers_count(workers);
    if (!rc)
        rc = rsi_extents_create(source, 0, &tools.extents, err);
    if (!rc)
        rc = rsi_pool_create(threads * (size_t)BLOCK, (size_t)BLOCK, &f.pool, err);
    if (!rc)
        rc = rsi_pool_create(threads * RSI_MADE_BYTES, RSI_MADE_BYTES, &f.reader.pool, err);
    if (!rc)
        rc = rsi_fetch_pool(threads * ((size_t)8 << 20), &tools.pool, err);
    for (size_t i = 0; i < n && !rc; i++)
        f.before[i + 1] = f.before[i] + rsi_ceil_div(rsd_box_count(&want[i].view->box),
                                                     BLOCK / elem_of(&f, &want[i]));
    if (!rc)
        rc = rsi_workers_run(workers, (size_t)f.before[n], fetch_block, &f, err);
    rsi_workers_free(workers);
    rsi_extents_free(tools.extents);
    rsi_pool_free(f.pool);
    rsi_pool_free(f.reader.pool);
    rsi_pool_free(tools.pool);
    rsi_free(f.before);
    return rc;
}
