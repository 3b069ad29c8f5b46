/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which tensors of a load are read once for several ranks of a machine, and in which
 * pieces. Every rank knows what the others of its machine want and computes the same result; other
 * machines read for themselves. read_once.c runs it. */
#ifndef RSI_WANTED_BY_SEVERAL_H
#define RSI_WANTED_BY_SEVERAL_H

#include "comm/comm.h"
#include "read/fetch_all.h"

#define RSI_PIECE_MOST ((int64_t)4 << 20) /* bytes of a piece, unless it need not be kept */

/* One view of one rank, as known to all ranks. */
typedef struct rsi_ref {
    int32_t        rank;
    uint32_t       want; /* number among that rank's */
    const int64_t *box;  /* [2 * ndim] offsets, sizes; if ranks reach each other's memory, then */
} rsi_ref;               /* [1 + ndim]: address of the first element, strides */

typedef struct rsi_share {
    rsd_comm    *comm; /* of the ranks of a machine */
    rsd_ckpt    *ckpt;
    rsi_gathered words; /* exchanged by the ranks */
    rsi_ref     *ref;   /* by tensor, then rank, then number */
    size_t      *first; /* [ntensors + 1] those of tensor t are ref[first[t] .. first[t+1]-1] */
    bool        *once;  /* [ntensors] its pieces are read once */
    size_t       nonce; /* number of such tensors, */
    uint64_t     bytes; /* and their wanted bytes, each counted once */
    bool         reach; /* the views' memory is exposed */
    int64_t      piece; /* maximum bytes of a piece */
} rsi_share;

/* The part of a piece that one view wants. */
typedef struct rsi_hit {
    int32_t        rank;
    uint32_t       want;
    const rsi_ref *ref;
    rsd_box        box;
} rsi_hit;

/* The unit of reading: everything wanted of a block of a chunk, itself a box. */
typedef struct rsi_piece {
    size_t  t;
    int64_t elem_bytes;
    rsd_box box;
    size_t  first, n; /* of rsi_pieces.hit; sorted by rank */
} rsi_piece;

typedef struct rsi_pieces {
    rsi_piece *piece;
    size_t     n, cap;
    rsi_hit   *hit;
    size_t     nhits, hit_cap;
} rsi_pieces;

/* A position among the pieces of tensors t .. end-1. */
typedef struct rsi_share_at {
    size_t  t, chunk, end;
    int64_t block;
} rsi_share_at;

/* Ends a step: *go if every rank succeeded in it with its own result `mine`. Returns `mine` or an
 * error of the comm: a rank that did not fail itself returns RSD_OK though the others stop, and
 * hears why when all ranks of the load agree. [collective] */
rsd_err rsi_share_go(rsd_comm *comm, rsd_err mine, bool *go, rsd_error *err);

/* Tells all ranks of the comm what each wants and finds the tensors that are read once: those of
 * which the ranks together want at least 1.25 times the bytes of the box around their wants, those
 * wanted in scattered pieces if data are passed on in memory, or, if a rank says ALWAYS, any that
 * several ranks want; none if one says NEVER. Views are reached if the ranks are threads, and every
 * view is memory in the tensor's own dtype. *go and the result as above; without *go there is
 * nothing to release. [collective] */
rsd_err rsi_share_make(rsi_share *share, rsd_comm *comm, rsd_ckpt *ckpt, const rsi_want *want,
                       size_t n, rsd_choice cooperate, bool *go, rsd_error *err);
void    rsi_share_release(rsi_share *share);

/* Adds the next wanted piece; *more is false when none is left. */
rsd_err rsi_share_next(const rsi_share *share, rsi_share_at *at, rsi_pieces *out, bool *more,
                       rsd_error *err);
void    rsi_pieces_release(rsi_pieces *pieces);

#endif
