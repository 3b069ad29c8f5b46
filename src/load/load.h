/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a state, or memory that the caller provides on demand, from a checkpoint. */
#ifndef RSI_LOAD_H
#define RSI_LOAD_H

#include "comm/comm.h"
#include "state/state.h"
#include "format/ckpt.h"

/* rsd_load; `comm` NULL: local. */
rsd_err rsi_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err);

/* rsd_load_below */
typedef struct rsi_below {
    size_t             n;
    const char *const *name; /* [n] */
    rsd_load_alloc     alloc;
    void              *arg;
} rsi_below;
rsd_err rsi_load_below(const char *path, rsd_comm *comm, const rsi_below *below,
                       const rsd_load_opts *opts, rsd_error *err);

#endif
