/* SPDX-License-Identifier: Apache-2.0 */
/* What the library does with ranks, built once on rsd_comm_ops for all transports. comm.c has the
 * object and messages, collective.c the collectives, agree.c makes ranks fail together, rollcall.c
 * handles ranks that do not arrive. */
#ifndef RSI_COMM_H
#define RSI_COMM_H

#include "base/bytes.h"
#include "base/error.h"
#include "comm/signs.h"

#include <reshard/reshard_plugin.h>

/* Tags 0 .. RSI_TAG_MAX are free for users of this header; the rest belong to the comm itself. */
#define RSI_TAG_MAX        0x3fff
#define RSI_TAG_COLLECTIVE 0x4000
#define RSI_TAG_SIGN       0x7ffe
#define RSI_TAG_ROLLCALL   0x7fff

#define RSI_FAILURES_MAX 1024 /* failures kept after a collective */

struct rsd_comm {
    rsd_comm_ops      ops;
    void             *self;
    int32_t           rank, size;
    int64_t           timeout_ms;
    int64_t           grace_ms; /* how long a roll call listens; 0: a share of timeout_ms */
    int32_t           present;  /* ranks that suffice for its verdict; 0: only all end it early */
    bool              alone;    /* the other ranks do not exist */
    uint32_t          calls;    /* collectives so far, for their tags */
    int32_t          *origin;   /* [size] ranks in the family's first comm; NULL: this is it */
    rsd_error        *failed;   /* [nfailed] from the last agreement, by rank */
    size_t            nfailed;
    rsi_signs         signs;       /* of life */
    void             *stuck;       /* a roll call's memory that the transport still holds */
    uint64_t          host_id;     /* rsi_host_id, once asked; 0: not yet */
    bool              hosts_known; /* hosts.c has asked; then: */
    rsd_comm         *host;        /* the ranks of this machine; NULL: all are on one */
    rsd_comm         *leads;       /* the first rank of every machine; NULL: not on this rank */
    bool              rooms_known; /* rooms.c has made some, or can't; then: */
    bool              rooms_busy;  /* an operation passes messages through them */
    struct rsi_rooms *rooms;       /* NULL: there are none */
};

/* Checks the arguments of a comm whose ranks meet, and copies the caller's struct. */
rsd_err rsi_meeting_take(int32_t rank, int32_t count, const rsd_meeting *with, rsd_comm **out,
                         rsd_meeting *known, rsd_error *err);

/* ---- messages ---- */

/* As in rsd_comm_ops; `err` may be NULL. */
rsd_err rsi_send(rsd_comm *comm, int32_t to, int32_t tag, const void *data, size_t bytes,
                 void **request, rsd_error *err);
rsd_err rsi_recv(rsd_comm *comm, int32_t from, int32_t tag, void *data, size_t bytes,
                 void **request, rsd_error *err);
rsd_err rsi_test(rsd_comm *comm, void **request, rsd_error *err);
/* Waits until one of the requests has finished. If none has by the comm's timeout and no signs tell
 * of work, breaks the comm, and the error names the ranks that did not arrive. peer[i] is the other
 * end of request[i]; `what` names the waiting operation in the message. */
rsd_err rsi_wait_some(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                      const char *what, rsd_error *err);
/* Waits for all of them. */
rsd_err rsi_wait_all(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                     const char *what, rsd_error *err);
/* Cancels all unfinished requests. False: the transport still uses the memory of those that are not
 * NULL now, which must stay valid until the comm is freed. */
bool rsi_drop(rsd_comm *comm, size_t n, void **request);
/* Breaks the comm after an error from the functions above that the other ranks can't know of, so
 * that none waits for this one: prefixes *err with "rank N: " and passes it to all ranks. An error
 * that came from another rank is left unchanged. Returns `rc`; RSD_OK does nothing. */
rsd_err rsi_break(rsd_comm *comm, rsd_err rc, rsd_error *err);

/* A rank's number in messages: the one in the family's first comm. */
static inline int32_t rsi_origin(const rsd_comm *comm, int32_t rank)
{
    return comm->origin ? comm->origin[rank] : rank;
}

/* RSD_E_INVALID: the comm has no such rank. */
rsd_err rsi_check_rank(const rsd_comm *comm, int32_t rank, rsd_error *err);

/* ---- memory of peers ---- */

/* As in rsd_comm_ops; RSD_E_UNSUPPORTED if the transport lacks the function. [local] */
rsd_err rsi_expose(rsd_comm *comm, const void *data, size_t bytes, rsd_exposed *out,
                   rsd_error *err);
rsd_err rsi_reach(rsd_comm *comm, int32_t owner, const rsd_exposed *what, void **out,
                  rsd_error *err);

/* ---- machines (hosts.c) ---- */

/* A number that the ranks of this machine share with no others. [local] */
uint64_t rsi_host_id(rsd_comm *comm);
/* True if all cores of this machine share their last cache, as far as the system tells. */
bool rsi_one_cache(void);

