/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the holders of pieces, by arithmetic on meshes or by table lookup. */
#include "plan/piece_holders.h"
#include "plan/overlap.h"

static void add_axis(rsi_axes *axes, const rsd_mesh *mesh, int a)
{
    axes->axis[axes->n] = a;
    axes->size[axes->n] = mesh->shape[a];
    axes->stride[axes->n++] = mesh->stride[a];
    axes->count *= mesh->shape[a];
}

/* The counter's value at mesh coordinates. */
static int64_t axes_index(const rsi_axes *axes, const int64_t *coord)
{
    int64_t i = 0;

    for (int k = 0; k < axes->n; k++)
        i = i * axes->size[k] + coord[axes->axis[k]];
    return i;
}

/* What the counter's value i adds to a place. */
static int64_t axes_place(const rsi_axes *axes, int64_t i)
{
    int64_t place = 0;

    for (int k = axes->n - 1; k >= 0; k--) {
        place += i % axes->size[k] * axes->stride[k];
        i /= axes->size[k];
    }
    return place;
}

/* A place without the contribution of the copy and part axes. */
static int64_t bare_place(const rsi_side *side, const int64_t *coord)
{
    const rsd_mesh *mesh = side->layout->mesh;
    int64_t         place = mesh->base;

    for (int a = 0; a < mesh->ndim; a++)
        place += coord[a] * mesh->stride[a];
    for (int k = 0; k < side->copies.n; k++)
        place -= coord[side->copies.axis[k]] * side->copies.stride[k];
    for (int k = 0; k < side->parts.n; k++)
        place -= coord[side->parts.axis[k]] * side->parts.stride[k];
    return place;
}

void rsi_side_make(rsi_side *side, const rsd_layout *layout, int32_t rank, bool parts_apart)
{
    const rsd_mesh *mesh = layout->mesh;

    *side = (rsi_side){ .layout = layout, .rank = rank };
    side->copies.count = side->parts.count = 1;
    if (!mesh)
        return;
    for (int a = 0; a < mesh->ndim; a++) {
        if (layout->place[a].kind == RSD_PARTIAL && parts_apart)
            add_axis(&side->parts, mesh, a);
        else if (layout->place[a].kind == RSD_REPLICATE || layout->place[a].kind == RSD_PARTIAL)
            add_axis(&side->copies, mesh, a);
    }
    side->inside = rsd_mesh_coord(mesh, rank, side->coord);
    if (side->inside) {
        side->my_copy = axes_index(&side->copies, side->coord);
        side->my_part = axes_index(&side->parts, side->coord);
        side->my_chunk = rsi_layout_chunk(layout, side->coord);
        side->my_where = bare_place(side, side->coord);
    }
}

void rsi_side_mine(const rsi_side *side, size_t my_box, int64_t *chunk, int64_t *copy)
{
    const rsi_table *table = &side->layout->table;
    size_t           first, row;

    *chunk = side->my_chunk;
    *copy = side->my_copy;
    if (side->layout->mesh)
        return;
    rsi_table_part(table, side->rank, &first);
    row = table->part[first + my_box];
    *chunk = (int64_t)row;
    *copy = rsi_table_holder_index(table, row, side->rank);
}

int64_t rsi_side_copies(const rsi_side *side, int64_t where)
{
    size_t n;

    if (side->layout->mesh)
        return side->copies.count;
    rsi_table_holders(&side->layout->table, (size_t)where, &n);
    return (int64_t)n;
}

int32_t rsi_side_holder(const rsi_side *side, int64_t where, int64_t copy, int64_t part)
{
    size_t n;

    if (!side->layout->mesh)
        return rsi_table_holders(&side->layout->table, (size_t)where, &n)[copy];
    if (side->copies.n > 0)
        where += axes_place(&side->copies, copy);
    if (side->parts.n > 0)
        where += axes_place(&side->parts, part);
    return rsi_mesh_at(side->layout->mesh, where);
}

bool rsi_side_holds(const rsi_side *side, int64_t where, int64_t part, int32_t rank)
{
    const rsd_layout *layout = side->layout;
    int64_t           coord[RSD_MAX_NDIM];

    if (!layout->mesh)
        return rsi_table_holder_index(&layout->table, (size_t)where, rank) >= 0;
    return rsd_mesh_coord(layout->mesh, rank, coord) && bare_place(side, coord) == where &&
           axes_index(&side->parts, coord) == part;
}

bool rsi_side_have(const rsi_side *side, int64_t where, int64_t part)
{
    if (!side->layout->mesh)
        return rsi_table_holder_index(&side->layout->table, (size_t)where, side->rank) >= 0;
    return side->inside && where == side->my_where && part == side->my_part;
}
