/* SPDX-License-Identifier: Apache-2.0 */
/* The stash inside: tensors kept as chunks, and the ways back that are under way. stash.c makes one
 * and saves into it, stash_room.c finds places for the chunks, stash_way.c and stash_take.c bring
 * them back. */
#ifndef RSI_STASH_H
#define RSI_STASH_H

#include "comm/comm.h"

#define RSI_STASH_AHEAD 8  /* prefetches under way */
#define RSI_STASH_WAYS  12 /* the same with takes that other ranks are not through with */
#define RSI_STASH_STAGE ((int64_t)256 << 10) /* bytes of a message that has to be unpacked */

/* A tensor that is kept. As bytes it is `outer` rows of `pitch`; rank r's chunk is the columns that
 * rsi_stash_chunk tells, kept row by row. */
typedef struct rsi_piece {
    uint64_t        number; /* of the save; 0: the slot is free */
    rsd_dtype       dtype;
    int32_t         ndim;
    int64_t         shape[RSD_MAX_NDIM];
    bool            whole;
    int64_t         bytes;        /* of the whole tensor */
    int64_t         outer, pitch; /* rows, and bytes of one */
    int64_t         length, unit; /* of the dimension that is cut, and bytes of one index in it */
    size_t          offset, room; /* in the arena; room: bytes of the largest chunk */
    size_t          held;         /* bytes of this rank's */
    unsigned char  *data;         /* where prefetch was told to bring it; may be NULL */
    struct rsi_way *way;          /* under way */
    bool            taken;        /* others may still read it */
} rsi_piece;

/* Why a rank can't take part; both numbers below stand in the texts. */
typedef enum rsi_stash_reason {
    RSI_STASH_FINE = 0,
    RSI_STASH_NEVER, /* no such tensor was saved */
    RSI_STASH_TAKEN, /* it was taken already */
    RSI_STASH_SMALL  /* a buffer of `have` bytes */
} rsi_stash_reason;

/* What ranks tell each other when they begin to bring a tensor back: that all mean the same. */
typedef struct rsi_stash_head {
    uint64_t number;
    int32_t  reason; /* rsi_stash_reason */
    int32_t  dtype, ndim;
    int32_t  whole;
    int64_t  shape[RSD_MAX_NDIM];
    uint64_t offset; /* of its chunk in its arena */
    int64_t  have;
} rsi_stash_head;

/* One other rank in a way. */
typedef struct rsi_stash_mate {
    rsi_stash_head head;
    bool           heard, same; /* its head has come, and is what this rank's is */
    bool           in, out;     /* its chunk is in place; it has ours */
    int64_t        got, sent;   /* bytes of chunks that go in messages */
    int64_t        asked;       /* bytes of the message that is being received */
    bool           told;        /* the word that a chunk was copied is on its way, or asked for */
} rsi_stash_mate;

/* The requests of one way, RSI_STASH_KINDS for each rank. */
typedef enum rsi_stash_kind {
    RSI_STASH_HEAD_IN,
    RSI_STASH_HEAD_OUT,
    RSI_STASH_IN,  /* its chunk, or the word that we have copied it */
    RSI_STASH_OUT, /* the other way round */
    RSI_STASH_KINDS
} rsi_stash_kind;

/* A tensor on its way back. */
typedef struct rsi_way {
    uint64_t        seq;   /* the same on all ranks; 0: free */
    rsi_piece      *piece; /* NULL: this rank has none */
    unsigned char  *data;
    bool            taken;
    bool            judged;         /* all ranks mean the same */
    int32_t         heard, in, out; /* mates that are done with */
    rsi_stash_head  head;           /* ours */
    rsi_stash_mate *mate;           /* [size] */
    void          **request;        /* [size * RSI_STASH_KINDS] */
} rsi_way;

struct rsd_stash {
    rsd_comm  *comm; /* its own, so that its messages are; NULL: local, all is kept whole */
    int32_t    rank, size;
    int32_t    dim;
    size_t     budget;
    size_t     handles;
    uint64_t   saves;
    int64_t    reserved; /* bytes of room of what is kept and not taken */
    rsi_piece *piece;    /* [nslots] */
    size_t     nslots;
    size_t    *order; /* [used] slots by offset */
    size_t     used;

