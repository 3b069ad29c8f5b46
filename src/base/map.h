/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map from bytes (names, small structs) to numbers. Keys are not copied: they must outlive
 * the map. */
#ifndef RSI_MAP_H
#define RSI_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rsi_map {
    struct rsi_map_slot *slot;
    size_t               cap; /* a power of two, or 0 */
    size_t               count;
} rsi_map; /* zeroed: empty */

/* A good 64-bit hash of bytes; seeded per process, so that nobody can prepare colliding keys. */
uint64_t rsi_hash(const void *key, size_t len);

/* True, and *value set, if the key exists. */
bool rsi_map_get(const rsi_map *map, const void *key, size_t len, uint64_t *value);
/* Adds a key, unless it exists already: *was (may be NULL) says so, and *value becomes the stored
 * value. False: no memory. */
bool rsi_map_add(rsi_map *map, const void *key, size_t len, uint64_t *value, bool *was);
void rsi_map_release(rsi_map *map);

#endif
