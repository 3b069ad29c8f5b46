/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the stash: tensors kept as chunks, and tensors being restored. stash.c creates it,
 * stash_keep.c saves into it, stash_take.c restores tensors, and stash_peers.c moves them between
 * the ranks. */
#ifndef RSI_STASH_H
#define RSI_STASH_H

#include "base/arena.h"
#include "comm/comm.h"
#include "plan/region.h"

#include <reshard/reshard_live.h>

#define RSI_STASH_ALIGN 64
#define RSI_STASH_AHEAD 8  /* prefetches in flight */
#define RSI_STASH_WAYS  12 /* the same plus takes that other ranks have not finished */
#define RSI_STASH_STAGE ((int64_t)256 << 10) /* bytes of a message that must be unpacked */

/* A tensor as described between ranks: the fields before `offset` must be equal on all. */
typedef struct rsi_stash_head {
    uint64_t number;             /* of the save; 0: the slot is free */
    int32_t  code;               /* rsd_err: why the rank can't take part */
    int32_t  dtype, ndim, whole; /* whole: not cut into chunks */
    int64_t  shape[RSD_MAX_NDIM];
    uint64_t offset;  /* of the rank's chunk in its arena */
    char     why[96]; /* the text of `code`; short, as small messages cost least */
} rsi_stash_head;

/* A kept tensor: this rank's chunk of it, packed. */
typedef struct rsi_stash_tensor {
    rsi_stash_head           head;
    int64_t                  bytes;      /* of the whole tensor */
    size_t                   held, room; /* bytes of this rank's chunk, and of the largest one */
    bool                     apart;      /* chunks are not contiguous in the tensor */
    bool                     taken;      /* others may still read it */
    unsigned char           *at;         /* the chunk */
    struct rsi_stash_tensor *next;       /* the next one in the arena */
    unsigned char           *data;       /* where prefetch is to put it; may be NULL */
    struct rsi_stash_way    *way;        /* in flight */
} rsi_stash_tensor;

/* The requests of one way: one of each kind per rank. */
typedef enum rsi_stash_kind {
    RSI_STASH_HEAD_IN,
    RSI_STASH_HEAD_OUT,
    RSI_STASH_IN,  /* its chunk, or our notice that we have copied it */
    RSI_STASH_OUT, /* the reverse */
    RSI_STASH_KINDS
} rsi_stash_kind;

/* A tensor being restored. */
typedef struct rsi_stash_way {
    uint64_t          seq;    /* the same on all ranks; 0: free */
    rsi_stash_tensor *tensor; /* NULL: this rank has none */
    rsi_area          to;     /* the whole tensor */
    bool              taken;
    rsi_stash_head   *head;    /* [size] */
    void            **request; /* [RSI_STASH_KINDS * size] */
} rsi_stash_way;

struct rsd_stash {
    rsd_comm         *comm; /* private, so that its messages are; NULL: local, all is kept whole */
    int32_t           rank, size;
    int32_t           dim;
    size_t            budget, handles;
    uint64_t          saves;
    size_t            reserved; /* bytes of room of tensors kept and not taken */
    rsi_stash_tensor *tensor;   /* [nslots] */
    size_t            nslots;
    rsi_stash_tensor *first; /* in the arena, or of the thread */

    unsigned char  *arena; /* NULL: a thread's tensors outside any stash */
    size_t          arena_bytes;
    unsigned char **reach;   /* [size] the arenas of all; NULL: chunks come in messages */
    unsigned char  *reached; /* [size] true: that rank reaches ours */
    unsigned char  *staging; /* [size * RSI_STASH_STAGE]; NULL: all are reachable */

    rsi_stash_way *way;     /* [RSI_STASH_WAYS] */
    uint64_t       seq;     /* of the last way begun, */
    uint64_t       agreed;  /* and of the last one in which all ranks agree */
    int32_t        open;    /* ways that are not free, */
    int32_t        ahead;   /* and of these not taken */
    void         **request; /* [nrequests] of all ways */
    int32_t       *peer;    /* of each request */
    size_t         nrequests;
    bool           refused; /* the ranks differ in the way after `agreed`; `error` says how */
    bool           failed;  /* `error` is returned by all later calls */
    bool           broken;  /* the comm is */
    bool           ending;  /* it is being freed */
    rsd_error      error;

    rsd_stash_stats stats;
    rsi_arena       mem; /* of the tables */
};

/* ---- stash_keep.c ---- */

/* `stash`, or if NULL the thread's tensors outside any stash. */
rsd_stash *rsi_stash_or_loose(rsd_stash *stash);
/* Frees the room of a tensor that was taken. */
void rsi_stash_release(rsd_stash *stash, rsi_stash_tensor *tensor);
/* Where rank r's chunk lies in the tensor; returns its bytes. */
int64_t rsi_stash_chunk(const rsd_stash *stash, const rsi_stash_head *head, int32_t r,
                        rsd_box *out);
/* The whole tensor in a caller's memory. */
rsi_area rsi_stash_area(const rsi_stash_head *head, const void *data);
int64_t  rsi_stash_elem(const rsi_stash_head *head); /* bytes */
/* The tensor as text: "float32 [4, 8]". */
#define RSI_STASH_TEXT 256
const char *rsi_stash_text(const rsi_stash_head *head, char out[RSI_STASH_TEXT]);

/* ---- stash_peers.c; does nothing for a local stash ---- */

/* Tells all others what this rank restores; `t` NULL: only why it can't. */
rsd_err rsi_way_begin(rsd_stash *stash, rsi_stash_tensor *t, const rsi_stash_head *head,
                      rsi_stash_way **out, rsd_error *err);
/* Waits until the tensor is complete and the others need no more steps from this rank. Ranks that
 * disagree learn it in the same call: the first take of that way or of a later one. */
rsd_err rsi_way_take(rsd_stash *stash, rsi_stash_way *way, rsd_error *err);
/* The error that all calls now return, or RSD_OK. */
rsd_err rsi_stash_is_failed(const rsd_stash *stash, rsd_error *err);
/* Advances everything in flight without waiting. */
rsd_err rsi_stash_drive(rsd_stash *stash, rsd_error *err);
/* Waits until no rank reads that part of the arena any more for a taken tensor. */
rsd_err rsi_stash_settle(rsd_stash *stash, const unsigned char *at, size_t bytes, rsd_error *err);
/* Ends everything in flight, for rsd_stash_free. */
void rsi_stash_end(rsd_stash *stash);

#endif
