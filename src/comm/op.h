/* SPDX-License-Identifier: Apache-2.0 */
/* An operation under way: what the caller holds, and the table of what it can be asked. */
#ifndef RSI_OP_H
#define RSI_OP_H

#include "base/error.h"

typedef struct rsi_op_ops {
    /* Has it come as far as `phase`? Its result then. Goes on with it; does not wait for others. */
    rsd_err (*test)(void *self, rsd_phase phase, bool *done, rsd_error *err);
    /* Goes on until it has. The same result when it is asked again. */
    rsd_err (*wait)(void *self, rsd_phase phase, rsd_error *err);
    void (*cancel)(void *self);
    void (*free)(void *self); /* also when it has not finished */
} rsi_op_ops;

/* Takes `self` over if it succeeds. NULL: not yet there; nothing is asked of it before it is. */
rsd_err rsi_op_create(const rsi_op_ops *ops, void *self, rsd_op **out, rsd_error *err);
void    rsi_op_set(rsd_op *op, void *self);

#endif
