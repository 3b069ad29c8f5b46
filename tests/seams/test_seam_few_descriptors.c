/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint has more files than the process may have descriptors: 64, whatever the files are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "store/file.h"
#include "store/store.h"
#include "sys_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 1500, COLS = 4, LIMIT = 64 };

static char    folder[256], path[300];
static int32_t data[FILES][COLS];

static void ok(rsd_err rc, const rsd_error *err)
{
    if (rc)
        fail_msg("%s: %s", rsd_err_name(rc), err->msg);
}

static rsd_state *state_of(void *at, const char *rules_text, int first, int n)
{
    const int64_t shape[] = { FILES, COLS };
    rsd_view      view = { .box = { .ndim = 2, .off = { 0, first }, .len = { FILES, n } } };
    rsd_layout   *layout = NULL;
    rsd_state    *state;
    rsd_rules    *rules;
    rsd_error     err;

    view.data = at;
    ok(rsd_state_create(&state, &err), &err);
    if (rules_text) {
        ok(rsd_rules_parse(rules_text, &rules, &err), &err);
        ok(rsd_rules_layout(rules, "w", RSD_I32, 2, shape, &layout, &err), &err);
        rsd_rules_free(rules);
    }
    ok(rsd_state_tensor(state, "w", layout, RSD_I32, 2, shape, 1, &view, &err), &err);
    rsd_layout_free(layout);
    return state;
}

static rsd_err load_columns(void *arg, rsd_comm *comm, rsd_error *err)
{
    const rsd_choice *cooperate = arg;
    rsd_load_opts     opts = { .size = sizeof(opts), .cooperate = *cooperate };
    int               n = COLS / rsd_comm_size(comm), first = rsd_comm_rank(comm) * n;
    int32_t          *mine = calloc(FILES, sizeof(*mine) * (size_t)n);
    rsd_state        *state = state_of(mine, NULL, first, n);
    rsd_err           rc = rsd_load(path, comm, state, &opts, err);

    for (int i = 0; i < FILES && !rc; i++)
        for (int k = 0; k < n; k++)
            if (mine[i * n + k] != data[i][first + k])
                rc = RSD_E_BUG;
    rsd_state_free(state);
    free(mine);
    return rc;
}

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void one_process_loads_it(void **state)
{
    rsd_choice cooperate = RSD_DEFAULT;
    rsd_error  err = { 0 };
    int        before = descriptors();

    (void)state;
    ok(rsd_comm_run_threads(1, load_columns, &cooperate, &err), &err);
    assert_int_equal(descriptors(), before);
}

static void four_threads_load_it(void **state)
{
    rsd_error err = { 0 };

    (void)state;
    for (int how = RSD_DEFAULT; how <= RSD_NEVER; how++)
        ok(rsd_comm_run_threads(4, load_columns, &how, &err), &err);
}

static void it_is_verified_and_converted(void **state)
{
    rsd_read_opts    opts = { .size = sizeof(opts) };
    rsd_convert_opts convert = { .size = sizeof(convert) };
    rsd_error        err = { 0 };
    rsd_ckpt        *ckpt, *other;
    size_t           bad = 1;
    char             to[400];

    (void)state;
    snprintf(to, sizeof(to), "%s/one.safetensors", folder);
    ok(rsd_ckpt_open(NULL, path, &ckpt, &err), &err);
    ok(rsd_ckpt_open(NULL, path, &other, &err), &err);
    ok(rsd_ckpt_verify(ckpt, &opts, NULL, NULL, &bad, &err), &err);
    assert_int_equal(bad, 0);
    ok(rsd_convert(other, to, NULL, &convert, &err), &err);
    ok(rsd_ckpt_verify(other, &opts, NULL, NULL, &bad, &err), &err);
    assert_int_equal(bad, 0);
    rsd_ckpt_close(other);
    rsd_ckpt_close(ckpt);
}

