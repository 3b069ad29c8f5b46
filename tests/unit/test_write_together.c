/* SPDX-License-Identifier: Apache-2.0 */
/* test_write_together.c - files that several ranks write together have the bytes that one process
 * writes: write_together.c, gather_block.c, block_holders.c. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return rsi_fail(err, RSD_E_BUG, "%s:%d: %s", __FILE__, __LINE__, #x);                  \
    } while (0)

/* Tensors that lie across blocks of 4 MiB and across the shares of ranks, in columns, in rows,
 * replicated, uneven, small. */
static const struct {
    const char *name, *place;
    int64_t     rows, cols;
} tensors[] = {
    { "a", "shard(1)@r", 1500, 1111 }, { "b", "shard(0)@r", 1001, 1500 },
    { "c", "replicate", 3, 5 },        { "d", "replicate", 700, 2100 },
    { "e", "shard(0)@r", 2, 70 },      { "f", "shard(1)@r", 1, 1 },
};
enum { TENSORS = sizeof(tensors) / sizeof(tensors[0]) };

typedef struct job {
    rsd_store    *store;
    const char   *path;
    rsd_save_opts opts;
    bool          values;
    int           odd; /* rank that has another value */
    rsd_err       want;
    const char   *text;
    uint64_t      no_memory; /* the allocation of the save that fails; 0: none */
} job;

static rsd_layout *layout_of(size_t t, int32_t ranks)
{
    const int64_t shape[] = { tensors[t].rows, tensors[t].cols };
    char          rules[64];

    snprintf(rules, sizeof(rules), "mesh r=%d; * %s", (int)ranks, tensors[t].place);
    return fix_layout(rules, RSD_I32, 2, shape);
}

/* The elements of tensor t are their own index plus t. */
static void fill(size_t t, const rsd_local *local, char *mem)
{
    for (int64_t i = 0; i < local->box.len[0]; i++)
        for (int64_t k = 0; k < local->box.len[1]; k++) {
            int32_t x =
                (int32_t)((local->box.off[0] + i) * tensors[t].cols + local->box.off[1] + k);

            x += (int32_t)t;
            memcpy(mem + local->offset + i * local->stride[0] + k * local->stride[1], &x, 4);
        }
}

static rsd_err add_tensor(rsd_state *state, size_t t, int32_t rank, int32_t ranks, void **mem,
                          rsd_error *err)
{
    const int64_t shape[] = { tensors[t].rows, tensors[t].cols };
    rsd_layout   *layout = layout_of(t, ranks);
    size_t        n = rsd_layout_boxes(layout, rank, NULL, 0);
    rsd_view      view = { 0 };
    rsd_local     local;
    rsd_err       rc;

    *mem = calloc((size_t)rsd_layout_bytes(layout, rank) + 1, 1);
    CHECK(*mem && n <= 1);
    if (n) {
        CHECK(!rsd_layout_local(layout, rank, 0, &local, err));
        fill(t, &local, *mem);
        view.box = local.box;
        view.data = (char *)*mem + local.offset;
        memcpy(view.stride, local.stride, sizeof(view.stride));
    }
    rc = rsd_state_tensor(state, tensors[t].name, layout, RSD_I32, 2, shape, n, &view, err);
    rsd_layout_free(layout);
    return rc;
}

static rsd_err save_as(const job *j, rsd_comm *comm, rsd_error *err)
{
    int32_t          rank = comm ? comm->rank : 0, ranks = comm ? comm->size : 1;
    void            *mem[TENSORS] = { 0 };
    rsd_save_opts    opts = j->opts;
    const rsd_value *v;
    rsd_values      *owner;
    rsd_state       *state;
    rsd_err          rc;

    CHECK(!rsd_values_create(&owner, err) && !rsd_state_create(&state, err));
    CHECK(!rsd_value_create_int(owner, rank == j->odd ? 8 : 7, &v, err));
    for (size_t t = 0; t < TENSORS; t++) {
        rc = add_tensor(state, t, rank, ranks, &mem[t], err);
        if (rc)
            return rc;
    }
    if (j->values)
        CHECK(!rsd_state_value(state, "step", v, err));
    opts.size = sizeof(opts);
    opts.store = j->store;
    opts.threads = 1;
    if (j->no_memory) { /* none of the ranks is in its save yet, or behind it */
        rsi_barrier(comm, NULL);
        if (rank == 0)
            rsi_mem_fail_at(j->no_memory, 0);
        rsi_barrier(comm, NULL); /* if it is this that fails, so does the save */
    }
    rc = rsd_save(j->path, comm, state, &opts, err);
    if (j->no_memory)
        rsi_barrier(comm, NULL); /* of a comm that may be broken: then all have failed */
    rsd_state_free(state);
    rsd_values_free(owner);
    for (size_t t = 0; t < TENSORS; t++)
        free(mem[t]);
    CHECK(rc == j->want || (j->no_memory && rc == RSD_E_NOMEM));
    CHECK(!j->text || strstr(err->msg, j->text));
    return RSD_OK;
}

static rsd_err save_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    return save_as(arg, comm, err);
}

static void run(int32_t ranks, job *j)
{
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(ranks, save_rank, j, &err))
        fail_msg("%s", err.msg);
}

static void ranks_write_together_what_one_process_writes(void **state)
{
    static const job kinds[] = {
        { .path = "ck.safetensors" },
        { .path = "ck.pt", .values = true },
        { .path = "ck", .opts = { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 7 << 20 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        job         j = kinds[i];
        const char *folder = strchr(j.path, '.') ? "" : j.path;
        uint32_t    sum;

        j.odd = -1;
        j.store = fix_store();
        assert_int_equal(save_as(&j, NULL, NULL), RSD_OK);
        sum = fix_sum(j.store, folder);
        rsd_store_close(j.store);
        for (int32_t ranks = 1; ranks <= 7; ranks += ranks < 4 ? 1 : 3) {
            j.store = fix_store();
            j.opts.max_memory = ranks == 3 ? 1 : 0;
            run(ranks, &j);
            assert_int_equal(fix_sum(j.store, folder), sum);
            rsd_store_close(j.store);
        }
    }
}

static void of_values_that_differ_between_ranks_that_of_rank_0_is_written(void **state)
{
    job      j = { .path = "ck.pt", .values = true, .odd = -1 };
    uint32_t sum;

    (void)state;
    j.store = fix_store();
    assert_int_equal(save_as(&j, NULL, NULL), RSD_OK);
    sum = fix_sum(j.store, "");
    rsd_store_close(j.store);
    j.odd = 2;
    j.store = fix_store();
    run(3, &j);
    assert_int_equal(fix_sum(j.store, ""), sum);
    rsd_store_close(j.store);
}

enum { SOME = 23 }; /* allocations apart: each try moves 18 MB */

static void ranks_without_memory_fail_together_and_leave_nothing(void **state)
{
    static const char *const path[] = { "ck.safetensors", "ck.pt" };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        job      j = { .path = path[i], .odd = (int)i, .no_memory = 1 + i, .values = i == 1 };
        int64_t  before = rsi_mem_stats_get().bytes;
        uint64_t calls;

        do {
            j.store = fix_store();
            run(3, &j);
            calls = rsi_mem_stats_get().calls;
            rsi_mem_fail_at(0, 0);
            rsd_store_close(j.store);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            j.no_memory += SOME;
        } while (calls >= j.no_memory - SOME);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_write_together_what_one_process_writes),
        cmocka_unit_test(of_values_that_differ_between_ranks_that_of_rank_0_is_written),
        cmocka_unit_test(ranks_without_memory_fail_together_and_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
