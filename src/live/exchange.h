/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan between ranks. Both ends derive the same message order from it, so messages carry
 * nothing but tensor bytes. Where the receiver can reach a sender's memory, it copies from there
 * directly. exchange.c starts and ends it, exchange_agree.c compares the ranks, exchange_reach.c
 * finds out which memory can be read, exchange_copy.c moves copies, and exchange_math.c combines
 * contributions. */
#ifndef RSI_EXCHANGE_H
#define RSI_EXCHANGE_H

#include "comm/rooms.h"
#include "comm/vote.h"
#include "live/route.h"
#include "plan/region.h"
#include "view/views.h"

enum { SLOTS = 4 }; /* messages in flight in each direction */

/* One view of another rank, as sent over the wire. */
typedef struct rsi_remote {
    rsd_exposed where; /* for rsi_reach, whose answer replaces word 0 */
    int64_t     first; /* bytes from there to the view's first element */
    int64_t     off[RSD_MAX_NDIM];
    int64_t     stride[RSD_MAX_NDIM]; /* bytes */
} rsi_remote;

/* Everything that one peer sends to me, or I send to it, in one phase. */
typedef struct rsi_pair {
    int32_t  peer;
    uint32_t nhops;
    size_t   first; /* index of its first copy; SIZE_MAX: none */
    struct {
        uint32_t direct; /* the receiver copies using the table; else messages */
        uint32_t nviews;
    } head;              /* sent first */
    uint32_t   *view_of; /* [nhops] by rsi_hop.seq, followed by */
    rsi_remote *view;    /* [nviews]: together one block, the table */
    void      **request; /* [2] the table, and an empty one: go */
    bool        ready;   /* the table has arrived and its addresses are known */
    bool        read;    /* and its copies are made */
} rsi_pair;

typedef struct rsi_pairs {
    rsi_pair *at;
    size_t    n;
    int32_t  *of_rank; /* [size] number + 1; 0: none */
} rsi_pairs;

/* A position among the blocks of a list of hops; for contributions, `hop` is the first of its
 * piece. */
typedef struct rsi_cursor {
    size_t  hop;
    int64_t block;
    size_t  part;
} rsi_cursor;

/* A message in flight. A long one to a rank on the same machine is left in the sender's room: only
 * the slot's number is sent, and the receiver says when it has taken the bytes. */
typedef struct rsi_slot {
    unsigned char *buf;  /* the slot's own buffer */
    unsigned char *data; /* where the bytes are: in `buf`, the caller's memory or a peer's room */
    rsi_cursor     from;
    size_t         bytes;
    uint32_t       number; /* of the sender's slot, if the message is in its room */
    bool           used;
    void         **request; /* [2] the message, and that its bytes were taken */
    int32_t       *peer;    /* [2] the same */
} rsi_slot;

enum rsi_exchange_stage { STAGE_COPY, STAGE_MATH, STAGE_PASS, STAGE_VOTE, STAGE_DONE };

typedef struct rsi_exchange {
    rsd_comm          *comm;
    const rsd_plan    *plan;
    const char *const *name;
    rsi_views         *src, *dst; /* [plan->n] */
    rsd_reshard_stats  stats, *stats_out;
    int32_t            tag; /* the first of RSI_EXCHANGE_TAGS */
    size_t             memory;
    bool               past;                    /* more is written than the caches hold */
    bool               no_direct, reach, rooms; /* what is used; the same on all ranks */
    bool               readable;                /* all ranks' targets can be read */
    int32_t           *host_of; /* [comm->size] machines of the ranks; NULL: of no importance */
    int32_t            hosts;

    rsi_route route;
    rsi_pairs in[2], out[2]; /* [phase] */

    int64_t        seg; /* maximum bytes of a message, the same on all ranks */
    unsigned char *buffers;
    rsi_slot       send[SLOTS], recv[SLOTS];
    unsigned char *scratch, *acc;
    void         **request; /* [nrequests] of the slots and pairs */
    int32_t       *peer;    /* [nrequests] their other ends */
    size_t         nrequests;

    enum rsi_exchange_stage stage;
    bool                    entered; /* the stage has been entered */
    bool                    local_done;
    rsi_cursor              to_send, to_recv;
    size_t                  oldest; /* recv slot; in STAGE_MATH they are taken in turn */
    rsi_cursor              job;    /* the next contribution to combine */

    rsi_vote  vote;
    rsd_err   rc; /* first local failure; the exchange runs on so that peers don't block */
    rsd_error err;
    rsd_err   result; /* of all ranks, when done */
    rsi_arena mem;
} rsi_exchange;

