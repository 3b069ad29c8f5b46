/* SPDX-License-Identifier: Apache-2.0 */
/* A non-blocking sum over all ranks, for operations that progress between other calls. */
#ifndef RSI_VOTE_H
#define RSI_VOTE_H

#include "comm/comm.h"

typedef struct rsi_vote {
    rsd_comm *comm;
    int32_t   tag;
    int32_t   peer[5];    /* other ends of the requests below */
    void     *request[5]; /* from two children, from the parent, to it or to the children */
    int64_t   in[3], sum;
    int       step;
} rsi_vote;

/* Starts adding up every rank's `mine`. `tag` must not be used until the vote has ended.
 * [collective] */
rsd_err rsi_vote_begin(rsi_vote *vote, rsd_comm *comm, int32_t tag, int64_t mine, rsd_error *err);
/* Advances the vote. *done: vote->sum is final. `wait`: until then. */
rsd_err rsi_vote_step(rsi_vote *vote, bool wait, bool *done, rsd_error *err);
/* Abandons the vote; returns false as rsi_drop does. */
bool rsi_vote_drop(rsi_vote *vote);

#endif
