/* SPDX-License-Identifier: Apache-2.0 */
/* doomed_rank.h - one rank of an MPI job that is killed or stopped at a call that is counted, so
 * that no clock decides where: its messages, and its system calls where a store uses those of
 * sys_faults.h. A child that it has forked counts with it. */
#ifndef RESHARD_TESTS_DOOMED_RANK_H
#define RESHARD_TESTS_DOOMED_RANK_H

#include "comm/comm.h"

typedef struct doom {
    int32_t rank;
    int     signal; /* SIGKILL or SIGSTOP; 0: the network is cut between two halves of the ranks */
    char    in[8];  /* counts calls of this phase only; "": all */
    long    at;     /* the call before which it comes, 1: the first; 0: never */
    const char *note; /* a file that is made just before, with one line: "PHASE CALL"; a rank that
                         is to be cut off then waits for another, with ".cut" behind the name */
} doom;

/* From "kill", "stop" or "cut", the rank and the number of the call, "7" or "write:7"; false: they
 * are none. */
bool doom_parse(const char *what, const char *rank, const char *at, doom *out);
/* On every rank. Counts from now on, and lets nobody's time run out before the rank is gone: then
 * the others wait for `ms`. `d` and its note have to stay. False: no memory. */
bool doom_begin(const doom *d, rsd_comm *comm, int64_t ms);
/* What the thread that called doom_begin does from now on; of others "write" is noted. */
void doom_phase(const char *phase);
/* The watch of sys_faults.h on the rank. */
void doom_watch(const char *call, void *arg);
/* After a rank has said how it ended for it: waits until the others that are left have too, since a
 * launcher ends them all when one fails. Each makes a file, the note's name with ".told.RANK". */
void doom_told(const rsd_comm *comm);
/* Calls of this rank so far that count. */
long doom_calls(void);

#endif
