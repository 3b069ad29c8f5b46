/* SPDX-License-Identifier: Apache-2.0 */
/* How the mesh axes that shard one tensor dimension cut it up: closed forms, no tables, no memory.
 *
 * Each level cuts what the previous level left, an ascending list of indices. A plain shard gives
 * the rank at coordinate i the i-th chunk of the list (torch.chunk: ceil(n/k) to each from the
 * first on). A strided shard first cuts the list into `split` chunks, then each of those into
 * `ways` pieces, and gives the rank the i-th piece of each. A rank ends up with an ascending list
 * of runs; positions in that list are its local indices. */
#ifndef RSI_PLACEMENT_H
#define RSI_PLACEMENT_H

#include "base/error.h"

typedef struct rsi_level {
    int32_t axis;  /* of the mesh */
    int64_t ways;  /* number of ranks along it */
    int64_t split; /* 1: a plain shard */
} rsi_level;

typedef struct rsi_dim {
    int64_t   n; /* size of the tensor in this dimension */
    int32_t   nlevels;
    rsi_level level[RSD_MAX_NDIM]; /* in mesh-axis order */
} rsi_dim;

/* A run of consecutive indices with one owner. */
typedef struct rsi_run {
    int64_t start; /* in the tensor */
    int64_t len;
    int64_t local; /* index of its first element in the owner's local tensor */
} rsi_run;

/* torch.chunk: cuts n into k pieces; returns the length of piece i and sets *start. */
int64_t rsi_chunk(int64_t n, int64_t k, int64_t i, int64_t *start);

/* Finds the owner of index x, 0 <= x < n: sets coord[level] for each level and returns how many
 * consecutive indices from x on it owns (at least 1; the next run may have the same owner). */
int64_t rsi_dim_owner(const rsi_dim *dim, int64_t x, int64_t *coord);
/* Number of indices that the owner at coord[] has. */
int64_t rsi_dim_length(const rsi_dim *dim, const int64_t *coord);
/* The longest run of the owner at coord[] that begins at its local index `at`; false if it has no
 * such index. */
bool rsi_dim_run(const rsi_dim *dim, const int64_t *coord, int64_t at, rsi_run *out);

#endif
