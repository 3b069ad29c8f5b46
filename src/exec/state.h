/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller hands over to be saved or filled: tensors and values under names, with their
 * nesting. */
#ifndef RSI_STATE_H
#define RSI_STATE_H

#include "base/arena.h"
#include "base/map.h"
#include "format/value.h"
#include "shape/layout.h"

/* Where something stands. */
typedef struct rsi_spot {
    const char          *name; /* the path's parts, joined by dots */
    const rsd_path_part *part; /* [nparts] */
    size_t               nparts;
} rsi_spot;

typedef struct rsi_state_tensor {
    rsi_spot    spot;
    rsd_layout *layout; /* NULL: only the views matter */
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     elem_bytes;
    rsd_view   *view; /* [nviews] strides are set */
    size_t      nviews;
} rsi_state_tensor;

typedef struct rsi_state_value {
    rsi_spot         spot;
    const rsd_value *value;
} rsi_state_value;

struct rsd_state {
    rsi_state_tensor *tensor;
    size_t            ntensors, tensor_cap;
    rsi_state_value  *value;
    size_t            nvalues, value_cap;
    rsd_path_part    *stack; /* what was pushed */
    size_t            depth, stack_cap;
    rsi_map           names;
    rsi_arena         mem;
};

#endif
