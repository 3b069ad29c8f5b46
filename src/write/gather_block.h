/* SPDX-License-Identifier: Apache-2.0 */
/* One round of gathering: every rank receives the tensor bytes of one block, in bounded memory. */
#ifndef RSI_GATHER_BLOCK_H
#define RSI_GATHER_BLOCK_H

#include "comm/comm.h"
#include "write/block_holders.h"

/* A block of a file; len 0: none. */
typedef struct rsi_block_span {
    size_t   file;
    uint64_t at;
    size_t   len;
} rsi_block_span;

enum { RSI_GATHER_OUT = 4 }; /* most messages of one rank in flight */

typedef struct rsi_gather_block {
    rsd_comm          *comm;
    const rsi_holders *sources;
    unsigned char     *inbox;               /* a block */
    unsigned char     *out[RSI_GATHER_OUT]; /* blocks; only non-NULL ones are used */
    void              *sending[RSI_GATHER_OUT];
    int32_t            to[RSI_GATHER_OUT];
    size_t            *count; /* [ranks] bytes from each rank */
    void             **coming;
    int32_t           *peer; /* [ranks] 0, 1, 2 .. */
    rsd_err            rc;   /* first local failure; the rank runs on so that peers don't hang */
    rsd_error          err;
} rsi_gather_block;

/* The caller owns the buffers. */
rsd_err rsi_gather_open(rsi_gather_block *g, rsd_comm *comm, const rsi_holders *sources,
                        rsd_error *err);
void    rsi_gather_close(rsi_gather_block *g);
/* span[r] is the block of rank r; this rank's tensor bytes go to `buf`, or are dropped if it is
 * NULL. Fails only if the comm fails, and breaks the comm then; a failure local to this rank is in
 * g->rc. [collective] */
rsd_err rsi_gather_round(rsi_gather_block *g, const rsi_block_span *span, unsigned char *buf,
                         rsd_error *err);

#endif
