/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the comm suite about ranks that give up or do not come. */
#include "comm_suite.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { SHORT_MS = 50 };

static rsd_err abort_wakes_everybody(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc;

    if (comm->rank == 1)
        rsd_comm_abort(comm, "the roof is on fire");
    rc = rsi_barrier(comm, err);
    CHECK(rc == RSD_E_COMM);
    CHECK(err->rank == 1 && err->nfailed == 1);
    CHECK(strcmp(err->msg, "rank 1 gave up: the roof is on fire") == 0);
    CHECK(rsi_agree(comm, RSD_OK, err) == RSD_E_COMM); /* and it stays so */
    CHECK(rsi_agree(comm, RSD_E_IO, NULL) == RSD_E_COMM);
    rsd_comm_abort(comm, "another reason");
    CHECK(rsi_barrier(comm, err) == RSD_E_COMM && strstr(err->msg, "roof"));
    return RSD_OK;
}

static rsd_err abort_of_a_group_wakes_the_others_too(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = comm->size - 1;
    rsd_comm *group = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1;
    rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &group, err);
    if (rc)
        return rc;
    rc = rsi_barrier(comm, err); /* all have it */
    if (comm->rank == n)
        rsd_comm_abort(group, "enough");
    if (!rc)
        rc = rsi_barrier(comm->rank % 2 && group ? group : comm, err);
    rsd_comm_free(group);
    CHECK(rc == RSD_E_COMM);
    CHECK(err->rank == n && strstr(err->msg, "enough"));
    return RSD_OK;
}

/* Waits are short, but the verdict waits for all that are to come, however slowly they run. */
static rsd_err expect(rsd_comm *comm, int32_t present, rsd_error *err)
{
    comm->grace_ms = 60000;
    comm->present = present;
    return rsd_comm_set_timeout(comm, SHORT_MS, err);
}

/* What a rank does that does not come: it is there, but deaf until the others have given up. */
static rsd_err stay_away(rsd_comm *comm, rsd_error *err)
{
    char    never;
    void   *request = NULL;
    rsd_err rc = rsi_recv(comm, comm->rank, 77, &never, 1, &request, err);

    if (rc == RSD_OK)
        rc = comm->ops.wait_some(comm->self, 1, &request, 60000, err);
    rsi_drop(comm, 1, &request);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank >= 0); /* not by its own clock */
    CHECK(rsi_barrier(comm, err) == RSD_E_TIMEOUT);
    return RSD_OK;
}

static rsd_err some_collective(rsd_comm *comm, int which, rsd_error *err)
{
    char mine = 1, all[64];

    if (which == 0)
        return rsi_barrier(comm, err);
    if (which == 1)
        return rsi_allgather(comm, &mine, 1, all, err);
    return rsi_agree(comm, RSD_E_IO, err);
}

/* All but `absent` call a collective that none of them can finish without it. */
static rsd_err without(rsd_comm *comm, int32_t absent, int which, rsd_error *err)
{
    char    text[32];
    rsd_err rc = expect(comm, comm->size - 1, err);

    if (rc)
        return rc;
    if (comm->rank == absent)
        return stay_away(comm, err);
    rc = some_collective(comm, which, err);
    snprintf(text, sizeof(text), "rank %d did not come", absent);
    CHECK(rc == RSD_E_TIMEOUT && err->code == RSD_E_TIMEOUT);
    CHECK(strstr(err->msg, text));
    CHECK(which < 2 || strstr(err->msg, "; before that, here: RSD_E_IO")); /* its own is not lost */
    CHECK(err->rank == absent && err->nfailed == 1);
    CHECK(rsi_barrier(comm, err) == RSD_E_TIMEOUT); /* and it stays so */
    return RSD_OK;
}

static rsd_err a_barrier_without_the_last_rank_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, comm->size - 1, 0, err);
}

static rsd_err an_allgather_without_rank_1_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, 1, 1, err);
}

static rsd_err an_agreement_without_rank_0_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, 0, 2, err);
}

