/* SPDX-License-Identifier: Apache-2.0 */
/* Do all ranks call the same function, and with the same options? One digest of each rank is
 * compared in the round in which the ranks also learn whether anybody's arguments are wrong. Only
 * when the digests differ is more sent, so that the error can name the option. */
#ifndef RSI_ALIKE_H
#define RSI_ALIKE_H

#include "comm/comm.h"

/* What a rank was given, as far as it must be the same on all: names and values, in one order. */
typedef struct rsi_terms {
    char  *at; /* "name", NUL, "value", NUL, ... */
    size_t len, cap;
    bool   full; /* there was no memory */
} rsi_terms;

/* Of a call: which one it is. The first that is added. */
void rsi_terms_call(rsi_terms *terms, const char *call);
/* `value` NULL: "none". */
void rsi_terms_text(rsi_terms *terms, const char *name, const char *value);
/* A word that needs no quotes. */
void rsi_terms_word(rsi_terms *terms, const char *name, const char *value);
void rsi_terms_number(rsi_terms *terms, const char *name, uint64_t value);
void rsi_terms_flag(rsi_terms *terms, const char *name, bool value);

/* The first step of every collective call, in place of rsi_agree: RSD_OK if no rank has a `mine`
 * and all were given the same. Otherwise all ranks fail alike and the comm stays whole: with the
 * error of the lowest rank that has one, or with RSD_E_MISMATCH, which names what differs and the
 * lowest rank that does not have what rank 0 has. Releases `terms`. `comm` NULL: just `mine`.
 * [collective] */
rsd_err rsi_alike(rsd_comm *comm, rsi_terms *terms, rsd_err mine, rsd_error *err);

#endif
