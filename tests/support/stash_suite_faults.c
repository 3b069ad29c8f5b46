/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that use a stash in different ways fail together, with one text, and nobody hangs. */
#include "stash_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const stash_tensor four_by_eight = { RSD_F32, 2, { 4, 8 } };

/* Every rank has the same code and text. */
static rsd_err all_have(rsd_comm *comm, rsd_err rc, rsd_err want, const rsd_error *got,
                        rsd_error *err)
{
    rsd_error *all = calloc((size_t)comm->size, sizeof(all[0]));
    rsd_error  mine = *got;
    rsd_err    bad = rsi_allgather(comm, &mine, sizeof(mine), all, err);

    if (!bad && (rc != want || got->code != (int32_t)want))
        bad = rsi_fail(err, RSD_E_BUG, "the code is %s: %s", rsd_err_name(rc), mine.msg);
    for (int32_t r = 0; r < comm->size && !bad; r++)
        if (strcmp(all[r].msg, mine.msg) != 0 || all[r].rank != mine.rank)
            bad = rsi_fail(err, RSD_E_BUG, "here \"%s\", on rank %d \"%s\"", mine.msg, (int)r,
                           all[r].msg);
    free(all);
    return bad;
}

static rsd_err different_handles_are_one_error(rsd_comm *comm, rsd_error *err)
{
    rsd_stash  *stash;
    rsd_stashed saved[2];
    rsd_error   got = { 0 };
    rsd_err     rc = stash_make(comm, 0, 4096, 2, &stash, err);

    for (size_t i = 0; i < 2 && !rc; i++)
        rc = stash_save(stash, &four_by_eight, i, &saved[i], err);
    if (rc)
        return rc;
    rc = stash_take(&saved[comm->rank == 1], &four_by_eight, comm->rank == 1, &got);
    rc = all_have(comm, rc, RSD_E_MISMATCH, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "rank 0 takes tensor 1") != NULL);
    COMM_CHECK(rc || strstr(got.msg, "rank 1 takes tensor 2") != NULL);
    COMM_CHECK(rc || got.rank == 1);
    rsd_stash_free(stash);
    return rc;
}

/* A prefetch of something else is noticed although everybody takes the same. */
static rsd_err different_prefetches_are_one_error(rsd_comm *comm, rsd_error *err)
{
    rsd_stash    *stash;
    rsd_stashed   saved[3];
    unsigned char data[129];
    rsd_error     got = { 0 };
    rsd_err       rc = stash_make(comm, 0, 4096, 3, &stash, err);

    for (size_t i = 0; i < 3 && !rc; i++)
        rc = stash_save(stash, &four_by_eight, i, &saved[i], err);
    if (!rc)
        rc = rsd_stash_prefetch(&saved[comm->rank == comm->size - 1], data, 128, err);
    if (rc)
        return rc;
    rc = stash_take(&saved[2], &four_by_eight, 2, &got);
    rc = all_have(comm, rc, RSD_E_MISMATCH, &got, err);
    rsd_stash_free(stash);
    return rc;
}

static rsd_err different_shapes_are_one_error(rsd_comm *comm, rsd_error *err)
{
    stash_tensor t = four_by_eight;
    rsd_stash   *stash;
    rsd_stashed  saved;
    rsd_error    got = { 0 };
    rsd_err      rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (comm->rank == comm->size - 1)
        t.shape[1] = 4;
    if (!rc)
        rc = stash_save(stash, &t, 1, &saved, err);
    if (rc)
        return rc;
    rc = stash_take(&saved, &t, 1, &got);
    rc = all_have(comm, rc, RSD_E_MISMATCH, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "float32 [4, 8]") != NULL);
    COMM_CHECK(rc || strstr(got.msg, "float32 [4, 4]") != NULL);
    rsd_stash_free(stash);
    return rc;
}

static rsd_err a_handle_taken_twice_is_refused(rsd_comm *comm, rsd_error *err)
{
    rsd_stash  *stash;
    rsd_stashed saved;
    rsd_error   got = { 0 };
    rsd_err     rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (!rc)
        rc = stash_save(stash, &four_by_eight, 1, &saved, err);
    if (!rc)
        rc = stash_take(&saved, &four_by_eight, 1, err);
    if (rc)
        return rc;
    rc = stash_take(&saved, &four_by_eight, 1, &got);
    rc = all_have(comm, rc, RSD_E_NOTFOUND, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "tensor 1 of the stash was already taken") != NULL);
    rsd_stash_free(stash);
    return rc;
}

