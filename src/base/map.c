/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing, at most two thirds full. By hand: the C library's hsearch is
 * global and fixed in size. */
#include "base/map.h"
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

/* 64 x 64 -> 128 bits, folded: every bit of both goes into every bit of the result. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    u128                                    r = (u128)a * b;

    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

uint64_t rsi_hash(const void *key, size_t len)
{
    const unsigned char *p = key;
    uint64_t             h, word;
    size_t               left = len;

    pthread_once(&once, make_seed);
    h = seed ^ mix(len + 1, 0xa0761d6478bd642fu);
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = mix(h ^ word, 0xe7037ed1a0b428dbu) + 0x8ebc6af09c88c6e3u;
    }
    word = 0;
    memcpy(&word, p, left);
    return mix(h ^ word, 0x589965cc75374cc3u ^ seed);
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
