/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the comm_mpi*.c files: one rank's end of a comm on MPI. */
#ifndef RSI_COMM_MPI_END_H
#define RSI_COMM_MPI_END_H

#include "base/error.h"
#include "base/free_list.h"
#include "comm/window.h"

#include <reshard/reshard_mpi.h>

/* All comms split from one; they break together. */
typedef struct rsi_mpi_family {
    int          ends;        /* open */
    bool         initialised; /* this library initialised MPI */
    bool         crowded;     /* more ranks on a machine than cores */
    int          rank, size;  /* in the first comm */
    MPI_Comm     control;     /* carries the one message that breaks the family */
    MPI_Request  listen;      /* for that message */
    MPI_Request *told;        /* [size] its sends */
    bool         broken;
    rsd_error    heard, why; /* what `listen` receives; the error of all calls once broken */
} rsi_mpi_family;

typedef struct rsi_mpi_end {
    rsi_mpi_family *family;
    MPI_Comm        comm;
    MPI_Comm        node; /* ranks that share memory; MPI_COMM_NULL until needed */
    int             rank, size;
    rsi_windows     windows;
    uint64_t        allocs; /* so far: the same number on all ranks */
    rsi_free_list   spares; /* records of messages with one part */
} rsi_mpi_end;

/* RSD_E_COMM with MPI's message after `what`. */
rsd_err rsi_mpi_fail(int code, const char *what, rsd_error *err);
/* Checks whether the family is broken: RSD_OK, or the error that broke it. */
rsd_err rsi_mpi_broken(rsi_mpi_end *me, rsd_error *err);

/* Waits for a non-blocking collective: MPICH's blocking ones spin, which takes a hundred times as
 * long when there are more ranks than cores. `code` is the result of starting it. */
int rsi_mpi_settle(int code, MPI_Request *request);
/* True if `did` is true on all ranks. [collective] */
bool rsi_mpi_all(MPI_Comm comm, bool did);

/* A new end of the family, not on a communicator yet. NULL: no memory. */
rsi_mpi_end *rsi_mpi_end_create(rsi_mpi_family *f);
/* Fills in rank and size, once `comm` is set. */
void rsi_mpi_end_learn(rsi_mpi_end *me);

extern const rsd_comm_ops rsi_mpi_ops;

/* Functions of rsd_comm_ops. */
rsd_err rsi_mpi_alloc(void *self, size_t bytes, void **out, rsd_error *err);
void    rsi_mpi_dealloc(void *self, void *data);
rsd_err rsi_mpi_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                       rsd_error *err);
rsd_err rsi_mpi_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                      rsd_error *err);

#endif
