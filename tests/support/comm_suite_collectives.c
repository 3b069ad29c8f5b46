/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the comm suite about collectives and agreement. */
#include "comm_suite.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

static rsd_err broadcast_brings_the_roots_bytes_from_any_root(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0, 1, 17, 8193, 100003 };

    for (int32_t root = 0; root < comm->size; root++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *data = suite_message(comm->rank, i, sizes[i]);
            rsd_err        rc = rsi_broadcast(comm, root, data, sizes[i], err);
            bool           good = !rc && suite_is_message(data, root, i, sizes[i]);

            free(data);
            if (rc)
                return rc;
            CHECK(good);
        }
    return RSD_OK;
}

static bool are_messages(const unsigned char *all, int32_t n, size_t id, size_t bytes)
{
    for (int32_t r = 0; r < n; r++)
        if (!suite_is_message(all + (size_t)r * bytes, r, id, bytes))
            return false;
    return true;
}

static rsd_err allgather_brings_all_to_all(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0, 1, 8, 17, 9001 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *mine = suite_message(comm->rank, i, sizes[i]);
        unsigned char *all = calloc((size_t)comm->size, sizes[i] + 1);
        rsd_err        rc = rsi_allgather(comm, mine, sizes[i], all, err);
        bool           good = !rc && are_messages(all, comm->size, i, sizes[i]);

        free(mine);
        free(all);
        if (rc)
            return rc;
        CHECK(good);
    }
    return RSD_OK;
}

/* What rank r gives in round `round`: nothing at all, something from some, much from one. */
static size_t any_bytes(int32_t r, int round)
{
    if (round == 0)
        return 0;
    if (round == 1)
        return (size_t)(r % 3) * 11;
    return r == round - 2 ? 50001 : (size_t)r;
}

static rsd_err allgather_takes_any_size_from_each_rank(rsd_comm *comm, rsd_error *err)
{
    for (int round = 0; round < comm->size + 2; round++) {
        size_t         bytes = any_bytes(comm->rank, round), at = 0;
        unsigned char *mine = suite_message(comm->rank, (size_t)round, bytes);
        rsi_gathered   all = { 0 };
        rsd_err        rc = rsi_allgather_any(comm, mine, bytes, &all, err);
        bool           good = true;

        free(mine);
        if (rc)
            return rc;
        for (int32_t r = 0; r < comm->size; r++) {
            good = good && all.first[r] == at &&
                   suite_is_message((unsigned char *)all.data + at, r, (size_t)round,
                                    any_bytes(r, round));
            at += any_bytes(r, round);
        }
        good = good && all.first[comm->size] == at;
        rsi_gathered_release(&all);
        CHECK(good);
    }
    return RSD_OK;
}

/* Rank 0 gets all, and gives each rank back its own. */
static rsd_err what_rank_0_gathers_it_can_scatter(rsd_comm *comm, rsd_error *err)
{
    for (int round = 0; round < comm->size + 2; round++) {
        size_t         bytes = any_bytes(comm->rank, round);
        unsigned char *mine = suite_message(comm->rank, (size_t)round, bytes);
        rsi_gathered   all = { 0 };
        rsi_bytes      back = { 0 };
        rsd_err        rc = rsi_gather_any(comm, mine, bytes, &all, err);
        bool           good = (all.data != NULL) == (comm->rank == 0);

        free(mine);
        for (int32_t r = 0; !rc && comm->rank == 0 && r < comm->size; r++)
            good = good && all.first[r + 1] - all.first[r] == any_bytes(r, round) &&
                   suite_is_message((unsigned char *)all.data + all.first[r], r, (size_t)round,
                                    any_bytes(r, round));
        if (!rc)
            rc = rsi_scatter_any(comm, &all, &back, RSD_OK, err);
        if (!rc && comm->rank > 0)
            good = good && back.len == bytes &&
                   suite_is_message(back.at, comm->rank, (size_t)round, bytes);
        rsi_gathered_release(&all);
        rsi_free(back.at);
        if (rc)
            return rc;
        CHECK(good);
    }
    return RSD_OK;
}

static rsd_err allreduce_adds_and_compares_every_value(rsd_comm *comm, rsd_error *err)
{
    static const size_t counts[] = { 1, 2, 64, 65, 200 };
    int64_t             n = comm->size;

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (int op = RSI_OP_SUM; op <= RSI_OP_MAX; op++) {
            int64_t value[200];
            rsd_err rc;

            for (size_t i = 0; i < counts[c]; i++)
                value[i] = comm->rank * 10 - (int64_t)i;
            rc = rsi_allreduce(comm, (rsi_reduce_op)op, value, counts[c], err);
            if (rc)
                return rc;
            for (size_t i = 0; i < counts[c]; i++) {
                int64_t k = (int64_t)i;
                int64_t want[] = { 10 * (n * (n - 1) / 2) - n * k, -k, (n - 1) * 10 - k };

                CHECK(value[i] == want[op]);
            }
        }
    return RSD_OK;
}

