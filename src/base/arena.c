/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of growing blocks; memory is only freed all at once. */
#include "base/arena.h"
#include "base/mem.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#define FIRST_BLOCK ((size_t)1 << 10)
#define LAST_BLOCK  ((size_t)1 << 20)

struct rsi_arena_block {
    struct rsi_arena_block *next;
    size_t                  size, used; /* of data */
    alignas(max_align_t) unsigned char data[];
};

static bool over_limit(const rsi_arena *arena, size_t size)
{
    size_t left = arena->limit - arena->used;

    return arena->limit &&
           (left < sizeof(struct rsi_arena_block) || size > left - sizeof(struct rsi_arena_block));
}

/* Blocks double from 1 KiB to 1 MiB: small objects stay small, large ones need few calls. */
static struct rsi_arena_block *add_block(rsi_arena *arena, size_t need)
{
    struct rsi_arena_block *block;
    size_t                  size = arena->blocks ? arena->blocks->size * 2 : FIRST_BLOCK;
    size_t                  bytes;

    if (size > LAST_BLOCK)
        size = LAST_BLOCK;
    if (size < need)
        size = need;
    if (over_limit(arena, size))
        size = need; /* the last block below a limit may be small */
    arena->full = over_limit(arena, size);
    if (arena->full || __builtin_add_overflow(size, sizeof(*block), &bytes))
        return NULL;
    block = rsi_calloc(1, bytes);
    if (!block)
        return NULL;
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->used += bytes;
    return block;
}

void *rsi_arena_array(rsi_arena *arena, size_t n, size_t size)
{
    struct rsi_arena_block *block = arena->blocks;
    size_t                  bytes;
    void                   *p;

    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX - alignof(max_align_t))
        return NULL;
    bytes = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (!block || block->size - block->used < bytes)
        block = add_block(arena, bytes);
    if (!block)
        return NULL;
    p = block->data + block->used;
    block->used += bytes;
    return p;
}

char *rsi_arena_text(rsi_arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? rsi_arena_array(arena, len + 1, 1) : NULL;

    if (copy)
        memcpy(copy, text, len);
    return copy;
}

void rsi_arena_release(rsi_arena *arena)
{
    while (arena->blocks) {
        struct rsi_arena_block *next = arena->blocks->next;

        rsi_free(arena->blocks);
        arena->blocks = next;
    }
    arena->used = 0;
}
