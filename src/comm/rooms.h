/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: shared memory of a few megabytes for every rank, in which those of its machine can read.
 */
#ifndef RSI_ROOMS_H
#define RSI_ROOMS_H

#include "comm/comm.h"

typedef struct rsi_rooms {
    rsd_comm       *comm;
    unsigned char **of;        /* [size] those of this machine, else NULL; its owner alone writes */
    unsigned char  *mine;      /* into a room */
    bool            one_cache; /* rsi_one_cache */
} rsi_rooms;

/* True if ranks of a machine may have rooms: processes whose transport shares memory. Threads do
 * not: a rank that has given up would free what another still reads. The same on all ranks. */
bool rsi_rooms_may(const rsd_comm *comm);
/* A room of `bytes` for each rank; *out is NULL if a rank can't reach another's on its machine. An
 * error is one of the comm. [collective] */
rsd_err rsi_rooms_make(rsd_comm *comm, size_t bytes, rsi_rooms **out, rsd_error *err);
/* Waits for all ranks; NULL is fine. [collective] */
void rsi_rooms_free(rsi_rooms *rooms);

/* Rooms that a comm keeps, for messages: comm->rooms, of this size. */
#define RSI_ROOM_BYTES ((size_t)4 << 20)
/* Makes them, once for a comm. [collective] */
rsd_err rsi_rooms_open(rsd_comm *comm, rsd_error *err);
/* For rsd_comm_free: does not wait. */
void rsi_rooms_close(rsd_comm *comm);

#endif
