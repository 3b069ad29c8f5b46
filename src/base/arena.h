/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once: metadata lives in the arena of the object it belongs to. */
#ifndef RSI_ARENA_H
#define RSI_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct rsi_arena {
    struct rsi_arena_block *blocks; /* newest first */
    size_t                  used;   /* bytes taken from malloc, including block headers */
    size_t                  limit;  /* upper bound of `used`; 0: none */
    bool                    full;   /* an allocation was refused because of the limit */
} rsi_arena;                        /* zeroed: empty, no limit */

/* Zeroed, aligned for any type. NULL if memory runs out, the limit is reached or n * size
 * overflows. */
void *rsi_arena_array(rsi_arena *arena, size_t n, size_t size);
/* A copy of `len` bytes, NUL-terminated. */
char *rsi_arena_text(rsi_arena *arena, const char *text, size_t len);
void  rsi_arena_release(rsi_arena *arena); /* leaves it empty and usable */

#endif
