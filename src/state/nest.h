/* SPDX-License-Identifier: Apache-2.0 */
/* From names to nesting: values, each with its path, as the dicts and lists that they lie in. */
#ifndef RSI_NEST_H
#define RSI_NEST_H

#include "state/state.h"

typedef struct rsi_leaf {
    const rsi_spot  *spot;
    const rsd_value *value;
} rsi_leaf;

/* The container of n values whose paths agree in their first `depth` parts and are longer; keys of
 * dicts come sorted. Sorts `leaf`. RSD_E_INVALID if the paths don't fit together. */
rsd_err rsi_nest(rsi_leaf *leaf, size_t n, size_t depth, rsd_values *owner, const rsd_value **out,
                 rsd_error *err);

#endif
