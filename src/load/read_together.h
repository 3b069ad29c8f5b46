/* SPDX-License-Identifier: Apache-2.0 */
/* Reads by ranks that have the same checkpoint open. */
#ifndef RSI_READ_TOGETHER_H
#define RSI_READ_TOGETHER_H

#include "comm/comm.h"
#include "read/fetch_all.h"

/* As rsd_ckpt_read_together; the arguments are there on all ranks. [collective] */
rsd_err rsi_read_together(rsd_ckpt *ckpt, rsd_comm *comm, size_t n, const rsd_read *reads,
                          const rsd_read_opts *opts, rsd_error *err);

#endif
