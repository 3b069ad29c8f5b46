/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_fault.c - what tools/run-faults starts under mpirun:
 *
 *     mpi_fault prepare FOLDER               puts version 1 there, alone
 *     mpi_fault kill|stop FOLDER WAY RANK N  4 ranks save version 2; RANK is killed or stopped
 *                                            before its nth message or system call; N
 *                                            "write:3": before the third of that phase
 *     mpi_fault look FOLDER                  says what it finds: old, new, none or lost
 *
 * WAY is save, copy or fork: the last two begin and then wait. What the rank was doing is in
 * FOLDER.note then: "begin", "write" (its thread or its child), "wait", "save", or "end" after all
 * of them, and the call. If nobody is hurt the code is 0. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "doomed_rank.h"
#include "fault_case.h"
#include "sys_faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

enum { WAIT_MS = 300 }; /* for a rank that has stopped */

/* ---- ways to save ---- */

static rsd_err save_at_once(const char *path, rsd_comm *comm, rsd_state *state,
                            const rsd_save_opts *opts, rsd_error *err)
{
    doom_phase("save");
    return rsd_save(path, comm, state, opts, err);
}

static rsd_err begin_and_wait(const char *path, rsd_comm *comm, rsd_state *state, rsd_stage_way how,
                              const rsd_save_opts *opts, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc;

    doom_phase("begin");
    rc = rsd_save_begin(path, comm, state, how, opts, &op, err);
    doom_phase("wait");
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

static rsd_err save_copied(const char *path, rsd_comm *comm, rsd_state *state,
                           const rsd_save_opts *opts, rsd_error *err)
{
    return begin_and_wait(path, comm, state, RSD_STAGE_COPY, opts, err);
}

static rsd_err save_forked(const char *path, rsd_comm *comm, rsd_state *state,
                           const rsd_save_opts *opts, rsd_error *err)
{
    return begin_and_wait(path, comm, state, RSD_STAGE_FORK, opts, err);
}

static fault_save save_of(const char *way)
{
    return strcmp(way, "save") == 0   ? save_at_once
           : strcmp(way, "copy") == 0 ? save_copied
           : strcmp(way, "fork") == 0 ? save_forked
                                      : NULL;
}

/* ---- the job ---- */

/* Held by every process of a job, children that outlive their rank too: whoever comes after the job
 * waits for the last of them. */
static bool enter(const char *folder, bool alone)
{
    char path[128];
    int  fd;

    snprintf(path, sizeof(path), "%s.lock", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return fd >= 0 && flock(fd, alone ? LOCK_EX : LOCK_SH) == 0;
}

static rsd_err save_rank(fault_bed *bed, rsd_comm *comm, const doom *d)
{
    int32_t rank = rsd_comm_rank(comm);
    rsd_err rc;

    faults = (sys_faults){ 0 };
    bed->on[rank] = fault_store(bed, &rsi_sys_faulty, RSI_FILE_IO_BEST);
    if (!doom_begin(d, comm, WAIT_MS))
        return RSD_E_NOMEM;
    faults.watch = rank == d->rank ? doom_watch : NULL;
    rc = fault_save_rank(bed, comm, 2, true);
    faults.watch = NULL;
    doom_phase("end");
    /* Where a rank stops when all is done, rsd_comm_free would wait for it as long as MPI does. */
    if (!rc)
        rc = rsi_barrier(comm, &bed->err[rank]);
    if (rc)
        fprintf(stderr, "mpi_fault: rank %d: %s\n", (int)rank, bed->err[rank].msg);
    doom_told(comm);
    return rc;
}

static int save(const fault_case *c, const char *folder, doom *d)
{
    char      note[128];
    fault_bed bed;
    rsd_error err = { 0 };
    rsd_comm *comm;
    int32_t   rank;
    rsd_err   rc = rsd_comm_create_launched(&comm, &err);

    if (rc || rsd_comm_size(comm) != c->ranks || !enter(folder, false)) {
        fprintf(stderr, "mpi_fault: %s\n", rc ? err.msg : "4 ranks and a folder are needed");
        return 2;
    }
    rank = rsd_comm_rank(comm);
    snprintf(note, sizeof(note), "%s.note", folder);
    d->note = note;
    fault_bed_attach(&bed, c, folder);
    rc = save_rank(&bed, comm, d);
    rsd_comm_free(comm);
    rsd_store_close(bed.on[rank]);
    fault_bed_detach(&bed);
    return rc ? 1 : 0;
}

/* ---- before and after ---- */

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
    fault_case c = *fault_next(NULL); /* DCP on 4 ranks, overwriting */
    doom       d;

    if (argc == 6 && doom_parse(argv[1], argv[4], argv[5], &d)) {
        c.save = save_of(argv[3]);
        return c.save ? save(&c, argv[2], &d) : 2;
    }
    if (argc != 3 || !enter(argv[2], true))
        return 2;
    return strcmp(argv[1], "prepare") == 0 ? prepare(&c, argv[2])
           : strcmp(argv[1], "look") == 0  ? look(&c, argv[2])
                                           : 2;
}