    unsigned char  *arena;
    size_t          arena_bytes;
    unsigned char **reach;   /* [size] the arenas of others; NULL: chunks come in messages */
    bool           *reached; /* [size] by whom ours is */
    unsigned char  *staging; /* [size * RSI_STASH_STAGE]; NULL: all can be reached */

    rsi_way        way[RSI_STASH_WAYS];
    const rsi_way *taking; /* the one that is waited for; it has the staging */
    uint64_t       seq;
    int32_t        ahead;   /* ways that are not taken */
    void         **request; /* of all ways */
    int32_t       *peer;    /* of each request */
    size_t         nrequests;
    rsd_error      failed;      /* of all that follows; code 0: not */
    rsd_error      verdict;     /* what becomes that when it is told: the ranks differ */
    uint64_t       verdict_seq; /* in this way; 0: they don't */
    bool           broken;      /* the comm is */
    uint64_t      *begun;       /* [size] ways, for the end */

    rsd_stash_stats stats;
};

/* For `comm` NULL or opts->dim < 0 it is local. A rank with a `mine`, and its text in *err, fails
 * all. */
rsd_err rsi_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_err mine, rsd_stash **out,
                         rsd_error *err);
void    rsi_stash_free(rsd_stash *stash);
rsd_err rsi_stash_save(rsd_stash *stash, const rsi_piece *what, const void *data, rsd_stashed *out,
                       rsd_error *err);
rsd_err rsi_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);
rsd_err rsi_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);

/* Fills a piece that describes a tensor cut along `dim` for `size` ranks. */
rsd_err rsi_piece_make(rsd_dtype dtype, int ndim, const int64_t *shape, int32_t dim, int32_t size,
                       bool replicated, rsi_piece *out, rsd_error *err);
/* Bytes of a row of rank r's chunk, and in *start where they begin in the tensor's row. */
int64_t rsi_stash_chunk(const rsi_piece *piece, int32_t size, int32_t r, int64_t *start);
/* Copies `rows` rows of `run` bytes each. */
void rsi_stash_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t rows,
                    int64_t run);
/* The tensor in words: "float32 [4, 8]". */
#define RSI_PIECE_TEXT 256
void rsi_piece_text(rsd_dtype dtype, int ndim, const int64_t *shape, char out[RSI_PIECE_TEXT]);

/* ---- stash_room.c ---- */

/* Gives the piece in `slot`, whose room is set, a place. False: there is none in one part. */
bool rsi_room_take(rsd_stash *stash, size_t slot);
void rsi_room_give(rsd_stash *stash, size_t slot);
/* Moves what is not under way together. */
void rsi_room_compact(rsd_stash *stash);

/* ---- stash_way.c ---- */

/* Tells all others what this rank brings; `piece` NULL: only why it can't. */
rsd_err rsi_way_begin(rsd_stash *stash, rsi_piece *piece, const rsi_stash_head *head,
                      unsigned char *data, rsi_way **out, rsd_error *err);
/* Gives back way and slot when the tensor was taken and all others have the chunk. */
void rsi_way_close(rsd_stash *stash, rsi_way *way);
/* The tensor is there, and the others need no more steps of this rank. */
bool rsi_way_is_done(const rsd_stash *stash, const rsi_way *way);
/* Ranks that mean different things learn it in the same call: the first take of that way or of one
 * that began later. */
rsd_err rsi_way_verdict(rsd_stash *stash, const rsi_way *way, rsd_error *err);
/* The error that all calls give by now, or RSD_OK. */
rsd_err rsi_stash_is_failed(const rsd_stash *stash, rsd_error *err);
/* The reason in a head as an error of rank r; RSD_OK if there is none. */
rsd_err rsi_stash_fail(int32_t r, const rsi_stash_head *head, rsd_error *err);
/* Lets what is under way go on, without waiting. */
rsd_err rsi_way_drive(rsd_stash *stash, rsd_error *err);
/* Waits until something may have changed. */
rsd_err rsi_way_wait(rsd_stash *stash, rsd_error *err);
/* Waits until nobody reads that part of the arena any more for what was taken. */
rsd_err rsi_way_settle(rsd_stash *stash, size_t offset, size_t bytes, rsd_error *err);
/* Ends all that is under way, for rsi_stash_free. */
void rsi_way_end(rsd_stash *stash);

#endif
