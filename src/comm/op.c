/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards calls to the operation behind an rsd_op. */
#include "comm/op.h"
#include "base/mem.h"

struct rsd_op {
    const rsi_op_ops *ops;
    void             *self;
};

rsd_err rsi_op_create(const rsi_op_ops *ops, void *self, rsd_op **out, rsd_error *err)
{
    rsd_op *op = rsi_calloc(1, sizeof(*op));

    if (!op)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an operation");
    op->ops = ops;
    op->self = self;
    *out = op;
    return RSD_OK;
}

void rsi_op_set(rsd_op *op, void *self)
{
    op->self = self;
}

static rsd_err check(const rsd_op *op, rsd_phase phase, rsd_error *err)
{
    if (!op || (phase != RSD_STAGED && phase != RSD_DURABLE))
        return rsi_fail(err, RSD_E_INVALID, "missing argument: operation or a valid phase");
    return RSD_OK;
}

rsd_err rsd_op_test(rsd_op *op, rsd_phase phase, bool *done, rsd_error *err)
{
    rsd_err rc = check(op, phase, err);

    if (!rc && !done)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer");
    return rc ? rc : op->ops->test(op->self, phase, done, err);
}

rsd_err rsd_op_wait(rsd_op *op, rsd_phase phase, rsd_error *err)
{
    rsd_err rc = check(op, phase, err);

    return rc ? rc : op->ops->wait(op->self, phase, err);
}

void rsd_op_cancel(rsd_op *op)
{
    if (op)
        op->ops->cancel(op->self);
}

void rsd_op_free(rsd_op *op)
{
    if (!op)
        return;
    if (op->self)
        op->ops->free(op->self);
    rsi_free(op);
}
