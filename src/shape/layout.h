/* SPDX-License-Identifier: Apache-2.0 */
/* A layout inside the library: a mesh and placements (a formula), or a table of boxes. The planner
 * asks it two things: which runs does a rank hold, and who holds what a piece needs. */
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
    uint64_t   hash; /* equal layouts have equal ones */

    rsd_mesh     *mesh;                /* NULL: the table below */
    rsd_placement place[RSD_MAX_NDIM]; /* [mesh->ndim] dims not negative, unused fields zero */
    rsi_dim       dim[RSD_MAX_NDIM];   /* [ndim] */
    rsd_reduce    reduce;              /* 0: no axis is Partial */

    rsi_table table;
    bool      covers; /* every element has a holder */
};

rsd_layout *rsi_layout_ref(const rsd_layout *layout); /* one more user; rsd_layout_free ends it */
/* The same for equal layouts in every process. O(ranks). */
uint64_t rsi_layout_digest(const rsd_layout *layout);
/* Coordinates of the levels of dimension d, picked from those of the mesh. */
void rsi_dim_coord(const rsi_dim *dim, const int64_t *mesh_coord, int64_t *coord);
/* Ranks along the axes of one kind (1 if there is none): holders of each box, or contributors to
 * it. */
int64_t rsi_layout_ways(const rsd_layout *layout, rsd_place_kind kind);

#endif
