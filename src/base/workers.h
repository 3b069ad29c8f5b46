/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads that run a numbered list of jobs together with the caller. */
#ifndef RSI_WORKERS_H
#define RSI_WORKERS_H

#include "base/error.h"

typedef struct rsi_workers rsi_workers;
typedef rsd_err (*rsi_job)(void *arg, size_t i, rsd_error *err);

/* Processors that this process may use. */
int rsi_cpus(void);
/* `threads` includes the caller, which works too: 1 creates no thread. 0: as many as the CPUs that
 * this process may use. Getting fewer threads from the system is not an error. */
rsd_err rsi_workers_create(int threads, rsi_workers **out, rsd_error *err);
void    rsi_workers_free(rsi_workers *workers);
int     rsi_workers_count(const rsi_workers *workers); /* including the caller */

/* Runs job(arg, i) for i = 0 .. n-1 in any order and returns when all have ended. After a failure
 * no new job starts; the error is that of the lowest i that failed. `workers` NULL: the caller runs
 * all. One such call at a time. */
rsd_err rsi_workers_run(rsi_workers *workers, size_t n, rsi_job job, void *arg, rsd_error *err);

#endif
