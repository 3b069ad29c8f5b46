/* SPDX-License-Identifier: Apache-2.0 */
/* Signs that work goes on, from where it is done to where somebody wants to know. Loops call
 * rsi_beat between two blocks; the comm of the running call hears it (comm/signs.c), also from
 * worker threads and children, whose beats are counted and passed on by the thread that waits for
 * them. One block that takes long is no beat: that is how silence is seen. */
#ifndef RSI_PULSE_H
#define RSI_PULSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct rsi_pulse {
    void (*beat)(void *arg); /* NULL: nobody wants to know */
    void   *arg;
    int64_t every_ms; /* how often it is worth while */
} rsi_pulse;

/* Sets that of the calling thread and returns what it was. */
rsi_pulse rsi_pulse_set(rsi_pulse pulse);
/* Between two blocks. Leaves errno as it is. */
void rsi_beat(void);

/* How long the thread may wait for something before it looks whether there were beats to pass on;
 * at most `ms`. */
int64_t rsi_pulse_every(int64_t ms);

/* Beats of another thread or process, which can't call those that want to know. */
typedef struct rsi_beats {
    _Atomic uint64_t count;
    uint64_t         seen; /* of the one who passes them on */
} rsi_beats;

/* The pulse for the other thread. */
rsi_pulse rsi_beats_pulse(rsi_beats *beats);
/* One beat of the calling thread if there were any. */
void rsi_beats_pass(rsi_beats *beats);
/* Sets the beats of those who work for the calling thread and returns what they were. */
rsi_beats *rsi_crew_set(rsi_beats *beats);
/* pthread_cond_wait for a thread that may have a crew: it also wakes up to pass their beats on.
 * `cond` is from rsi_pulse_cond. */
void rsi_pulse_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
void rsi_pulse_cond(pthread_cond_t *cond);

#endif
