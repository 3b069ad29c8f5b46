/* SPDX-License-Identifier: Apache-2.0 */
/* A layout inside the library: a mesh and placements (a formula), or a table of boxes. The planner
 * asks it two things: which runs a rank holds, and which ranks hold a given piece. */
#ifndef RSI_LAYOUT_H
#define RSI_LAYOUT_H

#include "shape/mesh.h"
#include "shape/placement.h"
#include "shape/table.h"

#include <stdatomic.h>

struct rsd_layout {
    atomic_int refs;
    rsd_dtype  dtype;
    int32_t    ndim;
    int64_t    elem_bytes;
    int64_t    shape[RSD_MAX_NDIM];
    uint64_t   hash; /* equal for equal layouts */

    rsd_mesh     *mesh;                /* NULL: the table below */
    rsd_placement place[RSD_MAX_NDIM]; /* [mesh->ndim] dims not negative, unused fields zero */
    rsi_dim       dim[RSD_MAX_NDIM];   /* [ndim] */
    rsd_reduce    reduce;              /* 0: no axis is Partial */

    rsi_table table;
    bool      covers; /* every element has a holder */
};

rsd_layout *rsi_layout_ref(
    const rsd_layout *layout); /* adds a user; release it with rsd_layout_free */
/* Equal layouts have the same digest in every process. O(ranks). */
uint64_t rsi_layout_digest(const rsd_layout *layout);
/* Picks the coordinates of dimension d's levels from the mesh's. */
void rsi_dim_coord(const rsi_dim *dim, const int64_t *mesh_coord, int64_t *coord);
/* Number of ranks along the axes of one kind (1 if there is none): holders of each box, or
 * contributors to it. */
int64_t rsi_layout_ways(const rsd_layout *layout, rsd_place_kind kind);

#endif
