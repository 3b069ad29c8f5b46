/* SPDX-License-Identifier: Apache-2.0 */
/* What a stash must do on every comm, as cases that run on all its ranks at once. */
#include "stash_suite.h"
#include "live/stash.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 }; /* bytes of a tensor here */

unsigned char stash_byte(size_t tensor, size_t i)
{
    return (unsigned char)(tensor * 31 + i * 7 + (i >> 8) * 13 + 1);
}

size_t stash_bytes(const stash_tensor *t)
{
    size_t bytes = rsd_dtype_size(t->dtype);

    for (int d = 0; d < t->ndim; d++)
        bytes *= (size_t)t->shape[d];
    return bytes;
}

rsd_err stash_save(rsd_stash *stash, const stash_tensor *t, size_t id, rsd_stashed *out,
                   rsd_error *err)
{
    size_t         bytes = stash_bytes(t);
    unsigned char *data = malloc(bytes + 1);
    rsd_err        rc;

    for (size_t i = 0; i < bytes; i++)
        data[i] = stash_byte(id, i);
    rc = rsd_stash_save(stash, t->dtype, t->ndim, t->shape, data, true, out, err);
    memset(data, 0xee, bytes); /* the caller's again */
    free(data);
    return rc;
}

rsd_err stash_check(const stash_tensor *t, size_t id, const unsigned char *data, rsd_error *err)
{
    size_t bytes = stash_bytes(t);

    for (size_t i = 0; i < bytes; i++)
        if (data[i] != stash_byte(id, i))
            return rsi_fail(err, RSD_E_BUG, "tensor %zu: byte %zu of %zu is wrong", id, i, bytes);
    COMM_CHECK(data[bytes] == 0x5a);
    return RSD_OK;
}

rsd_err stash_take(const rsd_stashed *saved, const stash_tensor *t, size_t id, rsd_error *err)
{
    size_t         bytes = stash_bytes(t);
    unsigned char *data = malloc(bytes + 1);
    rsd_err        rc;

    memset(data, 0x5a, bytes + 1);
    rc = rsd_stash_take(saved, data, bytes, err);
    if (!rc)
        rc = stash_check(t, id, data, err);
    free(data);
    return rc;
}

rsd_err stash_make(rsd_comm *comm, int32_t dim, size_t budget, size_t handles, rsd_stash **out,
                   rsd_error *err)
{
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = dim, .budget = budget };

    opts.handles = handles;
    return rsd_stash_create(comm, &opts, out, err);
}

/* ---- cases ---- */

