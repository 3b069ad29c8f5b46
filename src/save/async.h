/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that run in the background: rsd_save_begin. */
#ifndef RSI_ASYNC_H
#define RSI_ASYNC_H

#include "comm/op.h"
#include "save/save.h"

typedef struct rsi_async rsi_async;

/* Allocates a save before any rank depends on this one; free it unless it is begun. [local] */
rsd_err rsi_async_create(const char *path, rsd_stage_way how, const rsd_save_opts *opts,
                         rsi_async **out, rsd_error *err);
void    rsi_async_free(rsi_async *async);
/* Plans, opens and stages; on return the caller may change its tensors. Waits first for any save in
 * progress on the same comm or state. After a failure `async` is freed. All ranks passed the same
 * arguments. [collective] */
rsd_err rsi_async_begin(rsi_async *async, rsd_comm *comm, const rsd_state *state,
                        const rsd_save_opts *opts, rsd_op **out, rsd_error *err);

#endif
