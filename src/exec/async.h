/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that go on while the caller does: rsd_save_begin. */
#ifndef RSI_ASYNC_H
#define RSI_ASYNC_H

#include "exec/op.h"
#include "exec/save.h"

/* Plans, opens and stages; the caller may change its tensors when it returns. A save of the same
 * comm or state that is under way is waited for first. [collective] */
rsd_err rsi_async_begin(const char *path, rsd_comm *comm, const rsd_state *state, rsd_stage_way how,
                        const rsd_save_opts *opts, rsd_op **out, rsd_error *err);

/* Gives the memory back that `state` keeps for the next staging. */
void rsi_async_forget(const rsd_state *state);

#endif
