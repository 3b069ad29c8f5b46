/* SPDX-License-Identifier: Apache-2.0 */
/* Creates layouts and computes what a rank holds. placement.c has the arithmetic of one dimension,
 * table.c irregular boxes, rules.c text. Next: plan/overlap.c. */
#include "shape/layout.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/map.h"
#include "base/mem.h"
#include "shape/box.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <string.h>

rsd_layout *rsi_layout_ref(const rsd_layout *layout)
{
    rsd_layout *shared = (rsd_layout *)(uintptr_t)layout; /* only the count changes, atomically */

    atomic_fetch_add(&shared->refs, 1);
    return shared;
}

void rsd_layout_free(rsd_layout *layout)
{
    if (!layout || atomic_fetch_sub(&layout->refs, 1) > 1)
        return;
    rsd_mesh_free(layout->mesh);
    rsi_table_release(&layout->table);
    rsi_free(layout);
}

static rsd_err new_layout(rsd_dtype dtype, int ndim, const int64_t *shape, rsd_layout **out,
                          rsd_error *err)
{
    rsd_layout *layout;
    int64_t     elems;
    rsd_err     rc = rsi_shape_check(dtype, ndim, shape, &elems, err);

    if (rc)
        return rc;
    layout = rsi_calloc(1, sizeof(*layout));
    if (!layout)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a layout");
    atomic_init(&layout->refs, 1);
    layout->dtype = dtype;
    layout->ndim = ndim;
    layout->elem_bytes = (int64_t)rsd_dtype_size(dtype);
    if (ndim > 0)
        memcpy(layout->shape, shape, (size_t)ndim * sizeof(shape[0]));
    *out = layout;
    return RSD_OK;
}

/* Hashes what equal meshes have in common, however they store their ranks: shape, first and highest
 * rank. */
static uint64_t hash_mesh(const rsd_mesh *mesh)
{
    int64_t key[4 + RSD_MAX_NDIM] = { mesh->ndim, mesh->size, mesh->world };

    key[3] = rsi_mesh_at(mesh, mesh->base);
    memcpy(key + 4, mesh->shape, sizeof(mesh->shape));
    for (int a = 0; a < mesh->ndim; a++)
        key[4 + a] ^= (int64_t)rsi_hash(mesh->axis[a], strlen(mesh->axis[a]));
    return rsi_hash(key, sizeof(key));
}

static uint64_t hash_table(const rsi_table *table)
{
    size_t words = 2 * table->boxes.n * (size_t)table->boxes.ndim;
    size_t holders = table->hold_first[table->boxes.n];

    return rsi_hash(table->boxes.at, words * sizeof(table->boxes.at[0])) ^
           rsi_hash(table->holder, holders * sizeof(table->holder[0])) ^
           rsi_hash(table->part, holders * sizeof(table->part[0]));
}

static uint64_t hash_layout(const rsd_layout *layout)
{
    int64_t key[3 + 5 * RSD_MAX_NDIM] = { layout->dtype, layout->ndim };

    key[2] = (int64_t)(layout->mesh ? hash_mesh(layout->mesh) : hash_table(&layout->table));
    memcpy(key + 3, layout->shape, sizeof(layout->shape));
    for (int a = 0; a < RSD_MAX_NDIM; a++) {
        int64_t *at = key + 3 + RSD_MAX_NDIM + 4 * a;

        at[0] = layout->place[a].kind;
        at[1] = layout->place[a].dim;
        at[2] = layout->place[a].split;
        at[3] = layout->place[a].reduce;
    }
    return rsi_hash(key, sizeof(key));
}

