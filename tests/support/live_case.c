/* SPDX-License-Identifier: Apache-2.0 */
/* live_case.c - fills, reshards, checks. See live_case.h. */
#include "live_case.h"

#include "base/error.h"
#include "shape/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

double live_value(rsd_reduce reduce, int64_t e, int32_t part, int32_t parts, int64_t share)
{
    if (reduce == RSD_PRODUCT)
        return (e + part) % 5 == 0 ? 2 : 1;
    if (reduce == RSD_AVG)
        return (double)(e % 5 + 1 + (part == 0 ? parts : 0));
    if (reduce)
        return (double)((e + part) % 3 + 1);
    return (double)((e % 5 + 1) * share);
}

double live_result(rsd_reduce reduce, int64_t e, int32_t parts)
{
    double all = live_value(reduce, e, 0, parts, 1);

    for (int32_t p = 1; p < parts; p++) {
        double v = live_value(reduce, e, p, parts, 1);

        if (reduce == RSD_PRODUCT)
            all *= v;
        else if (reduce == RSD_MIN)
            all = v < all ? v : all;
        else if (reduce == RSD_MAX)
            all = v > all ? v : all;
        else
            all += v;
    }
    return reduce == RSD_AVG ? all / parts : all;
}

/* Small whole numbers as elements. */
static void write_value(rsd_dtype dtype, double value, unsigned char *out)
{
    uint64_t whole = (uint64_t)(int64_t)value;
    float    f = (float)value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    memset(out, 0, rsd_dtype_size(dtype));
    if (dtype < RSD_F16)
        memcpy(out, &whole, rsd_dtype_size(dtype));
    else if (dtype == RSD_F32 || dtype == RSD_C64)
        memcpy(out, &f, sizeof(f));
    else if (dtype == RSD_F64 || dtype == RSD_C128)
        memcpy(out, &value, sizeof(value));
    else if (dtype == RSD_BF16) {
        out[0] = (unsigned char)(bits >> 16);
        out[1] = (unsigned char)(bits >> 24);
    }
}

/* Bytes that tell one element from every other. */
static void write_mark(size_t size, int64_t e, unsigned char *out)
{
    for (size_t i = 0; i < size; i++)
        out[i] = (unsigned char)((uint64_t)(e + 1) * 0x9e3779b97f4a7c15u >> (8 * (i % 7)));
}

static bool computes(const live_tensor *t)
{
    return t->parts > 1 || (t->dst->reduce == RSD_SUM && rsi_layout_ways(t->dst, RSD_PARTIAL) > 1);
}

static void source_element(const live_tensor *t, int32_t rank, int64_t e, unsigned char *out)
{
    int64_t share = t->dst->reduce == RSD_SUM ? rsi_layout_ways(t->dst, RSD_PARTIAL) : 1;
    int32_t part = t->part_of ? t->part_of(rank, t->arg) : 0;

    if (!computes(t))
        write_mark(rsd_dtype_size(t->src->dtype), e, out);
    else
        write_value(
            t->src->dtype,
            live_value(t->parts > 1 ? t->src->reduce : (rsd_reduce)0, e, part, t->parts, share),
            out);
}

static void target_element(const live_tensor *t, int64_t e, unsigned char *out)
{
    if (!computes(t))
        write_mark(rsd_dtype_size(t->src->dtype), e, out);
    else if (t->parts > 1)
        write_value(t->src->dtype, live_result(t->src->reduce, e, t->parts), out);
    else
        write_value(t->src->dtype, live_value((rsd_reduce)0, e, 0, 1, 1), out);
}

/* ---- memory ---- */

/* One side of one tensor on this rank. */
typedef struct side {
    const rsd_layout *layout;
    int32_t           rank;
    unsigned char    *data;
    int64_t           bytes;
    rsd_view         *view;
    rsd_views         views;
    bool              packed; /* callbacks: data has the boxes one after the other */
    struct packed {
        unsigned char *data;
    } * arg;
} side;

static rsd_err get_packed(void *arg, uint64_t off, void *host, size_t len)
{
    memcpy(host, ((struct packed *)arg)->data + off, len);
    return RSD_OK;
}

