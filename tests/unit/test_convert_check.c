/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of damaged sources: found by the checksum file or by CRC32s, whatever the target is,
 * by one process, by ranks and by a run that goes on; nothing is published or kept. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A source, the file of it that is damaged, and whether its checksum file is taken away first. */
typedef struct source {
    const char *path, *file;
    rsd_format  format;
    bool        no_sums;
} source;

static const source sources[] = {
    { "dcp", "dcp/__1_0.distcp", RSD_FORMAT_DCP, false },
    { "bare", "bare/__1_0.distcp", RSD_FORMAT_DCP, true },
    { "one.safetensors", "one.safetensors", RSD_FORMAT_SAFETENSORS, false },
    { "one.pt", "one.pt", RSD_FORMAT_TORCH, false },
    { "bare.pt", "bare.pt", RSD_FORMAT_TORCH, true },
};
enum { BIG_BYTES = 1500 * 2000 * 4, ALL_BYTES = BIG_BYTES + 768 * 1031 * 2 }; /* of tensors */
enum { SOURCES = sizeof(sources) / sizeof(sources[0]) };

static const char *const targets[] = { "to", "to.safetensors", "to.pt" };

static rsd_store *store_with(const source *s)
{
    rsd_store *store = fix_store();
    size_t     len;
    char       sums[64];

    conv_source(store, s->path, s->format,
                s->format == RSD_FORMAT_DCP ? "mesh tp=2; m.small* replicate; * shard(0)@tp" : NULL,
                false, NULL);
    snprintf(sums, sizeof(sums),
             s->format == RSD_FORMAT_DCP ? "%s/.reshard-sums" : "%s.reshard-sums", s->path);
    if (s->no_sums)
        assert_int_equal(fix_remove(store, sums), RSD_OK);
    free(fix_get(store, s->file, &len));
    fix_flip(store, s->file, len / 2); /* in "m.big" */
    return store;
}

/* By columns, so that no record is pulled in one piece. */
static rsd_err convert(rsd_store *store, const char *from, const char *to, rsd_convert_opts opts,
                       rsd_error *err)
{
    rsd_rules *rules = NULL;
    rsd_err    rc;

    assert_int_equal(rsd_rules_parse("mesh tp=3; m.small* replicate; * shard(-1)@tp", &rules, err),
                     RSD_OK);
    opts.rules = strcmp(to, "to") == 0 ? rules : NULL;
    rc = conv_run(store, from, to, opts, err);
    rsd_rules_free(rules);
    return rc;
}

static void damage_is_found_in_every_source_for_every_target(void **state)
{
    (void)state;
    for (size_t i = 0; i < SOURCES; i++)
        for (size_t k = 0; k < 3; k++) {
            rsd_store *store = store_with(&sources[i]);
            char       before[256];
            rsd_error  err = { 0 };

            snprintf(before, sizeof(before), "%s", fix_list(store, ""));
            if (convert(store, sources[i].path, targets[k], (rsd_convert_opts){ 0 }, &err) !=
                RSD_E_CORRUPT)
                fail_msg("%s to %s: %s", sources[i].path, targets[k], err.msg);
            assert_non_null(strstr(err.msg, "tensor \"m.big\""));
            assert_string_equal(fix_list(store, ""), before);
            rsd_store_close(store);
        }
}

static void never_means_that_it_is_not_looked_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        rsd_store *store = store_with(&sources[i]);
        rsd_error  err = { 0 };

        if (convert(store, sources[i].path, "to", (rsd_convert_opts){ .verify = RSD_NEVER }, &err))
            fail_msg("%s", err.msg);
        rsd_store_close(store);
    }
}

static void what_is_not_taken_is_not_checked(void **state)
{
    static const char *const only[] = { "m.cols" };

    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        rsd_store *store = store_with(&sources[i]);
        rsd_error  err = { 0 };

        if (convert(store, sources[i].path, "to",
                    (rsd_convert_opts){ .include = only, .ninclude = 1 }, &err))
            fail_msg("%s", err.msg);
        rsd_store_close(store);
    }
}

