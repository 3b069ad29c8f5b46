/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the boxes of one tensor, as a caller gave it: pointers with strides, or callbacks. */
#ifndef RSI_VIEWS_H
#define RSI_VIEWS_H

#include "base/arena.h"
#include "plan/copy.h"
#include "shape/layout.h"

typedef struct rsi_views {
    const rsd_view *view; /* [n] strides are set */
    size_t          n;
    int64_t         elem_bytes;
} rsi_views;

/* Copies the views into `mem`, with strides for those that have none, and refuses what can't be:
 * boxes outside the tensor, memory that a side can't use, less or more than `rank` holds in
 * `layout`. `write`: they are to be filled. */
rsd_err rsi_views_make(rsi_views *views, const rsd_layout *layout, int32_t rank, size_t n,
                       const rsd_view *view, bool write, rsi_arena *mem, rsd_error *err);
/* Refuses a box that the views lack a part of, or have twice. `read`: or whose bytes they can't
 * give. */
rsd_err rsi_views_cover(const rsi_views *views, const rsd_box *box, bool read, rsd_error *err);
/* True if every view can be read from. */
bool rsi_views_readable(const rsi_views *views);

/* The view in which all of `box` lies, looked for at number `hint` first; NULL if it lies in
 * several. */
const rsd_view *rsi_views_find(const rsi_views *views, const rsd_box *box, size_t hint);
rsi_area        rsi_view_area(const rsd_view *view);
/* The lowest byte of a view with memory and strides, the bytes up to its highest one, and how many
 * stand before its first element. */
void *rsi_view_extent(const rsd_view *view, int64_t elem_bytes, size_t *bytes, int64_t *first);
/* Where the packed bytes of the box lie in the caller's memory already; NULL if they don't. */
unsigned char *rsi_views_direct(const rsi_views *views, const rsd_box *box, size_t hint);

/* A packed box to the `put` of a view it lies in, run by run. */
rsd_err rsi_view_put(const rsd_view *view, const rsd_box *box, int64_t elem_bytes,
                     const void *packed, rsd_error *err);
/* The box to packed bytes and back. Errors are those of the caller's callbacks. */
rsd_err rsi_views_pack(const rsi_views *views, const rsd_box *box, size_t hint, void *packed,
                       rsd_error *err);
rsd_err rsi_views_unpack(const rsi_views *views, const rsd_box *box, size_t hint,
                         const void *packed, rsd_error *err);

#endif