/* ---- agreement ---- */

static rsd_err ranks_that_all_did_well_agree_on_it(rsd_comm *comm, rsd_error *err)
{
    for (int i = 0; i < 5; i++) {
        CHECK(rsi_agree(comm, RSD_OK, i % 2 ? err : NULL) == RSD_OK);
        CHECK(rsd_comm_failures(comm, NULL, 0) == 0);
    }
    return RSD_OK;
}

static rsd_err one_failure_is_everybodys_with_its_text(rsd_comm *comm, rsd_error *err)
{
    for (int32_t bad = 0; bad < comm->size; bad++) {
        rsd_error mine = { .rank = -1 }, kept[2];
        rsd_err   rc = RSD_OK;
        char      want[64];

        if (comm->rank == bad) {
            rc = rsi_fail(&mine, RSD_E_IO, "disk %d is full", bad);
            mine.sys_errno = 28;
        }
        rc = rsi_agree(comm, rc, &mine);
        snprintf(want, sizeof(want), "rank %d: disk %d is full", bad, bad);
        CHECK(rc == RSD_E_IO && mine.code == RSD_E_IO);
        CHECK(mine.rank == bad && mine.nfailed == 1 && mine.sys_errno == 28);
        CHECK(strcmp(mine.msg, want) == 0);
        CHECK(rsd_comm_failures(comm, kept, 2) == 1);
        CHECK(kept[0].rank == bad &&
              strcmp(kept[0].msg, want + strlen("rank 0: ") + (bad > 9)) == 0);
    }
    CHECK(rsi_agree(comm, RSD_OK, err) == RSD_OK);
    CHECK(rsd_comm_failures(comm, NULL, 0) == 0);
    return RSD_OK;
}

static rsd_err of_several_failures_the_lowest_rank_counts(rsd_comm *comm, rsd_error *err)
{
    int32_t   odd = comm->size / 2; /* every odd rank fails, with a code of its own */
    rsd_error mine = { .rank = -1 }, kept[64];
    rsd_err   rc = RSD_OK;

    if (comm->rank % 2 == 1)
        rc = rsi_fail(&mine, comm->rank == 1 ? RSD_E_CORRUPT : RSD_E_NOMEM, "text of %d",
                      comm->rank);
    rc = rsi_agree(comm, rc, &mine);
    CHECK(rc == RSD_E_CORRUPT);
    CHECK(mine.rank == 1 && mine.nfailed == odd);
    CHECK(strcmp(mine.msg, "rank 1: text of 1") == 0);
    CHECK(rsd_comm_failures(comm, kept, 64) == (size_t)odd);
    for (int32_t i = 0; i < odd; i++)
        CHECK(kept[i].rank == 2 * i + 1 && kept[i].code == (i ? RSD_E_NOMEM : RSD_E_CORRUPT));
    (void)err;
    return RSD_OK;
}

static rsd_err a_failure_without_text_has_the_name_of_its_code(rsd_comm *comm, rsd_error *err)
{
    rsd_error kept[64];

    CHECK(rsi_agree(comm, RSD_E_FORMAT, NULL) == RSD_E_FORMAT);
    CHECK(rsd_comm_failures(comm, kept, 64) == (size_t)comm->size);
    CHECK(strcmp(kept[comm->size - 1].msg, "RSD_E_FORMAT") == 0);
    return RSD_OK;
}

const comm_case comm_suite_collectives[] = {
    { COMM_CASE(broadcast_brings_the_roots_bytes_from_any_root), 1, false },
    { COMM_CASE(allgather_brings_all_to_all), 1, false },
    { COMM_CASE(allgather_takes_any_size_from_each_rank), 1, false },
    { COMM_CASE(what_rank_0_gathers_it_can_scatter), 1, false },
    { COMM_CASE(allreduce_adds_and_compares_every_value), 1, false },
    { COMM_CASE(ranks_that_all_did_well_agree_on_it), 1, false },
    { COMM_CASE(one_failure_is_everybodys_with_its_text), 1, false },
    { COMM_CASE(of_several_failures_the_lowest_rank_counts), 2, false },
    { COMM_CASE(a_failure_without_text_has_the_name_of_its_code), 1, false },
    { NULL, NULL, 0, false },
};
