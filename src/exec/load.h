/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a state from a checkpoint. */
#ifndef RSI_LOAD_H
#define RSI_LOAD_H

#include "comm/comm.h"
#include "exec/state.h"
#include "format/ckpt.h"

/* rsd_load; `comm` NULL: local. */
rsd_err rsi_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err);

#endif