static rsd_err put_packed(void *arg, uint64_t off, const void *host, size_t len)
{
    memcpy(((struct packed *)arg)->data + off, host, len);
    return RSD_OK;
}

/* Callbacks instead of pointers: each box packed, one after the other. */
static void use_callbacks(side *s)
{
    int64_t at = 0;

    for (size_t i = 0; i < s->views.n; i++) {
        s->arg[i].data = s->data + at;
        at += rsd_box_count(&s->view[i].box) * s->layout->elem_bytes;
        s->view[i] = (rsd_view){
            .box = s->view[i].box, .get = get_packed, .put = put_packed, .arg = &s->arg[i]
        };
    }
}

static rsd_err make_side(side *s, rsd_comm *comm, const rsd_layout *layout, const live_how *how,
                         rsd_error *err)
{
    s->layout = layout;
    s->rank = rsd_comm_rank(comm);
    s->bytes = rsd_layout_bytes(layout, s->rank);
    s->views.n = rsd_layout_boxes(layout, s->rank, NULL, 0);
    s->views.view = s->view = calloc(s->views.n + 1, sizeof(s->view[0]));
    s->arg = calloc(s->views.n + 1, sizeof(s->arg[0]));
    if (how->shared) {
        rsd_err rc = rsd_comm_alloc(comm, (size_t)s->bytes + 1, (void **)&s->data, err);

        if (rc)
            return rc;
    } else {
        s->data = calloc((size_t)s->bytes + 1, 1);
    }
    if (!s->view || !s->arg || !s->data)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a test");
    memset(s->data, 0xa5, (size_t)s->bytes);
    rsd_layout_views(layout, s->rank, s->data, s->view, s->views.n);
    if (how->callbacks)
        use_callbacks(s);
    return RSD_OK;
}

static void free_side(side *s, rsd_comm *comm, const live_how *how)
{
    if (how->shared)
        rsd_comm_dealloc(comm, s->data);
    else
        free(s->data);
    free(s->view);
    free(s->arg);
}

/* Where the element at `index`, which lies in view v, is. */
static unsigned char *element(const side *s, const rsd_view *v, const int64_t *index)
{
    const struct packed *packed = v->arg;
    int64_t              off = 0, stride = s->layout->elem_bytes;

    if (v->data) {
        for (int d = 0; d < v->box.ndim; d++)
            off += (index[d] - v->box.off[d]) * v->stride[d];
        return (unsigned char *)v->data + off;
    }
    for (int d = v->box.ndim - 1; d >= 0; d--) {
        off += (index[d] - v->box.off[d]) * stride;
        stride *= v->box.len[d];
    }
    return packed->data + off;
}

static rsd_err each_element(const side *s, const live_tensor *t, bool check, rsd_error *err)
{
    unsigned char want[16];
    int64_t       index[RSD_MAX_NDIM];

    for (size_t i = 0; i < s->views.n; i++) {
        const rsd_view *v = &s->view[i];

        for (bool go = oracle_first(&v->box, index); go; go = oracle_next(&v->box, index)) {
            int64_t        e = oracle_element(v->box.ndim, s->layout->shape, index);
            unsigned char *at = element(s, v, index);

            if (!check) {
                source_element(t, s->rank, e, at);
                continue;
            }
            target_element(t, e, want);
            if (memcmp(at, want, (size_t)s->layout->elem_bytes) != 0)
                return rsi_fail(
                    err, RSD_E_BUG, "element %" PRId64 " is wrong: %02x%02x, not %02x%02x", e,
                    at[s->layout->elem_bytes - 1], at[0], want[s->layout->elem_bytes - 1], want[0]);
        }
    }
    return RSD_OK;
}

/* ---- running ---- */

typedef struct running {
    side              *src, *dst;       /* [n] */
    rsd_views         *from, *to;       /* [n] */
    const rsd_layout **before, **after; /* [n] */
    rsd_plan          *plan;
} running;

