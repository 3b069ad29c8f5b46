/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_fault.c - what tools/run-faults starts under mpirun:
 *
 *   mpi_fault prepare FOLDER         puts version 1 there, alone
 *   mpi_fault kill FOLDER RANK N     4 ranks save version 2; RANK is killed before its system call
 * N mpi_fault stop FOLDER RANK N     it is stopped instead mpi_fault look FOLDER            says
 * what is there: old, new, none or lost
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "sys_faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 3000 }; /* for a rank that has stopped */

static int die_at, die_of;

static void die(const char *call, void *arg)
{
    (void)call, (void)arg;
    if (faults.calls == die_at)
        kill(getpid(), die_of);
}

static int save(const fault_case *c, const char *folder, int32_t victim)
{
    fault_bed bed;
    rsd_error err = { 0 };
    rsd_comm *comm;
    int32_t   rank;
    rsd_err   rc = rsd_comm_create_launched(&comm, &err);

    if (rc || rsd_comm_size(comm) != c->ranks) {
        fprintf(stderr, "mpi_fault: %s\n", rc ? err.msg : "4 ranks are needed");
        return 2;
    }
    rank = rsd_comm_rank(comm);
    rsd_comm_set_timeout(comm, WAIT_MS, NULL);
    fault_bed_attach(&bed, c, folder);
    faults = (sys_faults){ .watch = rank == victim ? die : NULL };
    bed.on[rank] = fault_store(&bed, &rsi_sys_faulty, RSI_FILE_IO_BEST);
    faults.calls = 0;
    rc = fault_save_rank(&bed, comm, 2, true);
    if (rc)
        fprintf(stderr, "mpi_fault: rank %d: %s\n", (int)rank, bed.err[rank].msg);
    rsd_comm_free(comm);
    rsd_store_free(bed.on[rank]);
    fault_bed_detach(&bed);
    return rc ? 1 : 0;
}

static int look(const fault_case *c, const char *folder)
{
    static const char *const word[] = { "none", "old", "new", "lost" };
    fault_bed                bed;

    fault_bed_attach(&bed, c, folder);
    puts(word[fault_look(&bed)]);
    fault_bed_detach(&bed);
    return 0;
}

/* Fails, by an assertion, if anything but the checkpoint is left then. */
static int prepare(const fault_case *c, const char *folder)
{
    fault_bed bed;

    fault_bed_open(&bed, c, folder);
    fault_bed_detach(&bed);
    return 0;
}

int main(int argc, char **argv)
{
    const fault_case *c = fault_next(NULL); /* DCP on 4 ranks, overwriting */

    if (argc == 3 && strcmp(argv[1], "prepare") == 0)
        return prepare(c, argv[2]);
    if (argc == 3 && strcmp(argv[1], "look") == 0)
        return look(c, argv[2]);
    if (argc != 5)
        return 2;
    die_of = strcmp(argv[1], "stop") == 0 ? SIGSTOP : SIGKILL;
    die_at = (int)strtol(argv[4], NULL, 10);
    return save(c, argv[2], (int32_t)strtol(argv[3], NULL, 10));
}
