/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which MPI started this program, from the variables that launchers set. */
#ifndef RSI_MPI_PLUGIN_H
#define RSI_MPI_PLUGIN_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>

#define RSI_MPI_LIBRARIES 2

typedef struct rsi_launch {
    const char *launcher;                   /* for messages; NULL: none, or one rank alone */
    const char *library[RSI_MPI_LIBRARIES]; /* to try, in this order; NULL: no more */
    long        ranks;                      /* started ranks; 0: unknown */
} rsi_launch;

/* `env` is getenv, or a test's. RESHARD_MPI takes precedence over the variables of Open MPI's
 * mpirun, MPICH's mpiexec and srun. */
rsd_err rsi_launch_find(const char *(*env)(const char *name), rsi_launch *out, rsd_error *err);

/* Loads a library of the same build: looks beside the library or the program, in the program's
 * ../lib, then where the system looks. NULL: dlerror says why. */
void *rsi_plugin_load(const char *name);

/* The only symbol of the libraries: rsd_mpi_transport of reshard_mpi.h, with NULL for the comm. */
#define RSI_MPI_SYMBOL "rsd_mpi_transport"
typedef rsd_err (*rsi_mpi_transport)(const void *comm, const rsd_comm_ops **ops, void **self,
                                     rsd_error *err);

#endif
