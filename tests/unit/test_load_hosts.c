/* SPDX-License-Identifier: Apache-2.0 */
/* Loading by ranks of several machines: each machine reads every byte once, and only metadata and a
 * few words cross the network. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm_suite.h"
#include "fake_hosts.h"
#include "forked_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { RANKS = 6, PER_HOST = 3, HOSTS = 2, TENSORS = 40, ROWS = 48, COLS = 1024 };
#define TENSOR_BYTES ((uint64_t)ROWS * COLS * 4)
#define DATA_BYTES   (TENSORS * TENSOR_BYTES)

static rsd_store    *store;
static const int64_t shape[] = { ROWS, COLS };

/* 40 tensors of 192 KiB, and two. */
static int save_all(void **unused)
{
    (void)unused;
    store = fix_store();
    fix_save_ramps(store, "ck", TENSORS, ROWS, COLS);
    fix_save_ramps(store, "few", 2, ROWS, COLS);
    return 0;
}

static int drop_all(void **unused)
{
    (void)unused;
    rsd_store_close(store);
    return 0;
}

typedef struct job {
    fake_hosts hosts;
    int        tensors; /* that every rank wants */
    bool       columns; /* a share of each; else all of it */
    fix_counts counts[RANKS];
    int32_t    failing; /* the rank whose third read fails; -1: none */
    bool       few;     /* from the checkpoint with two tensors, and nothing is counted */
} job;

static rsd_box box_of(const job *j, int32_t rank)
{
    int64_t cols = COLS / 2;

    return j->columns ? fix_box2(0, rank % 2 * cols, ROWS, cols) : fix_box2(0, 0, ROWS, COLS);
}

static bool right(const rsd_box *box, const int32_t *data)
{
    for (int64_t i = 0; i < rsd_box_count(box); i++)
        if (data[i] != (box->off[0] + i / box->len[1]) * COLS + box->off[1] + i % box->len[1])
            return false;
    return true;
}

static rsd_err load(void *arg, rsd_comm *comm, rsd_error *err)
{
    job          *j = arg;
    int32_t       rank = rsd_comm_rank(comm);
    rsd_box       box = box_of(j, rank);
    rsd_store    *mine;
    rsd_load_opts opts = { .size = sizeof(opts), .threads = 1 };
    int32_t      *data = calloc((size_t)j->tensors, TENSOR_BYTES);
    rsd_state    *state = NULL;
    rsd_err       rc = rsd_state_create(&state, err);

    j->counts[rank].fail_at = rank == j->failing ? 3 : 0;
    mine = j->few ? NULL : fix_counting_store(store, &j->counts[rank]);
    opts.store = mine ? mine : store;
    for (int i = 0; i < j->tensors && !rc; i++) {
        rsd_view view = { .box = box, .data = data + (size_t)i * ROWS * COLS };
        char     name[16];

        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_tensor(state, name, NULL, RSD_I32, 2, shape, 1, &view, err);
    }
    if (!rc)
        rc = rsd_load(j->few ? "few" : "ck", comm, state, &opts, err);
    for (int i = 0; i < j->tensors && !rc; i++)
        if (!right(&box, data + (size_t)i * ROWS * COLS))
            rc = rsi_fail(err, RSD_E_BUG, "rank %d has something else", (int)rank);
    rsd_state_free(state);
    rsd_store_close(mine);
    free(data);
    if (j->failing >= 0) {
        CHECK(rc == RSD_E_IO);
        CHECK(strncmp(err->msg, "rank 4: ", 8) == 0 && !strstr(err->msg + 1, "rank"));
        CHECK(err->rank == 4);
        return RSD_OK;
    }
    return rc;
}

static void run(job *j)
{
    rsd_error err = { 0 };

    j->hosts.ranks = RANKS;
    j->hosts.per_host = PER_HOST;
    if (fake_hosts_run(&j->hosts, load, j, &err))
        fail_msg("%s", err.msg);
}

/* Bytes that a machine's ranks have read, apart from the metadata, which rank 0 reads. */
static uint64_t read_by(const job *j, int host)
{
    uint64_t bytes = 0;

    for (int r = host * PER_HOST; r < (host + 1) * PER_HOST; r++)
        bytes += j->counts[r].bytes;
    return bytes;
}

