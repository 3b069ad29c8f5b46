/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank holds of a layout: its boxes, and where they lie in its memory. For a mesh the part
 * is a product: every combination of the dimensions' runs is one box. */
#include "shape/box.h"
#include "shape/layout.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <string.h>

/* Iterates over a rank's boxes in a mesh layout, last dimension fastest. */
typedef struct walk {
    const rsd_layout *layout;
    int64_t           coord[RSD_MAX_NDIM][RSD_MAX_NDIM]; /* [dimension][level] */
    rsi_run           run[RSD_MAX_NDIM];                 /* of the current box */
} walk;

/* False if the rank holds nothing. */
static bool walk_begin(walk *w, const rsd_layout *layout, int32_t rank)
{
    int64_t coord[RSD_MAX_NDIM];

    *w = (walk){ .layout = layout };
    if (!rsd_mesh_coord(layout->mesh, rank, coord))
        return false;
    for (int d = 0; d < layout->ndim; d++) {
        rsi_dim_coord(&layout->dim[d], coord, w->coord[d]);
        if (!rsi_dim_run(&layout->dim[d], w->coord[d], 0, &w->run[d]))
            return false;
    }
    return true;
}

static bool walk_next(walk *w)
{
    for (int d = w->layout->ndim - 1; d >= 0; d--) {
        const rsi_dim *dim = &w->layout->dim[d];

        if (rsi_dim_run(dim, w->coord[d], w->run[d].local + w->run[d].len, &w->run[d]))
            return true;
        rsi_dim_run(dim, w->coord[d], 0, &w->run[d]);
    }
    return false;
}

static rsd_box walk_box(const walk *w)
{
    rsd_box box = { .ndim = w->layout->ndim };

    for (int d = 0; d < box.ndim; d++) {
        box.off[d] = w->run[d].start;
        box.len[d] = w->run[d].len;
    }
    return box;
}

size_t rsd_layout_boxes(const rsd_layout *layout, int32_t rank, rsd_box *out, size_t cap)
{
    const rsi_table *table = &layout->table;
    size_t           n = 0, first;
    walk             w;

    if (!layout->mesh) {
        n = rsi_table_part(table, rank, &first);
        for (size_t i = 0; i < n && i < cap; i++)
            out[i] = rsi_boxes_get(&table->boxes, table->part[first + i]);
        return n;
    }
    if (!walk_begin(&w, layout, rank))
        return 0;
    do {
        if (n < cap)
            out[n] = walk_box(&w);
        n++;
    } while (walk_next(&w));
    return n;
}

/* Computes the byte strides of a rank's dense local tensor; returns its bytes. */
static int64_t local_strides(const walk *w, int64_t *stride)
{
    const rsd_layout *layout = w->layout;
    int64_t           len[RSD_MAX_NDIM], bytes = layout->elem_bytes;

    for (int d = 0; d < layout->ndim; d++) {
        len[d] = rsi_dim_length(&layout->dim[d], w->coord[d]);
        bytes *= len[d];
    }
    rsi_strides(layout->ndim, len, layout->elem_bytes, stride);
    return bytes;
}

static bool local_in_mesh(const rsd_layout *layout, int32_t rank, size_t i, rsd_local *out)
{
    walk w;

    if (!walk_begin(&w, layout, rank))
        return false;
    for (; i > 0; i--)
        if (!walk_next(&w))
            return false;
    *out = (rsd_local){ .box = walk_box(&w) };
    local_strides(&w, out->stride);
    for (int d = 0; d < layout->ndim; d++)
        out->offset += w.run[d].local * out->stride[d];
    return true;
}

static bool local_in_table(const rsd_layout *layout, int32_t rank, size_t i, rsd_local *out)
{
    const rsi_table *table = &layout->table;
    size_t           first;

    if (i >= rsi_table_part(table, rank, &first))
        return false;
    *out = (rsd_local){ .box = rsi_boxes_get(&table->boxes, table->part[first + i]),
                        .offset = table->part_elems[first + i] * layout->elem_bytes };
    rsi_strides(layout->ndim, out->box.len, layout->elem_bytes, out->stride);
    return true;
}

rsd_err rsd_layout_local(const rsd_layout *layout, int32_t rank, size_t i, rsd_local *out,
                         rsd_error *err)
{
    if (!layout || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: layout or output pointer");
    if (!(layout->mesh ? local_in_mesh : local_in_table)(layout, rank, i, out))
        return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " has no box %zu, it holds %zu", rank,
                        i, rsd_layout_boxes(layout, rank, NULL, 0));
    return RSD_OK;
}

int64_t rsd_layout_bytes(const rsd_layout *layout, int32_t rank)
{
    const rsi_table *table = &layout->table;
    int64_t          stride[RSD_MAX_NDIM];
    size_t           n, first;
    rsd_box          last;
    walk             w;

    if (layout->mesh)
        return walk_begin(&w, layout, rank) ? local_strides(&w, stride) : 0;
    n = rsi_table_part(table, rank, &first);
    if (n == 0)
        return 0;
    last = rsi_boxes_get(&table->boxes, table->part[first + n - 1]);
    return (table->part_elems[first + n - 1] + rsd_box_count(&last)) * layout->elem_bytes;
}
