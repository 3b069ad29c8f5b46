/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of life. A rank that works for long is not missing: between blocks it tells its neighbours
 * in a tree of all ranks, and they tell theirs. */
#ifndef RSI_SIGNS_H
#define RSI_SIGNS_H

#include "base/error.h"
#include "base/pulse.h"

#include <stdbool.h>

enum { RSI_SIGN_LINKS = 3 }; /* parent and two children */

typedef struct rsi_sign_link {
    int32_t  peer; /* -1: none */
    bool     asked, deaf;
    bool     work;            /* is still to be told of work on this side */
    int32_t  unheard;         /* signs sent since it last sent one */
    int64_t  heard;           /* ms: its last sign, */
    int64_t  sent, sent_work; /* the last to it, and the last that told of work */
    uint32_t in, out;         /* flags that come, that go */
    void    *coming, *going;
} rsi_sign_link;

typedef struct rsi_signs {
    rsi_sign_link link[RSI_SIGN_LINKS];
    bool          ready, alarm;
    int64_t       due;    /* ms: nothing is to be done before */
    int64_t       worked; /* ms: the last time that somebody told of work */
} rsi_signs;

struct rsd_comm;

/* How long a wait lasts at most before signs are looked after. */
int64_t rsi_signs_slice(const struct rsd_comm *comm);
/* Hears and sends what is due. True: a rank has given up on another, all are called. */
bool rsi_signs_look(struct rsd_comm *comm, int64_t now);
/* All neighbours are there and somebody works: waiting is not in vain. */
bool rsi_signs_good(const struct rsd_comm *comm, int64_t now);
/* Was heard of lately; for the roll call. */
bool rsi_signs_heard(const rsi_sign_link *link, int64_t timeout_ms, int64_t now);
/* Calls all. */
void rsi_signs_alarm(struct rsd_comm *comm);
void rsi_signs_end(struct rsd_comm *comm);

/* Around each call that works for a comm, which may be NULL: work below it sends signs. Leaving
 * returns `rc`. */
rsi_pulse rsi_comm_enter(struct rsd_comm *comm);
rsd_err   rsi_comm_leave(rsi_pulse before, rsd_err rc);

/* In ms; a test brings its own. */
extern int64_t (*rsi_comm_clock)(void);

#endif
