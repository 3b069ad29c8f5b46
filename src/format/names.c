/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing, built once at its final size. Part of the hash is in the
 * slot, so that a probe rarely has to look at a name. */
#include "format/names.h"
#include "base/map.h"
#include "base/mem.h"

#include <string.h>

#define AHEAD 32 /* names whose slots are prefetched together */

static const rsi_name *name_at(const rsi_names *names, size_t i)
{
    return (const rsi_name *)(const void *)((const char *)names->first + i * names->stride);
}

/* The slot of the name, or the free one where it belongs. */
static uint64_t *find(const rsi_names *names, const char *text, size_t len, uint64_t hash)
{
    size_t at = (size_t)hash & (names->cap - 1);

    for (; names->slot[at]; at = (at + 1) & (names->cap - 1)) {
        const rsi_name *name;

        if (names->slot[at] >> 32 != hash >> 32)
            continue;
        name = name_at(names, (size_t)(names->slot[at] & UINT32_MAX) - 1);
        if (name->len == len && memcmp(name->text, text, len) == 0)
            break;
    }
    return &names->slot[at];
}

/* Hashes the next `n` names and prefetches their slots: most are not in the cache. */
static void look_ahead(const rsi_names *names, size_t from, size_t n, uint64_t *hash)
{
    for (size_t i = 0; i < n; i++) {
        const rsi_name *name = name_at(names, from + i);

        hash[i] = rsi_hash(name->text, name->len);
        __builtin_prefetch(&names->slot[hash[i] & (names->cap - 1)], 1);
    }
}

bool rsi_names_build(rsi_names *names, const void *first, size_t stride, size_t n, size_t *twice)
{
    rsi_names made = { .cap = 16, .first = first, .stride = stride };
    uint64_t  hash[AHEAD];
    size_t    i;

    while (made.cap / 3 * 2 < n)
        made.cap *= 2;
    made.slot = rsi_calloc(made.cap, sizeof(made.slot[0]));
    if (!made.slot)
        return false;
    for (i = 0; i < n; i++) {
        const rsi_name *name = name_at(&made, i);
        uint64_t       *slot;

        if (i % AHEAD == 0)
            look_ahead(&made, i, n - i < AHEAD ? n - i : AHEAD, hash);
        slot = find(&made, name->text, name->len, hash[i % AHEAD]);
        if (*slot)
            break;
        *slot = (hash[i % AHEAD] & ~(uint64_t)UINT32_MAX) | (i + 1);
    }
    *names = made;
    *twice = i;
    return true;
}

size_t rsi_names_find(const rsi_names *names, const char *text, size_t len)
{
    const uint64_t *slot;

    if (names->cap == 0)
        return SIZE_MAX;
    slot = find(names, text, len, rsi_hash(text, len));
    return *slot ? (size_t)(*slot & UINT32_MAX) - 1 : SIZE_MAX;
}

void rsi_names_release(rsi_names *names)
{
    rsi_free(names->slot);
    *names = (rsi_names){ 0 };
}