/* In the barrier rank 2 waits for 1 and rank 0 for the last one. */
static rsd_err of_several_missing_ranks_none_that_came_is_named(rsd_comm *comm, rsd_error *err)
{
    int32_t last = comm->size - 1;
    rsd_err rc = expect(comm, comm->size - 2, err);

    if (rc)
        return rc;
    if (comm->rank == 1 || comm->rank == last)
        return stay_away(comm, err);
    rc = rsi_barrier(comm, err);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == 1 && err->nfailed == 2);
    return RSD_OK;
}

static rsd_err a_group_that_waits_in_vain_names_ranks_as_the_whole(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = comm->size - 1;
    rsd_comm *group = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1;
    rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &group, err);
    if (!rc && group)
        rc = expect(group, n - 1, err);
    if (rc)
        return rc;
    rc = comm->rank == n || comm->rank == 0 ? stay_away(comm, err) : rsi_barrier(group, err);
    rsd_comm_free(group);
    if (comm->rank == n || comm->rank == 0)
        return rc;
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == n && err->nfailed == 1);
    return RSD_OK;
}

static rsd_err different_collectives_at_once_are_told(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = expect(comm, comm->size, err);

    if (!rc)
        rc = some_collective(comm, comm->rank % 2, err);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(strstr(err->msg, "same order"));
    CHECK(err->rank == 0 && err->nfailed == comm->size);
    return RSD_OK;
}

static rsd_err messages_that_never_come_time_out(rsd_comm *comm, rsd_error *err)
{
    int32_t peer[64];
    char    in[64];
    void   *request[64] = { NULL };
    rsd_err rc = expect(comm, comm->size - 1, err);

    if (rc)
        return rc;
    if (comm->rank == 0)
        return stay_away(comm, err);
    for (int32_t r = 0; r < comm->size && !rc; r++) {
        peer[r] = r;
        rc = rsi_recv(comm, r, 4, &in[r], 1, &request[r], err);
    }
    if (!rc)
        rc = rsi_wait_all(comm, (size_t)comm->size, request, peer, "exchange", err);
    CHECK(rsi_drop(comm, (size_t)comm->size, request));
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == 0 && strstr(err->msg, "exchange: rank 0 did not come within 50 ms"));
    return RSD_OK;
}

static rsd_err requests_can_be_taken_back_after_an_abort(rsd_comm *comm, rsd_error *err)
{
    int32_t in = -1, to = (comm->rank + 1) % comm->size;
    void   *request[2] = { NULL, NULL };
    rsd_err rc = rsi_recv(comm, to, 6, &in, sizeof(in), &request[0], err);

    if (!rc)
        rc = rsi_barrier(comm, err); /* all have asked */
    if (comm->rank == 0)
        rsd_comm_abort(comm, NULL);
    while (!rc)
        rc = rsi_test(comm, &request[0], err);
    CHECK(rc == RSD_E_COMM && request[0]);
    CHECK(rsi_drop(comm, 2, request));
    CHECK(!request[0] && in == -1);
    CHECK(rsi_recv(comm, to, 6, &in, sizeof(in), &request[0], err) == RSD_E_COMM);
    return RSD_OK;
}

const comm_case comm_suite_end[] = {
    { COMM_CASE(abort_wakes_everybody), 2, false },
    { COMM_CASE(abort_of_a_group_wakes_the_others_too), 3, false },
    { COMM_CASE(requests_can_be_taken_back_after_an_abort), 1, false },
    { COMM_CASE(a_barrier_without_the_last_rank_times_out), 2, true },
    { COMM_CASE(an_allgather_without_rank_1_times_out), 2, true },
    { COMM_CASE(an_agreement_without_rank_0_times_out), 2, true },
    { COMM_CASE(of_several_missing_ranks_none_that_came_is_named), 4, true },
    { COMM_CASE(a_group_that_waits_in_vain_names_ranks_as_the_whole), 3, true },
    { COMM_CASE(different_collectives_at_once_are_told), 2, true },
    { COMM_CASE(messages_that_never_come_time_out), 2, true },
    { NULL, NULL, 0, false },
};
