/* SPDX-License-Identifier: Apache-2.0 */
/* The transport between threads, for its wrappers: comm_self.c and comm_run.c. */
#ifndef RSI_COMM_THREADS_H
#define RSI_COMM_THREADS_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>

extern const rsd_comm_ops rsi_threads_ops;

/* Opens the ends of n ranks, n at least 1: out[r] is `self` for rsi_threads_ops. */
rsd_err rsi_threads_open(int32_t n, void **out, rsd_error *err);
/* Makes the only end of a group of one appear as rank `rank` of `size`, without peers: comm.c
 * refuses messages to others. */
void rsi_threads_play(void *self, int32_t rank, int32_t size);

#endif
