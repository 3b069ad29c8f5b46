/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks finish a joint write: every rank reports its result to rank 0, which publishes and
 * informs all. Nothing here waits unless asked to, and no collective is used, so ranks may take the
 * steps at different times. */
#ifndef RSI_OUTCOME_H
#define RSI_OUTCOME_H

#include "commit/commit.h"

/* A rank's report to rank 0. */
typedef struct rsi_report {
    rsd_error err;            /* .code 0: all of its files are written and synced */
    uint64_t  nsums, nplaces; /* how many it has to send */
} rsi_report;

/* The place of an item, known only to its writer. */
typedef struct rsi_item_place {
    uint64_t row; /* number in the metadata of that rank's image: chunks, then items */
    int64_t  offset, length;
} rsi_item_place;

/* Lists the places that only this rank knows; `out` NULL: only counts them. */
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
    int32_t          peers;   /* peers of this rank: all on rank 0, rank 0 elsewhere; or none */
    void           **request; /* [3 * peers] */
    int32_t         *peer;    /* [3 * peers] */
    rsi_report      *report;  /* [peers] on rank 0; else [1], this rank's */
    rsi_report       answer;  /* from rank 0: nsums 1 asks for the rows, 0 ends the exchange */
    rsi_report       ask;
    rsi_item_place  *place; /* [nplaces] that this rank sends, or rank 0 receives */
    size_t           nplaces;
    size_t           own_sums; /* rank 0: its own rows; the others' follow, by rank */
    /* Called by rank 0 before it publishes the name; an error prevents that. NULL: no call. */
    rsd_err (*last)(void *arg, rsd_error *err);
    void *arg;
} rsi_outcome;

/* Allocates all memory needed later. [local] */
rsd_err rsi_outcome_begin(rsi_outcome *outcome, rsi_commit *c, rsd_error *err);
/* Casts this rank's vote: `mine`, and *err if it failed, is the result of writing. */
void rsi_outcome_vote(rsi_outcome *outcome, rsd_err mine, const rsd_error *err);
/* Advances after the vote; `wait`: to the end. *done: all ranks have the result; RSD_OK:
 * published. */
rsd_err rsi_outcome_go(rsi_outcome *outcome, bool wait, bool *done, rsd_error *err);
/* All of the above, waiting to the end, for a step that all ranks take together. `last` as above.
 * [collective] */
rsd_err rsi_outcome_settle(rsi_commit *c, rsd_err mine, rsd_err (*last)(void *arg, rsd_error *err),
                           void *arg, rsd_error *err);
/* False: the transport still uses the memory of the outcome and of c->sums. */
bool rsi_outcome_end(rsi_outcome *outcome);

#endif
