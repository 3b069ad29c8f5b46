/* SPDX-License-Identifier: Apache-2.0 */
/* One group of a recipe while its targets are made: shared by made_members.c, which finds out
 * sizes, and made_build.c, which makes terms. */
#ifndef RSI_MADE_GROUP_H
#define RSI_MADE_GROUP_H

#include "recipe/axes.h"
#include "recipe/made.h"

enum { RSI_TUPLES_MOST = 1 << 22 };

/* A capture that only the names of one side have: an axis of the other. */
typedef struct rsi_stacked {
    int     capture;
    int64_t first, n; /* index on the axis = number - first */
} rsi_stacked;

typedef struct rsi_building {
    rsi_made             *made;
    const rsi_rule_group *group;
    rsi_rule_scope        scope, sizes_scope;
    rsi_sizes             sizes;
    rsi_stacked       in[RSI_CAPTURES], out[RSI_CAPTURES]; /* in the sources' names, the targets' */
    int               nin, nout;
    int64_t           tuples_in, tuples_out; /* combinations of their numbers */
    const rsi_member *values[RSI_SIDE_MOST], *scales[RSI_SIDE_MOST]; /* [item] first of each */
    const rsi_member *low[RSI_SIDE_MOST];
    int64_t           used[RSI_SIDE_MOST]; /* [item] elements of one of its sources */
    rsi_arena         spare;
} rsi_building;

/* The numbers that tuple k stands for. */
void rsi_set_tuple(const rsi_stacked *s, int n, int64_t k, rsi_captured *c);
/* Finds the sources of all items; sets `in` and `tuples_in`. */
rsd_err rsi_find_members(rsi_building *b, rsd_error *err);
/* The shape of an item's sources; of a quantised one that of its values. */
rsd_err rsi_source_shape(const rsi_building *b, size_t item, int *ndim, int64_t *shape,
                         rsd_error *err);
rsd_err rsi_learn_sizes(rsi_building *b, rsd_error *err);
/* Sets `out` and `tuples_out`. */
rsd_err rsi_find_unstacked(rsi_building *b, rsd_error *err);

#endif
