/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint is saved inside a folder that holds other files (C8): those stay, each save takes
 * new numbers, the previous data files go with the next save, and files of a writer that lives are
 * never removed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert_fixture.h"
#include "folder_case.h"
#include "store/file.h"
#include "sys_faults.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    conv_folder(top, sizeof(top));
    snprintf(path, sizeof(path), "%s/ck", top);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    conv_remove(top);
    return 0;
}

static const char *below(const char *name)
{
    static char full[4][160];
    static int  next;

    next = (next + 1) % 4;
    snprintf(full[next], sizeof(full[next]), "%s/%s", path, name);
    return full[next];
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(below(name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static bool is_there(const char *name)
{
    return access(below(name), F_OK) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All names in the folder, sorted, with a blank between them. */
static const char *list(void)
{
    static char    text[1024];
    char          *name[32];
    size_t         n = 0, len = 0;
    struct dirent *entry;
    DIR           *dir = opendir(path);

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            name[n++] = strdup(entry->d_name);
    closedir(dir);
    qsort(name, n, sizeof(name[0]), by_name);
    for (size_t i = 0; i < n; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", name[i]);
        free(name[i]);
    }
    return text;
}

static void save(int gen, const folder_how *how)
{
    rsd_error err = { .code = 0 };

    if (folder_save(path, gen, how, &err))
        fail_msg("generation %d: %s", gen, err.msg);
}

static void expect(int gen)
{
    rsd_error err = { .code = 0 };
    int       found = folder_generation(NULL, path, &err);

    if (found != gen)
        fail_msg("generation %d instead of %d: %s", found, gen, err.msg);
}

/* ---- names ---- */

static void a_fresh_folder_gets_the_names_of_torch(void **state)
{
    folder_how how = { .ranks = 2 };

    (void)state;
    save(1, &how);
    expect(1);
    assert_string_equal(list(), ".metadata .reshard-sums-__0_0 __0_0.distcp __1_0.distcp");
}

static void the_next_save_but_one_removes_the_data_files(void **state)
{
    folder_how how = { .ranks = 2 };

    (void)state;
    save(1, &how);
    save(2, &how);
    expect(2);
    assert_string_equal(list(), ".metadata .reshard-sums-__0_0 .reshard-sums-__0_1 __0_0.distcp "
                                "__0_1.distcp __1_0.distcp __1_1.distcp");
    save(3, &how);
    expect(3);
    assert_string_equal(list(), ".metadata .reshard-sums-__0_1 .reshard-sums-__0_2 __0_1.distcp "
                                "__0_2.distcp __1_1.distcp __1_2.distcp");
}

static void files_of_ranks_that_are_gone_are_removed_too(void **state)
{
    (void)state;
    save(1, &(folder_how){ .ranks = 4 });
    save(2, &(folder_how){ .ranks = 1 });
    assert_true(is_there("__3_0.distcp"));
    save(3, &(folder_how){ .ranks = 1 });
    expect(3);
    assert_string_equal(list(), ".metadata .reshard-sums-__0_1 .reshard-sums-__0_2 __0_1.distcp "
                                "__0_2.distcp");
}

static void other_files_stay(void **state)
{
    folder_how how = { .ranks = 2 };

    (void)state;
    assert_int_equal(mkdir(path, 0755), 0);
    put("meta.pt", "theirs");
    put("__0_x.distcp", "theirs");
    put("__00_1.distcp", "theirs");
    put(".reshard-sums-mine", "theirs");
    assert_int_equal(mkdir(below("__0_7.distcp"), 0755), 0);
    for (int gen = 1; gen <= 4; gen++)
        save(gen, &how);
    expect(4);
    assert_true(is_there("meta.pt") && is_there("__0_x.distcp") && is_there("__00_1.distcp") &&
                is_there(".reshard-sums-mine") && is_there("__0_7.distcp"));
}

static void without_overwriting_an_existing_one_is_refused(void **state)
{
    folder_how how = { .fresh = true };
    rsd_error  err;

    (void)state;
    save(1, &how);
    assert_int_equal(folder_save(path, 2, &how, &err), RSD_E_EXISTS);
    expect(1);
}

static void compressed_parts_and_parts_without_checksums_work(void **state)
{
    rsd_ckpt *ckpt;

    (void)state;
    save(1, &(folder_how){ .ranks = 3, .transform = "stream.zstd" });
    expect(1);
    save(2, &(folder_how){ .ranks = 3, .checksum = RSD_NEVER });
    expect(2);
    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_false(rsd_ckpt_has_checksums(ckpt));
    rsd_ckpt_close(ckpt);
}

/* ---- checksums belong to their metadata ---- */

static void a_plain_checksum_file_of_an_earlier_save_does_not_count(void **state)
{
    rsd_state *s;
    float      x[4] = { 1, 2, 3, 4 };
    rsd_view   view = { .box = { .ndim = 1, .len = { 4 } }, .data = x };
    rsd_ckpt  *ckpt;

    (void)state;
    assert_int_equal(rsd_state_create(&s, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(s, "x", NULL, RSD_F32, 1, (int64_t[]){ 4 }, 1, &view, NULL),
                     RSD_OK);
    assert_int_equal(rsd_save(path, NULL, s, NULL, NULL), RSD_OK);
    rsd_state_free(s);
    assert_true(is_there(".reshard-sums"));
    save(2, &(folder_how){ .checksum = RSD_NEVER });
    expect(2);
    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_false(rsd_ckpt_has_checksums(ckpt));
    rsd_ckpt_close(ckpt);
    save(3, &(folder_how){ 0 });
    save(4, &(folder_how){ 0 });
    expect(4);
    assert_false(is_there(".reshard-sums"));
}

static void changed_bytes_are_found_in_data_and_metadata(void **state)
{
    static const char *const files[] = { "__0_1.distcp", ".metadata" };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        rsd_error err;
        FILE     *f;
        int       c;

        save(1, &(folder_how){ 0 });
        save(2, &(folder_how){ 0 });
        f = fopen(below(files[i]), "r+");
        assert_non_null(f);
        fseek(f, -40, SEEK_END);
        c = fgetc(f);
        fseek(f, -40, SEEK_END);
        fputc(c ^ 1, f);
        fclose(f);
        assert_true(folder_generation(NULL, path, &err) <= 0);
        remove_folder(state);
        make_folder(state);
    }
}

/* ---- writers that live, writers that died ---- */

static void files_of_a_living_writer_are_never_removed(void **state)
{
    folder_how how = { 0 };
    rsd_part  *slow;
    rsd_error  err;

    (void)state;
    slow = folder_part(path, 0, 9, &how, &err);
    assert_non_null(slow);
    for (int gen = 1; gen <= 3; gen++)
        save(gen, &how);
    assert_true(is_there("__0_0.distcp"));
    assert_int_equal(folder_publish(path, 1, &slow, &how, &err), RSD_OK);
    expect(9);
    rsd_part_free(slow);
    save(4, &how);
    expect(4);
    assert_true(is_there("__0_0.distcp")); /* the previous one */
    save(5, &how);
    expect(5);
    assert_false(is_there("__0_0.distcp"));
}

static void what_a_killed_writer_left_is_removed_by_a_later_save(void **state)
{
    folder_how how = { 0 };
    int        status;
    pid_t      child;

    (void)state;
    save(1, &how);
    child = fork();
    if (child == 0) {
        folder_part(path, 0, 2, &how, NULL);
        _exit(0); /* neither published nor freed */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(is_there("__0_1.distcp"));
    expect(1);
    save(3, &how);
    expect(3);
    assert_string_equal(list(), ".metadata .reshard-sums-__0_0 .reshard-sums-__0_2 __0_0.distcp "
                                "__0_2.distcp");
}

static void a_part_that_was_removed_is_not_published(void **state)
{
    folder_how how = { 0 };
    rsd_error  err;
    rsd_part  *part;

    (void)state;
    save(1, &how);
    part = folder_part(path, 0, 2, &how, &err);
    assert_non_null(part);
    assert_int_equal(unlink(below("__0_1.distcp")), 0);
    assert_int_equal(folder_publish(path, 1, &part, &how, &err), RSD_E_NOTFOUND);
    expect(1);
    put("__0_1.distcp", "shorter");
    assert_int_equal(folder_publish(path, 1, &part, &how, &err), RSD_E_MISMATCH);
    expect(1);
    rsd_part_free(part);
}

static void a_changed_receipt_is_refused(void **state)
{
    rsd_publish_opts opts = { .size = sizeof(opts), .overwrite = true };
    folder_how       how = { 0 };
    unsigned char    copy[4096];
    rsd_receipt      receipt = { .bytes = copy };
    const void      *bytes;
    rsd_part        *part;
    size_t           len;

    (void)state;
    part = folder_part(path, 0, 1, &how, NULL);
    assert_non_null(part);
    assert_int_equal(rsd_part_receipt(part, true, &bytes, &len, NULL), RSD_OK);
    assert_true(len <= sizeof(copy));
    for (size_t i = 0; i < len; i += 7) {
        memcpy(copy, bytes, len);
        copy[i] ^= 1;
        receipt.len = len;
        assert_int_not_equal(rsd_parts_publish(path, 1, &receipt, &opts, NULL), RSD_OK);
    }
    memcpy(copy, bytes, len);
    for (size_t cut = 0; cut < len; cut += 5) {
        receipt.len = cut;
        assert_int_not_equal(rsd_parts_publish(path, 1, &receipt, &opts, NULL), RSD_OK);
    }
    assert_false(is_there(".metadata"));
    rsd_part_free(part);
}

static void boxes_that_leave_a_hole_are_refused(void **state)
{
    folder_how how = { .ranks = 2 };
    rsd_error  err;
    rsd_part  *part = folder_part(path, 0, 1, &how, &err);

    (void)state;
    assert_non_null(part);
    assert_int_not_equal(folder_publish(path, 1, &part, &how, &err), RSD_OK);
    assert_non_null(strstr(err.msg, "\"w\""));
    assert_false(is_there(".metadata"));
    rsd_part_free(part);
}

/* ---- the catalogue of large metadata ---- */

/* One tensor of so many rows, each a chunk. */
static void save_rows(rsd_store *store, int64_t rows)
{
    const rsd_part_opts    part_opts = { .size = sizeof(part_opts), .store = store };
    const rsd_publish_opts opts = {
        .size = sizeof(opts), .store = store, .overwrite = true, .sync = RSD_NEVER
    };
    const char *name = store ? "ck" : path;
    rsd_receipt receipt;
    rsd_part   *part;
    int         seven = 7;

    assert_int_equal(rsd_part_create(name, 0, &part_opts, &part, NULL), RSD_OK);
    for (int64_t i = 0; i < rows; i++) {
        rsd_view view = { .box = { .ndim = 1, .off = { i }, .len = { 1 } }, .data = &seven };

        assert_int_equal(rsd_part_tensor(part, "x", RSD_I32, 1, &rows, &view, NULL), RSD_OK);
    }
    assert_int_equal(rsd_part_write(part, NULL), RSD_OK);
    assert_int_equal(rsd_part_receipt(part, true, &receipt.bytes, &receipt.len, NULL), RSD_OK);
    assert_int_equal(rsd_parts_publish(name, 1, &receipt, &opts, NULL), RSD_OK);
    rsd_part_free(part);
}

static size_t damages(void)
{
    rsd_ckpt *ckpt;
    size_t    n;

    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_verify(ckpt, NULL, NULL, NULL, &n, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    return n;
}

static void the_catalogue_follows_the_metadata(void **state)
{
    (void)state;
    save_rows(NULL, 16000);
    assert_true(is_there(".reshard-catalogue"));
    assert_int_equal(damages(), 0);
    save_rows(NULL, 17000);
    assert_true(is_there(".reshard-catalogue"));
    assert_int_equal(damages(), 0);
    save_rows(NULL, 2);
    assert_false(is_there(".reshard-catalogue"));
    assert_int_equal(damages(), 0);
}

static void exit_before_the_second_rename(const char *call, void *arg)
{
    int *renames = arg;

    if (strcmp(call, "renameat2") == 0 && ++*renames == 2)
        _exit(7);
}

static void a_writer_killed_before_the_catalogue_has_its_name_leaves_no_damage(void **state)
{
    rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1 };
    int           status, renames = 0;
    pid_t         child;

    (void)state;
    save_rows(NULL, 16000);
    child = fork();
    if (child == 0) {
        rsd_store *store;

        assert_int_equal(rsi_file_store_open(top, &opts, &store, NULL), RSD_OK);
        faults = (sys_faults){ .watch = exit_before_the_second_rename, .arg = &renames };
        save_rows(store, 17000);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_false(is_there(".reshard-catalogue"));
    assert_int_equal(damages(), 0);
    save_rows(NULL, 17000);
    assert_true(is_there(".reshard-catalogue"));
}

/* ---- places ---- */

static void extents_say_where_the_items_lie(void **state)
{
    static const char note[] = "bytes as they are";
    rsd_chunk         chunk = { .size = sizeof(chunk) };
    rsd_view          view = { .box = { .ndim = 1, .len = { 2 } }, .data = (float[]){ 1, 2 } };
    char              text[64] = "";
    rsd_part         *part;
    FILE             *f;

    (void)state;
    assert_int_equal(rsd_part_create(path, 0, NULL, &part, NULL), RSD_OK);
    assert_int_equal(rsd_part_tensor(part, "x", RSD_F32, 1, (int64_t[]){ 2 }, &view, NULL), RSD_OK);
    assert_int_equal(rsd_part_object(part, "note", note, sizeof(note), NULL), RSD_OK);
    assert_int_equal(rsd_part_extent(part, 1, &chunk, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_part_write(part, NULL), RSD_OK);
    assert_int_equal(rsd_part_items(part), 2);
    assert_int_equal(rsd_part_extent(part, 1, &chunk, NULL), RSD_OK);
    assert_string_equal(chunk.file, "__0_0.distcp");
    assert_int_equal(chunk.length, sizeof(note));
    f = fopen(below(chunk.file), "r");
    assert_non_null(f);
    fseek(f, (long)chunk.offset, SEEK_SET);
    assert_int_equal(fread(text, 1, chunk.length, f), chunk.length);
    fclose(f);
    assert_string_equal(text, note);
    assert_int_equal(rsd_part_extent(part, 2, &chunk, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_part_write(part, NULL), RSD_E_INVALID);
    rsd_part_free(part);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_fresh_folder_gets_the_names_of_torch),
        T(the_next_save_but_one_removes_the_data_files),
        T(files_of_ranks_that_are_gone_are_removed_too),
        T(other_files_stay),
        T(without_overwriting_an_existing_one_is_refused),
        T(compressed_parts_and_parts_without_checksums_work),
        T(a_plain_checksum_file_of_an_earlier_save_does_not_count),
        T(changed_bytes_are_found_in_data_and_metadata),
        T(files_of_a_living_writer_are_never_removed),
        T(what_a_killed_writer_left_is_removed_by_a_later_save),
        T(a_part_that_was_removed_is_not_published),
        T(a_changed_receipt_is_refused),
        T(boxes_that_leave_a_hole_are_refused),
        T(the_catalogue_follows_the_metadata),
        T(a_writer_killed_before_the_catalogue_has_its_name_leaves_no_damage),
        T(extents_say_where_the_items_lie),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
