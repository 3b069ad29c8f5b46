/* SPDX-License-Identifier: Apache-2.0 */
/* One round of gathering: every rank gets the bytes of tensors for one block, in bounded memory. */
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

enum { RSI_GATHER_OUT = 4 }; /* messages of one rank under way at most */

typedef struct rsi_gather_block {
    rsd_comm          *comm;
    const rsi_holders *sources;
    unsigned char     *inbox;               /* a block */
    unsigned char     *out[RSI_GATHER_OUT]; /* blocks; those that are not NULL are used */
    void              *sending[RSI_GATHER_OUT];
    int32_t            to[RSI_GATHER_OUT];
    size_t            *count; /* [ranks] bytes from each */
    void             **coming;
    int32_t           *peer; /* [ranks] 0, 1, 2 .. */
    rsd_err            rc;   /* the first failure of this rank alone: it goes on for the others */
    rsd_error          err;
} rsi_gather_block;

/* Buffers are the caller's. */
rsd_err rsi_gather_open(rsi_gather_block *g, rsd_comm *comm, const rsi_holders *sources,
                        rsd_error *err);
void    rsi_gather_close(rsi_gather_block *g);
/* span[r] is the block of rank r; this rank's bytes of tensors go to `buf`;
 * NULL: they are dropped. Fails only when the comm
 * does, and has broken it then; what went wrong here alone is in g->rc. [collective] */
rsd_err rsi_gather_round(rsi_gather_block *g, const rsi_block_span *span, unsigned char *buf,
                         rsd_error *err);

#endif
