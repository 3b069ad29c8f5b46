/* SPDX-License-Identifier: Apache-2.0 */
/* Turns names into nesting: builds the dicts and lists that contain values, given their paths. */
#ifndef RSI_NEST_H
#define RSI_NEST_H

#include "state/state.h"

typedef struct rsi_leaf {
    const rsi_spot  *spot;
    const rsd_value *value;
} rsi_leaf;

/* The container of n values whose paths share their first `depth` parts and are longer than that;
 * dict keys come sorted. Sorts `leaf`. RSD_E_INVALID if the paths conflict. */
rsd_err rsi_nest(rsi_leaf *leaf, size_t n, size_t depth, rsd_values *owner, const rsd_value **out,
                 rsd_error *err);

#endif
