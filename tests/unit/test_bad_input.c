/* SPDX-License-Identifier: Apache-2.0 */
/* Broken checkpoints, each of which breaks one rule: the right code, a message that names the file
 * and the reason, little memory, nothing left behind, nothing run. tests/data/make_bad.py makes
 * those that are files in bad/; what can't be in a repository is made here. Valid checkpoints with
 * one fault are test_damage.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_sample.h"
#include "ckpt_walk.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef RESHARD_TEST_DATA
#define RESHARD_TEST_DATA "tests/data" /* from the top of the project */
#endif

#define MOST ((int64_t)1 << 23) /* larger tensors are read in part */
/* What opening may take whatever the input: 1 MiB, and the state of the parsers. */
#define FIXED (((int64_t)1 << 20) + ((int64_t)128 << 10))
/* What reading takes whatever the input: two buffers of 4 MiB and those of a decoder. */
#define READ_FIXED ((int64_t)10 << 20)

/* ---- the table ---- */

/* A line of bad/EXPECTED. */
typedef struct row {
    char *path, *where, *code, *text;
} row;

static const char *data_path(void)
{
    const char *path = getenv("RESHARD_TEST_DATA");

    return path ? path : RESHARD_TEST_DATA;
}

static bool split(char *line, row *out)
{
    char *part[4];

    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < 4; i++) {
        part[i] = line;
        if (i < 3) {
            line = strchr(line, '\t');
            if (!line)
                return false;
            *line++ = '\0';
        }
    }
    *out = (row){ part[0], part[1], part[2], part[3] };
    return true;
}

/* Bytes of a file, or of the files in a folder. */
static int64_t bytes_of(const char *path)
{
    struct stat    st;
    struct dirent *entry;
    DIR           *folder;
    int64_t        sum = 0;

    if (stat(path, &st) != 0)
        fail_msg("\"%s\" is not there", path);
    if (!S_ISDIR(st.st_mode))
        return st.st_size;
    folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char name[2048];

        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode))
            sum += st.st_size;
    }
    closedir(folder);
    return sum;
}

static const char *where_of(const ckpt_walk *w)
{
    return w->opened ? "open" : w->read || w->damages ? "read" : w->opaque ? "opaque" : "fine";
}

/* What the library said; for an opaque object the name of its class. */
static const char *words_of(const ckpt_walk *w)
{
    return w->opened || w->read || w->verified ? w->error.msg : w->opaque ? w->opaque_name : "";
}

/* NULL, or what is not as expected. */
static const char *compare(const row *r, const ckpt_walk *w, int64_t bytes, bool leaked)
{
    static const char prefix[] = "RSD_E_";
    const char       *last = strrchr(r->path, '/');
    bool              failed = w->opened || w->read;
    const char *code = failed ? rsd_err_name((rsd_err)w->error.code) + sizeof(prefix) - 1 : "-";

    if (strcmp(where_of(w), r->where) != 0)
        return "place";
    if (strcmp(code, r->code) != 0)
        return "code";
    if (!strstr(words_of(w), r->text))
        return "message";
    if (w->verified)
        return "verify failed";
    if (w->opened && !strstr(w->error.msg, last ? last + 1 : r->path))
        return "message without the path";
    if (w->read && !w->opened && (!strstr(w->error.msg, "file \"") || w->damages == 0))
        return "message without the file, or verify does not report it";
    if (w->read && !w->opened && !strstr(w->damage[0].msg, r->text))
        return "verify reports something else";
    if (!failed && w->damages > 0)
        return "verify reports what reading does not";
    if (w->open_peak > 16 * bytes + FIXED)
        return "memory of opening";
    if (w->read_peak > 16 * bytes + FIXED + READ_FIXED)
        return "memory of reading";
    return leaked ? "leak" : NULL;
}

/* True if the row is as expected. */
static bool try_row(const row *r)
{
    char        path[1024];
    ckpt_walk   walk;
    int64_t     before = rsi_mem_stats_get().bytes;
    const char *wrong;

    snprintf(path, sizeof(path), "%s/bad/%s", data_path(), r->path);
    ckpt_walk_run(NULL, path, MOST, &walk);
    wrong = compare(r, &walk, bytes_of(path), rsi_mem_stats_get().bytes != before);
    if (wrong)
        print_error("%s: %s: expected %s %s \"%s\", got %s %s \"%s\", peaks %lld and %lld\n",
                    r->path, wrong, r->where, r->code, r->text, where_of(&walk),
                    rsd_err_name((rsd_err)walk.error.code), words_of(&walk),
                    (long long)walk.open_peak, (long long)walk.read_peak);
    return !wrong;
}