/* TAG_TAKEN is that of slot 0. */
enum { TAG_DATA, TAG_TABLE, TAG_HEAD, TAG_GO, TAG_VOTE, TAG_TAKEN, RSI_EXCHANGE_TAGS = 16 };

/* Limits that tests lower. */
extern int64_t rsi_exchange_cut_min;    /* bytes at which a piece is cut among its receivers */
extern size_t  rsi_exchange_memory_min; /* bytes */
extern size_t  rsi_exchange_room_least; /* bytes of a message: shorter ones are sent sooner */

/* Keeps the first failure; does nothing if `rc` is RSD_OK. */
void rsi_exchange_note(rsi_exchange *x, rsd_err rc, const rsd_error *err, size_t tensor);

/* (exchange_agree.c) */
/* `mine`: the result of this rank's checks; *err is its text. */
rsd_err rsi_exchange_compare(rsi_exchange *x, rsd_err mine, rsd_error *err);
/* The tensor's name in messages. */
const char *rsi_exchange_name(const rsi_exchange *x, size_t tensor, char *buf, size_t cap);

/* (exchange_copy.c) One step of a stage: *moved is set if something happened, *done if the stage
 * has ended. Errors are those of the comm. */
rsd_err rsi_exchange_copy(rsi_exchange *x, int phase, bool *moved, bool *done, rsd_error *err);
/* Only sends contributions. */
rsd_err rsi_exchange_give(rsi_exchange *x, bool *moved, rsd_error *err);
/* The blocks of a hop, at most `most` bytes each; returns their number, 0 if it is empty. `my_box`:
 * the number of my box that contains it. */
int64_t rsi_hop_blocks(const rsi_exchange *x, const rsi_hop *hop, bool given, int64_t most,
                       rsi_region *out, size_t *my_box);
/* Packs a box of a hop into the scratch buffer: from the peer's memory or, if `pair` is NULL, from
 * my own. */
rsd_err rsi_hop_read(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, const rsd_box *box,
                     rsd_error *err);
bool    rsi_slots_idle(const rsi_slot *slot);
/* Starts to receive slot->bytes from slot->peer; `into` NULL: into the slot's buffer. */
rsd_err rsi_slot_recv(rsi_exchange *x, rsi_slot *slot, unsigned char *into, rsd_error *err);
/* The bytes that were received. */
const unsigned char *rsi_slot_data(const rsi_exchange *x, const rsi_slot *slot);
/* They are no longer needed: frees the slot, on the sender's side too. */
rsd_err rsi_slot_done(rsi_exchange *x, rsi_slot *slot, rsd_error *err);
/* (exchange_math.c) */
rsd_err rsi_exchange_math(rsi_exchange *x, bool *moved, bool *done, rsd_error *err);

/* (exchange_reach.c) */
rsd_err rsi_reach_probe(rsi_exchange *x, rsd_error *err);
rsd_err rsi_tables_make(rsi_exchange *x, rsd_error *err);
rsd_err rsi_tables_start(rsi_exchange *x, rsd_error *err);
/* Makes the table of an incoming pair usable if it has arrived. */
bool rsi_table_ready(rsi_exchange *x, rsi_pair *pair);
/* The peer's view that contains the hop, but for the lengths of its box. */
void rsi_reach_area(const rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop,
                    rsi_area *from);

static inline rsi_pair *rsi_pair_of(const rsi_pairs *pairs, int32_t rank)
{
    return &pairs->at[pairs->of_rank[rank] - 1];
}

#endif
