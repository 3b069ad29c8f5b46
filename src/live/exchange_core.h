/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the exchange share: exchange.c begins and ends it, exchange_agree.c compares
 * the ranks, exchange_copy.c moves copies, exchange_math.c combines contributions, exchange_reach.c
 * copies from other ranks' memory. */
#ifndef RSI_EXCHANGE_CORE_H
#define RSI_EXCHANGE_CORE_H

#include "comm/vote.h"
#include "live/exchange.h"
#include "plan/region.h"
#include "live/route.h"
#include "view/views.h"

enum { SLOTS = 4 }; /* messages under way in each direction */

/* The buffers and tables are parts of the memory that the caller allows. */
#define RSI_BUFFERS     (2 * SLOTS + 2)
#define RSI_LEAST_BYTES 256 /* of a buffer */

/* How memory of another rank is read. */
enum rsi_reach_kind { RSI_REACH_SHARED = 1, RSI_REACH_PROCESS = 2 };

/* One view of another rank, as it is sent. */
typedef struct rsi_remote {
    rsd_exposed where; /* shared: for rsi_reach; process: its id and the address */
    int64_t     kind;  /* rsi_reach_kind */
    int64_t     first; /* bytes from there to the view's first element */
    int64_t     off[RSD_MAX_NDIM];
    int64_t     stride[RSD_MAX_NDIM]; /* bytes */
} rsi_remote;

/* All that one peer sends me, or I send to it, in one phase. */
typedef struct rsi_pair {
    int32_t     peer;
    uint32_t    nhops;
    uint32_t    nviews;  /* of the table; */
    bool        direct;  /* the receiver copies by it; else messages */
    rsi_remote *view;    /* [nviews], and behind it */
    uint32_t   *view_of; /* [nhops] by rsi_hop.seq; both in one block of table_bytes */
    size_t      table_bytes;
    void       *table_request, *go_request;
    char        go;    /* what the message says by coming */
    bool        ready; /* the table has come and its addresses are known */
    bool        read;  /* and its copies are made */
} rsi_pair;

typedef struct rsi_pairs {
    rsi_pair *at;
    size_t    n;
    int32_t  *of_rank; /* [size] number + 1; 0: none */
} rsi_pairs;

/* A place among the blocks of a list of hops. */
typedef struct rsi_cursor {
    size_t  hop;
    int64_t block;
} rsi_cursor;

/* A message under way. */
typedef struct rsi_slot {
    unsigned char *buf;  /* the slot's own */
    unsigned char *data; /* where the bytes are: there, or in the caller's memory */
    rsi_cursor     from, to;
    size_t         bytes;
    bool           used;
    void          *request;
    int32_t        peer;
} rsi_slot;

enum rsi_stage { STAGE_COPY, STAGE_MATH, STAGE_PASS, STAGE_VOTE, STAGE_DONE };

struct rsi_exchange {
    rsd_comm          *comm;
    const rsd_plan    *plan;
    const char *const *name;
    rsi_views         *src, *dst; /* [plan->n] */
    rsd_reshard_stats  stats, *stats_out;
    int32_t            tag; /* the first of RSI_EXCHANGE_TAGS */
    size_t             memory;
    bool               no_direct, reach, process; /* how memory is read; the same on all ranks */
    bool               readable;                  /* targets, on all ranks */
    uint64_t           cookie;                    /* what the others read to see whether they can */

    rsi_route route;
    rsi_pairs in[2], out[2]; /* [phase] */

    int64_t        seg; /* bytes of a message at most, the same on all ranks */
    unsigned char *buffers;
    rsi_slot       send[SLOTS], recv[SLOTS];
    unsigned char *scratch, *acc;

    enum rsi_stage stage;
    bool           entered; /* the stage */
    bool           local_done;
    rsi_cursor     to_send, to_recv;
    size_t         oldest; /* recv slot, in STAGE_MATH where they are taken in turn */
    rsi_cursor     job;    /* the first hop of the piece, and the block, that is combined */
    size_t         part;   /* contributions of it that were */

    void  ***open;      /* [nopen] every request that is under way, */
    void   **open_copy; /* side by side, */
    int32_t *open_peer; /* and its other end; all have room for the most there can be */
    size_t   nopen;

    rsi_vote  vote;
    rsd_err   rc; /* what went wrong here; the exchange goes on to its end so that all learn it */
    rsd_error err;
    rsd_err   result; /* of all, when done */
    bool      stuck;  /* the transport did not give memory back */
    rsi_arena mem;
};

enum { TAG_DATA, TAG_TABLE, TAG_HEAD, TAG_GO, TAG_VOTE, RSI_EXCHANGE_TAGS = 8 };

/* Notes what went wrong first; the rest of the exchange is for form's sake. */
void rsi_exchange_note(rsi_exchange *x, rsd_err rc, const rsd_error *err, size_t tensor);

/* (exchange_agree.c) */
/* `mine`: how checking went here; *err is its text. */
rsd_err rsi_exchange_compare(rsi_exchange *x, rsd_err mine, rsd_error *err);
/* What a tensor is called in messages. */
const char *rsi_exchange_name(const rsi_exchange *x, size_t tensor, char *buf, size_t cap);

/* Steps of a stage: *moved tells that something happened, *done that the stage has ended. Errors
 * are those of the comm. (exchange_copy.c, exchange_math.c) */
rsd_err rsi_exchange_copy(rsi_exchange *x, int phase, bool *moved, bool *done, rsd_error *err);
rsd_err rsi_exchange_math(rsi_exchange *x, bool *moved, bool *done, rsd_error *err);
/* The blocks of a hop, of at most `most` bytes each; their number, 0 if it is empty. `my_box`:
 * which box of mine it lies in. */
int64_t rsi_hop_blocks(const rsi_exchange *x, const rsi_hop *hop, bool given, int64_t most,
                       rsi_region *out, size_t *my_box);
void    rsi_hop_block(const rsi_region *region, int64_t i, rsd_box *out);
bool    rsi_slots_idle(const rsi_slot *slot);

/* (exchange_reach.c) */
/* Linux moves at most 2 GiB less a page in one call, and may move less: longer copies take several.
 * A test lowers it. */
extern size_t rsi_reach_part_bytes;
rsd_err       rsi_reach_probe(rsi_exchange *x, rsd_error *err);
rsd_err       rsi_tables_make(rsi_exchange *x, rsd_error *err);
rsd_err       rsi_tables_start(rsi_exchange *x, rsd_error *err);
/* Makes the table of an incoming pair usable if it has come. */
bool rsi_table_ready(rsi_exchange *x, rsi_pair *pair);
/* Copies a box out of the view that the pair's hop lies in. */
rsd_err rsi_reach_copy(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop,
                       const rsd_box *box, const rsi_area *to, int64_t elem_bytes, rsd_error *err);

static inline rsi_pair *rsi_pair_of(const rsi_pairs *pairs, int32_t rank)
{
    return &pairs->at[pairs->of_rank[rank] - 1];
}

#endif
