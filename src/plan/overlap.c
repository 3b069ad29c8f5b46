/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts one rank's part along another layout. planner.c decides which rank sends which piece to
 * which. */
#include "plan/overlap.h"
#include "base/checked.h"
#include "base/mem.h"
#include "shape/box.h"

#include <stdlib.h>
#include <string.h>

/* How much one step along a mesh axis adds to a chunk's number: chunks are numbered row-major over
 * the axes that shard. */
static void chunk_steps(const rsd_layout *layout, int64_t *step)
{
    int64_t below = 1;

    for (int a = layout->mesh->ndim - 1; a >= 0; a--) {
        bool shards = layout->place[a].kind == RSD_SHARD || layout->place[a].kind == RSD_STRIDED;

        step[a] = shards ? below : 0;
        if (shards)
            below *= layout->mesh->shape[a];
    }
}

int64_t rsi_layout_chunk(const rsd_layout *layout, const int64_t *mesh_coord)
{
    int64_t step[RSD_MAX_NDIM], chunk = 0;

    chunk_steps(layout, step);
    for (int a = 0; a < layout->mesh->ndim; a++)
        chunk += mesh_coord[a] * step[a];
    return chunk;
}

/* An array that grew in an arena would leave its old copies behind, so it grows outside and is
 * moved there at the end. */
typedef struct growing {
    void  *at;
    size_t n, cap, size;
} growing;

static void *grow(growing *g)
{
    return rsi_grow(&g->at, g->n, &g->cap, g->size) ? (char *)g->at + g->size * g->n++ : NULL;
}

static void *keep(growing *g, rsi_arena *mem, size_t *n)
{
    void *kept = rsi_arena_array(mem, g->n, g->size);

    if (kept && g->n)
        memcpy(kept, g->at, g->n * g->size);
    *n = g->n;
    rsi_free(g->at);
    *g = (growing){ .size = g->size };
    return kept;
}

/* Adds the cuts of the indices [start, start + len) along dimension d of `other`: maximal runs of
 * one owner. */
static bool add_cuts(growing *cuts, const rsd_layout *other, int d, int64_t start, int64_t len,
                     size_t my_run)
{
    const rsi_dim   *dim = &other->dim[d];
    int64_t          step[RSD_MAX_NDIM], coord[RSD_MAX_NDIM];
    rsi_overlap_cut *last = NULL;

    chunk_steps(other, step);
    for (int64_t x = start, run; x < start + len; x += run) {
        rsi_overlap_cut cut = { .start = x, .my_run = my_run };

        run = rsi_min(rsi_dim_owner(dim, x, coord), start + len - x);
        cut.len = run;
        for (int l = 0; l < dim->nlevels; l++) {
            cut.place += coord[l] * other->mesh->stride[dim->level[l].axis];
            cut.chunk += coord[l] * step[dim->level[l].axis];
        }
        if (last && last->chunk == cut.chunk) {
            last->len += run;
            continue;
        }
        last = grow(cuts);
        if (!last)
            return false;
        *last = cut;
    }
    return true;
}

/* Lists my runs in every dimension; *holds is false if I hold nothing. */
static rsd_err make_runs(rsi_overlaps *p, rsi_arena *mem, bool *holds, rsd_error *err)
{
    int64_t coord[RSD_MAX_NDIM], at[RSD_MAX_NDIM];

    *holds = rsd_mesh_coord(p->mine->mesh, p->rank, coord);
    for (int d = 0; *holds && d < p->mine->ndim; d++) {
        growing runs = { .size = sizeof(rsi_run) };
        rsi_run run = { 0 }, *added = &run;

        rsi_dim_coord(&p->mine->dim[d], coord, at);
        while (added && rsi_dim_run(&p->mine->dim[d], at, run.local + run.len, &run)) {
            added = grow(&runs);
            if (added)
                *added = run;
        }
        p->run[d] = keep(&runs, mem, &p->nrun[d]);
        if (!added || !p->run[d])
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the runs of a layout");
        *holds = p->nrun[d] > 0;
    }
    return RSD_OK;
}

static rsd_err make_product(rsi_overlaps *p, rsi_arena *mem, rsd_error *err)
{
    size_t n = 1;

    for (int d = 0; d < p->mine->ndim; d++) {
        growing cuts = { .size = sizeof(rsi_overlap_cut) };
        bool    ok = true;

        for (size_t r = 0; ok && r < p->nrun[d]; r++)
            ok = add_cuts(&cuts, p->other, d, p->run[d][r].start, p->run[d][r].len, r);
        p->cut[d] = keep(&cuts, mem, &p->ncut[d]);
        if (!ok || !p->cut[d])
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the pieces of a tensor");
        if (__builtin_mul_overflow(n, p->ncut[d], &n) || n > UINT32_MAX)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "a rank's part of one tensor falls into more than 2^32 pieces");
    }
    p->product = true;
    p->n = n;
    return RSD_OK;
}

