/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the wanted part of a chunk into blocks. */
#include "plan/region.h"
#include "base/checked.h"
#include "shape/box.h"

#include <stdlib.h>

#define NEAR                                                                                       \
    4096 /* bytes: runs no further apart than a page are read together, the system reads the gap   \
            anyway */

void rsi_region_order(const rsi_region *region, const int64_t *by_dim, int64_t *by_file)
{
    for (int k = 0; k < region->box.ndim; k++)
        by_file[k] = by_dim[region->dim[k]];
}

void rsi_region_box(const rsi_region *region, const rsd_box *by_file, rsd_box *by_dim)
{
    *by_dim = (rsd_box){ .ndim = by_file->ndim };
    for (int k = 0; k < by_file->ndim; k++) {
        by_dim->off[region->dim[k]] = by_file->off[k];
        by_dim->len[region->dim[k]] = by_file->len[k];
    }
}

/* Sorts dimensions by stride, largest first; equal ones keep their order. */
static void sort_dims(rsi_region *r, const int64_t *stride)
{
    for (int32_t d = 0; d < r->box.ndim; d++) {
        int k = d;

        for (; k > 0 && llabs(stride[r->dim[k - 1]]) < llabs(stride[d]); k--)
            r->dim[k] = r->dim[k - 1];
        r->dim[k] = d;
    }
}

/* Bytes from the first to the last of `len` elements per side. */
static int64_t span_of(const rsi_region *r, const int64_t *len)
{
    int64_t span = r->elem_bytes;

    for (int k = 0; k < r->box.ndim; k++)
        span += (len[k] - 1) * r->file_stride[k];
    return span;
}

/* Sets the run, and `near` if the loop around it skips only small gaps. */
static void find_runs(rsi_region *r)
{
    int k = r->box.ndim;

    r->run = r->elem_bytes;
    while (k > 0 && (r->file_stride[k - 1] == r->run || r->box.len[k - 1] == 1))
        r->run *= r->box.len[--k];
    r->near = k == 0 || r->file_stride[k - 1] - r->run <= NEAR;
}

/* Finds the largest block: whole inner dimensions, as much of one as fits, single steps of the
 * outer ones. */
static void size_blocks(rsi_region *r, int64_t most)
{
    int ndim = r->box.ndim;

    for (int k = 0; k < ndim; k++)
        r->block_len[k] = 1;
    for (int k = ndim - 1; k >= 0; k--) {
        rsd_box block = { .ndim = ndim };
        int64_t one, fits;

        for (int j = 0; j < ndim; j++)
            block.len[j] = r->block_len[j];
        if (r->near && r->box.len[k] > 1 && r->file_stride[k] - span_of(r, block.len) > NEAR)
            break; /* the gap between these is not worth reading */
        one = rsd_box_count(&block) * r->elem_bytes;
        fits = 1 + rsi_max(0, most - one) / one;
        if (r->near && r->file_stride[k] > 0) /* elements at the same offset take no span */
            fits = rsi_min(fits, 1 + rsi_max(0, most - span_of(r, block.len)) / r->file_stride[k]);
        r->block_len[k] = rsi_min(r->box.len[k], fits);
        if (r->block_len[k] < r->box.len[k])
            break;
    }
    r->nblocks = 1;
    for (int k = 0; k < ndim; k++)
        r->nblocks *= rsi_ceil_div(r->box.len[k], r->block_len[k]);
}

void rsi_region_make(rsi_region *region, const rsd_box *box, const rsd_box *chunk,
                     int64_t elem_bytes, uint64_t offset, const int64_t *stride, int64_t most)
{
    *region = (rsi_region){ .box.ndim = box->ndim, .elem_bytes = elem_bytes };
    sort_dims(region, stride);
    region->start = offset + (uint64_t)rsi_box_offset(box, chunk, stride);
    rsi_region_order(region, box->off, region->box.off);
    rsi_region_order(region, box->len, region->box.len);
    rsi_region_order(region, stride, region->file_stride);
    find_runs(region);
    size_blocks(region, most);
}

int64_t rsi_region_packed(rsi_region *region, const rsd_box *box, int64_t elem_bytes, int64_t most)
{
    int64_t packed[RSD_MAX_NDIM];

    if (rsd_box_count(box) == 0)
        return 0;
    rsi_strides(box->ndim, box->len, elem_bytes, packed);
    rsi_region_make(region, box, box, elem_bytes, 0, packed, most);
    return region->nblocks;
}

void rsi_region_block(const rsi_region *r, int64_t i, rsi_block *out)
{
    *out = (rsi_block){ .box.ndim = r->box.ndim, .at = r->start };
    for (int k = r->box.ndim - 1; k >= 0; k--) {
        int64_t n = rsi_ceil_div(r->box.len[k], r->block_len[k]);
        int64_t first = i % n * r->block_len[k];

        out->box.off[k] = r->box.off[k] + first;
        out->box.len[k] = rsi_min(r->block_len[k], r->box.len[k] - first);
        out->at += (uint64_t)(first * r->file_stride[k]);
        i /= n;
    }
    out->bytes = rsd_box_count(&out->box) * r->elem_bytes;
    out->span = span_of(r, out->box.len);
}

void rsi_region_part(const rsi_region *region, int64_t i, rsd_box *by_dim)
{
    rsi_block block;

    rsi_region_block(region, i, &block);
    rsi_region_box(region, &block.box, by_dim);
}
