/* SPDX-License-Identifier: Apache-2.0 */
/* Values of two checkpoints that are larger than one part, on several threads; NaN and tolerances
 * are tested by tests/cli. */
#include "cli.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

enum { ROWS = 3000, COLS = 1000 };

static const int64_t shape[] = { ROWS, COLS };

typedef struct fixture {
    char     *folder;
    float    *data;
    rsd_ckpt *a;
} fixture;

/* Saves the fixture's data as `name`, cut by the rules, and opens that; "zstd" is compressed, and
 * NULL if that is not supported. */
static rsd_ckpt *save(const fixture *f, const char *name, const char *text)
{
    rsd_save_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER };
    rsd_view      view = { .box = { 2, { 0 }, { ROWS, COLS } }, .data = f->data };
    rsd_rules    *rules;
    rsd_layout   *layout;
    rsd_state    *state;
    rsd_ckpt     *ckpt = NULL;
    rsd_err       rc;
    char          path[256];

    snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    assert_int_equal(rsd_rules_parse(text, &rules, NULL), RSD_OK);
    assert_int_equal(rsd_rules_layout(rules, "w", RSD_F32, 2, shape, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(state, "w", layout, RSD_F32, 2, shape, 1, &view, NULL),
                     RSD_OK);
    opts.transform = strcmp(name, "zstd") == 0 ? "stream.zstd" : NULL;
    rc = rsd_save(path, NULL, state, &opts, NULL);
    assert_true(rc == RSD_OK || (rc == RSD_E_UNSUPPORTED && opts.transform));
    if (!rc)
        assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    rsd_state_free(state);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return ckpt;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    args     a = { 0 };

    assert_int_equal(scratch_make(&a, "/tmp", &f->folder), EXIT_DONE);
    f->data = malloc((size_t)ROWS * COLS * sizeof(float));
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++)
        f->data[i] = (float)i;
    f->a = save(f, "rows", "mesh dp=4; * shard(0)@dp");
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    rsd_ckpt_close(f->a);
    scratch_remove(f->folder);
    free(f->data);
    free(f);
    return 0;
}

static rsd_err compare(rsd_ckpt *a, rsd_ckpt *b, const tolerance *tol, int32_t threads, pair *out)
{
    *out = (pair){ 0 };
    out->info.size = sizeof(out->info);
    assert_int_equal(rsd_ckpt_tensor(a, 0, &out->info, NULL), RSD_OK);
    out->from = out->info.dtype;
    return compare_pairs(a, b, out, 1, tol, threads, NULL, &(rsd_error){ .code = 0 });
}

static void other_chunks_with_the_same_values_are_equal(void **state)
{
    const fixture  *f = *state;
    const tolerance exact = { .on = false };
    rsd_ckpt       *b = save(f, "blocks", "mesh x=2 y=3; * shard(0)@x shard(1)@y");
    pair            p;

    assert_int_equal(compare(f->a, b, &exact, 3, &p), RSD_OK);
    assert_int_equal(p.count, 0);
    rsd_ckpt_close(b);
}

static void the_first_and_the_largest_are_found_whatever_the_threads(void **state)
{
    fixture        *f = *state;
    const tolerance exact = { .on = false }, wide = { .on = true, .atol = 100 };
    rsd_ckpt       *b;
    pair            p;

    f->data[2999999] += 4096; /* in the last part */
    f->data[1500007] += 8;
    f->data[1500006] -= 1000;
    b = save(f, "changed", "mesh x=5; * shard(1)@x");
    for (int32_t threads = 1; threads <= 4; threads++) {
        assert_int_equal(compare(f->a, b, &exact, threads, &p), RSD_OK);
        assert_int_equal(p.count, 3);
        assert_int_equal(p.first, 1500006);
        assert_true(p.largest == 4096);
        assert_true(element_value(RSD_F32, p.a, NULL) == 1500006);
        assert_true(element_value(RSD_F32, p.b, NULL) == 1499006);
    }
    assert_int_equal(compare(f->a, b, &wide, 2, &p), RSD_OK);
    assert_int_equal(p.count, 2);
    f->data[2999999] = 2999999;
    f->data[1500007] = 1500007;
    f->data[1500006] = 1500006;
    rsd_ckpt_close(b);
}

static void compressed_chunks_are_compared_on_threads(void **state)
{
    fixture        *f = *state;
    const tolerance exact = { .on = false };
    rsd_ckpt       *b;
    pair            p;

    if (!(b = save(f, "zstd", "mesh x=2; * shard(0)@x"))) {
        print_message("built without zstd\n");
        skip();
    }
    assert_int_equal(compare(f->a, b, &exact, 3, &p), RSD_OK);
    assert_int_equal(p.count, 0);
    rsd_ckpt_close(b);
}

static void a_file_that_is_cut_while_it_is_open_is_an_error(void **state)
{
    const fixture  *f = *state;
    const tolerance exact = { .on = false };
    rsd_ckpt       *b = save(f, "cut", "mesh x=2; * shard(0)@x");
    char            path[256];
    FILE           *file;
    pair            p;

    snprintf(path, sizeof(path), "%s/cut/__1_0.distcp", f->folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_not_equal(compare(f->a, b, &exact, 2, &p), RSD_OK);
    rsd_ckpt_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_chunks_with_the_same_values_are_equal),
        cmocka_unit_test(the_first_and_the_largest_are_found_whatever_the_threads),
        cmocka_unit_test(compressed_chunks_are_compared_on_threads),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_open_is_an_error),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
