/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: shared memory of a few megabytes for every rank of a machine, in which all can read. */
#ifndef RSI_ROOMS_H
#define RSI_ROOMS_H

#include "comm/comm.h"

typedef struct rsi_rooms {
    rsd_comm       *comm;
    unsigned char **of; /* [size] the room of each rank; its owner alone writes into it */
    unsigned char  *mine;
} rsi_rooms;

/* True if ranks of a machine may have rooms: processes whose transport shares memory. Threads do
 * not: a rank that has given up would free what another still reads. The same on all ranks. */
bool rsi_rooms_may(const rsd_comm *comm);
/* A room of `bytes` for each rank; *out is NULL if a rank can't reach another's. An error is one of
 * the comm. [collective] */
rsd_err rsi_rooms_make(rsd_comm *comm, size_t bytes, rsi_rooms **out, rsd_error *err);
/* Waits for all ranks; NULL is fine. [collective] */
void rsi_rooms_free(rsi_rooms *rooms);

#endif