/* Checks a placement of the caller's and brings it into its normal form. */
static rsd_err normal_place(const rsd_layout *layout, const char *axis, rsd_placement place,
                            rsd_placement *out, rsd_error *err)
{
    rsd_placement normal = { .kind = place.kind };

    switch (place.kind) {
    case RSD_REPLICATE:
        break;
    case RSD_SHARD:
    case RSD_STRIDED:
        normal.dim = place.dim < 0 ? place.dim + layout->ndim : place.dim;
        normal.split = place.kind == RSD_STRIDED ? place.split : 1;
        if (normal.dim < 0 || normal.dim >= layout->ndim)
            return rsi_fail(err, RSD_E_INVALID,
                            "axis \"%s\" shards dimension %" PRId32 ", but the tensor has %" PRId32
                            " dimension%s",
                            axis, place.dim, layout->ndim, layout->ndim == 1 ? "" : "s");
        if (normal.split < 1)
            return rsi_fail(err, RSD_E_INVALID, "axis \"%s\" has the split factor %" PRId64, axis,
                            place.split);
        break;
    case RSD_PARTIAL:
        normal.reduce = place.reduce;
        if (place.reduce < RSD_SUM || place.reduce > RSD_PRODUCT)
            return rsi_fail(err, RSD_E_INVALID, "axis \"%s\" is partial with the reduction %d",
                            axis, (int)place.reduce);
        if (layout->reduce && layout->reduce != place.reduce)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "axis \"%s\" is partial with another reduction than an axis before it",
                            axis);
        break;
    default:
        return rsi_fail(err, RSD_E_INVALID, "axis \"%s\" has no placement of kind %d", axis,
                        (int)place.kind);
    }
    *out = normal;
    return RSD_OK;
}

static rsd_err set_places(rsd_layout *layout, const rsd_placement *place, rsd_error *err)
{
    const rsd_mesh *mesh = layout->mesh;

    for (int d = 0; d < layout->ndim; d++)
        layout->dim[d].n = layout->shape[d];
    for (int32_t a = 0; a < mesh->ndim; a++) {
        rsd_placement *p = &layout->place[a];
        rsd_err        rc = normal_place(layout, mesh->axis[a], place[a], p, err);

        if (rc)
            return rc;
        if (p->kind == RSD_PARTIAL)
            layout->reduce = p->reduce;
        if (p->kind == RSD_SHARD || p->kind == RSD_STRIDED) {
            rsi_dim *dim = &layout->dim[p->dim];

            dim->level[dim->nlevels++] =
                (rsi_level){ .axis = a, .ways = mesh->shape[a], .split = p->split };
        }
    }
    return RSD_OK;
}

rsd_err rsd_layout_create(const rsd_mesh *mesh, const rsd_placement *place, rsd_dtype dtype,
                          int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err)
{
    rsd_layout *layout;
    rsd_err     rc;

    if (!mesh || !out || (mesh->ndim > 0 && !place))
        return rsi_fail(err, RSD_E_INVALID, "a layout needs a mesh and a placement for each axis");
    rc = new_layout(dtype, ndim, shape, &layout, err);
    if (rc)
        return rc;
    layout->mesh = rsi_mesh_ref(mesh);
    layout->covers = true;
    rc = set_places(layout, place, err);
    if (rc) {
        rsd_layout_free(layout);
        return rc;
    }
    layout->hash = hash_layout(layout);
    *out = layout;
    return RSD_OK;
}

