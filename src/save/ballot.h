/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks end a save that was written in the background: every rank tells rank 0 how writing
 * went, rank 0 publishes and tells all. Nothing of it waits unless it is asked to, and no
 * collective is used, so that it may go on at different times on different ranks. */
#ifndef RSI_BALLOT_H
#define RSI_BALLOT_H

#include "save/save.h"

/* What a rank tells rank 0. */
typedef struct rsi_report {
    rsd_error err;            /* .code 0: all of its files are written and synced */
    uint64_t  nsums, nplaces; /* what it has to give */
} rsi_report;

/* Where an item lies that only its writer could know. */
typedef struct rsi_item_place {
    uint64_t row; /* number in the metadata: chunks, then items */
    int64_t  offset, length;
} rsi_item_place;

typedef enum rsi_ballot_step {
    RSI_BALLOT_IDLE, /* this rank has not voted */
    RSI_BALLOT_REPORTS,
    RSI_BALLOT_ROWS,
    RSI_BALLOT_VERDICT,
    RSI_BALLOT_DONE
} rsi_ballot_step;

typedef struct rsi_ballot {
    rsi_save_job   *job;
    rsi_ballot_step step;
    int32_t         peers; /* that this rank talks to: all on rank 0, rank 0 on another; or none */
    void          **request; /* [3 * peers] */
    int32_t        *peer;    /* [3 * peers] */
    rsi_report     *report;  /* [peers] on rank 0; else [1], this rank's */
    rsi_report      answer;  /* of rank 0: nsums 1 asks for the rows, 0 is the end */
    rsi_report      ask;
    rsi_item_place *place; /* [nplaces] that this rank gives, or rank 0 gets */
    size_t          nplaces;
    /* Asked before the name is given: an error stops it. */
    rsd_err (*last)(void *arg, rsd_error *err);
    void *arg;
} rsi_ballot;

/* Memory for all that can be asked later. [local] */
rsd_err rsi_ballot_begin(rsi_ballot *ballot, rsi_save_job *job, rsd_error *err);
/* `mine`, and *err if it failed: how writing ended here. */
void rsi_ballot_vote(rsi_ballot *ballot, rsd_err mine, const rsd_error *err);
/* Goes on after the vote; `wait`: to the end. *done: the result is everybody's; RSD_OK: published.
 */
rsd_err rsi_ballot_go(rsi_ballot *ballot, bool wait, bool *done, rsd_error *err);
/* False: the transport still uses the memory of the ballot and of job->sums. */
bool rsi_ballot_end(rsi_ballot *ballot);

#endif