static rsd_err in_steps(const running *r, rsd_comm *comm, const rsd_reshard_opts *opts,
                        rsd_error *err)
{
    rsd_op *op;
    bool    done = false;
    rsd_err rc = rsd_reshard_begin(r->plan, comm, r->from, r->to, opts, &op, err);

    if (rc)
        return rc;
    for (int i = 0; i < 3 && !rc && !done; i++)
        rc = rsd_op_test(op, RSD_STAGED, &done, err);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    if (!rc)
        rc = rsd_op_test(op, RSD_DURABLE, &done, err);
    if (!rc && !done)
        rc = rsi_fail(err, RSD_E_BUG, "an operation that was waited for is not done");
    rsd_op_free(op);
    return rc;
}

static rsd_err reshard(const running *r, rsd_comm *comm, const live_how *how,
                       rsd_reshard_stats *stats, rsd_error *err)
{
    rsd_reshard_opts opts = { .size = sizeof(opts),
                              .max_memory = how->memory,
                              .direct = how->direct ? RSD_DEFAULT : RSD_NEVER,
                              .stats = stats };

    if (how->in_steps)
        return in_steps(r, comm, &opts, err);
    return rsd_reshard(r->plan, comm, r->from, r->to, &opts, err);
}

/* Copies: what the plan says is received is the least that has to cross. */
static rsd_err check_stats(const running *r, size_t n, const live_tensor *t,
                           const rsd_reshard_stats *stats, rsd_error *err)
{
    rsd_plan_stats want = { .size = sizeof(want) };

    rsd_plan_stats_get(r->plan, &want, NULL);
    for (size_t i = 0; i < n; i++)
        if (t[i].parts > 1)
            return RSD_OK;
    if (stats->bytes_recv + stats->bytes_reached != want.bytes_recv)
        return rsi_fail(err, RSD_E_BUG, "%" PRId64 " bytes came, the least is %" PRId64,
                        stats->bytes_recv + stats->bytes_reached, want.bytes_recv);
    if (stats->bytes_local != want.bytes_local)
        return rsi_fail(err, RSD_E_BUG, "%" PRId64 " bytes were copied, not %" PRId64,
                        stats->bytes_local, want.bytes_local);
    return RSD_OK;
}

rsd_err live_run(rsd_comm *comm, size_t n, const live_tensor *tensor, const live_how *how,
                 rsd_reshard_stats *stats, rsd_error *err)
{
    rsd_reshard_stats local = { .size = sizeof(local) };
    running           r = { .src = calloc(n + 1, sizeof(side)),
                            .dst = calloc(n + 1, sizeof(side)),
                            .from = calloc(n + 1, sizeof(rsd_views)),
                            .to = calloc(n + 1, sizeof(rsd_views)),
                            .before = calloc(n + 1, sizeof(void *)),
                            .after = calloc(n + 1, sizeof(void *)) };
    rsd_err           rc = RSD_OK;

    stats = stats ? stats : &local;
    for (size_t t = 0; t < n && !rc; t++) {
        r.before[t] = tensor[t].src;
        r.after[t] = tensor[t].dst;
        rc = make_side(&r.src[t], comm, tensor[t].src, how, err);
        if (!rc)
            rc = make_side(&r.dst[t], comm, tensor[t].dst, how, err);
        r.from[t] = r.src[t].views;
        r.to[t] = r.dst[t].views;
        if (!rc)
            each_element(&r.src[t], &tensor[t], false, err);
    }
    if (!rc)
        rc = rsd_plan_create(n, r.before, r.after, rsd_comm_rank(comm), &r.plan, err);
    if (!rc)
        rc = reshard(&r, comm, how, stats, err);
    for (size_t t = 0; t < n && !rc; t++)
        rc = each_element(&r.dst[t], &tensor[t], true, err);
    if (!rc && how->count)
        rc = check_stats(&r, n, tensor, stats, err);
    rsd_plan_free(r.plan);
    for (size_t t = 0; t < n; t++) {
        free_side(&r.src[t], comm, how);
        free_side(&r.dst[t], comm, how);
    }
    free(r.src);
    free(r.dst);
    free(r.from);
    free(r.to);
    free(r.before);
    free(r.after);
    return rc;
}
