/* SPDX-License-Identifier: Apache-2.0 */
/* forked_ranks.h - ranks that are forked processes, which meet in a folder. */
#ifndef RESHARD_TESTS_FORKED_RANKS_H
#define RESHARD_TESTS_FORKED_RANKS_H

#include <reshard/reshard_plugin.h>
#include <sys/types.h>

enum { FORKED_MAX = 16 };

enum {
    FORKED_NEAR, /* processes of one machine */
    FORKED_FAR,  /* the same as if each were on a machine of its own, joined by sockets */
    FORKED_UCX
};

typedef struct forked_job {
    int32_t ranks;
    int     how; /* FORKED_... */
    /* Called as each rank with its comm, which is freed afterwards. */
    rsd_err (*run)(void *arg, rsd_comm *comm, rsd_error *err);
    void   *arg;
    int32_t absent;            /* this rank does not come; -1: all do */
    int64_t timeout_ms;        /* of the meeting; 0: the default */
    void (*met)(int32_t rank); /* called when a rank has got what all put; NULL: nothing is */
} forked_job;

typedef struct forked_end {
    bool      ended; /* by itself, with a result */
    int       signal;
    rsd_err   rc;
    rsd_error err;
} forked_end;

/* Runs the ranks; a rank that hangs is killed after two minutes, one that
 * is stopped when the others have ended. out[r] says how rank r ended. */
void forked_run(const forked_job *job, forked_end *out);
/* The same; true if all ranks ended well, otherwise prints how. */
bool forked_well(const forked_job *job);
/* Runs every case of the suite that the program is linked with on 1 to 7 ranks of each kind, then
 * `own`. Returns the number of failures. */
struct CMUnitTest;
int forked_suite(const char *name, size_t kinds, const int *kind, const struct CMUnitTest *own,
                 size_t nown);
/* In a rank: the process of another. */
pid_t forked_pid(int32_t rank);

#endif