/* A file that was closed and is opened again must be the one it was. */
static void a_file_that_changed_while_it_was_closed_is_told(void **state)
{
    const struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    int32_t               to[FILES][COLS];
    rsd_view              view = { .box = { .ndim = 2, .len = { FILES, COLS } }, .data = to };
    rsd_error             err = { 0 };
    rsd_ckpt             *ckpt;
    char                  file[400];

    (void)state;
    ok(rsd_ckpt_open(NULL, path, &ckpt, &err), &err);
    snprintf(file, sizeof(file), "%s/__0_0.distcp", path);
    assert_int_equal(utimensat(AT_FDCWD, file, times, 0), 0);
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, &err), RSD_E_MISMATCH);
    assert_non_null(strstr(err.msg, "__0_0.distcp\" was changed while it was read"));
    rsd_ckpt_close(ckpt);
    ok(rsd_ckpt_open(NULL, path, &ckpt, &err), &err);
    ok(rsd_ckpt_read(ckpt, 0, &view, NULL, &err), &err);
    assert_memory_equal(to, data, sizeof(data));
    rsd_ckpt_close(ckpt);
}

/* ---- a file is wanted while it is being closed ---- */

static struct {
    rsi_file   *file;
    void       *before; /* its handle */
    pthread_t   reader;
    atomic_bool started, opened;
    rsd_error   err;
    rsd_err     rc;
} wanted;

static _Thread_local bool is_reader;

static void *read_wanted(void *arg)
{
    char byte;

    (void)arg;
    is_reader = true;
    wanted.rc = rsi_file_read(wanted.file, 0, &byte, 1, &wanted.err);
    return NULL;
}

/* Starts the reader while the file is marked but still open, and gives it time to get ahead. */
static void want_it_now(const char *call, void *arg)
{
    (void)arg;
    if (is_reader && wanted.file->handle != wanted.before)
        atomic_store(&wanted.opened, true);
    if (is_reader || strcmp(call, "close") != 0 || !wanted.file ||
        atomic_load(&wanted.file->users) >= 0 || atomic_exchange(&wanted.started, true))
        return;
    wanted.before = wanted.file->handle;
    assert_int_equal(pthread_create(&wanted.reader, NULL, read_wanted, NULL), 0);
    for (int i = 0; i < 100000 && !atomic_load(&wanted.opened); i++)
        sched_yield();
}

static void a_file_that_is_being_closed_is_opened_afterwards(void **state)
{
    rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1 };
    rsi_file     *file[LIMIT];
    rsd_store    *store;
    rsd_error     err;
    int           n = 0;

    (void)state;
    ok(rsi_file_store_open(path, &opts, &store, &err), &err);
    faults = (sys_faults){ .watch = want_it_now };
    for (; n < LIMIT && !atomic_load(&wanted.started); n++) {
        char name[32];

        snprintf(name, sizeof(name), "__%d_0.distcp", n);
        ok(rsi_file_open(store, name, RSD_OPEN_READ, 0, &file[n], &err), &err);
        wanted.file = file[0];
    }
    assert_true(atomic_load(&wanted.started));
    pthread_join(wanted.reader, NULL);
    ok(wanted.rc, &wanted.err);
    faults = (sys_faults){ 0 };
    for (int i = 0; i < n; i++)
        ok(rsi_file_close(file[i], &err), &err);
    rsd_store_close(store);
}

static int begin(void **state)
{
    rsd_save_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER };
    struct rlimit limit;
    char          rules[64];
    rsd_state    *s;
    rsd_error     err = { 0 };

    (void)state;
    snprintf(folder, sizeof(folder), "%s/reshard-few-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/ck", folder);
    for (int i = 0; i < FILES; i++)
        for (int k = 0; k < COLS; k++)
            data[i][k] = i * COLS + k;
    snprintf(rules, sizeof(rules), "mesh n=%d; * shard(0)@n", FILES);
    s = state_of(data, rules, 0, COLS);
    ok(rsd_save(path, NULL, s, &opts, &err), &err);
    rsd_state_free(s);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max = LIMIT; /* nobody can raise it */
    return setrlimit(RLIMIT_NOFILE, &limit);
}

static int end(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_loads_it),
        cmocka_unit_test(four_threads_load_it),
        cmocka_unit_test(it_is_verified_and_converted),
        cmocka_unit_test(a_file_that_is_being_closed_is_opened_afterwards),
        cmocka_unit_test(a_file_that_changed_while_it_was_closed_is_told),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
