/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ranges of the target's tensors from the source. A range of a packed box is a few boxes;
 * fetch.c reads each from the chunks that contain it. */
#include "convert/convert_pull.h"
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"
#include "shape/box.h"

#include <string.h>

rsd_err rsi_pull_open(rsi_pull *pull, rsd_ckpt *source, const rsi_pulled *tensor,
                      const rsi_made *made, rsd_choice verify, size_t threads, size_t limit,
                      rsd_error *err)
{
    rsd_err rc;

    *pull = (rsi_pull){ .source = source, .tensor = tensor };
    pull->opts = (rsd_read_opts){ .size = sizeof(pull->opts), .verify = verify };
    pull->reader = (rsi_made_reader){
        .made = made, .source = source, .tools = &pull->tools, .opts = &pull->opts
    };
    rc = rsi_extents_create(source, limit, &pull->tools.extents, err);
    if (!rc && verify == RSD_ALWAYS)
        rc = rsi_row_streams_create(source, &pull->tools.streams, err);
    if (!rc && verify == RSD_ALWAYS)
        rc = rsi_record_crcs_create(source, &pull->tools.records, err);
    if (!rc && made)
        rc = rsi_pool_create(threads * RSI_MADE_BYTES, RSI_MADE_BYTES, &pull->reader.pool, err);
    if (!rc)
        rc = rsi_pool_create(threads * RSI_PULL_CAST_BYTES, RSI_PULL_CAST_BYTES, &pull->cast, err);
    if (!rc)
        rc = rsi_fetch_pool(threads * RSI_PULL_FETCH_BYTES, &pull->tools.pool, err);
    if (rc)
        rsi_pull_close(pull);
    return rc;
}

void rsi_pull_close(rsi_pull *pull)
{
    rsi_extents_free(pull->tools.extents);
    rsi_row_streams_free(pull->tools.streams);
    rsi_record_crcs_free(pull->tools.records);
    rsi_pool_free(pull->cast);
    rsi_pool_free(pull->tools.pool);
    rsi_pool_free(pull->reader.pool);
    *pull = (rsi_pull){ 0 };
}

/* ---- checksums ---- */

typedef struct proving {
    rsi_pull *pull;
    size_t   *t;      /* [n] numbers in the source */
    size_t   *before; /* [n + 1] chunks of the tensors before each */
    size_t    n, first, step;
} proving;

/* Errors of a conversion begin with the target's name. */
static rsd_err of_source(rsd_err rc, rsd_error *err)
{
    return rc ? rsi_while(err, rc, "the source") : RSD_OK;
}

static rsd_err prove_one(void *arg, size_t i, rsd_error *err)
{
    const proving *p = arg;
    size_t         k = p->first + i * p->step, lo = 0, hi = p->n;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (p->before[mid] <= k)
            lo = mid;
        else
            hi = mid;
    }
    return of_source(
        rsi_fetch_prove(&p->pull->tools, p->pull->source, p->t[lo], k - p->before[lo], err), err);
}

rsd_err rsi_pull_prove(rsi_pull *pull, size_t n, rsi_workers *workers, size_t first, size_t step,
                       rsd_error *err)
{
    const rsi_made *made = pull->reader.made;
    const size_t    most = made ? made->nsources : n;
    proving         p = { .pull = pull, .first = first, .step = step };
    rsd_err         rc = RSD_OK;
    size_t          all;

    p.before = rsi_calloc(most + 1, sizeof(p.before[0]));
    p.t = rsi_calloc(most + 1, sizeof(p.t[0]));
    if (!p.before || !p.t)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", most);
    for (size_t i = 0; i < most && !rc; i++) {
        rsd_tensor_info info;

        if (made && (made->source[i].line == 0 || made->source[i].dropped))
            continue;
        p.t[p.n] = made ? i : pull->tensor[i].t;
        pull->source->ops->tensor(pull->source, p.t[p.n], &info);
        p.before[p.n + 1] = p.before[p.n] + info.chunks;
        p.n++;
    }
    all = rc ? 0 : p.before[p.n];
    if (all > first)
        rc = rsi_workers_run(workers, (all - first - 1) / step + 1, prove_one, &p, err);
    rsi_free(p.before);
    rsi_free(p.t);
    return rc;
}

/* ---- elements ---- */

/* Reads elements [at, end) of the packed box in the source's dtype. */
static rsd_err pull_stored(rsi_pull *pull, size_t t, const rsd_box *box, int64_t at, int64_t end,
                           int64_t elem_bytes, unsigned char *out, rsd_error *err)
{
    while (at < end) {
        rsd_view view = { .data = out };
        int64_t  n = rsi_range_box(box->ndim, box->len, at, end, &view.box);
        rsd_err  rc;

        for (int d = 0; d < box->ndim; d++)
            view.box.off[d] += box->off[d];
        rc = pull->reader.made
                 ? rsi_made_read(&pull->reader, t, &view.box, out, err)
                 : rsi_fetch_with(&pull->tools, pull->source, t, &view, &pull->opts, err);
        if (rc)
            return of_source(rc, err);
        out += n * elem_bytes;
        at += n;
    }
    return RSD_OK;
}

/* The same, cast to `dtype`; n elements fit into a cast buffer. */
static rsd_err pull_cast(rsi_pull *pull, size_t t, rsd_dtype stored, rsd_dtype dtype,
                         const rsd_box *box, int64_t at, int64_t n, unsigned char *out,
                         rsd_error *err)
{
    void   *buf;
    rsd_err rc = rsi_pool_get(pull->cast, &buf, err);

    if (rc)
        return rc;
    rc = pull_stored(pull, t, box, at, at + n, (int64_t)rsd_dtype_size(stored), buf, err);
    if (!rc)
        rsi_cast(out, dtype, buf, stored, (size_t)n);
    rsi_pool_put(pull->cast, buf);
    return rc;
}

rsd_err rsi_pull_bytes(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                       unsigned char *out, rsd_error *err)
{
    rsi_pull       *pull = arg;
    size_t          t = pull->tensor[number].t;
    rsd_dtype       dtype = pull->tensor[number].dtype, stored;
    size_t          elem = rsd_dtype_size(dtype);
    rsd_tensor_info info;
    unsigned char   one[16]; /* an element only partly in the range */

    if (pull->reader.made) {
        stored = pull->reader.made->tensor[t].dtype;
    } else {
        pull->source->ops->tensor(pull->source, t, &info);
        stored = info.dtype;
    }
    while (len > 0) {
        size_t         skip = (size_t)(off % elem), take;
        bool           part = skip > 0 || len < elem;
        int64_t        at = (int64_t)(off / elem), n = part ? 1 : (int64_t)(len / elem);
        unsigned char *to = part ? one : out;
        rsd_err        rc;

        if (dtype == stored) {
            rc = pull_stored(pull, t, box, at, at + n, (int64_t)elem, to, err);
        } else {
            n = rsi_min(n, (int64_t)(RSI_PULL_CAST_BYTES / rsd_dtype_size(stored)));
            rc = pull_cast(pull, t, stored, dtype, box, at, n, to, err);
        }
        if (rc)
            return rc;
        take = part ? (size_t)rsi_min((int64_t)(elem - skip), (int64_t)len) : (size_t)n * elem;
        if (part)
            memcpy(out, one + skip, take);
        out += take;
        off += take;
        len -= take;
    }
    return RSD_OK;
}
