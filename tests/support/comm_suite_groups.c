/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the comm suite about subgroups and memory of peers. */
#include "comm_suite.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

static rsd_err check_sum(rsd_comm *comm, int64_t mine, int64_t want, rsd_error *err)
{
    rsd_err rc = rsi_allreduce(comm, RSI_OP_SUM, &mine, 1, err);

    if (rc)
        return rc;
    CHECK(mine == want);
    return RSD_OK;
}

static rsd_err even_and_odd_ranks_are_groups_of_their_own(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = 0;
    int64_t   sum = 0;
    rsd_comm *half = NULL;
    rsd_err   rc;

    for (int32_t r = comm->size - 1; r >= 0; r--) /* backwards */
        if (r % 2 == comm->rank % 2) {
            ranks[n++] = r;
            sum += r;
        }
    rc = rsd_comm_split(comm, n, ranks, &half, err);
    if (rc)
        return rc;
    CHECK(half->size == n && ranks[half->rank] == comm->rank);
    for (int i = 0; i < 3 && !rc; i++) { /* the two take turns and do not mix */
        rc = check_sum(half, comm->rank, sum, err);
        if (!rc)
            rc = check_sum(comm, 1, comm->size, err);
    }
    rsd_comm_free(half);
    return rc;
}

static rsd_err groups_can_be_split_again(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], first = 0, n = comm->size - 1;
    rsd_comm *most = NULL, *one = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1; /* all but rank 0 */
    rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &most, err);
    if (rc)
        return rc;
    CHECK(!most == (comm->rank == 0));
    if (most)
        rc = rsd_comm_split(most, most->rank == 0, &first, &one, err);
    if (!rc && most)
        rc = check_sum(most, most->rank, n * (n - 1) / 2, err);
    if (!rc && one)
        rc = check_sum(one, 7, 7, err);
    if (!rc)
        rc = rsi_agree(comm, !one == (comm->rank == 1) ? RSD_E_BUG : RSD_OK, err);
    rsd_comm_free(one);
    rsd_comm_free(most);
    return rc;
}

static rsd_err lists_that_do_not_fit_are_refused_everywhere(rsd_comm *comm, rsd_error *err)
{
    int32_t   two[2] = { 0, 1 }, twice[2] = { comm->rank, comm->rank };
    int32_t   high = comm->size, me = comm->rank;
    rsd_comm *group = NULL;

    /* Rank 0 means both, rank 1 only itself. */
    CHECK(rsd_comm_split(comm, me == 0 ? 2 : 1, me == 0 ? two : &me, &group, err) ==
          RSD_E_MISMATCH);
    CHECK(rsd_comm_split(comm, 2, twice, &group, err) == RSD_E_INVALID);
    CHECK(strstr(err->msg, "twice"));
    CHECK(rsd_comm_split(comm, 1, me == 1 ? &high : &me, &group, err) == RSD_E_INVALID);
    CHECK(err->rank == 1 && err->nfailed == 1);
    CHECK(rsd_comm_split(comm, 1, &two[0], &group, err) == RSD_E_INVALID);
    CHECK(strstr(err->msg, "not in itself"));
    CHECK(!group);
    return rsi_barrier(comm, err);
}

/* ---- memory ---- */

/* Where each rank's memory at `data` is; *no becomes the number of ranks that can't be reached by
 * some rank. */
static rsd_err reach_all(rsd_comm *comm, const void *data, size_t bytes, int32_t **at, int64_t *no,
                         rsd_error *err)
{
    rsd_exposed mine = { { 0 } }, all[64];
    rsd_err     rc;

    *no = rsi_expose(comm, data, bytes, &mine, err) != RSD_OK;
    rc = rsi_allreduce(comm, RSI_OP_SUM, no, 1, err);
    if (!rc)
        rc = rsi_allgather(comm, &mine, sizeof(mine), all, err);
    for (int32_t r = 0; r < comm->size && !rc && !*no; r++) {
        rc = rsi_reach(comm, r, &all[r], (void **)&at[r], err);
        *no += rc == RSD_E_UNSUPPORTED; /* on another machine */
        rc = rc == RSD_E_UNSUPPORTED ? RSD_OK : rc;
    }
    return rc ? rc : rsi_allreduce(comm, RSI_OP_SUM, no, 1, err);
}

static rsd_err ranks_reach_what_others_expose(rsd_comm *comm, rsd_error *err)
{
    size_t   n = (size_t)comm->size, bytes = 1000 * ((size_t)comm->rank + 1);
    void    *data = NULL;
    int32_t *at[64] = { NULL };
    int64_t  no;
    rsd_err  rc;

    rc = rsd_comm_alloc(comm, bytes, &data, err);
    if (rc)
        return rc;
    CHECK((uintptr_t)data % 4096 == 0);
    memset(data, 0, bytes);
    rc = reach_all(comm, (char *)data + 64, bytes - 64, at, &no, err);
    for (int32_t r = 0; r < comm->size && !rc && !no; r++) /* each leaves its number with each */
        at[r][comm->rank] = comm->rank + 100;
    if (!rc)
        rc = rsi_barrier(comm, err);
    for (size_t r = 0; r < n && !rc && !no; r++)
        CHECK(((int32_t *)data)[16 + r] == (int32_t)r + 100);
    rsd_comm_dealloc(comm, data);
    return rc;
}

/* A rank that came out of a barrier sees what all wrote before they went in. */
static rsd_err nobody_leaves_a_barrier_before_all_came(rsd_comm *comm, rsd_error *err)
{
    void    *data = NULL;
    int32_t *at[64] = { NULL };
    int64_t  no;
    rsd_err  rc;

    rc = rsd_comm_alloc(comm, 64, &data, err);
    if (rc)
        return rc;
    memset(data, 0, 64);
    rc = reach_all(comm, data, 64, at, &no, err);
    for (int32_t round = 1; round <= 20 && !rc && !no; round++) {
        *at[comm->rank] = round;
        rc = rsi_barrier(comm, err);
        for (int32_t r = 0; r < comm->size && !rc; r++)
            CHECK(*at[r] == round);
        if (!rc)
            rc = rsi_barrier(comm, err);
    }
    rsd_comm_dealloc(comm, data);
    return rc;
}

static rsd_err foreign_memory_is_exposed_or_refused_with_a_reason(rsd_comm *comm, rsd_error *err)
{
    int32_t     here = 1;
    rsd_exposed what;
    rsd_err     rc = rsi_expose(comm, &here, sizeof(here), &what, err);

    CHECK(rc == RSD_OK || (rc == RSD_E_UNSUPPORTED && err->msg[0]));
    CHECK(rsi_reach(comm, comm->size, &what, (void **)&what, err) == RSD_E_INVALID);
    return RSD_OK;
}

const comm_case comm_suite_groups[] = {
    { COMM_CASE(even_and_odd_ranks_are_groups_of_their_own), 1, false },
    { COMM_CASE(groups_can_be_split_again), 2, false },
    { COMM_CASE(lists_that_do_not_fit_are_refused_everywhere), 2, false },
    { COMM_CASE(ranks_reach_what_others_expose), 1, false },
    { COMM_CASE(nobody_leaves_a_barrier_before_all_came), 1, false },
    { COMM_CASE(foreign_memory_is_exposed_or_refused_with_a_reason), 1, false },
    { NULL, NULL, 0, false },
};