static const stash_tensor shapes[] = {
    { RSD_F32, 3, { 8, 6, 4 } }, { RSD_BF16, 3, { 5, 3, 2 } },    { RSD_U8, 3, { 1, 1, 37 } },
    { RSD_F64, 3, { 2, 1, 9 } }, { RSD_C128, 3, { 3, 11, 1 } },   { RSD_I16, 3, { 1, 1, 1 } },
    { RSD_F32, 3, { 0, 4, 2 } }, { RSD_F8_E5M2, 3, { 7, 2, 5 } }, { RSD_I64, 3, { 16, 4, 16 } },
};
enum { NSHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* Saved in one order, taken in the reverse, as backward goes, along each dimension. */
static rsd_err tensors_come_back_as_they_were(rsd_comm *comm, rsd_error *err)
{
    for (int32_t dim = 0; dim < 3; dim++) {
        rsd_stash      *stash;
        rsd_stashed     saved[NSHAPES];
        rsd_stash_stats stats = { .size = sizeof(stats) };
        rsd_err         rc = stash_make(comm, dim, MOST, NSHAPES, &stash, err);

        for (size_t i = 0; i < NSHAPES && !rc; i++)
            rc = stash_save(stash, &shapes[i], i, &saved[i], err);
        for (size_t i = NSHAPES; i-- > 0 && !rc;)
            rc = stash_take(&saved[i], &shapes[i], i, err);
        if (rc)
            return rc;
        rsd_stash_stats_get(stash, &stats, NULL);
        COMM_CHECK(stats.tensors == 0 && stats.bytes_held == 0 && stats.bytes_peak > 0);
        rsd_stash_free(stash);
    }
    return RSD_OK;
}

static rsd_err every_dtype_comes_back_bit_for_bit(rsd_comm *comm, rsd_error *err)
{
    rsd_stash *stash;
    rsd_err    rc = stash_make(comm, 1, MOST, 1, &stash, err);

    for (int dtype = 1; dtype <= RSD_F4_E2M1FN_X2 && !rc; dtype++) {
        stash_tensor t = { (rsd_dtype)dtype, 2, { 3, 13 } };
        rsd_stashed  saved;

        if (rsd_dtype_size((rsd_dtype)dtype) == 0)
            continue;
        rc = stash_save(stash, &t, (size_t)dtype, &saved, err);
        if (!rc)
            rc = stash_take(&saved, &t, (size_t)dtype, err);
    }
    if (!rc)
        rsd_stash_free(stash);
    return rc;
}

/* 8 on 4 ranks is 2 for each, and 8 come back; 5 rows on 4 ranks is 2, 2, 1 and none. */
static rsd_err a_rank_holds_its_chunk_only(rsd_comm *comm, rsd_error *err)
{
    const stash_tensor eight = { RSD_F32, 1, { 8 } }, five = { RSD_F32, 2, { 5, 8 } };
    const int64_t      n = comm->size, each = (5 + n - 1) / n;
    int64_t            mine = 5 - each * comm->rank, small = (8 + n - 1) / n;
    int64_t            left = 8 - small * comm->rank;
    rsd_stash         *stash;
    rsd_stashed        a, b;
    rsd_stash_stats    stats = { .size = sizeof(stats) };
    rsd_err            rc = stash_make(comm, 0, MOST, 2, &stash, err);

    mine = mine < 0 ? 0 : mine < each ? mine : each;
    small = left < 0 ? 0 : left < small ? left : small;
    if (!rc)
        rc = stash_save(stash, &eight, 1, &a, err);
    rsd_stash_stats_get(stash, &stats, NULL);
    COMM_CHECK(rc || stats.bytes_held == 4 * small || 8 < n);
    if (!rc)
        rc = stash_save(stash, &five, 2, &b, err);
    rsd_stash_stats_get(stash, &stats, NULL);
    COMM_CHECK(rc || stats.bytes_held == 4 * small + 32 * mine);
    COMM_CHECK(rc || stats.bytes_saved == 32 + 160);
    if (!rc)
        rc = stash_take(&b, &five, 2, err);
    if (!rc)
        rc = stash_take(&a, &eight, 1, err);
    if (!rc)
        rsd_stash_free(stash);
    return rc;
}

/* Each rank has another tensor under the same number. */
static rsd_err what_is_not_replicated_stays_each_ranks_own(rsd_comm *comm, rsd_error *err)
{
    int32_t         own[16], back[16] = { 0 };
    const int64_t   shape[] = { 16 };
    rsd_stash      *stash;
    rsd_stashed     saved;
    rsd_stash_stats stats = { .size = sizeof(stats) };
    rsd_err         rc = stash_make(comm, 0, MOST, 2, &stash, err);

    for (int i = 0; i < 16; i++)
        own[i] = comm->rank * 100 + i;
    if (!rc)
        rc = rsd_stash_save(stash, RSD_I32, 1, shape, own, false, &saved, err);
    if (rc)
        return rc;
    rsd_stash_stats_get(stash, &stats, NULL);
    COMM_CHECK(stats.bytes_held == sizeof(own));
    rc = rsd_stash_take(&saved, back, sizeof(back), err);
    COMM_CHECK(rc || memcmp(own, back, sizeof(own)) == 0);
    rsd_stash_free(stash);
    return rc;
}

/* No rank waits for another: each takes in an order of its own. */
static rsd_err without_a_dimension_nothing_is_shared(rsd_comm *comm, rsd_error *err)
{
    const stash_tensor t = { RSD_F32, 2, { 6, 5 } };
    rsd_stash         *stash;
    rsd_stashed        saved[3];
    rsd_stash_stats    stats = { .size = sizeof(stats) };
    rsd_err            rc = stash_make(comm, RSD_NO_DIM, MOST, 3, &stash, err);

    for (size_t i = 0; i < 3 && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    rsd_stash_stats_get(stash, &stats, NULL);
    COMM_CHECK(rc || stats.bytes_held == 3 * 120);
    for (size_t k = 0; k < 3 && !rc; k++) {
        size_t i = (k + (size_t)comm->rank) % 3;

        rc = stash_take(&saved[i], &t, i, err);
    }
    if (!rc)
        rsd_stash_free(stash);
    return rc;
}

/* More than are let under way at a time. */
static rsd_err many_can_be_fetched_ahead(rsd_comm *comm, rsd_error *err)
{
    enum { N = 20 };
    const stash_tensor t = { RSD_F32, 2, { 9, 10 } };
    unsigned char     *data = calloc(N, 361);
    rsd_stash         *stash;
    rsd_stashed        saved[N];
    rsd_err            rc = stash_make(comm, 1, MOST, N, &stash, err);

    memset(data, 0x5a, N * 361);
    for (size_t i = 0; i < N && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    for (size_t i = N; i-- > 0 && !rc;)
        rc = rsd_stash_prefetch(&saved[i], data + i * 361, 360, err);
    for (size_t i = 0; i < N && !rc; i++) {
        rc = rsd_stash_take(&saved[i], i % 2 ? NULL : data + i * 361, 360, err);
        if (!rc)
            rc = stash_check(&t, i, data + i * 361, err);
    }
    if (!rc)
        rsd_stash_free(stash);
    free(data);
    return rc;
}

/* Gaps of any size, so that chunks have to be moved together, and prefetches in between. */
static rsd_err any_order_that_all_follow_works(rsd_comm *comm, rsd_error *err)
{
    enum { N = 12, STEPS = 400 };
    unsigned char *data[N] = { 0 };
    stash_tensor   t[N];
    rsd_stashed    saved[N];
    bool           kept[N] = { 0 };
    uint64_t       seed = 12345;
    rsd_stash     *stash;
    rsd_err        rc = stash_make(comm, 1, 6000, N, &stash, err);

    for (size_t step = 0; step < STEPS && !rc; step++) {
        size_t i;

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        i = (size_t)(seed >> 33) % N;
        if (!kept[i]) {
            t[i] = (stash_tensor){ RSD_F32, 3, { 1 + (int64_t)(seed >> 40) % 3, 0, 5 } };
            t[i].shape[1] = 1 + (int64_t)(seed >> 45) % 40;
            rc = stash_save(stash, &t[i], i, &saved[i], err);
            kept[i] = !rc;
            rc = rc == RSD_E_NOMEM ? RSD_OK : rc; /* the same on all ranks */
        } else if (!data[i] && (seed >> 50) % 2) {
            data[i] = malloc(stash_bytes(&t[i]) + 1);
            memset(data[i], 0x5a, stash_bytes(&t[i]) + 1);
            rc = rsd_stash_prefetch(&saved[i], data[i], stash_bytes(&t[i]), err);
        } else if (data[i]) {
            rc = rsd_stash_take(&saved[i], NULL, 0, err);
            if (!rc)
                rc = stash_check(&t[i], i, data[i], err);
            free(data[i]);
            data[i] = NULL;
            kept[i] = false;
        } else {
            rc = stash_take(&saved[i], &t[i], i, err);
            kept[i] = false;
        }
    }
    if (!rc)
        rsd_stash_free(stash); /* while some are under way */
    for (int i = 0; i < N; i++)
        free(data[i]);
    return rc;
}

/* In rows and in columns; where they go in messages, in several of them. A rank that has its tensor
 * waits for the others outside of the stash, where it can't help them. */
static rsd_err large_tensors_come_back_as_they_were(rsd_comm *comm, rsd_error *err)
{
    const stash_tensor t = { RSD_F32, 3, { 7, 150, 701 } };
    size_t             bytes = stash_bytes(&t);

    for (int32_t dim = 0; dim < 2; dim++) {
        unsigned char *data[2] = { malloc(bytes + 1), malloc(bytes + 1) };
        rsd_stash     *stash;
        rsd_stashed    saved[3];
        rsd_err        rc = stash_make(comm, dim, 3 * bytes, 3, &stash, err);

        for (size_t i = 0; i < 3 && !rc; i++)
            rc = stash_save(stash, &t, i, &saved[i], err);
        for (size_t i = 0; i < 2 && !rc; i++) {
            data[i][bytes] = 0x5a;
            rc = rsd_stash_prefetch(&saved[i], data[i], bytes, err);
        }
        if (!rc)
            rc = stash_take(&saved[2], &t, 2, err);
        for (size_t i = 2; i-- > 0 && !rc;) {
            rc = rsi_barrier(comm, err);
            if (!rc)
                rc = rsd_stash_take(&saved[i], NULL, 0, err);
            if (!rc)
                rc = stash_check(&t, i, data[i], err);
        }
        if (rc)
            return rc;
        rsd_stash_free(stash);
        free(data[0]);
        free(data[1]);
    }
    return RSD_OK;
}

const comm_case stash_suite[] = {
    { COMM_CASE(tensors_come_back_as_they_were), 1, false },
    { COMM_CASE(every_dtype_comes_back_bit_for_bit), 1, false },
    { COMM_CASE(a_rank_holds_its_chunk_only), 1, false },
    { COMM_CASE(what_is_not_replicated_stays_each_ranks_own), 1, false },
    { COMM_CASE(without_a_dimension_nothing_is_shared), 1, false },
    { COMM_CASE(large_tensors_come_back_as_they_were), 1, false },
    { COMM_CASE(many_can_be_fetched_ahead), 1, false },
    { COMM_CASE(any_order_that_all_follow_works), 1, false },
    { 0 },
};
