/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the states of all ranks, which may hold different tensors and values, into one. */
#ifndef RSI_STATES_JOIN_H
#define RSI_STATES_JOIN_H

#include "comm/comm.h"
#include "state/state.h"

/* The union of all ranks' states, the same on all of them: tensors with their boxes on all ranks
 * and this rank's views; values with the lowest rank that has them as their writer, NULL where this
 * rank has none. Refuses, by name, a tensor that ranks describe differently. The memory of views
 * and values still belongs to `state`. With `own_only` the ranks other than 0 get only what they
 * write (rsi_state_tensor.stored), and never hold what others have. If `mine` is an error on one
 * rank, with its text in *err, all fail. [collective] */
rsd_err rsi_states_join(rsd_comm *comm, const rsd_state *state, bool own_only, rsd_err mine,
                        rsd_state **out, rsd_error *err);

#endif