/* Row shards into one file: rows of checksums are read in order, and hashed as they are read. */
static void what_is_read_in_order_is_read_once(void **state)
{
    static const char *const one_file[] = { "to.safetensors", "to.pt" };

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        rsd_store *store = store_with(&sources[0]), *out = fix_store(), *from;
        fix_counts counts = { 0 };
        size_t     len;

        free(fix_get(store, sources[0].file, &len));
        fix_flip(store, sources[0].file, len / 2); /* it is whole again */
        from = fix_counting_store(store, &counts);
        assert_int_equal(
            conv_run(from, sources[0].path, one_file[k], (rsd_convert_opts){ .store = out }, NULL),
            RSD_OK);
        assert_true(counts.bytes < ALL_BYTES + ALL_BYTES / 4);
        conv_same(store, sources[0].path, out, one_file[k]);
        rsd_store_close(from);
        rsd_store_close(out);
        rsd_store_close(store);
    }
}

/* The same without a checksum file: pieces of records come in any order, from several threads. */
static void records_that_are_read_in_pieces_are_read_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        rsd_store *store = store_with(&sources[i]), *out = fix_store(), *from;
        fix_counts counts = { 0 };
        size_t     len;

        free(fix_get(store, sources[i].file, &len));
        fix_flip(store, sources[i].file, len / 2); /* it is whole again */
        from = fix_counting_store(store, &counts);
        assert_int_equal(conv_run(from, sources[i].path, "to.safetensors",
                                  (rsd_convert_opts){ .store = out, .threads = 3 }, NULL),
                         RSD_OK);
        if (sources[i].no_sums)
            assert_true(counts.bytes < ALL_BYTES + ALL_BYTES / 20);
        conv_same(store, sources[i].path, out, "to.safetensors");
        rsd_store_close(from);
        rsd_store_close(out);
        rsd_store_close(store);
    }
}

/* Each byte of a row of checksums, whoever hashes it, and wherever the target's blocks end. */
static void damage_anywhere_in_a_row_is_found(void **state)
{
    const uint64_t at[] = { 2000, 65536, 4194303, 4194304, 4194305, 5000000 };

    (void)state;
    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        for (size_t k = 1; k < 3; k++) {
            rsd_store *store = store_with(&sources[0]);
            rsd_error  err = { 0 };
            size_t     len;

            free(fix_get(store, sources[0].file, &len));
            fix_flip(store, sources[0].file, len / 2);
            fix_flip(store, sources[0].file, at[i]);
            assert_int_equal(
                conv_run(store, sources[0].path, targets[k], (rsd_convert_opts){ 0 }, &err),
                RSD_E_CORRUPT);
            assert_non_null(strstr(err.msg, "__1_0.distcp"));
            rsd_store_close(store);
        }
}

static void every_byte_is_read_once_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        rsd_store *store = store_with(&sources[i]), *out = fix_store(), *from;
        fix_counts checked = { 0 }, never = { 0 };
        size_t     len;

        free(fix_get(store, sources[i].file, &len));
        fix_flip(store, sources[i].file, len / 2); /* it is whole again */
        from = fix_counting_store(store, &never);
        assert_int_equal(
            convert(from, sources[i].path, "to",
                    (rsd_convert_opts){ .store = out, .threads = 1, .verify = RSD_NEVER }, NULL),
            RSD_OK);
        rsd_store_close(from);
        from = fix_counting_store(store, &checked);
        assert_int_equal(
            convert(from, sources[i].path, "to",
                    (rsd_convert_opts){ .store = out, .threads = 1, .overwrite = true }, NULL),
            RSD_OK);
        assert_true(checked.bytes >= never.bytes + BIG_BYTES);
        assert_true(checked.bytes <= never.bytes + ALL_BYTES + ALL_BYTES / 20);
        rsd_store_close(from);
        rsd_store_close(out);
        rsd_store_close(store);
    }
}

