/* SPDX-License-Identifier: Apache-2.0 */
/* The listener is per thread: a library call sets it, and work below it, in any layer, need not
 * know it. */
#include "base/pulse.h"

#include <errno.h>
#include <time.h>

#define EVERY_MS 20 /* for a thread whose beats are only counted */

static _Thread_local rsi_pulse  mine;
static _Thread_local rsi_beats *crew;

rsi_pulse rsi_pulse_set(rsi_pulse pulse)
{
    rsi_pulse before = mine;

    mine = pulse;
    return before;
}

void rsi_beat(void)
{
    int kept = errno;

    if (mine.beat)
        mine.beat(mine.arg);
    errno = kept;
}

int64_t rsi_pulse_every(int64_t ms)
{
    return mine.beat && mine.every_ms < ms ? mine.every_ms : ms;
}

static void count(void *arg)
{
    atomic_fetch_add_explicit(&((rsi_beats *)arg)->count, 1, memory_order_relaxed);
}

rsi_pulse rsi_beats_pulse(rsi_beats *beats)
{
    return (rsi_pulse){ .beat = count, .arg = beats, .every_ms = EVERY_MS };
}

void rsi_beats_pass(rsi_beats *beats)
{
    uint64_t now = atomic_load_explicit(&beats->count, memory_order_relaxed);

    if (now == beats->seen)
        return;
    beats->seen = now;
    rsi_beat();
}

rsi_beats *rsi_crew_set(rsi_beats *beats)
{
    rsi_beats *before = crew;

    crew = beats;
    return before;
}

void rsi_pulse_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

void rsi_pulse_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    struct timespec t;

    if (!mine.beat || !crew) {
        pthread_cond_wait(cond, lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(mine.every_ms % 1000) * 1000000;
    t.tv_sec += (time_t)(mine.every_ms / 1000) + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(cond, lock, &t);
    pthread_mutex_unlock(lock); /* other threads need not wait while messages are sent */
    rsi_beats_pass(crew);
    pthread_mutex_lock(lock);
}