rsd_err rsd_layout_create_chunked(int32_t dim, size_t n, const int32_t *ranks, rsd_dtype dtype,
                                  int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err)
{
    rsd_placement shard = { .kind = RSD_SHARD, .dim = dim };
    int64_t       size = (int64_t)n;
    rsd_mesh     *mesh;
    rsd_err       rc;

    if (n == 0 || n >= INT32_MAX || !ranks)
        return rsi_fail(err, RSD_E_INVALID, "a chunked layout needs a list of ranks, %zu are given",
                        n);
    rc = rsd_mesh_create(1, &size, NULL, ranks, &mesh, err);
    if (rc)
        return rc;
    rc = rsd_layout_create(mesh, &shard, dtype, ndim, shape, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

static rsd_err create_table(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                            const rsi_given *given, bool cover, rsd_layout **out, rsd_error *err)
{
    rsd_layout *layout;
    rsd_err     rc;

    rc = new_layout(dtype, ndim, shape, &layout, err);
    if (rc)
        return rc;
    rc = rsi_table_build(&layout->table, ndim, shape, n, given, cover, err);
    if (rc) {
        rsd_layout_free(layout);
        return rc;
    }
    layout->covers = cover;
    layout->hash = hash_layout(layout);
    *out = layout;
    return RSD_OK;
}

/* Box i belongs to owner[i], or to `rank` if there is no list. */
static rsd_err create_boxes(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                            const int32_t *owner, int32_t rank, const rsd_box *box, bool cover,
                            rsd_layout **out, rsd_error *err)
{
    rsi_given *given = rsi_calloc(n, sizeof(given[0]));
    rsd_err    rc;

    if (!given)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a %s of %zu boxes",
                        cover ? "layout" : "part", n);
    for (size_t i = 0; i < n; i++)
        given[i] = (rsi_given){ .owner = owner ? owner[i] : rank, .box = box[i] };
    rc = create_table(dtype, ndim, shape, n, given, cover, out, err);
    rsi_free(given);
    return rc;
}

rsd_err rsd_layout_create_boxes(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                const int32_t *owner, const rsd_box *box, rsd_layout **out,
                                rsd_error *err)
{
    if (!out || (n > 0 && (!owner || !box)))
        return rsi_fail(err, RSD_E_INVALID, "a layout of %zu boxes needs an owner for each", n);
    return create_boxes(dtype, ndim, shape, n, owner, 0, box, true, out, err);
}

rsd_err rsd_layout_create_part(rsd_dtype dtype, int ndim, const int64_t *shape, int32_t rank,
                               size_t n, const rsd_box *box, rsd_layout **out, rsd_error *err)
{
    if (!out || (n > 0 && !box))
        return rsi_fail(err, RSD_E_INVALID, "a part of %zu boxes needs the boxes", n);
    if (rank < 0 || rank == INT32_MAX)
        return rsi_fail(err, RSD_E_INVALID, "a part can't belong to rank %" PRId32, rank);
    return create_boxes(dtype, ndim, shape, n, NULL, rank, box, false, out, err);
}

static rsd_err check_range(size_t i, int32_t owner, int64_t start, int64_t count, int64_t elems,
                           rsd_error *err)
{
    if (owner < 0 || owner == INT32_MAX)
        return rsi_fail(err, RSD_E_INVALID, "range %zu can't belong to rank %" PRId32, i, owner);
    if (start < 0 || count < 0 || start > elems || count > elems - start)
        return rsi_fail(err, RSD_E_INVALID,
                        "range %zu of %" PRId64 " elements from %" PRId64
                        " on falls outside the tensor, it has %" PRId64,
                        i, count, start, elems);
    return RSD_OK;
}

rsd_err rsd_layout_create_ranges(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                 const int32_t *owner, const int64_t *start, const int64_t *count,
                                 rsd_layout **out, rsd_error *err)
{
    size_t     boxes = 0, most = ndim > 0 ? 2 * (size_t)ndim - 1 : 1;
    int64_t    elems;
    rsi_given *given;
    rsd_err    rc = rsi_shape_check(dtype, ndim, shape, &elems, err);

    if (rc)
        return rc;
    if (!out || (n > 0 && (!owner || !start || !count)))
        return rsi_fail(err, RSD_E_INVALID, "a layout of %zu ranges needs owner, start and count",
                        n);
    given = rsi_calloc(n, most * sizeof(given[0]));
    if (!given)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a layout of %zu ranges", n);
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t at = start[i];

        rc = check_range(i, owner[i], start[i], count[i], elems, err);
        while (!rc && at < start[i] + count[i]) {
            given[boxes].owner = owner[i];
            at += rsi_range_box(ndim, shape, at, start[i] + count[i], &given[boxes++].box);
        }
    }
    if (!rc)
        rc = create_table(dtype, ndim, shape, boxes, given, true, out, err);
    rsi_free(given);
    return rc;
}

rsd_dtype rsd_layout_dtype(const rsd_layout *layout)
{
    return layout->dtype;
}

