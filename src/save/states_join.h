/* SPDX-License-Identifier: Apache-2.0 */
/* One state out of those of all ranks, where each may hold other tensors and values. */
#ifndef RSI_STATES_JOIN_H
#define RSI_STATES_JOIN_H

#include "comm/comm.h"
#include "state/state.h"

/* Everything that any rank has, the same on all of them: tensors by their boxes on all ranks, with
 * the views that this rank has; values with the lowest rank that has them as their writer, and
 * NULL where this rank has none. A tensor that ranks mean differently is refused by name. The
 * memory of views and values stays that of `state`. A rank with a `mine`, and its text in *err,
 * fails all. [collective] */
rsd_err rsi_states_join(rsd_comm *comm, const rsd_state *state, rsd_err mine, rsd_state **out,
                        rsd_error *err);

#endif
