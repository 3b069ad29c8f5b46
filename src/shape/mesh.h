/* SPDX-License-Identifier: Apache-2.0 */
/* A mesh inside the library. A rank's place is one number: base + sum of coordinate * stride.
 * Without a list of ranks the strides make the place equal to the rank, so a mesh and its slices
 * need no memory for ranks. */
#ifndef RSI_MESH_H
#define RSI_MESH_H

#include "base/arena.h"
#include "base/error.h"

#include <stdatomic.h>

typedef struct rsi_placed {
    int32_t rank;
    int32_t place;
} rsi_placed;

struct rsd_mesh {
    atomic_int  refs;
    int         ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     stride[RSD_MAX_NDIM]; /* in places */
    int64_t     base;                 /* place of the coordinates 0, 0, ... */
    int64_t     size;                 /* number of ranks */
    int32_t     world;                /* highest rank + 1 */
    const char *axis[RSD_MAX_NDIM];
    int32_t    *ranks;   /* [size] rank at each place; NULL: the place itself */
    rsi_placed *by_rank; /* [size] sorted by rank; NULL likewise */
    rsi_arena   mem;
};

rsd_mesh *rsi_mesh_ref(const rsd_mesh *mesh); /* adds a user; release it with rsd_mesh_free */

static inline int32_t rsi_mesh_at(const rsd_mesh *mesh, int64_t place)
{
    return mesh->ranks ? mesh->ranks[place] : (int32_t)place;
}

/* -1 if there is no such axis */
int  rsi_mesh_axis_index(const rsd_mesh *mesh, const char *name);
bool rsi_mesh_equal(const rsd_mesh *a, const rsd_mesh *b);

#endif
