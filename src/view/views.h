/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the boxes of one tensor, as given by the caller: pointers with strides, or
 * callbacks. */
#ifndef RSI_VIEWS_H
#define RSI_VIEWS_H

#include "base/arena.h"
#include "plan/copy.h"
#include "shape/layout.h"

typedef struct rsi_views {
    const rsd_view *view; /* [n] strides are set */
    size_t          n;
    int64_t         elem_bytes;
    bool pack_past, unpack_past; /* what is written bypasses the caches: rsi_copy_box_past */
} rsi_views;

/* Copies the views into `mem`, adding strides where none are given. Refuses boxes outside the
 * tensor, memory unusable for this side, and views that hold less or more than `rank` holds in
 * `layout`. `write`: the views are to be filled. */
rsd_err rsi_views_make(rsi_views *views, const rsd_layout *layout, int32_t rank, size_t n,
                       const rsd_view *view, bool write, rsi_arena *mem, rsd_error *err);
/* Refuses a box if part of it is missing from the views or duplicated in them; with `read`, also if
 * they can't supply its bytes. */
rsd_err rsi_views_cover(const rsi_views *views, const rsd_box *box, bool read, rsd_error *err);
/* True if every view can be read from. */
bool rsi_views_readable(const rsi_views *views);

/* The view that contains all of `box`, trying number `hint` first; NULL if the box spans several
 * views. */
const rsd_view *rsi_views_find(const rsi_views *views, const rsd_box *box, size_t hint);
rsi_area        rsi_view_area(const rsd_view *view);
/* Returns the lowest byte of a view with memory and strides; also the number of bytes up to its
 * highest one, and how many precede its first element. */
void *rsi_view_extent(const rsd_view *view, int64_t elem_bytes, size_t *bytes, int64_t *first);
/* The address of the box's bytes if they already lie packed in the caller's memory; else NULL. */
unsigned char *rsi_views_direct(const rsi_views *views, const rsd_box *box, size_t hint);

/* Passes a packed box to the `put` of a view that contains it, run by run. */
rsd_err rsi_view_put(const rsd_view *view, const rsd_box *box, int64_t elem_bytes,
                     const void *packed, rsd_error *err);
/* Copies the box to packed bytes and back. Errors come from the caller's callbacks. */
rsd_err rsi_views_pack(const rsi_views *views, const rsd_box *box, size_t hint, void *packed,
                       rsd_error *err);
rsd_err rsi_views_unpack(const rsi_views *views, const rsd_box *box, size_t hint,
                         const void *packed, rsd_error *err);

#endif