/* Headers of records, and the metadata, come to that. */
#define MORE (DATA_BYTES / 8)

static void assert_read_once_per_machine(bool blind, bool columns)
{
    job j = { .hosts.blind = blind, .tensors = TENSORS, .columns = columns, .failing = -1 };

    run(&j);
    for (int h = 0; h < HOSTS; h++) {
        assert_in_range(read_by(&j, h), DATA_BYTES, DATA_BYTES + MORE);
        for (int r = h * PER_HOST; r < (h + 1) * PER_HOST; r++)
            assert_in_range(j.counts[r].bytes, DATA_BYTES / PER_HOST / 2, DATA_BYTES / 2);
    }
}

static void what_all_ranks_want_every_machine_reads_once(void **unused)
{
    (void)unused;
    assert_read_once_per_machine(false, false);
    assert_read_once_per_machine(true, false);
}

static void halves_that_some_ranks_share_every_machine_reads_once(void **unused)
{
    (void)unused;
    assert_read_once_per_machine(false, true);
    assert_read_once_per_machine(true, true);
}

static void metadata_cross_the_network_once_and_tensors_never(void **unused)
{
    job    j = { .tensors = TENSORS, .failing = -1 };
    size_t meta;

    (void)unused;
    free(fix_get(store, "ck/.metadata", &meta));
    run(&j);
    /* Machine 1 gets the log of what rank 0 read; machine 0 only words. */
    assert_in_range(j.hosts.bytes[1], (int64_t)meta, (int64_t)meta + 8192);
    assert_in_range(j.hosts.bytes[0], 1, 4096);
}

static void what_the_ranks_of_a_machine_want_the_others_are_not_told(void **unused)
{
    job one = { .tensors = 1, .failing = -1 }, all = { .tensors = TENSORS, .failing = -1 };

    (void)unused;
    run(&one);
    run(&all);
    for (int h = 0; h < HOSTS; h++) {
        assert_int_equal(one.hosts.bytes[h], all.hosts.bytes[h]);
        assert_int_equal(one.hosts.messages[h], all.hosts.messages[h]);
    }
}

static void a_read_that_fails_on_one_machine_fails_all_ranks_with_its_name(void **unused)
{
    job direct = { .tensors = TENSORS, .failing = 4 };
    job blind = { .hosts.blind = true, .tensors = TENSORS, .failing = 4 };

    (void)unused;
    run(&direct);
    run(&blind);
}

static rsd_err twice(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = load(arg, comm, err);

    return rc ? rc : load(arg, comm, err);
}

static void a_comm_asks_for_its_machines_once(void **unused)
{
    job       one = { .tensors = 1, .failing = -1 }, two = one;
    rsd_error err = { 0 };

    (void)unused;
    run(&one);
    two.hosts.ranks = RANKS;
    two.hosts.per_host = PER_HOST;
    if (fake_hosts_run(&two.hosts, twice, &two, &err))
        fail_msg("%s", err.msg);
    assert_true(two.hosts.messages[1] < 2 * one.hosts.messages[1]);
}

/* ---- processes ---- */

static rsd_err in_process(void *arg, rsd_comm *comm, rsd_error *err)
{
    const bool far = *(const bool *)arg;
    job        j = { .tensors = TENSORS, .failing = -1 };
    rsd_err    rc = load(&j, comm, err);
    uint64_t   bytes = j.counts[rsd_comm_rank(comm)].bytes;

    CHECK(rc || (far ? bytes >= DATA_BYTES : bytes < DATA_BYTES / 2));
    return rc;
}

static void processes_of_one_machine_share_and_others_read_for_themselves(void **unused)
{
    bool             yes = true, no = false;
    const forked_job near = { .ranks = 4, .run = in_process, .arg = &no, .absent = -1 };
    const forked_job far = {
        .ranks = 4, .how = FORKED_FAR, .run = in_process, .arg = &yes, .absent = -1
    };

    (void)unused;
    assert_true(forked_well(&near));
    assert_true(forked_well(&far));
}

/* ---- files ---- */

enum { SMALL = 48 };

typedef struct mesh_job {
    const char *rules;
    bool        save;
    rsd_store  *store;
    fix_counts  counts[16];
} mesh_job;