/* Only the last rank has made it up. */
static rsd_err a_handle_that_was_never_saved_is_refused(rsd_comm *comm, rsd_error *err)
{
    rsd_stash  *stash;
    rsd_stashed saved;
    rsd_error   got = { 0 };
    char        want[80];
    rsd_err     rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (!rc)
        rc = stash_save(stash, &four_by_eight, 1, &saved, err);
    if (rc)
        return rc;
    if (comm->rank == comm->size - 1)
        saved.number = 77;
    rc = stash_take(&saved, &four_by_eight, 1, &got);
    rc = all_have(comm, rc, RSD_E_NOTFOUND, &got, err);
    snprintf(want, sizeof(want), "rank %d: tensor 77 was never saved", (int)comm->size - 1);
    COMM_CHECK(rc || strncmp(got.msg, want + (comm->size > 1 ? 0 : 8), 20) == 0);
    rsd_stash_free(stash);
    return rc;
}

static rsd_err a_buffer_too_small_on_one_rank_stops_all(rsd_comm *comm, rsd_error *err)
{
    rsd_stash    *stash;
    rsd_stashed   saved;
    unsigned char data[128];
    rsd_error     got = { 0 };
    rsd_err       rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (!rc)
        rc = stash_save(stash, &four_by_eight, 1, &saved, err);
    if (rc)
        return rc;
    memset(data, 7, sizeof(data));
    rc = rsd_stash_take(&saved, data, comm->rank == 0 ? 100 : 128, &got);
    rc = all_have(comm, rc, RSD_E_INVALID, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "a buffer of 100 bytes is too small") != NULL);
    COMM_CHECK(rc || comm->rank != 0 || data[0] == 7);
    rsd_stash_free(stash);
    return rc;
}

static rsd_err different_options_are_one_error(rsd_comm *comm, rsd_error *err)
{
    rsd_stash *stash = NULL;
    rsd_error  got = { 0 };
    int32_t    dim = comm->rank == comm->size - 1 ? RSD_NO_DIM : 0;
    rsd_err    rc = stash_make(comm, dim, 4096, 2, &stash, &got);

    rc = all_have(comm, rc, RSD_E_MISMATCH, &got, err);
    COMM_CHECK(rc || (stash == NULL && got.rank == comm->size - 1));
    return rc;
}

/* The chunk of the first rank is larger than that of the last, but all refuse the same tensor. */
static rsd_err the_budget_is_refused_alike(rsd_comm *comm, rsd_error *err)
{
    const stash_tensor t = { RSD_U8, 1, { 100 * comm->size - 1 } };
    rsd_stash         *stash;
    rsd_stashed        saved[3];
    rsd_error          got = { 0 };
    rsd_err            rc = stash_make(comm, 0, 299, 9, &stash, err);

    for (size_t i = 0; i < 2 && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    if (rc)
        return rc;
    rc = stash_save(stash, &t, 2, &saved[2], &got);
    rc = all_have(comm, rc, RSD_E_NOMEM, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "takes 100 bytes") != NULL);
    COMM_CHECK(rc || strstr(got.msg, "the budget of 299 bytes has only 99 left") != NULL);
    for (size_t i = 0; i < 2 && !rc; i++)
        rc = stash_take(&saved[i], &t, i, err);
    for (size_t i = 0; i < 2 && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    rsd_stash_free(stash);
    return rc;
}

static rsd_err more_than_the_handles_is_refused(rsd_comm *comm, rsd_error *err)
{
    rsd_stash  *stash;
    rsd_stashed saved;
    rsd_error   got = { 0 };
    rsd_err     rc = stash_make(comm, 0, 4096, 1, &stash, err);

    if (!rc)
        rc = stash_save(stash, &four_by_eight, 1, &saved, err);
    if (rc)
        return rc;
    rc = stash_save(stash, &four_by_eight, 1, &saved, &got);
    rc = all_have(comm, rc, RSD_E_NOMEM, &got, err);
    COMM_CHECK(rc || strstr(got.msg, "the stash holds at most 1 tensors") != NULL);
    if (!rc)
        rc = stash_take(&saved, &four_by_eight, 1, err);
    rsd_stash_free(stash);
    return rc;
}

const comm_case stash_suite_faults[] = {
    { COMM_CASE(different_handles_are_one_error), 2, false },
    { COMM_CASE(different_prefetches_are_one_error), 2, false },
    { COMM_CASE(different_shapes_are_one_error), 2, false },
    { COMM_CASE(a_handle_taken_twice_is_refused), 2, false },
    { COMM_CASE(a_handle_that_was_never_saved_is_refused), 1, false },
    { COMM_CASE(a_buffer_too_small_on_one_rank_stops_all), 1, false },
    { COMM_CASE(different_options_are_one_error), 2, false },
    { COMM_CASE(the_budget_is_refused_alike), 2, false },
    { COMM_CASE(more_than_the_handles_is_refused), 1, false },
    { 0 },
};
