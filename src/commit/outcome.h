/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks end what they wrote together: every rank tells rank 0 how writing went, rank 0
 * publishes and tells all. Nothing here waits unless it is asked to, and no collective is used, so
 * ranks may take the steps at different times. */
#ifndef RSI_OUTCOME_H
#define RSI_OUTCOME_H

#include "commit/commit.h"

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

/* The places that only this rank knows; `out` NULL: only counts them. */
size_t  rsi_places_list(const rsi_commit *c, rsi_item_place *out);
rsd_err rsi_places_set(rsi_commit *c, const rsi_item_place *place, size_t n, rsd_error *err);

typedef enum rsi_outcome_step {
    RSI_OUTCOME_IDLE, /* this rank has not voted */
    RSI_OUTCOME_REPORTS,
    RSI_OUTCOME_ROWS,
    RSI_OUTCOME_VERDICT,
    RSI_OUTCOME_DONE
} rsi_outcome_step;

typedef struct rsi_outcome {
    rsi_commit      *c;
    rsi_outcome_step step;
    int32_t          peers; /* that this rank talks to: all on rank 0, rank 0 on another; or none */
    void           **request; /* [3 * peers] */
    int32_t         *peer;    /* [3 * peers] */
    rsi_report      *report;  /* [peers] on rank 0; else [1], this rank's */
    rsi_report       answer;  /* of rank 0: nsums 1 asks for the rows, 0 is the end */
    rsi_report       ask;
    rsi_item_place  *place; /* [nplaces] that this rank gives, or rank 0 gets */
    size_t           nplaces;
    /* Rank 0 asks it before it gives the name: an error stops it. NULL: nothing is asked. */
    rsd_err (*last)(void *arg, rsd_error *err);
    void *arg;
} rsi_outcome;

/* Memory for all that can be asked later. [local] */
rsd_err rsi_outcome_begin(rsi_outcome *outcome, rsi_commit *c, rsd_error *err);
/* `mine`, and *err if it failed: how writing ended here. */
void rsi_outcome_vote(rsi_outcome *outcome, rsd_err mine, const rsd_error *err);
/* Goes on after the vote; `wait`: to the end. *done: the result is everybody's; RSD_OK: published.
 */
rsd_err rsi_outcome_go(rsi_outcome *outcome, bool wait, bool *done, rsd_error *err);
/* All of it, waiting to the end: what a step that all ranks take together needs. `last` as above.
 * [collective] */
rsd_err rsi_outcome_settle(rsi_commit *c, rsd_err mine, rsd_err (*last)(void *arg, rsd_error *err),
                           void *arg, rsd_error *err);
/* False: the transport still uses the memory of the outcome and of c->sums. */
bool rsi_outcome_end(rsi_outcome *outcome);

#endif