static void each_broken_checkpoint_is_answered_as_the_table_says(void **state)
{
    char   path[1024], line[2048];
    size_t rows = 0, wrong = 0;
    FILE  *file;

    (void)state;
    snprintf(path, sizeof(path), "%s/bad/EXPECTED", data_path());
    file = fopen(path, "r");
    if (!file)
        fail_msg("no table \"%s\"", path);
    while (fgets(line, sizeof(line), file)) {
        row r = { 0 };

        if (line[0] == '#')
            continue;
        if (!split(line, &r))
            fail_msg("line %zu of the table has no four columns", rows + 1);
        rows++;
        wrong += !try_row(&r);
    }
    fclose(file);
    assert_true(rows >= 500);
    if (wrong)
        fail_msg("%zu of %zu broken checkpoints", wrong, rows);
}

/* The pickles in bad/ that call something would make this file. */
static void nothing_in_a_pickle_is_run(void **state)
{
    (void)state;
    assert_int_not_equal(access("pwned", F_OK), 0);
}

/* ---- odd ones that are valid ---- */

/* Reads the one tensor "w" of rows x columns floats of a file in bad/. */
static float *read_floats(const char *name, int64_t rows, int64_t columns)
{
    rsd_view  view = { .box = { .ndim = 2, .len = { rows, columns } } };
    char      path[1024];
    rsd_error err;
    rsd_ckpt *ckpt;
    size_t    t;

    snprintf(path, sizeof(path), "%s/bad/%s", data_path(), name);
    view.data = malloc((size_t)(rows * columns) * sizeof(float));
    assert_non_null(view.data);
    if (rsd_ckpt_open(NULL, path, &ckpt, &err) || rsd_ckpt_find(ckpt, "w", &t, &err) ||
        rsd_ckpt_read(ckpt, t, &view, NULL, &err))
        fail_msg("%s", err.msg);
    rsd_ckpt_close(ckpt);
    return view.data;
}

/* Stride 0: every row is the same two elements. */
static void an_expanded_tensor_is_read_as_often_as_it_is_there(void **state)
{
    float *w = read_floats("pickle/tensor_expanded.pt", 3, 2);

    (void)state;
    for (int i = 0; i < 6; i++)
        assert_true(w[i] == (i % 2 ? 2.0f : 1.0f));
    free(w);
}

/* Strides 1 and 1: more elements than the storage, and than a buffer, has. */
static void a_tensor_that_overlaps_itself_is_read_right(void **state)
{
    float *w = read_floats("pickle/tensor_overlapping_itself.pt", 1200, 1200);

    (void)state;
    for (int i = 0; i < 1200 * 1200; i++)
        assert_true(w[i] == (float)(i / 1200 + i % 1200));
    free(w);
}

/* ---- what can't be in a repository ---- */

typedef struct temp {
    char top[64];
} temp;

static int make_temp(void **state)
{
    temp *t = calloc(1, sizeof(*t));

    assert_non_null(t);
    snprintf(t->top, sizeof(t->top), "/tmp/reshard-bad-XXXXXX");
    assert_non_null(mkdtemp(t->top));
    *state = t;
    return 0;
}

static int remove_temp(void **state)
{
    temp          *t = *state;
    DIR           *folder = opendir(t->top);
    struct dirent *entry;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char name[512];

        snprintf(name, sizeof(name), "%s/%s", t->top, entry->d_name);
        if (entry->d_name[0] != '.' || strcmp(entry->d_name, ".metadata") == 0)
            remove(name);
    }
    closedir(folder);
    rmdir(t->top);
    free(t);
    return 0;
}

static void below(const temp *t, const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", t->top, name);
}

