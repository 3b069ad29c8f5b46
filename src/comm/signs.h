/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of life. A rank that works for long is not missing: between blocks it tells its neighbours
 * in a tree of all ranks, and they pass it on. */
#ifndef RSI_SIGNS_H
#define RSI_SIGNS_H

#include "base/error.h"
#include "base/pulse.h"

#include <stdbool.h>

enum { RSI_SIGN_LINKS = 3 }; /* parent and two children */

typedef struct rsi_sign_link {
    int32_t  peer; /* -1: none */
    bool     asked, deaf;
    bool     work;            /* still has to be told of work on this side */
    int32_t  unheard;         /* signs sent to it since its last one */
    int64_t  heard;           /* ms: when its last sign came, */
    int64_t  sent, sent_work; /* the last one to it left, and the last that told of work */
    uint32_t in, out;         /* flags received and sent */
    void    *coming, *going;
} rsi_sign_link;

typedef struct rsi_signs {
    rsi_sign_link link[RSI_SIGN_LINKS];
    bool          ready, alarm;
    int64_t       due;    /* ms: nothing to do before */
    int64_t       worked; /* ms: when a rank last reported work */
} rsi_signs;

struct rsd_comm;

/* Longest wait between two calls of rsi_signs_look. */
int64_t rsi_signs_slice(const struct rsd_comm *comm);
/* Receives and sends what is due. True: a rank has given up on another, a roll call is on. */
bool rsi_signs_look(struct rsd_comm *comm, int64_t now);
/* All neighbours are alive and some rank works: waiting makes sense. */
bool rsi_signs_good(const struct rsd_comm *comm, int64_t now);
/* The neighbour was heard lately; for the roll call. */
bool rsi_signs_heard(const rsi_sign_link *link, int64_t timeout_ms, int64_t now);
/* Starts a roll call. */
void rsi_signs_alarm(struct rsd_comm *comm);
void rsi_signs_end(struct rsd_comm *comm);

/* Enclose each call that works for a comm, which may be NULL: work in between sends signs.
 * rsi_comm_leave returns `rc`. */
rsi_pulse rsi_comm_enter(struct rsd_comm *comm);
rsd_err   rsi_comm_leave(rsi_pulse before, rsd_err rc);

/* In ms; tests replace it. */
extern int64_t (*rsi_comm_clock)(void);

#endif
