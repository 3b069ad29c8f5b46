/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that threads share: found by number, destroyed by the last user. A thread that never
 * fetched one can't keep it, and one that asks too late is told. */
#ifndef RSI_SHARED_H
#define RSI_SHARED_H

#include <stdint.h>

/* The first member of an object. */
typedef struct rsi_shared {
    struct rsi_shared *next;
    uint64_t           number;
    int                users;
    void (*destroy)(struct rsi_shared *shared); /* frees it too */
} rsi_shared;

/* Returns its number; the caller is its first user. */
uint64_t rsi_shared_add(rsi_shared *shared, void (*destroy)(rsi_shared *shared));
/* Another user; NULL if it is gone. */
rsi_shared *rsi_shared_find(uint64_t number);
void        rsi_shared_drop(rsi_shared *shared); /* NULL is fine */

#endif
