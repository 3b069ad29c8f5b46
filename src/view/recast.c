/* SPDX-License-Identifier: Apache-2.0 */
/* Casts the elements that arrive through a put and hands them to the caller's view. */
#include "view/recast.h"
#include "plan/cast.h"

#include <string.h>

#define STEP 1024 /* elements per cast when they need an intermediate buffer */

/* Casts up to n elements, starting at `at`, that lie in one row; returns the count. */
static size_t cast_row(const rsi_recast *r, int64_t at, const unsigned char *src, size_t n)
{
    const rsd_box *box = &r->to->box;
    int            last = box->ndim - 1;
    size_t         elem = rsd_dtype_size(r->to_dtype);
    int64_t        row = last < 0 ? 1 : box->len[last], left = row - at % row, rest = at / row;
    unsigned char *to = r->to->data;
    unsigned char  buf[STEP * 16];

    for (int d = last - 1; d >= 0; d--) {
        to += rest % box->len[d] * r->to->stride[d];
        rest /= box->len[d];
    }
    n = (int64_t)n < left ? n : (size_t)left;
    if (last < 0 || r->to->stride[last] == (int64_t)elem) {
        rsi_cast(to + at % row * (int64_t)elem, r->to_dtype, src, r->from_dtype, n);
        return n;
    }
    n = n < STEP ? n : STEP;
    rsi_cast(buf, r->to_dtype, src, r->from_dtype, n);
    to += at % row * r->to->stride[last];
    for (size_t i = 0; i < n; i++)
        memcpy(to + (int64_t)i * r->to->stride[last], buf + i * elem, elem);
    return n;
}

/* The same for a target with a callback, which takes the box packed. */
static rsd_err put_row(const rsi_recast *r, int64_t at, const unsigned char *src, size_t *n)
{
    unsigned char buf[STEP * 16];
    size_t        elem = rsd_dtype_size(r->to_dtype);

    *n = *n < STEP ? *n : STEP;
    rsi_cast(buf, r->to_dtype, src, r->from_dtype, *n);
    return r->to->put(r->to->arg, (uint64_t)at * elem, buf, *n * elem);
}

static rsd_err recast_put(void *arg, uint64_t off, const void *host, size_t len)
{
    const rsi_recast    *r = arg;
    const unsigned char *src = host;
    size_t               elem = rsd_dtype_size(r->from_dtype), n = len / elem;
    int64_t              at = (int64_t)(off / elem);

    while (n > 0) {
        size_t  done = n;
        rsd_err rc = RSD_OK;

        if (r->to->data)
            done = cast_row(r, at, src, n);
        else
            rc = put_row(r, at, src, &done);
        if (rc)
            return rc;
        at += (int64_t)done;
        src += done * elem;
        n -= done;
    }
    return RSD_OK;
}

void rsi_recast_view(const rsi_recast *recast, rsd_view *out)
{
    *out =
        (rsd_view){ .box = recast->to->box, .put = recast_put, .arg = (void *)(uintptr_t)recast };
}
