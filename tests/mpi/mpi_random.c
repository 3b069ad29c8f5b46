/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors resharded between the ranks that mpirun started, in every way, every element
 * checked:
 *
 *     mpirun -n 4 mpi_random [SEED]
 *
 * Each rank draws the case for itself, from the seed and the number of ranks; threads run the same
 * ways in tests/property/test_random_live.c. */
#include "launched.h"
#include "comm/comm.h"
#include "random_live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* These have Partial tensors on both sides, layouts of all kinds on both, tensors without elements
 * and up to four at once, at 2, 3, 4, 5, 7 and 8 ranks. */
enum { SEED = 4711, CASES = 20 };

/* Ranks that make memory together wait in MPI itself, where MPICH spins: without a core for each
 * that takes most of a second every time. */
enum { SHARED_CASES = 2, SHARED_RANKS = 3 };

static rsd_err run_case(rsd_comm *comm, uint64_t seed, const random_way *way, rsd_error *err)
{
    static random_live l; /* too large for the stack */
    rsd_err            rc;

    random_live_make(&l, seed, rsd_comm_size(comm));
    rc = rsi_agree(comm, live_run(comm, l.drawn.n, l.tensor, &way->how, NULL, err), err);
    if (rc && rsd_comm_rank(comm) == 0)
        random_case_tell(&l.drawn);
    random_live_free(&l);
    return rc ? rsi_while(err, rc, "%s, seed %" PRIu64, way->name, seed) : RSD_OK;
}

static rsd_err run_all(rsd_comm *comm, uint64_t seed, uint64_t most, int *passed, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t w = 0; w < RANDOM_WAYS && !rc; w++) {
        bool     shared = random_ways[w].how.shared;
        uint64_t cases = shared && most > SHARED_CASES ? SHARED_CASES : most;

        if (shared && rsd_comm_size(comm) > SHARED_RANKS)
            continue;
        random_way_take(&random_ways[w]);
        for (uint64_t i = 0; i < cases && !rc; i++)
            rc = run_case(comm, seed + i, &random_ways[w], err);
        *passed += !rc;
    }
    return rc;
}

int main(int argc, char **argv)
{
    uint64_t  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : SEED;
    rsd_comm *comm = launched_comm("random");
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       passed = 0;

    if (!comm)
        return 1;
    rc = run_all(comm, seed, argc > 1 ? 1 : CASES, &passed, &err);
    return launched_end(comm, "random", rc, &err, passed);
}
