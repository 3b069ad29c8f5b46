/* SPDX-License-Identifier: Apache-2.0 */
/* Reuses records of one size: a caller that stays within its previous peak allocates nothing. Not
 * thread-safe. */
#ifndef RSI_FREE_LIST_H
#define RSI_FREE_LIST_H

#include "base/mem.h"

#define RSI_FREE_LIST_MAX 4096 /* records kept; the rest are freed */

typedef struct rsi_free_list {
    void  *first; /* each begins with a pointer to the next */
    size_t n;
} rsi_free_list;

/* A kept record with its old contents, or a new one of `bytes`, the same in every call. NULL: no
 * memory. */
static inline void *rsi_free_list_take(rsi_free_list *spares, size_t bytes)
{
    void **record = spares->first;

    if (!record)
        return rsi_calloc(1, bytes);
    spares->first = *record;
    spares->n--;
    return record;
}

static inline void rsi_free_list_put(rsi_free_list *spares, void *record)
{
    if (spares->n == RSI_FREE_LIST_MAX) {
        rsi_free(record);
        return;
    }
    *(void **)record = spares->first;
    spares->first = record;
    spares->n++;
}

static inline void rsi_free_list_release(rsi_free_list *spares)
{
    while (spares->first) {
        void *record = spares->first;

        spares->first = *(void **)record;
        rsi_free(record);
    }
    spares->n = 0;
}

#endif
