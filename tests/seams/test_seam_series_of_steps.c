/* SPDX-License-Identifier: Apache-2.0 */
/* A series of checkpoints: which names count, which is the latest complete one, what pruning keeps,
 * and that an open checkpoint stays readable when it is removed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "folder_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[64];

static int make_top(void **state)
{
    (void)state;
    strcpy(top, "/tmp/reshard-series-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", top);
    return system(command);
}

static const char *at(const char *name)
{
    static char path[4][160];
    static int  next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", top, name);
    return path[next];
}

static void save(const char *name, int gen)
{
    folder_how how = { .sync = RSD_NEVER };

    assert_int_equal(folder_save(at(name), gen, &how, NULL), RSD_OK);
}

static rsd_series *open_series(void)
{
    rsd_series *series;

    assert_int_equal(rsd_series_open(NULL, top, &series, NULL), RSD_OK);
    return series;
}

static const char *names(rsd_series *series)
{
    static char text[512];
    size_t      len = 0;

    text[0] = 0;
    for (size_t i = 0; i < rsd_series_count(series); i++) {
        rsd_step step = { .size = sizeof(step) };

        assert_int_equal(rsd_series_step(series, i, &step, NULL), RSD_OK);
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", step.name);
    }
    return text;
}

static void names_with_a_step_count_and_others_do_not(void **state)
{
    static const char *const folders[] = { "step_3",    "step-12",   "checkpoint-5", "global_step7",
                                           "00009",     "best",      "step-",        "step-3x",
                                           "mystep-99", "step-1.tmp" };
    rsd_series              *series;

    (void)state;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        assert_int_equal(mkdir(at(folders[i]), 0755), 0);
    series = open_series();
    assert_string_equal(names(series), "step_3 checkpoint-5 global_step7 00009 step-12");
    rsd_series_close(series);
}

static void the_latest_complete_one_is_found(void **state)
{
    rsd_series *series = open_series();
    int64_t     step = -1;
    char        path[160];

    (void)state;
    assert_int_equal(rsd_series_latest(series, NULL, &step, NULL), RSD_E_NOTFOUND);
    rsd_series_path(series, 10, path, sizeof(path));
    assert_string_equal(path, at("step-10"));
    save("step_0010", 1);
    save("step_0020", 2);
    assert_int_equal(mkdir(at("step_0030"), 0755), 0); /* its writer died */
    assert_int_equal(rsd_series_latest(series, NULL, &step, NULL), RSD_OK);
    assert_int_equal(step, 20);
    rsd_series_path(series, 40, path, sizeof(path));
    assert_string_equal(path, at("step_0040"));
    rsd_series_path(series, 20, path, sizeof(path));
    assert_string_equal(path, at("step_0020"));
    rsd_series_close(series);
}

static int count_removed(void *arg, const rsd_step *step)
{
    *(int64_t *)arg += step->step;
    return 0;
}

static void pruning_keeps_the_last_and_every_mth(void **state)
{
    rsd_prune_opts opts = {
        .size = sizeof(opts), .last = 2, .every = 4, .dry_run = true, .on_remove = count_removed
    };
    rsd_series *series;
    int64_t     removed = 0;
    char        name[32];

    (void)state;
    for (int i = 1; i <= 7; i++) {
        snprintf(name, sizeof(name), "step-%d", i);
        save(name, i);
    }
    assert_int_equal(mkdir(at("step-8"), 0755), 0); /* in the making */
    series = open_series();
    opts.arg = &removed;
    assert_int_equal(rsd_series_prune(series, NULL, &opts, NULL), RSD_OK);
    assert_int_equal(removed, 1 + 2 + 3 + 5);
    assert_int_equal(rsd_series_count(series), 8);
    opts.dry_run = false;
    assert_int_equal(rsd_series_prune(series, NULL, &opts, NULL), RSD_OK);
    assert_string_equal(names(series), "step-4 step-6 step-7 step-8");
    opts.last = 0;
    assert_int_equal(rsd_series_prune(series, NULL, &opts, NULL), RSD_E_INVALID);
    rsd_series_close(series);
}

/* Ends it before step 2. */
static int stop_at_two(void *arg, const rsd_step *step)
{
    (void)arg;
    return step->step == 2;
}

static void pruning_ends_when_its_caller_says_so(void **state)
{
    rsd_prune_opts opts = { .size = sizeof(opts), .last = 1, .on_remove = stop_at_two };
    rsd_series    *series;
    rsd_error      err;
    char           name[32];

    (void)state;
    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof(name), "step-%d", i);
        save(name, i);
    }
    series = open_series();
    assert_int_equal(rsd_series_prune(series, NULL, &opts, &err), RSD_E_CANCELED);
    assert_non_null(strstr(err.msg, "canceled by the caller"));
    assert_int_equal(rsd_series_list(series, NULL), RSD_OK);
    assert_string_equal(names(series), "step-1 step-2 step-4");
    rsd_series_close(series);
}

static void what_is_open_stays_readable(void **state)
{
    rsd_prune_opts opts = { .size = sizeof(opts), .last = 1 };
    static float   data[FOLDER_ROWS * FOLDER_COLS];
    rsd_view    view = { .box = { .ndim = 2, .len = { FOLDER_ROWS, FOLDER_COLS } }, .data = data };
    rsd_series *series;
    rsd_ckpt   *ckpt;

    (void)state;
    save("step-1", 1);
    save("step-2", 2);
    assert_int_equal(rsd_ckpt_open(NULL, at("step-1"), &ckpt, NULL), RSD_OK);
    series = open_series();
    assert_int_equal(rsd_series_prune(series, NULL, &opts, NULL), RSD_OK);
    assert_int_not_equal(access(at("step-1"), F_OK), 0);
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    assert_true(data[0] == 10000);
    rsd_ckpt_close(ckpt);
    rsd_series_close(series);
}

static rsd_err ask(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_prune_opts opts = { .size = sizeof(opts), .last = 1 };
    rsd_series    *series = NULL;
    int64_t        step = -1;
    rsd_err        rc = rsd_series_open(NULL, arg, &series, err);

    if (!rc)
        rc = rsd_series_latest(series, comm, &step, err);
    if (!rc)
        rc = rsd_series_prune(series, comm, &opts, err);
    rsd_series_close(series);
    return rc ? rc : step == 2 ? RSD_OK : RSD_E_MISMATCH;
}

static void ranks_get_one_answer(void **state)
{
    (void)state;
    save("step-1", 1);
    save("step-2", 2);
    assert_int_equal(rsd_comm_run_threads(3, ask, top, NULL), RSD_OK);
    assert_int_not_equal(access(at("step-1"), F_OK), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_top, remove_top)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(names_with_a_step_count_and_others_do_not),
        T(the_latest_complete_one_is_found),
        T(pruning_ends_when_its_caller_says_so),
        T(pruning_keeps_the_last_and_every_mth),
        T(what_is_open_stays_readable),
        T(ranks_get_one_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
