/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that go on while the caller does: rsd_save_begin. */
#ifndef RSI_ASYNC_H
#define RSI_ASYNC_H

#include "comm/op.h"
#include "save/save.h"

typedef struct rsi_async rsi_async;

/* The memory for one, before any rank depends on this one; free it unless it is begun. [local] */
rsd_err rsi_async_create(const char *path, rsd_stage_way how, const rsd_save_opts *opts,
                         rsi_async **out, rsd_error *err);
void    rsi_async_free(rsi_async *async);
/* Plans, opens and stages; the caller may change its tensors when it returns. A save of the same
 * comm or state that is under way is waited for first. `async` is gone after a failure. The ranks
 * have given the same. [collective] */
rsd_err rsi_async_begin(rsi_async *async, rsd_comm *comm, const rsd_state *state,
                        const rsd_save_opts *opts, rsd_op **out, rsd_error *err);

#endif
