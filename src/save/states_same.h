/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks have the same state. */
#ifndef RSI_STATES_SAME_H
#define RSI_STATES_SAME_H

#include "comm/comm.h"
#include "state/state.h"

/* Compares names, dtypes, shapes and layouts of all ranks' tensors, and the names of their values.
 * The error, on all ranks, names the first tensor on which a rank differs from rank 0. If `mine` is
 * an error on one rank, with its text in *err, all fail. [collective] */
rsd_err rsi_states_same(rsd_comm *comm, const rsd_state *state, rsd_err mine, rsd_error *err);

#endif
