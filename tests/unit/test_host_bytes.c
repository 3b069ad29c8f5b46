/* SPDX-License-Identifier: Apache-2.0 */
/* What saves, conversions and live moves by ranks of two machines send over the network between
 * them. test_load_hosts.c has the loads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "fake_hosts.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, PER_HOST = 3, HOSTS = 2, TENSORS = 40, ROWS = 48, COLS = 1024 };
enum { WORDS = 760 }; /* bytes that a live move sends besides the tensors */
#define TENSOR_BYTES ((int64_t)ROWS * COLS * 4)
#define DATA_BYTES   (TENSORS * TENSOR_BYTES)

static rsd_store    *store;
static const int64_t shape[] = { ROWS, COLS };

typedef struct job {
    fake_hosts  hosts;
    const char *rules, *to; /* layouts of all tensors, before and after a move */
    int         tensors;
    rsd_format  format;
    const char *path;
} job;

/* Returns what came to each machine. */
static job run(job j, rsd_err (*fn)(void *, rsd_comm *, rsd_error *))
{
    rsd_error err = { 0 };

    j.hosts.ranks = RANKS;
    j.hosts.per_host = PER_HOST;
    if (fake_hosts_run(&j.hosts, fn, &j, &err))
        fail_msg("%s", err.msg);
    print_message("%s to %s: machine 0 got %lld messages, %lld bytes; machine 1 %lld, %lld\n",
                  j.rules, j.path ? j.path : j.to, (long long)j.hosts.messages[0],
                  (long long)j.hosts.bytes[0], (long long)j.hosts.messages[1],
                  (long long)j.hosts.bytes[1]);
    return j;
}

static void assert_came(const job *j, int host, int64_t messages, int64_t bytes)
{
    assert_int_equal(j->hosts.messages[host], messages);
    assert_int_equal(j->hosts.bytes[host], bytes);
}

/* ---- save ---- */

static rsd_err save(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job    *j = arg;
    rsd_save_opts opts = { .size = sizeof(opts),
                           .store = store,
                           .threads = 1,
                           .format = j->format,
                           .overwrite = true,
                           .checksum = RSD_NEVER };
    int32_t      *data = calloc((size_t)j->tensors, (size_t)TENSOR_BYTES);
    rsd_rules    *rules = NULL;
    rsd_state    *state = NULL;
    rsd_err       rc = rsd_state_create(&state, err);

    if (!rc)
        rc = rsd_rules_parse(j->rules, &rules, err);
    for (int i = 0; i < j->tensors && !rc; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_add(state, name, rules, rsd_comm_rank(comm), RSD_I32, 2, shape,
                           data + (size_t)i * ROWS * COLS, err);
    }
    if (!rc)
        rc = rsd_save(j->path, comm, state, &opts, err);
    rsd_rules_free(rules);
    rsd_state_free(state);
    free(data);
    return rc;
}

/* Votes, and a few words about what all save. */
static void saving_a_folder_sends_no_tensors(void **unused)
{
    static const char *const rules[] = { "mesh n=6; * shard(0)@n", "mesh n=6; * replicate",
                                         "mesh h=2 n=3; * shard(1)@n" };

    (void)unused;
    for (int k = 0; k < 3; k++)
        for (int t = 1; t <= TENSORS; t += TENSORS - 1) {
            job j = run((job){ .rules = rules[k], .path = "ck", .tensors = t }, save);

            assert_came(&j, 0, 15, 1744);
            assert_came(&j, 1, 17, 9936);
        }
}

/* All ranks write one file, each a part of it that others hold. */
static void saving_one_file_sends_every_byte_at_most_once(void **unused)
{
    job j = { .rules = "mesh n=6; * replicate", .path = "ck.safetensors", .tensors = TENSORS };

    (void)unused;
    j = run(j, save);
    assert_came(&j, 0, 25, 1856);
    assert_came(&j, 1, 27, 10048);
    j.rules = "mesh n=6; * shard(0)@n";
    j.hosts = (fake_hosts){ 0 };
    j = run(j, save);
    assert_came(&j, 0, 28, 2066240);
    assert_came(&j, 1, 30, 1815232);
    assert_true(j.hosts.bytes[0] + j.hosts.bytes[1] < DATA_BYTES / 2);
}

/* ---- convert ---- */

