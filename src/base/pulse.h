/* SPDX-License-Identifier: Apache-2.0 */
/* Carries signs of progress from the work to whoever listens. Loops call rsi_beat between two
 * blocks; the comm of the running call hears it (comm/signs.c). Beats of worker threads and child
 * processes are counted, and the thread that waits for them passes them on. A single slow block
 * does not beat: that is how silence is noticed. */
#ifndef RSI_PULSE_H
#define RSI_PULSE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct rsi_pulse {
    void (*beat)(void *arg); /* NULL: nobody listens */
    void   *arg;
    int64_t every_ms; /* how often a beat is useful */
} rsi_pulse;

/* Sets the calling thread's pulse and returns the previous one. */
rsi_pulse rsi_pulse_set(rsi_pulse pulse);
/* To be called between two blocks. Preserves errno. */
void rsi_beat(void);

/* How long the thread may wait for something before it checks for beats to pass on; at most `ms`.
 */
int64_t rsi_pulse_every(int64_t ms);

/* Beats of another thread or process, which can't call the listener itself. */
typedef struct rsi_beats {
    _Atomic uint64_t count;
    uint64_t         seen; /* count when last passed on */
} rsi_beats;

/* The pulse for the other thread. */
rsi_pulse rsi_beats_pulse(rsi_beats *beats);
/* Beats once for the calling thread if there were any. */
void rsi_beats_pass(rsi_beats *beats);
/* Sets the beats of the threads that work for the calling thread and returns the previous ones. */
rsi_beats *rsi_crew_set(rsi_beats *beats);
/* pthread_cond_wait for a thread that may have a crew: it also wakes up to pass on their beats.
 * `cond` is from rsi_pulse_cond. */
void rsi_pulse_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
void rsi_pulse_cond(pthread_cond_t *cond);

#endif
