/* SPDX-License-Identifier: Apache-2.0 */
/* Copies boxes between buffers at memory speed: strided to packed, packed to strided, strided to
 * strided. */
#ifndef RSI_COPY_H
#define RSI_COPY_H

#include "plan/runs.h"

/* A box in memory. */
typedef struct rsi_area {
    rsd_box        box;                  /* in the tensor's coordinates */
    unsigned char *data;                 /* of its first element */
    int64_t        stride[RSD_MAX_NDIM]; /* bytes */
} rsi_area;

/* The two sides must not overlap. */
void rsi_copy(const rsi_loops *loops, void *to, const void *from);

/* `box` lies inside the areas; packed means row-major without gaps. */
void rsi_copy_box(const rsd_box *box, int64_t elem_bytes, const rsi_area *to, const rsi_area *from);
/* The same for a target that this process won't touch soon, or which is part of RSI_COPY_PAST bytes
 * or more that are written one after the other: bypasses the caches where that is faster. */
#define RSI_COPY_PAST ((int64_t)32 << 20)
void rsi_copy_box_past(const rsd_box *box, int64_t elem_bytes, const rsi_area *to,
                       const rsi_area *from);

/* A copy of a box that is prepared before the one ahead of it is made, which then fetches its first
 * bytes. */
typedef struct rsi_copying {
    rsi_loops            loops;
    unsigned char       *to;
    const unsigned char *from;
    bool                 past; /* the target is not needed in the cache, however small it is */
} rsi_copying;

void rsi_copy_plan(rsi_copying *copying, const rsd_box *box, int64_t elem_bytes, const rsi_area *to,
                   const rsi_area *from, bool past);
/* `next`: what will be copied after it, or NULL. */
void rsi_copy_planned(const rsi_copying *copying, const rsi_copying *next);

void rsi_pack(const rsd_box *box, int64_t elem_bytes, void *packed, const rsi_area *from);
void rsi_unpack(const rsd_box *box, int64_t elem_bytes, const rsi_area *to, const void *packed);

#endif