/* Collects pieces as they are found. */
typedef struct finder {
    rsi_overlaps *p;
    growing       list;
    rsd_box       box; /* mine */
    size_t        my_box;
    bool          failed;
} finder;

static bool add_row(void *arg, uint32_t row)
{
    finder      *f = arg;
    rsd_box      other = rsi_boxes_get(&f->p->other->table.boxes, row);
    rsi_overlap *piece = grow(&f->list);

    f->failed = !piece;
    if (f->failed)
        return false;
    *piece = (rsi_overlap){ .my_box = f->my_box, .where = row, .chunk = row };
    rsd_box_intersect(&f->box, &other, &piece->box);
    return true;
}

/* Adds the pieces of one of my boxes along a mesh: a product again, but of this box alone. */
static bool add_product(finder *f)
{
    const rsd_layout *other = f->p->other;
    growing           cuts[RSD_MAX_NDIM];
    size_t            at[RSD_MAX_NDIM] = { 0 };
    int               d = 0;
    bool              ok = true, more = true;

    for (d = 0; d < f->box.ndim; d++)
        cuts[d] = (growing){ .size = sizeof(rsi_overlap_cut) };
    for (d = 0; ok && d < f->box.ndim; d++)
        ok = add_cuts(&cuts[d], other, d, f->box.off[d], f->box.len[d], 0);
    while (ok && more) {
        rsi_overlap *piece = grow(&f->list);

        ok = piece != NULL;
        if (!ok)
            break;
        *piece = (rsi_overlap){ .my_box = f->my_box, .where = other->mesh->base };
        piece->box.ndim = f->box.ndim;
        for (d = 0; d < f->box.ndim; d++) {
            const rsi_overlap_cut *cut = (const rsi_overlap_cut *)cuts[d].at + at[d];

            piece->box.off[d] = cut->start;
            piece->box.len[d] = cut->len;
            piece->where += cut->place;
            piece->chunk += cut->chunk;
        }
        for (d = f->box.ndim - 1; d >= 0 && ++at[d] == cuts[d].n; d--)
            at[d] = 0;
        more = d >= 0;
    }
    for (d = 0; d < f->box.ndim; d++)
        rsi_free(cuts[d].at);
    return ok;
}

static bool add_box(finder *f)
{
    if (f->p->other->mesh)
        return add_product(f);
    rsi_boxtree_find(&f->p->other->table.tree, &f->box, add_row, f);
    return !f->failed;
}

/* My i-th box in a mesh layout. */
static rsd_box product_box(const rsi_overlaps *p, size_t i)
{
    rsd_box box = { .ndim = p->mine->ndim };

    for (int d = p->mine->ndim - 1; d >= 0; d--) {
        const rsi_run *run = &p->run[d][i % p->nrun[d]];

        box.off[d] = run->start;
        box.len[d] = run->len;
        i /= p->nrun[d];
    }
    return box;
}

static int by_offset(const void *a, const void *b)
{
    const rsi_overlap *x = a, *y = b;

    return rsi_box_order(&x->box, &y->box);
}

static rsd_err make_list(rsi_overlaps *p, rsi_arena *mem, rsd_error *err)
{
    finder f = { .p = p, .list = { .size = sizeof(rsi_overlap) } };
    size_t first = 0, boxes = 1;
    bool   ok = true;

    if (p->mine->mesh)
        for (int d = 0; d < p->mine->ndim; d++)
            boxes *= p->nrun[d];
    else
        boxes = rsi_table_part(&p->mine->table, p->rank, &first);
    for (f.my_box = 0; ok && f.my_box < boxes; f.my_box++) {
        const rsi_table *table = &p->mine->table;

        f.box = p->mine->mesh ? product_box(p, f.my_box)
                              : rsi_boxes_get(&table->boxes, table->part[first + f.my_box]);
        ok = add_box(&f);
    }
    p->list = keep(&f.list, mem, &p->n);
    if (!ok || !p->list)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the pieces of a tensor");
    if (p->n > UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "a rank's part of one tensor falls into more than 2^32 pieces");
    qsort(p->list, p->n, sizeof(p->list[0]), by_offset);
    return RSD_OK;
}

