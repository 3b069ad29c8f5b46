/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan between ranks. Both ends derive the same order of messages from it, so these carry
 * nothing but tensor bytes. Where a rank's memory can be reached from the other side, that one
 * copies from it directly. */
#ifndef RSI_EXCHANGE_H
#define RSI_EXCHANGE_H

#include "comm/comm.h"
#include "plan/planner.h"

typedef struct rsi_exchange rsi_exchange;

typedef struct rsi_exchange_args {
    rsd_comm          *comm;
    const rsd_plan    *plan;      /* of this rank; stays until the exchange is freed */
    const rsd_views   *src, *dst; /* [plan->n] memory stays, the arrays need not */
    const char *const *name;      /* [plan->n] for messages; NULL: numbers */
    size_t             memory;    /* bytes of buffers and tables; 0: the default */
    bool               no_direct; /* messages only */
    rsd_reshard_stats *stats;     /* may be NULL */
} rsi_exchange_args;

/* One that is not begun: something to free. [local] */
rsd_err rsi_exchange_create(rsi_exchange **out, rsd_error *err);
/* Compares what the ranks mean, checks the views, takes all memory. After a failure it is only good
 * to be freed. [collective] */
rsd_err rsi_exchange_begin(rsi_exchange *x, const rsi_exchange_args *args, rsd_error *err);
/* Goes on as far as it can. `wait`: until it has finished. The result, the same on all ranks, is
 * that of the exchange once *done. */
rsd_err rsi_exchange_step(rsi_exchange *x, bool wait, bool *done, rsd_error *err);
/* The data no longer matter; the ranks still finish together, with RSD_E_CANCELED. */
void rsi_exchange_cancel(rsi_exchange *x);
/* One that was begun and has not finished breaks the comm. */
void rsi_exchange_free(rsi_exchange *x);

/* Limits that tests lower. */
extern int64_t rsi_exchange_cut_min;    /* bytes of a piece that is cut among its receivers */
extern size_t  rsi_exchange_memory_min; /* bytes */

#endif
