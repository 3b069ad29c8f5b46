/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one size that are used again: who has had as many in use before takes no memory. Not
 * for several threads at a time. */
#ifndef RSI_SPARE_H
#define RSI_SPARE_H

#include "base/mem.h"

#define RSI_SPARES_MAX 4096 /* that are kept; more are freed */

typedef struct rsi_spares {
    void  *first; /* each begins with a pointer to the next */
    size_t n;
} rsi_spares;

/* One that is kept, with whatever is in it, or a new one of `bytes`, the same in every call. NULL:
 * no memory. */
static inline void *rsi_spares_take(rsi_spares *spares, size_t bytes)
{
    void **record = spares->first;

    if (!record)
        return rsi_calloc(1, bytes);
    spares->first = *record;
    spares->n--;
    return record;
}

static inline void rsi_spares_put(rsi_spares *spares, void *record)
{
    if (spares->n == RSI_SPARES_MAX) {
        rsi_free(record);
        return;
    }
    *(void **)record = spares->first;
    spares->first = record;
    spares->n++;
}

static inline void rsi_spares_release(rsi_spares *spares)
{
    while (spares->first) {
        void *record = spares->first;

        spares->first = *(void **)record;
        rsi_free(record);
    }
    spares->n = 0;
}

#endif