/* A rank and the number of its machine. */
typedef struct rsi_place {
    uint64_t host;
    int32_t  rank;
} rsi_place;
/* Numbers the machines of n ranks 0, 1, ...: number[rank] is that of its machine. Sorts `all` by
 * machine. Returns how many there are. */
int32_t rsi_hosts_number(rsi_place *all, int32_t n, int32_t *number);
/* Finds out which ranks share a machine, once for a comm. [collective] */
rsd_err rsi_hosts_find(rsd_comm *comm, rsd_error *err);
/* After that, the ranks of this machine in the order of their numbers; the comm itself if all are
 * on one. It belongs to the comm. */
rsd_comm *rsi_host(rsd_comm *comm);
/* Broadcasts rank 0's bytes, so that they cross the network once to every machine. */
rsd_err rsi_spread(rsd_comm *comm, void *data, size_t bytes, rsd_error *err);

/* ---- collectives ---- */

/* A transport failure breaks the comm. All take O(log size) rounds, except for what only rank 0
 * gets or gives. */
rsd_err rsi_barrier(rsd_comm *comm, rsd_error *err);
rsd_err rsi_broadcast(rsd_comm *comm, int32_t root, void *data, size_t bytes, rsd_error *err);
/* Broadcasts any number of bytes from the root; on the others *bytes becomes memory for rsi_free. A
 * rank that brings an error in `mine`, or runs out of memory, makes all ranks fail without breaking
 * the comm. */
rsd_err rsi_broadcast_any(rsd_comm *comm, int32_t root, rsi_bytes *bytes, rsd_err mine,
                          rsd_error *err);
/* Every rank contributes `bytes`, the same number everywhere; `out` has room for size * bytes. */
rsd_err rsi_allgather(rsd_comm *comm, const void *mine, size_t bytes, void *out, rsd_error *err);
/* Rank r contributes data[first[r] .. first[r+1]-1] and gets the rest of `data`. */
rsd_err rsi_allgather_at(rsd_comm *comm, void *data, const size_t *first, rsd_error *err);

/* The bytes of all ranks, concatenated. */
typedef struct rsi_gathered {
    char   *data;
    size_t *first; /* [size + 1] rank r has data[first[r] .. first[r+1]-1] */
} rsi_gathered;
/* Each rank contributes any number of bytes. A rank that runs out of memory makes all ranks fail
 * without breaking the comm. */
rsd_err rsi_allgather_any(rsd_comm *comm, const void *mine, size_t bytes, rsi_gathered *out,
                          rsd_error *err);
/* The same, but only rank 0 gets the bytes; on the others *out is empty. */
rsd_err rsi_gather_any(rsd_comm *comm, const void *mine, size_t bytes, rsi_gathered *out,
                       rsd_error *err);
/* Rank r gets part r of rank 0's; *mine becomes memory for rsi_free, except on rank 0. `rc`: as
 * `mine` of rsi_broadcast_any. */
rsd_err rsi_scatter_any(rsd_comm *comm, const rsi_gathered *parts, rsi_bytes *mine, rsd_err rc,
                        rsd_error *err);
void    rsi_gathered_release(rsi_gathered *gathered);

typedef enum rsi_reduce_op { RSI_OP_SUM, RSI_OP_MIN, RSI_OP_MAX } rsi_reduce_op;
/* value[i] becomes the sum, minimum or maximum of all ranks' value[i]. Sums wrap. */
rsd_err rsi_allreduce(rsd_comm *comm, rsi_reduce_op op, int64_t *value, size_t n, rsd_error *err);

/* Every rank reports how its own work ended and learns how it ended on all others. RSD_OK if all
 * succeeded. Otherwise all ranks get the code, the message (prefixed with "rank N: ") and the
 * number of the lowest rank that failed; err->nfailed counts failures and rsd_comm_failures lists
 * them. `err` brings in this rank's own message; it may be NULL. */
rsd_err rsi_agree(rsd_comm *comm, rsd_err mine, rsd_error *err);
/* One rank's failure `mine` as others see it, with the text of *err if that has the same code. */
rsd_error rsi_failure_of(int32_t rank, rsd_err mine, const rsd_error *err);
/* Puts the error's rank in front, unless it stands there: an error of all ranks may be passed on.
 */
rsd_err rsi_name_rank(rsd_error *err);
/* The comm itself failed, with *err, during an agreement: adds this rank's own error, so that it is
 * not lost. `own` NULL: none. Returns `rc`. */
rsd_err rsi_also(rsd_err rc, const rsd_error *own, rsd_error *err);

/* For comm.c, when nothing finished in time: finds out with the others which ranks are missing,
 * breaks the comm and returns RSD_E_TIMEOUT. (rollcall.c) */
rsd_err rsi_rollcall(rsd_comm *comm, size_t n, void *const *request, const int32_t *peer,
                     const char *what, rsd_error *err);

#endif