static void refuse(const char *path, rsd_err code, const char *text)
{
    ckpt_walk walk;
    int64_t   before = rsi_mem_stats_get().bytes;

    ckpt_walk_run(NULL, path, MOST, &walk);
    if (walk.opened != code || !strstr(walk.error.msg, text) || !strstr(walk.error.msg, path))
        fail_msg("%s: %s \"%s\"", path, rsd_err_name(walk.opened), walk.error.msg);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void a_path_that_is_not_there_is_not_found(void **state)
{
    char path[256];

    below(*state, "nothing", path);
    refuse(path, RSD_E_NOTFOUND, "No such file");
}

static void an_empty_folder_is_no_checkpoint(void **state)
{
    refuse(((temp *)*state)->top, RSD_E_FORMAT, "no checkpoint found in it");
}

static void a_fifo_is_refused_without_waiting_for_a_writer(void **state)
{
    char path[256];

    below(*state, "fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse(path, RSD_E_FORMAT, "neither a file nor a folder");
}

static void a_device_is_refused(void **state)
{
    (void)state;
    refuse("/dev/zero", RSD_E_FORMAT, "neither a file nor a folder");
}

static void a_link_to_nothing_is_not_found(void **state)
{
    char path[256];

    below(*state, "link", path);
    assert_int_equal(symlink("nowhere", path), 0);
    refuse(path, RSD_E_NOTFOUND, "No such file");
}

/* The metadata of bad/dcp/file_missing name __0_0.distcp; `make` puts something else there. */
static void refuse_data_file(temp *t, int (*make)(const char *path), rsd_err code, const char *text)
{
    char          from[1024], name[256];
    unsigned char bytes[4096];
    size_t        len;
    FILE         *file;

    snprintf(from, sizeof(from), "%s/bad/dcp/file_missing/.metadata", data_path());
    file = fopen(from, "rb");
    assert_non_null(file);
    len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    below(t, ".metadata", name);
    file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
    below(t, "__0_0.distcp", name);
    assert_int_equal(make(name), 0);
    refuse(t->top, code, text);
}

static int make_fifo(const char *path)
{
    return mkfifo(path, 0600);
}

static int make_folder(const char *path)
{
    return mkdir(path, 0700);
}

static int make_link(const char *path)
{
    return symlink("/etc/passwd", path);
}

static void a_fifo_in_the_place_of_a_data_file_is_refused(void **state)
{
    refuse_data_file(*state, make_fifo, RSD_E_FORMAT, "__0_0.distcp");
}

static void a_folder_in_the_place_of_a_data_file_is_refused(void **state)
{
    refuse_data_file(*state, make_folder, RSD_E_FORMAT, "__0_0.distcp");
}

/* The name comes from a file that nobody vouches for. */
static void a_link_in_the_place_of_a_data_file_is_not_followed(void **state)
{
    refuse_data_file(*state, make_link, RSD_E_FORMAT, "__0_0.distcp");
}

/* ---- large ones ---- */

/* `bytes` as .metadata in a store in memory; the heap stays within the budget. */
static void refuse_metadata(const unsigned char *bytes, size_t len, const char *text)
{
    rsd_store *store;
    ckpt_walk  walk;

    assert_int_equal(rsd_store_open("mem:", &store, NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(ckpt_walk_put(store, "ck/.metadata", bytes, len), RSD_OK);
    ckpt_walk_run(store, "ck", MOST, &walk);
    if (walk.opened != RSD_E_FORMAT || !strstr(walk.error.msg, text))
        fail_msg("%s \"%s\"", rsd_err_name(walk.opened), walk.error.msg);
    assert_true(walk.open_peak <= 16 * (int64_t)len + (1 << 20));
    rsd_store_close(store);
}

/* A pickle of n times one opcode, n - 1 times another, and STOP. */
static void refuse_repeated(char first, char second, size_t n, const char *text)
{
    size_t         len = 2 + n + n - 1 + 1;
    unsigned char *bytes = malloc(len);

    assert_non_null(bytes);
    bytes[0] = 0x80;
    bytes[1] = 4;
    memset(bytes + 2, first, n);
    memset(bytes + 2 + n, second, n - 1);
    bytes[len - 1] = '.';
    refuse_metadata(bytes, len, text);
    free(bytes);
}

static void a_million_lists_in_each_other_take_little_memory(void **state)
{
    (void)state;
    refuse_repeated(']', 'a', 1000000, "no object of torch's class Metadata");
}

static void more_values_on_the_stack_than_the_limit_are_refused(void **state)
{
    (void)state;
    refuse_repeated('N', '0', 1100000, "stack");
}

static void a_million_marks_take_little_memory(void **state)
{
    (void)state;
    refuse_repeated('(', '1', 1000000, "");
}

int main(void)
{
#define in_temp(test) cmocka_unit_test_setup_teardown(test, make_temp, remove_temp)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_broken_checkpoint_is_answered_as_the_table_says),
        cmocka_unit_test(nothing_in_a_pickle_is_run),
        cmocka_unit_test(an_expanded_tensor_is_read_as_often_as_it_is_there),
        cmocka_unit_test(a_tensor_that_overlaps_itself_is_read_right),
        in_temp(a_path_that_is_not_there_is_not_found),
        in_temp(an_empty_folder_is_no_checkpoint),
        in_temp(a_fifo_is_refused_without_waiting_for_a_writer),
        cmocka_unit_test(a_device_is_refused),
        in_temp(a_link_to_nothing_is_not_found),
        in_temp(a_fifo_in_the_place_of_a_data_file_is_refused),
        in_temp(a_folder_in_the_place_of_a_data_file_is_refused),
        in_temp(a_link_in_the_place_of_a_data_file_is_not_followed),
        cmocka_unit_test(a_million_lists_in_each_other_take_little_memory),
        cmocka_unit_test(more_values_on_the_stack_than_the_limit_are_refused),
        cmocka_unit_test(a_million_marks_take_little_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
