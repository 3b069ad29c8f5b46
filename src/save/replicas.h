/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that ranks holding the same box have the same bytes in it. */
#ifndef RSI_REPLICAS_H
#define RSI_REPLICAS_H

#include "comm/comm.h"
#include "state/state.h"

/* Compares hashes of all boxes that several ranks hold, and of tensors without a layout that a rank
 * holds whole. The error, on all ranks, names the first tensor that differs and the ranks. The
 * states have already been compared. [collective] */
rsd_err rsi_replicas_equal(rsd_comm *comm, const rsd_state *state, rsd_error *err);

#endif
