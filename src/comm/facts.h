/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks agree on a call. Each tells facts in the same order: the function it calls,
 * its options, the tensors of its state. Their digest is compared in the round in which the ranks
 * also learn whether any of them has bad arguments. Only if digests differ are the facts told
 * again, in words, so that the error can name the first one that differs. */
#ifndef RSI_FACTS_H
#define RSI_FACTS_H

#include "base/bytes.h"
#include "comm/comm.h"

typedef struct rsi_facts {
    uint64_t  digest; /* of the values; earlier facts determine which one comes next */
    bool      in_words;
    char      about[256]; /* in words: the subject of the next facts; "": the call */
    rsi_bytes words;      /* "name", NUL, "value", NUL, ... */
} rsi_facts;

/* Tells all facts of `arg`. It may be called twice. */
typedef void (*rsi_tell_facts)(rsi_facts *facts, const void *arg);

/* Sets the subject of the facts that follow: it precedes their names. */
void rsi_facts_about(rsi_facts *facts, const char *fmt, ...) RSI_PRINTF(2, 3);
/* Item i of a list is called `name`, which is a fact itself, and is the subject of the facts that
 * follow. The number of items ends the list. */
void rsi_facts_item(rsi_facts *facts, const char *kind, size_t i, const char *name);
void rsi_facts_count(rsi_facts *facts, const char *what, size_t n);
/* `value` NULL: "none". */
void rsi_fact_text(rsi_facts *facts, const char *name, const char *value);
/* A word that needs no quotes. */
void rsi_fact_word(rsi_facts *facts, const char *name, const char *value);
void rsi_fact_number(rsi_facts *facts, const char *name, uint64_t value);
void rsi_fact_flag(rsi_facts *facts, const char *name, bool value);
void rsi_fact_shape(rsi_facts *facts, const char *name, int ndim, const int64_t *shape);
/* A value without words, represented by its digest. */
void rsi_fact_digest(rsi_facts *facts, const char *name, uint64_t digest);

/* One round: RSD_OK if `mine` is RSD_OK on all ranks; *same tells if all have the same digest.
 * Otherwise all ranks fail with the error of the lowest rank that has one. [collective] */
rsd_err rsi_same_digest(rsd_comm *comm, uint64_t digest, rsd_err mine, bool *same, rsd_error *err);
/* The first step of every collective call, instead of rsi_agree: RSD_OK if `mine` is RSD_OK on all
 * ranks and all tell the same facts. Otherwise all ranks fail alike and the comm stays intact: with
 * the error of the lowest rank that has one, or with RSD_E_MISMATCH, which names what differs and
 * the lowest rank that differs from rank 0. A rank with an error in `mine` tells nothing. `comm`
 * NULL: returns `mine`. [collective] */
rsd_err rsi_same_facts(rsd_comm *comm, rsi_tell_facts tell, const void *arg, rsd_err mine,
                       rsd_error *err);
/* The same if ranks need only agree on the function called. */
rsd_err rsi_same_call(rsd_comm *comm, const char *call, rsd_err mine, rsd_error *err);

#endif
