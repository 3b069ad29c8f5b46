/* SPDX-License-Identifier: Apache-2.0 */
/* Rules inside the library: the parser's result, which the other functions use. */
#ifndef RSI_RULES_H
#define RSI_RULES_H

#include "base/arena.h"
#include "shape/mesh.h"

typedef struct rsi_rule {
    const char   *pattern;
    int           line;
    bool          named[RSD_MAX_NDIM]; /* [mesh axis] */
    rsd_placement place[RSD_MAX_NDIM]; /* [mesh axis] replicate if not named */
    int64_t   on[RSD_MAX_NDIM]; /* [mesh axis] index that the sub-mesh fixes; -1: the whole axis */
    rsd_mesh *mesh;             /* of the whole axes */
} rsi_rule;

struct rsd_rules {
    rsd_mesh *mesh;
    rsi_rule *rule;
    size_t    n;
    rsi_arena mem;
};

/* The words for reductions, by rsd_reduce. */
extern const char *const rsi_reductions[];

#endif
