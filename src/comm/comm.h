/* SPDX-License-Identifier: Apache-2.0 */
/* What the library does with ranks, built once on rsd_comm_ops for all transports. comm.c has the
 * object and messages, collective.c the collectives, agree.c how ranks fail together, rollcall.c
 * what happens when one does not come. */
#ifndef RSI_COMM_H
#define RSI_COMM_H

#include "base/bytes.h"
#include "base/error.h"
#include "comm/signs.h"

#include <reshard/reshard_plugin.h>

/* Tags 0 .. RSI_TAG_MAX are free for users of this header, the rest belongs to the collectives. */
#define RSI_TAG_MAX        0x3fff
#define RSI_TAG_COLLECTIVE 0x4000
#define RSI_TAG_SIGN       0x7ffe
#define RSI_TAG_ROLLCALL   0x7fff

#define RSI_FAILURES_MAX 1024 /* that are kept after a collective */

struct rsd_comm {
    rsd_comm_ops ops;
    void        *self;
    int32_t      rank, size;
    int64_t      timeout_ms;
    int64_t      grace_ms; /* how long a roll call hears others; 0: a share of timeout_ms */
    int32_t      present;  /* ranks that are enough for its verdict; 0: only all end it early */
    bool         alone;    /* the other ranks are not there */
    uint32_t     calls;    /* collectives so far: a part of their tags */
    int32_t     *origin;   /* [size] numbers in the first comm of the family; NULL: this is it */
    rsd_error   *failed;   /* [nfailed] of the last agreement, by rank */
    size_t       nfailed;
    rsi_signs    signs; /* of life */
    void        *stuck; /* memory of a roll call that the transport did not give back */
};

/* ---- messages ---- */

/* As in rsd_comm_ops; `err` may be NULL. */
rsd_err rsi_send(rsd_comm *comm, int32_t to, int32_t tag, const void *data, size_t bytes,
                 void **request, rsd_error *err);
rsd_err rsi_recv(rsd_comm *comm, int32_t from, int32_t tag, void *data, size_t bytes,
                 void **request, rsd_error *err);
rsd_err rsi_test(rsd_comm *comm, void **request, rsd_error *err);
/* Waits until one of the requests has finished. When nothing has for the comm's time and no signs
 * tell of work, the comm is broken and the error names the ranks that did not come; peer[i] is the
 * other end of request[i], `what` the work that waits, for the message. */
rsd_err rsi_wait_some(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                      const char *what, rsd_error *err);
/* Waits for all of them. */
rsd_err rsi_wait_all(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                     const char *what, rsd_error *err);
/* Takes back all that are not finished. False: the transport still uses memory of those that are
 * not NULL now; it must stay until the comm is freed. */
bool rsi_drop(rsd_comm *comm, size_t n, void **request);
/* An error from the functions above that the others can't know of breaks the comm, so that nobody
 * waits for this rank: *err gets "rank N: " in front and is everybody's. An error that came from
 * another rank stays as it is. Returns `rc`; RSD_OK does nothing. */
rsd_err rsi_break(rsd_comm *comm, rsd_err rc, rsd_error *err);

/* The number that texts about the whole family use. */
static inline int32_t rsi_origin(const rsd_comm *comm, int32_t rank)
{
    return comm->origin ? comm->origin[rank] : rank;
}

/* RSD_E_INVALID: the comm has no such rank. */
rsd_err rsi_check_rank(const rsd_comm *comm, int32_t rank, rsd_error *err);

/* ---- memory of peers ---- */

/* As in rsd_comm_ops; RSD_E_UNSUPPORTED where the transport has no such thing. [local] */
rsd_err rsi_expose(rsd_comm *comm, const void *data, size_t bytes, rsd_exposed *out,
                   rsd_error *err);
rsd_err rsi_reach(rsd_comm *comm, int32_t owner, const rsd_exposed *what, void **out,
                  rsd_error *err);

/* ---- collectives ---- */

/* A failure of the transport itself breaks the comm. All take O(log size) rounds. */
rsd_err rsi_barrier(rsd_comm *comm, rsd_error *err);
rsd_err rsi_broadcast(rsd_comm *comm, int32_t root, void *data, size_t bytes, rsd_error *err);
/* The root's bytes, as many as it likes; on the others *bytes becomes memory for rsi_free. A rank
 * with a `mine`, or without memory, fails all and breaks nothing. */
rsd_err rsi_broadcast_any(rsd_comm *comm, int32_t root, rsi_bytes *bytes, rsd_err mine,
                          rsd_error *err);
/* Every rank gives `bytes`, the same everywhere; `out` has size * bytes. */
rsd_err rsi_allgather(rsd_comm *comm, const void *mine, size_t bytes, void *out, rsd_error *err);
/* Rank r gives what lies in data[first[r] .. first[r+1]-1] and gets the rest of `data`. */
rsd_err rsi_allgather_at(rsd_comm *comm, void *data, const size_t *first, rsd_error *err);

/* Bytes of all ranks, one behind the other. */
typedef struct rsi_gathered {
    char   *data;
    size_t *first; /* [size + 1] rank r's are data[first[r] .. first[r+1]-1] */
} rsi_gathered;
/* Each rank gives as much as it likes. A rank without memory fails all and breaks nothing. */
rsd_err rsi_allgather_any(rsd_comm *comm, const void *mine, size_t bytes, rsi_gathered *out,
                          rsd_error *err);
void    rsi_gathered_release(rsi_gathered *gathered);

typedef enum rsi_reduce_op { RSI_OP_SUM, RSI_OP_MIN, RSI_OP_MAX } rsi_reduce_op;
/* value[i] becomes the sum ... of all ranks' value[i]. Sums wrap. */
rsd_err rsi_allreduce(rsd_comm *comm, rsi_reduce_op op, int64_t *value, size_t n, rsd_error *err);

/* Every rank says how its own work ended and learns how all did. RSD_OK if all did well. Otherwise
 * the code, text ("rank N: " in front) and rank of the lowest rank that failed, the same on all;
 * err->nfailed counts them and rsd_comm_failures has each. `err` brings this rank's own text in; it
 * may be NULL. */
rsd_err rsi_agree(rsd_comm *comm, rsd_err mine, rsd_error *err);
/* The failure `mine` of one rank as others see it; *err has its text, if it is that of `mine`. */
rsd_error rsi_failure_of(int32_t rank, rsd_err mine, const rsd_error *err);
/* The comm itself failed, with *err, while ranks agreed; what this rank had to say is added, so
 * that it is not lost. `own` NULL: nothing. Returns `rc`. */
rsd_err rsi_also(rsd_err rc, const rsd_error *own, rsd_error *err);

/* For comm.c: nothing finished in time. Finds out with the others who is missing, breaks the comm
 * and returns RSD_E_TIMEOUT. (rollcall.c) */
rsd_err rsi_rollcall(rsd_comm *comm, size_t n, void *const *request, const int32_t *peer,
                     const char *what, rsd_error *err);

#endif
