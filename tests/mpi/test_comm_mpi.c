/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of comm_suite.c on MPI: every rank runs every case, rank 0 counts. Run with mpirun at
 * several numbers of ranks; the last lines are those that cmocka prints. */
#include "comm/comm.h"
#include "comm/comm_mpi.h"
#include "comm_suite.h"

#include <reshard/reshard_mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Parts so short that most messages have several. */
enum { SHORT_PART = 4096, DEFAULT_PART = 1 << 30 };

/* Does not spin as MPICH's Allreduce would, since there may be more ranks than cores. */
static bool on_any_rank(bool mine)
{
    MPI_Request request;
    int         bad = mine, any = 0, done = 0;

    MPI_Iallreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        sched_yield();
    }
    return any;
}

/* True if it went well on all ranks. */
static bool run_case(const comm_case *what, const char *name)
{
    rsd_comm *comm = NULL;
    rsd_error err = { .rank = -1 };
    rsd_err   rc = rsd_comm_create_mpi(MPI_COMM_WORLD, &comm, &err);
    bool      bad;
    int       rank;

    if (!rc)
        rc = what->run(comm, &err);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rc)
        fprintf(stderr, "%s: rank %d: %s: %s\n", name, rank, rsd_err_name(rc), err.msg);
    bad = on_any_rank(rc != RSD_OK);
    rsd_comm_free(comm);
    if (rank == 0)
        printf("[ %s ] %s\n", bad ? " FAILED " : "      OK", name);
    fflush(stdout);
    return !bad;
}

static bool skipped(const comm_case *what)
{
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size < what->min_ranks;
}

int main(int argc, char **argv)
{
    int  rank, size, passed = 0, failed = 0;
    char name[160];

    MPI_Init(&argc, &argv);
    /* MPICH reports errors of requests that have finished here, whatever comm they were of. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int part = 0; part < 2; part++) {
        rsi_mpi_part_bytes = part ? SHORT_PART : DEFAULT_PART;
        for (size_t i = 0; comm_suite(i); i++) {
            if (skipped(comm_suite(i)) || (part && comm_suite(i)->slow))
                continue;
            snprintf(name, sizeof(name), "mpi %d, parts of %zu: %s", size, rsi_mpi_part_bytes,
                     comm_suite(i)->name);
            if (run_case(comm_suite(i), name))
                passed++;
            else
                failed++;
        }
    }
    if (rank == 0) {
        printf("[  PASSED  ] %d test(s).\n", passed);
        if (failed)
            printf("[  FAILED  ] mpi %d: %d test(s), listed below:\n", size, failed);
        fflush(stdout);
    }
    MPI_Finalize();
    return failed ? 1 : 0;
}
