/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that must be equal on all ranks in calls that save, load and convert. Threads, memory
 * and callbacks may differ. */
#ifndef RSI_API_CALL_FACTS_H
#define RSI_API_CALL_FACTS_H

#include "comm/facts.h"

/* The arguments of a call, for the functions below. */
typedef struct rsi_call {
    const char   *path;
    const void   *opts; /* of the call's own type */
    rsd_stage_way how;  /* 0: rsd_save */
} rsi_call;

void rsi_save_facts(rsi_facts *facts, const void *call);
/* Ranks may load different things in different ways, but from the same checkpoint. */
void rsi_load_facts(rsi_facts *facts, const void *call);
void rsi_convert_facts(rsi_facts *facts, const void *call);

#endif