rsd_err rsi_overlaps_make(rsi_overlaps *pieces, const rsd_layout *mine, const rsd_layout *other,
                          int32_t rank, rsi_arena *mem, rsd_error *err)
{
    bool    holds = true;
    rsd_err rc = RSD_OK;

    *pieces = (rsi_overlaps){ .mine = mine, .other = other, .rank = rank };
    if (mine->mesh)
        rc = make_runs(pieces, mem, &holds, err);
    if (rc || !holds)
        return rc;
    return mine->mesh && other->mesh ? make_product(pieces, mem, err) : make_list(pieces, mem, err);
}

size_t rsi_overlaps_get(const rsi_overlaps *p, size_t i, rsd_box *out)
{
    uint32_t left = (uint32_t)i; /* fewer than 2^32 pieces: 32-bit division is twice as fast */
    size_t   my_box = 0, step = 1;

    if (!p->product) {
        *out = p->list[i].box;
        return p->list[i].my_box;
    }
    out->ndim = p->mine->ndim;
    for (int d = p->mine->ndim - 1; d >= 0; d--) {
        uint32_t               n = (uint32_t)p->ncut[d], rest = n > 1 ? left / n : left;
        const rsi_overlap_cut *cut = &p->cut[d][left - rest * n];

        if (n == 1)
            cut = p->cut[d];
        out->off[d] = cut->start;
        out->len[d] = cut->len;
        my_box += cut->my_run * step;
        step *= p->nrun[d];
        left = rest;
    }
    return my_box;
}

int64_t rsi_overlaps_where(const rsi_overlaps *p, size_t i)
{
    int64_t where = p->product ? p->other->mesh->base : p->list[i].where;

    for (int d = p->mine->ndim - 1; d >= 0 && p->product; d--) {
        where += p->cut[d][i % p->ncut[d]].place;
        i /= p->ncut[d];
    }
    return where;
}

size_t rsi_overlaps_my_box(const rsi_overlaps *p, const rsd_box *box)
{
    size_t i = 0;

    if (!p->mine->mesh) {
        const rsi_overlap *lo = p->list;
        size_t             n = p->n;

        /* Moves within a rank are pieces on both its sides. */
        while (n > 1) {
            size_t half = n / 2;

            if (rsi_box_order(&lo[half].box, box) <= 0) {
                lo += half;
                n -= half;
            } else {
                n = half;
            }
        }
        return lo->my_box;
    }
    for (int d = 0; d < p->mine->ndim; d++) {
        size_t lo = 0, hi = p->nrun[d];

        while (hi - lo > 1) {
            size_t mid = lo + (hi - lo) / 2;

            if (p->run[d][mid].start <= box->off[d])
                lo = mid;
            else
                hi = mid;
        }
        i = i * p->nrun[d] + lo;
    }
    return i;
}

/* Recomputes the sums after dimension `from`, whose cut has changed. */
static void resum(rsi_overlap_iter *it, int from)
{
    const rsi_overlaps *p = it->pieces;

    for (int d = from; d < p->mine->ndim; d++) {
        const rsi_overlap_cut *cut = &p->cut[d][it->at[d]];

        it->place[d + 1] = it->place[d] + cut->place;
        it->chunk[d + 1] = it->chunk[d] + cut->chunk;
        it->count[d + 1] = it->count[d] * cut->len;
    }
}

void rsi_iter_begin(rsi_overlap_iter *it, const rsi_overlaps *pieces)
{
    memset(it, 0, sizeof(*it));
    it->pieces = pieces;
    it->count[0] = 1;
    if (pieces->product) {
        it->place[0] = pieces->other->mesh->base;
        if (pieces->n > 0)
            resum(it, 0);
    }
}

void rsi_iter_next(rsi_overlap_iter *it)
{
    const rsi_overlaps *p = it->pieces;
    int                 d = p->mine->ndim - 1;

    it->i++;
    if (!p->product || it->i == p->n)
        return;
    while (++it->at[d] == p->ncut[d])
        it->at[d--] = 0;
    resum(it, d);
}

int64_t rsi_iter_where(const rsi_overlap_iter *it)
{
    const rsi_overlaps *p = it->pieces;

    return p->product ? it->place[p->mine->ndim] : p->list[it->i].where;
}

int64_t rsi_iter_chunk(const rsi_overlap_iter *it)
{
    const rsi_overlaps *p = it->pieces;

    return p->product ? it->chunk[p->mine->ndim] : p->list[it->i].chunk;
}

size_t rsi_iter_my_box(const rsi_overlap_iter *it)
{
    return it->pieces->product ? 0 : it->pieces->list[it->i].my_box;
}

int64_t rsi_iter_count(const rsi_overlap_iter *it)
{
    const rsi_overlaps *p = it->pieces;

    return p->product ? it->count[p->mine->ndim] : rsd_box_count(&p->list[it->i].box);
}
