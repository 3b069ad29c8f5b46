/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing, at most two thirds full. Our own because the C library's
 * hsearch is global and fixed in size. */
#include "base/map.h"
#include "base/digest.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

struct rsi_map_slot {
    const void *key; /* NULL: free */
    size_t      len;
    uint64_t    hash, value;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t       seed = 0x9e3779b97f4a7c15u;

static void make_seed(void)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) == sizeof(random))
        seed ^= random;
}

uint64_t rsi_hash(const void *key, size_t len)
{
    pthread_once(&once, make_seed);
    return rsi_digest(seed, key, len);
}

static struct rsi_map_slot *find(const rsi_map *map, uint64_t hash, const void *key, size_t len)
{
    size_t i = (size_t)hash & (map->cap - 1);

    while (map->slot[i].key && (map->slot[i].hash != hash || map->slot[i].len != len ||
                                memcmp(map->slot[i].key, key, len) != 0))
        i = (i + 1) & (map->cap - 1);
    return &map->slot[i];
}

bool rsi_map_get(const rsi_map *map, const void *key, size_t len, uint64_t *value)
{
    const struct rsi_map_slot *slot;

    if (map->cap == 0)
        return false;
    slot = find(map, rsi_hash(key, len), key, len);
    if (!slot->key)
        return false;
    *value = slot->value;
    return true;
}

static bool grow(rsi_map *map)
{
    rsi_map bigger = { .cap = map->cap ? map->cap * 2 : 16, .count = map->count };

    bigger.slot = rsi_calloc(bigger.cap, sizeof(bigger.slot[0]));
    if (!bigger.slot)
        return false;
    for (size_t i = 0; i < map->cap; i++) {
        const struct rsi_map_slot *old = &map->slot[i];

        if (old->key)
            *find(&bigger, old->hash, old->key, old->len) = *old;
    }
    rsi_free(map->slot);
    *map = bigger;
    return true;
}

bool rsi_map_add(rsi_map *map, const void *key, size_t len, uint64_t *value, bool *was)
{
    uint64_t             hash = rsi_hash(key, len);
    struct rsi_map_slot *slot;

    if (map->count >= map->cap / 3 * 2 && !grow(map))
        return false;
    slot = find(map, hash, key, len);
    if (was)
        *was = slot->key != NULL;
    if (slot->key) {
        *value = slot->value;
        return true;
    }
    *slot = (struct rsi_map_slot){ .key = key, .len = len, .hash = hash, .value = *value };
    map->count++;
    return true;
}

void rsi_map_release(rsi_map *map)
{
    rsi_free(map->slot);
    *map = (rsi_map){ 0 };
}