/* All ranks save or load SMALL tensors of 1 KiB with these rules. */
static rsd_err on_mesh(void *arg, rsd_comm *comm, rsd_error *err)
{
    mesh_job     *j = arg;
    int32_t       rank = rsd_comm_rank(comm);
    rsd_save_opts save = { .size = sizeof(save), .store = j->store, .threads = 1 };
    rsd_load_opts load = { .size = sizeof(load), .threads = 1, .cooperate = RSD_NEVER };
    rsd_state    *state = NULL;
    rsd_rules    *rules = NULL;
    float        *data = calloc(SMALL, 1024);
    rsd_err       rc = rsd_state_create(&state, err);

    if (!rc)
        rc = rsd_rules_parse(j->rules, &rules, err);
    for (int i = 0; i < SMALL && !rc; i++) {
        const int64_t small[] = { 16, 16 };
        char          name[16];

        snprintf(name, sizeof(name), "t%d", i);
        rc =
            rsd_state_add(state, name, rules, rank, RSD_F32, 2, small, data + 256 * (size_t)i, err);
    }
    load.store = rc || j->save ? NULL : fix_counting_store(j->store, &j->counts[rank]);
    if (!rc)
        rc = j->save ? rsd_save("small", comm, state, &save, err)
                     : rsd_load("small", comm, state, &load, err);
    rsd_store_close((rsd_store *)load.store);
    rsd_state_free(state);
    rsd_rules_free(rules);
    free(data);
    return rc;
}

/* A load with the mesh of the save needs so many files on each rank. */
static void assert_files(const char *rules, int32_t ranks, uint64_t files)
{
    mesh_job  j = { .rules = rules, .save = true, .store = fix_store() };
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(ranks, on_mesh, &j, &err))
        fail_msg("%s", err.msg);
    j.save = false;
    if (rsd_comm_run_threads(ranks, on_mesh, &j, &err))
        fail_msg("%s", err.msg);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(j.counts[r].data_files, files);
    rsd_store_close(j.store);
}

static void shards_are_loaded_again_from_one_file(void **unused)
{
    (void)unused;
    assert_files("mesh n=16; * shard(0)@n", 16, 1);
}

static void shards_with_replicas_are_loaded_again_from_one_file_of_each_replica(void **unused)
{
    (void)unused;
    assert_files("mesh dp=2 tp=4; * shard(0)@tp", 8, 2);
}

static void small_tensors_that_all_ranks_hold_are_loaded_again_from_eight_files(void **unused)
{
    (void)unused;
    assert_files("mesh n=16; * replicate", 16, 8);
}

static rsd_err on_hosts(void *arg, rsd_error *err)
{
    job j = { .hosts = { .ranks = 4, .per_host = 2, .blind = *(bool *)arg },
              .tensors = 2,
              .failing = -1,
              .few = true };

    return fake_hosts_run(&j.hosts, load, &j, err);
}

static void any_allocation_that_fails_fails_all_or_none(void **unused)
{
    bool blind = true, sees = false;

    (void)unused;
    fix_every_allocation(on_hosts, NULL, &blind);
    fix_every_allocation(on_hosts, NULL, &sees);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_all_ranks_want_every_machine_reads_once),
        cmocka_unit_test(halves_that_some_ranks_share_every_machine_reads_once),
        cmocka_unit_test(metadata_cross_the_network_once_and_tensors_never),
        cmocka_unit_test(what_the_ranks_of_a_machine_want_the_others_are_not_told),
        cmocka_unit_test(a_read_that_fails_on_one_machine_fails_all_ranks_with_its_name),
        cmocka_unit_test(a_comm_asks_for_its_machines_once),
        cmocka_unit_test(processes_of_one_machine_share_and_others_read_for_themselves),
        cmocka_unit_test(shards_are_loaded_again_from_one_file),
        cmocka_unit_test(shards_with_replicas_are_loaded_again_from_one_file_of_each_replica),
        cmocka_unit_test(small_tensors_that_all_ranks_hold_are_loaded_again_from_eight_files),
        cmocka_unit_test(any_allocation_that_fails_fails_all_or_none),
    };

    return cmocka_run_group_tests(tests, save_all, drop_all);
}
