/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for a network in 08_own_comm.c. */
#include "postbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t  rung = PTHREAD_COND_INITIALIZER;
static letter         *box; /* in the order in which they were posted */
static uint64_t        news;

static void take_out(letter *it)
{
    letter **at = &box;

    while (*at != it)
        at = &(*at)->next;
    *at = it->next;
    free(it);
}

/* Matches each receive, oldest first, with the oldest message for it. */
static void deliver(void)
{
    for (letter *r = box; r; r = r->next)
        for (letter *m = r->receive && !r->here ? box : NULL; m; m = m->next)
            if (!m->receive && m->from == r->from && m->to == r->to && m->tag == r->tag) {
                memcpy(r->data, m->data, m->bytes < r->bytes ? m->bytes : r->bytes);
                r->here = true;
                take_out(m);
                break;
            }
}

void postbox_ring(void)
{
    pthread_mutex_lock(&lock);
    news++;
    pthread_cond_broadcast(&rung);
    pthread_mutex_unlock(&lock);
}

letter *postbox_post(letter what)
{
    letter  *it = malloc(sizeof(*it) + (what.receive ? 0 : what.bytes));
    letter **at = &box;

    if (!it)
        return NULL;
    *it = what;
    if (!what.receive && what.bytes)
        memcpy(it + 1, what.data, what.bytes);
    if (!what.receive)
        it->data = it + 1;
    pthread_mutex_lock(&lock);
    while (*at)
        at = &(*at)->next;
    *at = it;
    deliver();
    pthread_mutex_unlock(&lock);
    postbox_ring();
    return it;
}

bool postbox_done(letter *receive)
{
    bool here;

    pthread_mutex_lock(&lock);
    here = receive->here;
    if (here)
        take_out(receive);
    pthread_mutex_unlock(&lock);
    return here;
}

void postbox_cancel(letter *receive)
{
    pthread_mutex_lock(&lock);
    take_out(receive);
    pthread_mutex_unlock(&lock);
}

uint64_t postbox_wait(uint64_t seen, int64_t timeout_ms)
{
    struct timespec until;
    uint64_t        now;
    int             rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&lock);
    while (news == seen && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&rung, &lock, &until);
    now = news;
    pthread_mutex_unlock(&lock);
    return now;
}
