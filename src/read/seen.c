/* SPDX-License-Identifier: Apache-2.0 */
/* A set of places behind one lock. */
#include "read/seen.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"

#include <pthread.h>

struct rsi_seen {
    pthread_mutex_t lock;
    rsi_map         map;
    rsi_arena       mem; /* of its keys */
};

rsd_err rsi_seen_create(rsi_seen **out, rsd_error *err)
{
    rsi_seen *seen = rsi_calloc(1, sizeof(*seen));

    if (!seen)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a set");
    pthread_mutex_init(&seen->lock, NULL);
    *out = seen;
    return RSD_OK;
}

void rsi_seen_free(rsi_seen *seen)
{
    if (!seen)
        return;
    rsi_map_release(&seen->map);
    rsi_arena_release(&seen->mem);
    pthread_mutex_destroy(&seen->lock);
    rsi_free(seen);
}

rsd_err rsi_seen_take(rsi_seen *seen, uint32_t file, uint64_t off, bool *first, rsd_error *err)
{
    const uint64_t key[2] = { file, off };
    uint64_t       value = 0, *kept;
    bool           was, good = true;

    pthread_mutex_lock(&seen->lock);
    was = rsi_map_get(&seen->map, key, sizeof(key), &value);
    if (!was) {
        kept = rsi_arena_array(&seen->mem, 2, sizeof(kept[0]));
        good = kept != NULL;
        if (good) {
            kept[0] = key[0];
            kept[1] = key[1];
            good = rsi_map_add(&seen->map, kept, sizeof(key), &value, NULL);
        }
    }
    pthread_mutex_unlock(&seen->lock);
    if (!good)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for what is checked");
    *first = !was;
    return RSD_OK;
}
