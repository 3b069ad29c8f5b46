/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a state: the commit protocol (C1 to C7), on one process or on many ranks. */
#ifndef RSI_SAVE_H
#define RSI_SAVE_H

#include "comm/comm.h"
#include "exec/image.h"

/* rsd_save; `comm` NULL: this process stands for all ranks. */
rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err);

#endif
