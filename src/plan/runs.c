/* SPDX-License-Identifier: Apache-2.0 */
/* Turns boxes with strides into as few loops over as long runs as possible. */
#include "plan/runs.h"
#include "shape/box.h"

#include <stdlib.h>

struct loop {
    int64_t count, to, from;
};

static int by_to_falling(const void *a, const void *b)
{
    const struct loop *x = a, *y = b;
    int64_t            tx = llabs(x->to), ty = llabs(y->to);

    return (tx < ty) - (tx > ty);
}

void rsi_loops_make(rsi_loops *loops, int ndim, const int64_t *len, int64_t elem_bytes,
                    const int64_t *to, const int64_t *from)
{
    int64_t     packed[RSD_MAX_NDIM];
    struct loop loop[RSD_MAX_NDIM];
    int         n = 0, kept = 0;

    *loops = (rsi_loops){ .run = elem_bytes };
    rsi_strides(ndim, len, elem_bytes, packed);
    to = to ? to : packed;
    from = from ? from : packed;
    for (int d = 0; d < ndim; d++) {
        if (len[d] == 0)
            loops->run = 0;
        if (len[d] > 1)
            loop[n++] = (struct loop){ .count = len[d], .to = to[d], .from = from[d] };
    }
    if (loops->run == 0)
        return;
    qsort(loop, (size_t)n, sizeof(loop[0]), by_to_falling);
    for (int i = n - 1; i >= 0; i--) { /* innermost first: does it continue the loop below? */
        struct loop *below = kept ? &loop[n - kept] : NULL;

        if (!below && loop[i].to == loops->run && loop[i].from == loops->run)
            loops->run *= loop[i].count;
        else if (below && loop[i].to == below->to * below->count &&
                 loop[i].from == below->from * below->count)
            below->count *= loop[i].count;
        else
            loop[n - ++kept] = loop[i];
    }
    for (int i = 0; i < kept; i++) {
        loops->count[i] = loop[n - kept + i].count;
        loops->to[i] = loop[n - kept + i].to;
        loops->from[i] = loop[n - kept + i].from;
    }
    loops->n = kept;
}

int64_t rsi_box_offset(const rsd_box *box, const rsd_box *whole, const int64_t *stride)
{
    int64_t offset = 0;

    for (int d = 0; d < box->ndim; d++)
        offset += (box->off[d] - whole->off[d]) * stride[d];
    return offset;
}

rsd_err rsi_runs_each(const rsd_box *box, const rsd_box *whole, const int64_t *stride,
                      int64_t elem_bytes,
                      rsd_err (*visit)(void *arg, int64_t offset, int64_t bytes), void *arg)
{
    int64_t at[RSD_MAX_NDIM] = { 0 }, run = elem_bytes;
    int64_t offset = rsi_box_offset(box, whole, stride);
    int     n = box->ndim;

    if (rsd_box_count(box) == 0)
        return RSD_OK;
    while (n > 0 && (stride[n - 1] == run || box->len[n - 1] == 1))
        run *= box->len[--n]; /* the dimensions from n on are one run */
    for (;;) {
        rsd_err rc = visit(arg, offset, run);
        int     d = n - 1;

        if (rc)
            return rc;
        for (; d >= 0 && ++at[d] == box->len[d]; d--) {
            offset -= (box->len[d] - 1) * stride[d];
            at[d] = 0;
        }
        if (d < 0)
            return RSD_OK;
        offset += stride[d];
    }
}
