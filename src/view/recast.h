/* SPDX-License-Identifier: Apache-2.0 */
/* A view that accepts elements of one dtype and passes them to another view as a different
 * dtype. */
#ifndef RSI_RECAST_H
#define RSI_RECAST_H

#include "base/error.h"

typedef struct rsi_recast {
    const rsd_view *to; /* strides are set */
    rsd_dtype       from_dtype, to_dtype;
} rsi_recast;

/* *out expects elements of from_dtype; it lives as long as the recast. */
void rsi_recast_view(const rsi_recast *recast, rsd_view *out);

#endif