static rsd_err convert(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job       *j = arg;
    rsd_convert_opts opts = { .size = sizeof(opts), .store = store, .threads = 1 };
    rsd_rules       *rules = NULL;
    rsd_ckpt        *source = NULL;
    rsd_err          rc = rsd_rules_parse(j->rules, &rules, err);

    opts.rules = rules;
    opts.format = j->format;
    if (!rc)
        rc = rsd_ckpt_open(store, "ck", &source, err);
    if (!rc)
        rc = rsd_convert(source, j->path, comm, &opts, err);
    rsd_ckpt_close(source);
    rsd_rules_free(rules);
    return rc;
}

/* Words; with DCP, whose chunks have a checksum each, those of the other machine too. */
static void converting_sends_no_tensors(void **unused)
{
    static const rsd_format format[] = { RSD_FORMAT_DCP, RSD_FORMAT_SAFETENSORS };

    (void)unused;
    for (int t = 1; t <= TENSORS; t += TENSORS - 1) {
        run((job){ .rules = "mesh n=6; * shard(0)@n", .path = "ck", .tensors = t }, save);
        for (int f = 0; f < 2; f++) {
            job  j = { .rules = "mesh n=3; * shard(1)@n", .format = format[f] };
            char path[16];
            int  more;

            snprintf(path, sizeof(path), "to%d-%d", t, f);
            j.path = path;
            j = run(j, convert);
            more = t > 1 && format[f] == RSD_FORMAT_DCP;
            assert_came(&j, 0, 44 + more, 2240 + more * 9800);
            assert_came(&j, 1, 44 + more, 10376 + more * 9856);
        }
    }
}

/* ---- live ---- */

static rsd_err move(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job        *j = arg;
    int32_t           rank = rsd_comm_rank(comm);
    rsd_layout       *layout[2] = { fix_layout(j->rules, RSD_I32, 2, shape),
                                    fix_layout(j->to, RSD_I32, 2, shape) };
    const rsd_layout *src[TENSORS], *dst[TENSORS];
    int32_t          *data[2];
    rsd_view          view[2][TENSORS];
    rsd_views         in[TENSORS], out[TENSORS];
    rsd_plan         *plan = NULL;
    rsd_err           rc;

    for (int s = 0; s < 2; s++)
        data[s] = calloc((size_t)TENSORS, (size_t)TENSOR_BYTES);
    for (int i = 0; i < TENSORS; i++) {
        src[i] = layout[0];
        dst[i] = layout[1];
        rsd_layout_views(layout[0], rank, data[0] + (size_t)i * ROWS * COLS, &view[0][i], 1);
        rsd_layout_views(layout[1], rank, data[1] + (size_t)i * ROWS * COLS, &view[1][i], 1);
        in[i] = (rsd_views){ 1, &view[0][i] };
        out[i] = (rsd_views){ 1, &view[1][i] };
    }
    rc = rsd_plan_create(TENSORS, src, dst, rank, &plan, err);
    if (!rc)
        rc = rsd_reshard(plan, comm, in, out, NULL, err);
    rsd_plan_free(plan);
    for (int s = 0; s < 2; s++) {
        rsd_layout_free(layout[s]);
        free(data[s]);
    }
    return rc;
}

/* Half of the rows of a machine's columns: 171 for each rank but the last, which has 169. */
static void moving_rows_to_columns_sends_what_is_missing_once(void **unused)
{
    const int64_t row = (int64_t)TENSORS * ROWS / HOSTS * 4;
    job           j = { .rules = "mesh n=6; * shard(0)@n", .to = "mesh n=6; * shard(1)@n" };

    (void)unused;
    j = run(j, move);
    assert_came(&j, 0, 28, row * 513 + WORDS);
    assert_came(&j, 1, 27, row * 511 + WORDS);
}

static int make_store(void **unused)
{
    (void)unused;
    store = fix_store();
    return 0;
}

static int drop_store(void **unused)
{
    (void)unused;
    rsd_store_close(store);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_store, drop_store)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(saving_a_folder_sends_no_tensors),
        CASE(saving_one_file_sends_every_byte_at_most_once),
        CASE(converting_sends_no_tensors),
        CASE(moving_rows_to_columns_sends_what_is_missing_once),
    };

    return cmocka_run_group_tests_name("host_bytes", tests, NULL, NULL);
}
