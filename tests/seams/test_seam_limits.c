/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a process: any number of files is written with 64 descriptors, and a file longer
 * than RLIMIT_FSIZE is an error, not the end of the process. Each case is a process of its own,
 * whose limits can't be raised again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 300, DESCRIPTORS = 64, RANKS = 8 };

static char top[64];

static const char *at(const char *name)
{
    static _Thread_local char path[160]; /* ranks are threads */

    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

/* A file or more for each of 300 tensors, whatever the format: `rules` or opts->shard_size cut. */
typedef struct saving {
    const char   *to, *rules;
    rsd_save_opts opts;
    bool          async;
} saving;

static rsd_err save(rsd_comm *comm, const saving *how)
{
    static int32_t data[FILES][1000];
    const int64_t  shape[] = { 1000 };
    rsd_save_opts  opts = how->opts;
    rsd_error      err = { .msg = "" };
    rsd_state     *state;
    rsd_op        *op;
    rsd_err        rc = rsd_state_create(&state, NULL);

    opts.size = sizeof(opts);
    for (int i = 0; i < FILES && !rc; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%03d", i);
        fix_add_ramp(state, name, how->rules ? fix_layout(how->rules, RSD_I32, 1, shape) : NULL, 1,
                     shape, data[i]);
    }
    if (!rc && how->async) {
        rc = rsd_save_begin(at(how->to), comm, state, RSD_STAGE_COPY, &opts, &op, &err);
        if (!rc) {
            rc = rsd_op_wait(op, RSD_DURABLE, &err);
            rsd_op_free(op);
        }
    } else if (!rc) {
        rc = rsd_save(at(how->to), comm, state, &opts, &err);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    rsd_state_free(state);
    return rc;
}

static rsd_err save_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    (void)err;
    return save(comm, arg);
}

/* Runs fn in a child with a limit; what it returned. */
static int limited(__rlimit_resource_t which, rlim_t limit, rsd_err (*fn)(void *arg), void *arg)
{
    int   status;
    pid_t child = fork();

    if (child == 0) {
        struct rlimit both = { .rlim_cur = limit, .rlim_max = limit };

        signal(SIGXFSZ, SIG_DFL);
        if (setrlimit(which, &both) < 0)
            _exit(100);
        _exit((int)fn(arg));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static rsd_err run_alone(void *arg)
{
    return save(NULL, arg);
}

static rsd_err run_ranks(void *arg)
{
    return rsd_comm_run_threads(RANKS, save_rank, arg, NULL);
}

static void many_files_are_saved_with_few_descriptors(void **state)
{
    saving how[] = {
        { "alone", "mesh tp=300; * shard(0)@tp", { .threads = 16 }, false },
        { "alone-st",
          NULL,
          { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 4096, .threads = 16 },
          false },
        { "async", "mesh tp=300; * shard(0)@tp", { .threads = 16 }, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++)
        assert_int_equal(limited(RLIMIT_NOFILE, DESCRIPTORS, run_alone, &how[i]), RSD_OK);
}

static void many_files_are_saved_by_rank_threads_with_few_descriptors(void **state)
{
    saving how[] = {
        { "ranks", "mesh tp=8; * shard(0)@tp", { .threads = 4 }, false },
        { "ranks-st",
          "mesh tp=8; * shard(0)@tp",
          { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 4096, .threads = 4 },
          false },
        { "ranks-async",
          "mesh tp=8; * shard(0)@tp",
          { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 4096, .threads = 4 },
          true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++)
        assert_int_equal(limited(RLIMIT_NOFILE, DESCRIPTORS, run_ranks, &how[i]), RSD_OK);
}

static rsd_err run_convert(void *arg)
{
    rsd_convert_opts opts = { .format = RSD_FORMAT_SAFETENSORS,
                              .shard_size = 4096,
                              .threads = 60,
                              .max_memory = (size_t)1 << 30,
                              .sync = RSD_NEVER };
    char             from[160];
    rsd_error        err = { .msg = "" };
    rsd_err          rc;

    snprintf(from, sizeof(from), "%s", at("many.safetensors"));
    rc = conv_run(NULL, from, at(arg), opts, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    return rc;
}

static void many_files_are_converted_with_few_descriptors(void **state)
{
    const saving how = { .to = "many.safetensors" };

    (void)state;
    assert_int_equal(save(NULL, &how), RSD_OK);
    assert_int_equal(limited(RLIMIT_NOFILE, DESCRIPTORS, run_convert, (void *)(uintptr_t) "hf"),
                     RSD_OK);
}

/* ---- RLIMIT_FSIZE ---- */

static rsd_err too_long(void *arg)
{
    const char      *to = arg;
    const saving     how = { .to = to };
    rsd_convert_opts opts = { .sync = RSD_NEVER };
    char             from[160];
    rsd_error        err = { .msg = "" };
    sigset_t         pending;

    if (save(NULL, &how) != RSD_E_IO)
        return RSD_E_BUG;
    snprintf(from, sizeof(from), "%s", at("long"));
    if (conv_run(NULL, from, at(to), opts, &err) != RSD_E_IO || err.sys_errno != EFBIG)
        return RSD_E_BUG;
    if (sigpending(&pending) < 0 || sigismember(&pending, SIGXFSZ))
        return RSD_E_BUG;
    return RSD_OK;
}

static void a_file_beyond_the_limit_of_size_is_an_error(void **state)
{
    static const char *const targets[] = { "out", "out.safetensors", "out.pt" };

    (void)state;
    conv_source(NULL, at("long"), RSD_FORMAT_DCP, NULL, true, NULL);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(limited(RLIMIT_FSIZE, 100000, too_long, (void *)(uintptr_t)targets[i]),
                         RSD_OK);
        assert_int_equal(access(at(targets[i]), F_OK), -1);
    }
}

static int begin(void **state)
{
    (void)state;
    conv_folder(top, sizeof(top));
    return 0;
}

static int end(void **state)
{
    (void)state;
    conv_remove(top);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_files_are_saved_with_few_descriptors),
        cmocka_unit_test(many_files_are_saved_by_rank_threads_with_few_descriptors),
        cmocka_unit_test(many_files_are_converted_with_few_descriptors),
        cmocka_unit_test(a_file_beyond_the_limit_of_size_is_an_error),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