int rsd_layout_shape(const rsd_layout *layout, int64_t *shape)
{
    if (shape)
        memcpy(shape, layout->shape, (size_t)layout->ndim * sizeof(shape[0]));
    return layout->ndim;
}

int32_t rsd_layout_world(const rsd_layout *layout)
{
    const rsi_table *table = &layout->table;

    if (layout->mesh)
        return layout->mesh->world;
    return table->nranks ? table->rank[table->nranks - 1] + 1 : 0;
}

static uint64_t digest_mesh(uint64_t d, const rsd_mesh *mesh)
{
    int64_t coord[RSD_MAX_NDIM] = { 0 };

    d = rsi_digest(d, mesh->shape, (size_t)mesh->ndim * sizeof(mesh->shape[0]));
    for (int64_t i = 0; i < mesh->size; i++) {
        int32_t rank = rsd_mesh_rank(mesh, coord);

        d = rsi_digest(d, &rank, sizeof(rank));
        for (int a = mesh->ndim - 1; a >= 0 && ++coord[a] == mesh->shape[a]; a--)
            coord[a] = 0;
    }
    return d;
}

uint64_t rsi_layout_digest(const rsd_layout *layout)
{
    const rsi_table *table = &layout->table;
    uint64_t         d = (uint64_t)layout->covers;
    size_t           words = 2 * table->boxes.n * (size_t)table->boxes.ndim;

    if (!layout->mesh) {
        d = rsi_digest(d, table->boxes.at, words * sizeof(table->boxes.at[0]));
        return table->boxes.n == 0
                   ? d
                   : rsi_digest(d, table->holder,
                                table->hold_first[table->boxes.n] * sizeof(table->holder[0]));
    }
    d = digest_mesh(d, layout->mesh);
    for (int a = 0; a < layout->mesh->ndim; a++) {
        int64_t place[] = { layout->place[a].kind, layout->place[a].dim, layout->place[a].split,
                            layout->place[a].reduce };

        d = rsi_digest(d, place, sizeof(place));
    }
    return d;
}

void rsi_dim_coord(const rsi_dim *dim, const int64_t *mesh_coord, int64_t *coord)
{
    for (int l = 0; l < dim->nlevels; l++)
        coord[l] = mesh_coord[dim->level[l].axis];
}

int64_t rsi_layout_ways(const rsd_layout *layout, rsd_place_kind kind)
{
    int64_t ways = 1;

    for (int a = 0; layout->mesh && a < layout->mesh->ndim; a++)
        if (layout->place[a].kind == kind)
            ways *= layout->mesh->shape[a];
    return ways;
}

static bool same_tensor(const rsd_layout *a, const rsd_layout *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

static bool same_table(const rsi_table *a, const rsi_table *b)
{
    size_t holders = a->hold_first[a->boxes.n];

    return a->boxes.n == b->boxes.n && holders == b->hold_first[b->boxes.n] &&
           memcmp(a->boxes.at, b->boxes.at,
                  2 * a->boxes.n * (size_t)a->boxes.ndim * sizeof(a->boxes.at[0])) == 0 &&
           memcmp(a->hold_first, b->hold_first, a->boxes.n * sizeof(a->hold_first[0])) == 0 &&
           memcmp(a->holder, b->holder, holders * sizeof(a->holder[0])) == 0 &&
           memcmp(a->part, b->part, holders * sizeof(a->part[0])) == 0;
}

bool rsd_layout_equal(const rsd_layout *a, const rsd_layout *b)
{
    if (a == b)
        return true;
    if (a->hash != b->hash || !same_tensor(a, b) || a->covers != b->covers || !a->mesh != !b->mesh)
        return false;
    if (!a->mesh)
        return same_table(&a->table, &b->table);
    for (int i = 0; i < a->mesh->ndim; i++)
        if (a->place[i].kind != b->place[i].kind || a->place[i].dim != b->place[i].dim ||
            a->place[i].split != b->place[i].split || a->place[i].reduce != b->place[i].reduce)
            return false;
    return rsi_mesh_equal(a->mesh, b->mesh);
}
