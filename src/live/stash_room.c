/* SPDX-License-Identifier: Apache-2.0 */
/* Places for chunks in the arena of a stash. Backward goes the way of forward in reverse, so a
 * stack would do; other orders leave gaps, which are filled first and closed when nothing else
 * helps. The arena has room for the budget and for the alignment of every chunk. Next:
 * stash_way.c. */
#include "live/stash.h"

#include <string.h>

#define ALIGN 64

static size_t aligned(size_t at)
{
    return (at + ALIGN - 1) / ALIGN * ALIGN;
}

bool rsi_room_take(rsd_stash *stash, size_t slot)
{
    size_t at = 0, i = 0;
    size_t need = stash->piece[slot].room;

    for (; i < stash->used; i++) {
        const rsi_piece *p = &stash->piece[stash->order[i]];

        if (p->offset - at >= need && p->offset >= at)
            break;
        at = aligned(p->offset + p->room);
    }
    if (at > stash->arena_bytes || need > stash->arena_bytes - at)
        return false;
    memmove(&stash->order[i + 1], &stash->order[i], (stash->used - i) * sizeof(stash->order[0]));
    stash->order[i] = slot;
    stash->used++;
    stash->piece[slot].offset = at;
    return true;
}

void rsi_room_give(rsd_stash *stash, size_t slot)
{
    size_t i = 0;

    while (stash->order[i] != slot)
        i++;
    stash->used--;
    memmove(&stash->order[i], &stash->order[i + 1], (stash->used - i) * sizeof(stash->order[0]));
}

void rsi_room_compact(rsd_stash *stash)
{
    size_t at = 0;

    for (size_t i = 0; i < stash->used; i++) {
        rsi_piece *p = &stash->piece[stash->order[i]];

        /* Others know the place of what is under way. */
        if (!p->way && p->offset != at) {
            memmove(stash->arena + at, stash->arena + p->offset, p->held);
            p->offset = at;
        }
        at = aligned(p->offset + p->room);
    }
}
