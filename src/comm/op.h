/* SPDX-License-Identifier: Apache-2.0 */
/* A pending operation: the caller's handle, and the table of its functions. */
#ifndef RSI_OP_H
#define RSI_OP_H

#include "base/error.h"

typedef struct rsi_op_ops {
    /* *done: `phase` has been reached; returns its result then. Advances the operation without
     * waiting for others. */
    rsd_err (*test)(void *self, rsd_phase phase, bool *done, rsd_error *err);
    /* Advances until `phase` is reached. Repeated calls return the same result. */
    rsd_err (*wait)(void *self, rsd_phase phase, rsd_error *err);
    void (*cancel)(void *self);
    void (*free)(void *self); /* even if it has not finished */
} rsi_op_ops;

/* Takes over `self` on success. NULL: rsi_op_set sets it later; nothing is called before that. */
rsd_err rsi_op_create(const rsi_op_ops *ops, void *self, rsd_op **out, rsd_error *err);
void    rsi_op_set(rsd_op *op, void *self);

#endif
