/* SPDX-License-Identifier: Apache-2.0 */
/* A list of all shared objects of this process; there are few at a time. */
#include "base/shared.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rsi_shared     *list;
static uint64_t        numbers;

uint64_t rsi_shared_add(rsi_shared *shared, void (*destroy)(rsi_shared *shared))
{
    uint64_t number;

    pthread_mutex_lock(&lock);
    number = ++numbers;
    *shared = (rsi_shared){ .next = list, .number = number, .users = 1, .destroy = destroy };
    list = shared;
    pthread_mutex_unlock(&lock);
    return number;
}

rsi_shared *rsi_shared_find(uint64_t number)
{
    rsi_shared *s;

    pthread_mutex_lock(&lock);
    for (s = list; s && s->number != number; s = s->next)
        ;
    if (s)
        s->users++;
    pthread_mutex_unlock(&lock);
    return s;
}

void rsi_shared_drop(rsi_shared *shared)
{
    rsi_shared **at = &list;
    int          left;

    if (!shared)
        return;
    pthread_mutex_lock(&lock);
    left = --shared->users;
    if (left == 0) {
        while (*at != shared)
            at = &(*at)->next;
        *at = shared->next;
    }
    pthread_mutex_unlock(&lock);
    if (left == 0)
        shared->destroy(shared);
}
