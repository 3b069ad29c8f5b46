/* SPDX-License-Identifier: Apache-2.0 */
/* random_case.c - draws layouts of every kind and makes them. See random_case.h; the plans between
 * them are made in test_random_plans.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "random_case.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

typedef struct rng {
    uint64_t at;
    int      ranks; /* that layouts may name */
} rng;

/* splitmix64; 0 .. n-1 */
static int draw(rng *state, int64_t n)
{
    uint64_t z = state->at += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static bool chance(rng *state, int percent)
{
    return draw(state, 100) < percent;
}

/* n, or all ranks if there are fewer. */
static int at_most(const rng *state, int n)
{
    return n < state->ranks ? n : state->ranks;
}

/* n different ranks below `among`, in any order */
static void draw_ranks(rng *state, int32_t *out, size_t n, int among)
{
    int32_t all[CASE_RANKS];

    for (int32_t r = 0; r < among; r++)
        all[r] = r;
    for (size_t i = 0; i < n; i++) {
        size_t j = i + (size_t)draw(state, among - (int64_t)i);

        out[i] = all[j];
        all[j] = all[i];
    }
}

static rsd_dtype draw_dtype(rng *state)
{
    static const rsd_dtype all[] = { RSD_BOOL, RSD_U8,  RSD_I16, RSD_I32,  RSD_I64,
                                     RSD_BF16, RSD_F32, RSD_F64, RSD_C128, RSD_F4_E2M1FN_X2 };

    return all[draw(state, COUNT(all))];
}

static void draw_shape(rng *state, rsd_box *whole)
{
    static const int ndims[] = { 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5 };
    int64_t          count = 1, most;

    whole->ndim = ndims[draw(state, COUNT(ndims))];
    most = whole->ndim < 3 || chance(state, 20) ? CASE_SIZE : CASE_SIZE / 2;
    for (int d = 0; d < whole->ndim; d++) {
        int64_t left = CASE_ELEMENTS / count;

        whole->len[d] = draw(state, (left < most ? left : most) + 1);
        count *= whole->len[d] ? whole->len[d] : 1;
    }
}

/* `partial` is what the Partial axes of a layout reduce by, 0 if it has none. */
static rsd_placement draw_placement(rng *state, int ndim, rsd_reduce partial)
{
    rsd_placement p = { .kind = RSD_REPLICATE };

    if (partial && chance(state, 50)) {
        p.kind = RSD_PARTIAL;
        p.reduce = partial;
    } else if (ndim && chance(state, 75)) {
        p.kind = chance(state, 60) ? RSD_SHARD : RSD_STRIDED;
        p.dim = draw(state, ndim);
        if (chance(state, 20))
            p.dim -= ndim;
        p.split = 1 + draw(state, 5);
    }
    return p;
}

static void draw_mesh(rng *state, random_layout *l, int ndim, rsd_reduce partial)
{
    l->axes = chance(state, 4) ? 0 : 1 + draw(state, 3);
    l->n = 1;
    for (int a = 0; a < l->axes; a++) {
        int left = at_most(state, CASE_MESH_RANKS) / (int)l->n;

        l->mesh[a] = 1 + draw(state, left < 5 ? left : 5);
        l->n *= (size_t)l->mesh[a];
        l->place[a] = draw_placement(state, ndim, partial);
    }
    l->counted = chance(state, 30);
    draw_ranks(state, l->rank, l->n,
               at_most(state, chance(state, 50) ? CASE_RANKS : CASE_MESH_RANKS));
    for (int32_t i = 0; i < (int32_t)l->n && l->counted; i++)
        l->rank[i] = i;
}

static void draw_chunked(rng *state, random_layout *l, int ndim)
{
    l->axes = 1;
    l->n = (size_t)(1 + draw(state, at_most(state, CASE_MESH_RANKS)));
    l->mesh[0] = (int64_t)l->n;
    l->place[0].kind = RSD_SHARD;
    l->place[0].dim = draw(state, ndim);
    draw_ranks(state, l->rank, l->n,
               at_most(state, chance(state, 50) ? CASE_RANKS : CASE_MESH_RANKS));
}

/* Cuts the tensor in two, then one of the parts, and so on; some parts go to several ranks. */
static void draw_boxes(rng *state, random_layout *l, const rsd_box *whole)
{
    rsd_box part[CASE_PIECES / 3] = { *whole };
    int     n = 1, want = 1 + draw(state, COUNT(part));
    int     among = at_most(state, 3 + draw(state, CASE_RANKS - 2));

    for (; n < want && whole->ndim; n++) {
        rsd_box *old = &part[draw(state, n)];
        int      d = draw(state, whole->ndim);

        part[n] = *old;
        old->len[d] = draw(state, old->len[d] + 1);
        part[n].off[d] += old->len[d];
        part[n].len[d] -= old->len[d];
    }
    for (int i = 0; i < n; i++) {
        size_t copies = chance(state, 70) ? 1 : (size_t)at_most(state, 1 + draw(state, 3));

        draw_ranks(state, &l->rank[l->n], copies, among);
        for (; copies > 0; copies--)
            l->box[l->n++] = part[i];
    }
}

/* Cuts the flattened tensor from its end on; some ranges go to two ranks. */
static void draw_ranges(rng *state, random_layout *l, const rsd_box *whole)
{
    int64_t end = 1;
    int     among = at_most(state, 2 + draw(state, CASE_RANKS - 1));

    for (int d = 0; d < whole->ndim; d++)
        end *= whole->len[d];
    for (int left = draw(state, 8); left >= 0; left--) {
        int64_t size = left ? draw(state, 2 * end / (left + 1) + 1) : end;
        size_t  copies = (size_t)at_most(state, chance(state, 85) ? 1 : 2);

        draw_ranks(state, &l->rank[l->n], copies, among);
        for (; copies > 0; copies--) {
            l->start[l->n] = end - size;
            l->count[l->n++] = size;
        }
        end -= size;
    }
}

/* Boxes and ranges need not come in order. */
static void shuffle_pieces(rng *state, random_layout *l)
{
    for (size_t i = l->n; i > 1; i--) {
        size_t  a = i - 1, b = (size_t)draw(state, (int64_t)i);
        int32_t rank = l->rank[a];
        rsd_box box = l->box[a];
        int64_t start = l->start[a], count = l->count[a];

        l->rank[a] = l->rank[b];
        l->rank[b] = rank;
        l->box[a] = l->box[b];
        l->box[b] = box;
        l->start[a] = l->start[b];
        l->start[b] = start;
        l->count[a] = l->count[b];
        l->count[b] = count;
    }
}

static void draw_layout(rng *state, random_layout *l, const rsd_box *whole, rsd_reduce partial)
{
    memset(l, 0, sizeof(*l));
    l->kind = partial || chance(state, 40) ? MESH : (layout_kind)draw(state, LAYOUT_KINDS);
    if (l->kind == CHUNKED && !whole->ndim)
        l->kind = MESH;
    if (l->kind == MESH)
        draw_mesh(state, l, whole->ndim, partial);
    else if (l->kind == CHUNKED)
        draw_chunked(state, l, whole->ndim);
    else if (l->kind == BOXES)
        draw_boxes(state, l, whole);
    else
        draw_ranges(state, l, whole);
    if (l->kind == BOXES || l->kind == RANGES)
        shuffle_pieces(state, l);
}

/* One of the first n reductions. */
static rsd_reduce draw_reduce(rng *state, int n)
{
    static const rsd_reduce all[] = { RSD_SUM, RSD_AVG, RSD_MIN, RSD_MAX, RSD_PRODUCT };

    return all[draw(state, n)];
}

/* `twin`, if not NULL, is a tensor that this one is to have much in common with. */
static void draw_tensor(rng *state, random_tensor *t, const random_tensor *twin,
                        const bool partial[2])
{
    rsd_reduce before = partial[0] ? draw_reduce(state, 5) : (rsd_reduce)0;
    /* A value can't be cut into factors, so no target is Partial(product). */
    rsd_reduce after = partial[1] ? draw_reduce(state, 4) : (rsd_reduce)0;

    memset(t, 0, sizeof(*t));
    if (twin) {
        *t = *twin;
        t->shared[0] = t->shared[1] = chance(state, 50);
    } else {
        draw_shape(state, &t->whole);
        draw_layout(state, &t->layout[0], &t->whole, before);
    }
    if (!twin || chance(state, 50)) {
        draw_layout(state, &t->layout[1], &t->whole, after);
        t->shared[1] = false;
    }
    if (!twin || chance(state, 30)) {
        t->dtype = draw_dtype(state);
        t->shared[0] = t->shared[1] = false;
    }
    if (!twin && chance(state, 5) && !before && !after)
        t->layout[1] = t->layout[0];
    if (partial[1] && (t->dtype < RSD_F16 || t->dtype >= RSD_F8_E8M0FNU)) {
        t->dtype = RSD_F32; /* integers can't be shared out to Partial(sum) */
        t->shared[0] = t->shared[1] = false;
    }
}

void random_case_draw(random_case *c, uint64_t seed, int32_t ranks)
{
    rng state = { seed, ranks };
    int dice = draw(&state, 100);

    c->partial[0] = dice < 20;
    c->partial[1] = dice >= 20 && dice < 30;
    c->n = (size_t)(chance(&state, 40) ? 1 : 1 + draw(&state, CASE_TENSORS));
    for (size_t i = 0; i < c->n; i++) {
        const random_tensor *twin = i && chance(&state, 30) ? &c->tensor[i - 1] : NULL;

        draw_tensor(&state, &c->tensor[i], twin, c->partial);
    }
}

static void tell_box(const rsd_box *box)
{
    print_error("[");
    for (int d = 0; d < box->ndim; d++)
        print_error("%s%" PRId64 ":%" PRId64, d ? ", " : "", box->off[d],
                    box->off[d] + box->len[d]);
    print_error("]");
}

static void tell_layout(const random_layout *l)
{
    static const char *const kinds[] = { "mesh", "chunked", "boxes", "ranges" };
    static const char *const reduces[] = { "", "sum", "avg", "min", "max", "product" };

    print_error("%s", kinds[l->kind]);
    for (int a = 0; a < l->axes; a++) {
        const rsd_placement *p = &l->place[a];

        if (p->kind == RSD_SHARD)
            print_error(" shard(%d)@%" PRId64, p->dim, l->mesh[a]);
        else if (p->kind == RSD_STRIDED)
            print_error(" strided(%d,%" PRId64 ")@%" PRId64, p->dim, p->split, l->mesh[a]);
        else if (p->kind == RSD_PARTIAL)
            print_error(" partial(%s)@%" PRId64, reduces[p->reduce], l->mesh[a]);
        else
            print_error(" replicate@%" PRId64, l->mesh[a]);
    }
    for (size_t i = 0; i < l->n; i++) {
        print_error("%s rank %d", i ? "," : ":", l->rank[i]);
        if (l->kind == RANGES)
            print_error(" %" PRId64 "+%" PRId64, l->start[i], l->count[i]);
        else if (l->kind == BOXES)
            tell_box(&l->box[i]);
    }
    print_error("\n");
}

void random_case_tell(const random_case *c)
{
    for (size_t i = 0; i < c->n; i++) {
        print_error("tensor %zu: dtype %d, shape ", i, (int)c->tensor[i].dtype);
        tell_box(&c->tensor[i].whole);
        print_error("\n  from ");
        tell_layout(&c->tensor[i].layout[0]);
        print_error("  to ");
        tell_layout(&c->tensor[i].layout[1]);
    }
}

static rsd_err make_mesh_layout(const random_layout *l, const random_tensor *t, rsd_layout **out,
                                rsd_error *err)
{
    rsd_mesh *mesh;
    rsd_err   rc;

    rc = rsd_mesh_create(l->axes, l->mesh, NULL, l->counted ? NULL : l->rank, &mesh, err);
    if (rc)
        return rc;
    rc = rsd_layout_create(mesh, l->place, t->dtype, t->whole.ndim, t->whole.len, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

rsd_err random_side_make(random_side *s, const random_tensor *t, size_t after, int32_t world,
                         rsd_error *err)
{
    const random_layout *l = &t->layout[after];
    const int64_t       *shape = t->whole.len;
    int                  ndim = t->whole.ndim;

    s->drawn = l;
    s->whole = &t->whole;
    s->size = (int64_t)rsd_dtype_size(t->dtype);
    if (l->kind == BOXES)
        oracle_boxes(&s->want, world, ndim, shape, l->n, l->rank, l->box);
    else if (l->kind == RANGES)
        oracle_ranges(&s->want, world, ndim, shape, l->n, l->rank, l->start, l->count);
    else
        oracle_mesh(&s->want, world, ndim, shape, l->axes, l->mesh, l->rank, l->place);
    s->mem = calloc((size_t)(world * s->want.count + 1), sizeof(*s->mem));
    assert_non_null(s->mem);
    if (l->kind == MESH)
        return make_mesh_layout(l, t, &s->layout, err);
    if (l->kind == CHUNKED)
        return rsd_layout_create_chunked(l->place[0].dim, l->n, l->rank, t->dtype, ndim, shape,
                                         &s->layout, err);
    if (l->kind == BOXES)
        return rsd_layout_create_boxes(t->dtype, ndim, shape, l->n, l->rank, l->box, &s->layout,
                                       err);
    return rsd_layout_create_ranges(t->dtype, ndim, shape, l->n, l->rank, l->start, l->count,
                                    &s->layout, err);
}

void random_side_free(random_side *s)
{
    rsd_layout_free(s->layout);
    oracle_free(&s->want);
    free(s->mem);
    memset(s, 0, sizeof(*s));
}
