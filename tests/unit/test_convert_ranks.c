/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_ranks.c - several ranks convert together: the same bytes as one, all fail together.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"
#include "skip_because.h"

#include <reshard/reshard_recipe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct shared {
    rsd_store       *store; /* NULL: local files */
    const char      *from, *to;
    rsd_convert_opts opts;
    int32_t          differs; /* a rank that means something else; -1: none */
    int32_t          cancels; /* a rank that cancels; -1: none */
    atomic_int       told;    /* objects that were left out */
    rsd_error        err[8];  /* [rank] */
} shared;

static int cancel(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return 1;
}

static void left_out(void *arg, const char *name, const char *why)
{
    (void)name;
    (void)why;
    ((shared *)arg)->told++;
}

static rsd_err as_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    static const rsd_cast cast[] = { { NULL, RSD_F64 } };
    shared               *s = arg;
    int32_t               rank = rsd_comm_rank(comm);
    rsd_convert_opts      opts = s->opts;
    rsd_ckpt             *ckpt;
    rsd_err               rc = rsd_ckpt_open(s->store, s->from, &ckpt, err);

    if (rc)
        return rc;
    opts.size = sizeof(opts);
    opts.store = s->store;
    opts.sync = RSD_NEVER;
    opts.threads = 1;
    opts.on_left_out = left_out;
    opts.arg = s;
    if (rank == s->cancels)
        opts.on_progress = cancel;
    if (rank == s->differs) {
        opts.casts = cast;
        opts.ncasts = 1;
    }
    rc = rsd_convert(ckpt, s->to, comm, &opts, err);
    s->err[rank] = *err;
    rsd_ckpt_close(ckpt);
    return rc;
}

static const char *const targets[] = { "to", "to.safetensors", "to.pt" };

static void ranks_make_what_one_makes(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n += 2)
        for (size_t i = 0; i < 3; i++) {
            rsd_store *alone = fix_store();
            shared     s = {
                    .store = fix_store(), .from = "a", .to = targets[i], .differs = -1, .cancels = -1
            };
            rsd_error err;

            conv_source(alone, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
            conv_source(s.store, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
            assert_int_equal(conv_run(alone, "a", s.to, (rsd_convert_opts){ 0 }, &err), RSD_OK);
            if (rsd_comm_run_threads(n, as_rank, &s, &err))
                fail_msg("%s", err.msg);
            assert_int_equal(s.told, i == 1 ? 2 : 0);
            if (i == 0)
                assert_int_equal(fix_sum(alone, s.to), fix_sum(s.store, s.to));
            else
                conv_same(alone, "a", s.store, s.to);
            rsd_store_close(alone);
            rsd_store_close(s.store);
        }
}

static void same_file(rsd_store *a, rsd_store *b, const char *path)
{
    size_t         a_len, b_len;
    unsigned char *x = fix_get(a, path, &a_len), *y = fix_get(b, path, &b_len);

    assert_int_equal(a_len, b_len);
    assert_true(memcmp(x, y, a_len) == 0);
    free(x);
    free(y);
}

/* The 12 MB of m.turned don't fit into the memory: several ranks make parts of it. */
static void ranks_make_by_a_recipe_what_one_makes(void **state)
{
    static const char text[] = "m.big[(r 2) c] -> m.turned[c (2 (r + p:1))] where p = 3\n"
                               "m.cols[i j] -> m.cols[i j] as f32 times 2\n"
                               "m.small.{i}[n] -> m.one.{i}[n] if i == 1; m.small.{i} -> drop\n"
                               "{*x} -> {*x}";

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        rsd_store *alone = fix_store();
        shared     s = {
                .store = fix_store(), .from = "a", .to = targets[i], .differs = -1, .cancels = -1
        };
        rsd_recipe *recipe;
        rsd_error   err;

        if (rsd_recipe_parse(text, false, &recipe, &err))
            fail_msg("%s", err.msg);
        s.opts.recipe = recipe;
        s.opts.max_memory = 4 << 20;
        conv_source(alone, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
        conv_source(s.store, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
        assert_int_equal(conv_run(alone, "a", s.to, s.opts, &err), RSD_OK);
        if (rsd_comm_run_threads(3, as_rank, &s, &err))
            fail_msg("%s", err.msg);
        if (i == 0)
            assert_int_equal(fix_sum(alone, s.to), fix_sum(s.store, s.to));
        else
            same_file(alone, s.store, s.to);
        rsd_recipe_free(recipe);
        rsd_store_close(alone);
        rsd_store_close(s.store);
    }
}

static void ranks_compress_together(void **state)
{
    shared    s = { .store = fix_store(), .from = "a", .to = "b", .differs = -1, .cancels = -1 };
    rsd_error err;
    rsd_err   rc;

    (void)state;
    s.opts.transform = "stream.zstd";
    conv_source(s.store, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
    rc = rsd_comm_run_threads(3, as_rank, &s, &err);
    if (rc == RSD_E_UNSUPPORTED) { /* a build without zstd */
        assert_non_null(strstr(err.msg, "zstd"));
    } else {
        assert_int_equal(rc, RSD_OK);
        conv_same(s.store, "a", s.store, "b");
    }
    rsd_store_close(s.store);
}

static void ranks_that_mean_different_things_are_refused(void **state)
{
    shared    s = { .store = fix_store(), .from = "a", .to = "b", .differs = 1, .cancels = -1 };
    rsd_error err;

    (void)state;
    conv_source(s.store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(rsd_comm_run_threads(3, as_rank, &s, &err), RSD_E_MISMATCH);
    assert_string_equal(fix_list(s.store, ""), "a");
    rsd_store_close(s.store);
}

static void if_one_rank_stops_all_do(void **state)
{
    shared    s = { .store = fix_store(), .from = "a", .to = "b", .differs = -1, .cancels = 1 };
    rsd_error err;

    (void)state;
    conv_source(s.store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(rsd_comm_run_threads(3, as_rank, &s, &err), RSD_E_CANCELED);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(s.err[r].code, RSD_E_CANCELED);
        assert_int_equal(s.err[r].rank, 1);
    }
    assert_string_equal(fix_list(s.store, ""), "a");
    rsd_store_close(s.store);
}

static void another_number_of_ranks_can_go_on(void **state)
{
    char      folder[64], from[96], to[96];
    shared    s = { .differs = -1, .cancels = 0 };
    rsd_error err;

    (void)state;
    if (!fix_has_sums())
        skip_because("built without xxHash");
    conv_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/a", folder);
    snprintf(to, sizeof(to), "%s/b.pt", folder);
    s.from = from;
    s.to = to;
    s.opts.keep = true;
    conv_source(NULL, from, RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", true, NULL);
    assert_int_equal(rsd_comm_run_threads(3, as_rank, &s, &err), RSD_E_CANCELED);
    assert_int_equal(access(to, F_OK), -1);
    s.cancels = -1;
    s.opts.resume = true;
    assert_int_equal(rsd_comm_run_threads(2, as_rank, &s, &err), RSD_OK);
    conv_same(NULL, from, NULL, to);
    conv_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_make_what_one_makes),
        cmocka_unit_test(ranks_make_by_a_recipe_what_one_makes),
        cmocka_unit_test(ranks_compress_together),
        cmocka_unit_test(ranks_that_mean_different_things_are_refused),
        cmocka_unit_test(if_one_rank_stops_all_do),
        cmocka_unit_test(another_number_of_ranks_can_go_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
