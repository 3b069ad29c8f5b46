/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the UCX transport: comm_ucx.c has the operations, comm_ucx_wait.c
 * progress, errors and the agreement of all ranks, comm_ucx_memory.c memory that ranks of one
 * machine share, comm_ucx_open.c how a comm begins and ends.
 *
 * A rank has one UCX worker, and endpoints to the ranks it has sent something to. A tag of UCX
 * holds the group, the sender and the tag of the message. One lock guards everything that the comms
 * split from one share; a thread that waits releases it between two polls. */
#ifndef RSI_COMM_UCX_END_H
#define RSI_COMM_UCX_END_H

#include "base/error.h"
#include "base/free_list.h"
#include "comm/shared_file.h"

#include <reshard/reshard_plugin.h>

#include <pthread.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

/* Tags of UCX: with bit 63, and the sender, the message that breaks the family; otherwise the
 * group's id, the sender and 16 bits, of which the first is set for the transport's own votes. */
#define RSI_UCX_TAG_BITS 16
#define RSI_UCX_VOTE     32768
#define RSI_UCX_STOP     (UINT64_C(1) << 63)

/* How a rank is found: what precedes its worker's address. */
typedef struct rsi_ucx_card {
    uint64_t magic, cookie[2]; /* the cookie is part of its memory's name */
    int64_t  pid;
} rsi_ucx_card;

/* A send or a receive. */
typedef struct rsi_ucx_message {
    struct rsi_ucx_message *next; /* in the list of spares */
    void                   *request;
    bool                    receive, done;
    ucs_status_t            status; /* once done */
    int32_t                 peer;   /* in the first group */
    int32_t                 tag;
    size_t                  bytes, came; /* expected, and sent */
    uint64_t                with;        /* a receive's whole tag */
} rsi_ucx_message;

typedef struct rsi_ucx_family rsi_ucx_family;

typedef struct rsi_ucx_peer {
    rsi_ucx_family      *family;
    const ucp_address_t *address; /* in the family's addresses */
    rsi_ucx_card         card;
    ucp_ep_h             ep;     /* NULL: nothing was sent to it, or closed */
    ucs_status_t         failed; /* the endpoint's error */
    rsi_ucx_message     *told;   /* the message that the family is broken; NULL: not sent */
    bool                 knows;  /* the same message came from it */
    rsi_ucx_message     *bye;    /* the endpoint is being closed */
} rsi_ucx_peer;

/* One rank's end of a comm. */
typedef struct rsi_ucx_end {
    struct rsi_ucx_end *next; /* in the family */
    rsi_ucx_family     *family;
    uint64_t            id; /* of the group, as in tags */
    int32_t             rank, size;
    int32_t            *ranks;  /* [size] in the first group */
    uint64_t            splits; /* so far: the same number on all ranks */
    rsi_shared_memory   memory;
} rsi_ucx_end;

/* What all comms split from one have in common. */
struct rsi_ucx_family {
    pthread_mutex_t  lock;
    pid_t            pid; /* a forked child can't use it */
    int32_t          rank, size;
    int              rank_bits; /* in tags */
    ucp_context_h    context;
    ucp_worker_h     worker;
    unsigned char   *addresses;
    rsi_ucx_peer    *peer; /* [size] */
    rsi_ucx_end     *ends;
    int32_t          lost;    /* the first rank whose endpoint failed; -1: none */
    int64_t          lost_at; /* ms of the clock */
    bool             closing; /* all ranks free the comm: connections may end */
    rsi_ucx_message *listen;  /* for messages that the family is broken */
    bool             broken;
    rsd_error        heard, why;
    rsi_free_list    spares; /* of messages */
    rsd_meeting      meeting;
};

/* ---- comm_ucx_wait.c; the lock is held except in enter ---- */

/* Takes the lock, even of a broken family. Not after an error: this is a forked child. */
rsd_err rsi_ucx_lock(rsi_ucx_family *f, rsd_error *err);
void    rsi_ucx_unlock(rsi_ucx_family *f);
/* The same, but not after an error: this is a forked child, or the family is broken. */
rsd_err rsi_ucx_enter(rsi_ucx_family *f, rsd_error *err);
/* Advances messages; sees ranks that are lost and the message that breaks the family. True:
 * something moved. */
bool rsi_ucx_progress(rsi_ucx_family *f);
/* RSD_OK, or the error of a broken family. */
rsd_err rsi_ucx_usable(const rsi_ucx_family *f, rsd_error *err);
/* Breaks the family for this rank and tells all others; only the first time. */
void rsi_ucx_break(rsi_ucx_family *f, const rsd_error *why);
/* Waits for messages that it is broken. */
void rsi_ucx_listen(rsi_ucx_family *f);

/* Makes the endpoint of a peer that has none. */
rsd_err rsi_ucx_connect(rsi_ucx_peer *p, rsd_error *err);
/* Starts a message; `peer` is a rank of the first group, ignored in a receive, whose tag says it.
 * The memory belongs to UCX until it is done. */
rsd_err  rsi_ucx_start(rsi_ucx_family *f, bool receive, int32_t peer, uint64_t tag, void *data,
                       size_t bytes, rsi_ucx_message **out, rsd_error *err);
uint64_t rsi_ucx_tag(const rsi_ucx_family *f, uint64_t group, int32_t from, int32_t tag);
/* Gives the record of a finished message back. */
void rsi_ucx_drop(rsi_ucx_family *f, rsi_ucx_message *m);
/* Withdraws a message and drops it. False: UCX may still use its memory. */
bool rsi_ucx_withdraw(rsi_ucx_family *f, rsi_ucx_message *m);
/* Begins to close the endpoint of a peer; what it has not sent is dropped if `force`. */
void rsi_ucx_hang_up(rsi_ucx_peer *p, bool force);

/* Waits until at least one of message[0 .. n-1] that are not NULL has finished; finished ones
 * become NULL. As wait_some of rsd_comm_ops. */
rsd_err rsi_ucx_wait(rsi_ucx_family *f, size_t n, void **message, int64_t timeout_ms,
                     rsd_error *err);
/* *all becomes true if `mine` is on all ranks of the group; `ranks` NULL: of the family.
 * [collective] */
rsd_err rsi_ucx_all(rsi_ucx_family *f, const rsi_ucx_end *group, bool mine, int64_t timeout_ms,
                    bool *all, rsd_error *err);
/* Lets others run between two polls; `idle_ms`: for how long nothing has moved. */
void rsi_ucx_relax(int64_t idle_ms);

/* ---- functions of rsd_comm_ops ---- */

rsd_err rsi_ucx_alloc(void *self, size_t bytes, void **out, rsd_error *err);
void    rsi_ucx_dealloc(void *self, void *data);
rsd_err rsi_ucx_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                       rsd_error *err);
rsd_err rsi_ucx_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                      rsd_error *err);
rsd_err rsi_ucx_meet(void *self, int64_t timeout_ms, rsd_error *err);
void    rsi_ucx_close(void *self);
/* A new end; `ranks` is copied. NULL: no memory. */
rsi_ucx_end *rsi_ucx_end_open(rsi_ucx_family *f, uint64_t id, int32_t rank, int32_t n,
                              const int32_t *ranks);

extern const rsd_comm_ops rsi_ucx_ops;

#endif
