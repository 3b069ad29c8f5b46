/* SPDX-License-Identifier: Apache-2.0 */
/* Names what lies at a place in a checkpoint's files, so that damage can be reported by tensor. */
#ifndef RSI_PLACE_NAMES_H
#define RSI_PLACE_NAMES_H

#include "format/ckpt.h"

rsi_item rsi_chunk_item(const rsd_ckpt *ckpt, size_t t, size_t i);

/* Iterates over all items of a checkpoint, chunks first. */
typedef struct rsi_items {
    rsi_item item;
    size_t   t, i, chunks, k;                                /* current position */
} rsi_items;                                                 /* zeroed: before the first */
bool rsi_items_next(const rsd_ckpt *ckpt, rsi_items *items); /* false after the last */

static inline bool rsi_item_is_chunk(const rsi_item *item)
{
    return !item->what && !item->object;
}

typedef struct rsi_place_names {
    rsd_ckpt *ckpt;
    rsi_item *item; /* [n] by file and offset */
    size_t    n;
} rsi_place_names;

rsd_err rsi_place_names_make(rsd_ckpt *ckpt, rsi_place_names *out, rsd_error *err);
void    rsi_place_names_release(rsi_place_names *names);
/* "tensor \"a\" [0:2, 0:3], object \"step\"" for bytes [off, off + len) of a file, len > 0: for
 * each tensor the box that the bytes belong to, as far as it is known. Lists the first few, then
 * how many more follow; "padding" if no item lies there. Looks into the file. Calls `mark` for each
 * tensor (by number) and each object (numbered after the tensors) that has elements or bytes there,
 * and with SIZE_MAX for anything else. */
size_t rsi_place_names_text(const rsi_place_names *names, uint32_t file, uint64_t off, uint64_t len,
                            void (*mark)(void *arg, size_t number), void *arg, char *buf,
                            size_t cap);

#endif