/* ---- ranks ---- */

typedef struct shared {
    rsd_store  *store;
    const char *from;
} shared;

static rsd_err as_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    shared          *s = arg;
    rsd_convert_opts opts = { .size = sizeof(opts), .store = s->store, .threads = 1 };
    rsd_ckpt        *ckpt;
    rsd_err          rc = rsd_ckpt_open(s->store, s->from, &ckpt, err);

    if (rc)
        return rc;
    rc = rsd_convert(ckpt, "to", comm, &opts, err);
    rsd_ckpt_close(ckpt);
    if (rc != RSD_E_CORRUPT)
        return rc ? rc : fix_fails(err, __FILE__, __LINE__, "nobody found it");
    return strstr(err->msg, "m.big") ? RSD_OK
                                     : fix_fails(err, __FILE__, __LINE__, "the name is not told");
}

static void ranks_find_it_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < SOURCES; i++) {
        shared    s = { store_with(&sources[i]), sources[i].path };
        rsd_error err = { 0 };

        if (rsd_comm_run_threads(3, as_rank, &s, &err))
            fail_msg("%s: %s", s.from, err.msg);
        rsd_store_close(s.store);
    }
}

/* ---- going on ---- */

static int cancel_at_once(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)done, (void)total;
    return 1;
}

static void turn_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    int   byte;

    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0xff, f), byte ^ 0xff);
    assert_int_equal(fclose(f), 0);
}

/* Folders of runs that ended early. */
static int count_partial(const char *folder)
{
    DIR                 *dir = opendir(folder);
    const struct dirent *entry;
    int                  n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += strstr(entry->d_name, ".partial-") != NULL;
    closedir(dir);
    return n;
}

/* The damaged bytes are among those that the first run took without looking. */
static void a_run_that_goes_on_checks_what_was_taken_before(void **state)
{
    char      folder[64], from[96], to[96];
    rsd_error err = { 0 };

    (void)state;
    conv_folder(folder, sizeof(folder));
    snprintf(from, sizeof(from), "%s/src.safetensors", folder);
    snprintf(to, sizeof(to), "%s/to.safetensors", folder);
    conv_source(NULL, from, RSD_FORMAT_SAFETENSORS, NULL, false, NULL);
    turn_byte(from, 2000);
    assert_int_equal(conv_run(NULL, from, to,
                              (rsd_convert_opts){ .keep = true,
                                                  .threads = 1,
                                                  .sync = RSD_NEVER,
                                                  .verify = RSD_NEVER,
                                                  .on_progress = cancel_at_once },
                              &err),
                     RSD_E_CANCELED);
    assert_int_equal(count_partial(folder), 1);
    assert_int_equal(
        conv_run(NULL, from, to, (rsd_convert_opts){ .resume = true, .sync = RSD_NEVER }, &err),
        RSD_E_CORRUPT);
    assert_int_equal(access(to, F_OK), -1);
    assert_int_equal(count_partial(folder), 0);
    turn_byte(from, 2000);
    assert_int_equal(
        conv_run(NULL, from, to, (rsd_convert_opts){ .resume = true, .sync = RSD_NEVER }, &err),
        RSD_OK);
    conv_same(NULL, from, NULL, to);
    conv_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_found_in_every_source_for_every_target),
        cmocka_unit_test(never_means_that_it_is_not_looked_for),
        cmocka_unit_test(what_is_not_taken_is_not_checked),
        cmocka_unit_test(what_is_read_in_order_is_read_once),
        cmocka_unit_test(records_that_are_read_in_pieces_are_read_once),
        cmocka_unit_test(damage_anywhere_in_a_row_is_found),
        cmocka_unit_test(every_byte_is_read_once_more),
        cmocka_unit_test(ranks_find_it_together),
        cmocka_unit_test(a_run_that_goes_on_checks_what_was_taken_before),
    };

    return fix_has_sums() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
