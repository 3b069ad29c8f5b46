/* SPDX-License-Identifier: Apache-2.0 */
/* Do all ranks mean the same? Each tells facts in an order that all have: the function it calls,
 * its options, the tensors of its state. One digest of them is compared in the round in which the
 * ranks also learn whether anybody's arguments are wrong. Only when digests differ are the facts
 * told again, in words, so that the error can name the first that differs. */
#ifndef RSI_FACTS_H
#define RSI_FACTS_H

#include "base/bytes.h"
#include "comm/comm.h"

typedef struct rsi_facts {
    uint64_t  digest; /* of the values; which fact comes next follows from those before */
    bool      in_words;
    char      about[256]; /* in words: what the next facts are about; "": the call */
    rsi_bytes words;      /* "name", NUL, "value", NUL, ... */
} rsi_facts;

/* Tells all facts of `arg`. It may be called twice. */
typedef void (*rsi_tell_facts)(rsi_facts *facts, const void *arg);

/* What the facts that follow are about: goes in front of their names. */
void rsi_facts_about(rsi_facts *facts, const char *fmt, ...) RSI_PRINTF(2, 3);
/* Item i of a list is called `name`, which is a fact itself, and the facts that follow are about
 * it. The number of items ends the list. */
void rsi_facts_item(rsi_facts *facts, const char *kind, size_t i, const char *name);
void rsi_facts_count(rsi_facts *facts, const char *what, size_t n);
/* `value` NULL: "none". */
void rsi_fact_text(rsi_facts *facts, const char *name, const char *value);
/* A word that needs no quotes. */
void rsi_fact_word(rsi_facts *facts, const char *name, const char *value);
void rsi_fact_number(rsi_facts *facts, const char *name, uint64_t value);
void rsi_fact_flag(rsi_facts *facts, const char *name, bool value);
void rsi_fact_shape(rsi_facts *facts, const char *name, int ndim, const int64_t *shape);
/* Something that has no words, by a digest of it. */
void rsi_fact_digest(rsi_facts *facts, const char *name, uint64_t digest);

/* One round: RSD_OK if no rank has a `mine`, and *same tells if all have the same digest. Otherwise
 * all ranks fail with the error of the lowest rank that has one. [collective] */
rsd_err rsi_same_digest(rsd_comm *comm, uint64_t digest, rsd_err mine, bool *same, rsd_error *err);
/* The first step of every collective call, in place of rsi_agree: RSD_OK if no rank has a `mine`
 * and all tell the same. Otherwise all ranks fail alike and the comm stays whole: with the error
 * of the lowest rank that has one, or with RSD_E_MISMATCH, which names what differs and the lowest
 * rank that does not have what rank 0 has. A rank with a `mine` tells nothing. `comm` NULL: just
 * `mine`. [collective] */
rsd_err rsi_same_facts(rsd_comm *comm, rsi_tell_facts tell, const void *arg, rsd_err mine,
                       rsd_error *err);
/* The same where only the function called must be the same. */
rsd_err rsi_same_call(rsd_comm *comm, const char *call, rsd_err mine, rsd_error *err);

#endif
