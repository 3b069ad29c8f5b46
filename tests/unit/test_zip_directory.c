/* SPDX-License-Identifier: Apache-2.0 */
/* test_zip_directory.c - what is refused at the end of an archive and in its directory, and what is
 * not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "zip_build.h"

#include <stdio.h>
#include <string.h>

static zip_built zip;

/* The usual archive with one number changed is refused. */
static void assert_patch_refused(size_t at, int width, uint64_t value, rsd_err code,
                                 const char *text)
{
    zip_patch(&zip, at, width, value);
    zip_refuse(&zip, code, text);
}

static void assert_accepted(void)
{
    rsi_arena mem = { 0 };
    rsi_zip   out;

    zip_accept(&zip, &mem, &out);
    assert_int_equal(out.n, zip.n);
    assert_non_null(rsi_zip_find(&out, "version"));
    rsi_arena_release(&mem);
}

static int build_usual(void **state)
{
    (void)state;
    zip_build(&zip, NULL, 0, NULL);
    return 0;
}

static void build_plain(void)
{
    zip_style style = { .plain_end = true };

    zip_build(&zip, NULL, 0, &style);
}

/* One record of this name, and `version`. */
static void build_name(const char *name, size_t len)
{
    zip_given given[] = { { .name = "a/version", .data = "3" },
                          { .name = name, .name_len = len, .data = "x" } };

    zip_build(&zip, given, 2, NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void a_few_bytes_are_no_archive(void **state)
{
    (void)state;
    zip.len = 21;
    zip_refuse(&zip, RSD_E_FORMAT, "21 bytes at byte 1000 are too few");
    zip.len = 0;
    zip_refuse(&zip, RSD_E_FORMAT, "0 bytes");
}

static void text_is_no_archive(void **state)
{
    (void)state;
    memset(zip.bytes, 'x', zip.len);
    zip_refuse(&zip, RSD_E_FORMAT, "not a zip archive, or it was cut short");
}

static void an_archive_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    for (zip.len--; zip.len > 0; zip.len--)
        zip_refuse(&zip, RSD_E_FORMAT, zip.len < 22 ? "too few" : "cut short");
}

static void bytes_behind_the_archive_are_refused(void **state)
{
    size_t end = zip.len;
    char   text[80];

    (void)state;
    for (int i = 1; i < 100; i++) {
        zip_insert(&zip, zip.len, "x", 1);
        snprintf(text, sizeof(text), "ends at byte %zu, but %d bytes follow it", 1000 + end, i);
        zip_refuse(&zip, RSD_E_FORMAT, text);
    }
}

static void a_comment_is_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 20, 2, 5);
    zip_insert(&zip, zip.len, "hello", 5);
    zip_refuse(&zip, RSD_E_FORMAT, "comment of 5 bytes");
}

static void bytes_before_the_archive_are_refused(void **state)
{
    (void)state;
    zip_insert(&zip, 0, "prefix", 6);
    zip_refuse(&zip, RSD_E_FORMAT, "points to byte");
    build_plain();
    zip_insert(&zip, 0, "prefix", 6);
    zip_refuse(&zip, RSD_E_FORMAT, "6 bytes too many before the end records");
}

static void two_archives_one_behind_the_other_are_refused(void **state)
{
    static zip_built second;

    (void)state;
    zip_build(&second, NULL, 0, NULL);
    zip_insert(&zip, zip.len, second.bytes, second.len);
    zip_refuse(&zip, RSD_E_FORMAT, "points to byte");
}

static void several_disks_are_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.end + 4, 2, 1, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.end + 6, 2, 1, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.end + 8, 2, 3, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.locator + 4, 4, 1, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.locator + 16, 4, 2, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.end64 + 16, 4, 1, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.end64 + 20, 4, 1, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.end64 + 24, 8, 3, RSD_E_UNSUPPORTED, "several disks");
    build_usual(NULL);
    assert_patch_refused(zip.central[2] + 34, 2, 1, RSD_E_UNSUPPORTED, "several disks");
}

static void a_locator_that_points_elsewhere_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.locator + 8, 8, zip.end64 - 1, RSD_E_FORMAT, "the zip64 locator");
    assert_patch_refused(zip.locator + 8, 8, UINT64_MAX, RSD_E_FORMAT, "the zip64 locator");
}

static void a_locator_without_a_zip64_record_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.end64, 4, 0x06064b51, RSD_E_FORMAT, "no zip64 end record at byte");
    build_usual(NULL);
    assert_patch_refused(zip.end64 + 4, 8, 45, RSD_E_FORMAT, "no zip64 end record at byte");
}

static void end_records_that_disagree_are_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 8, 2, 3);
    assert_patch_refused(zip.end + 10, 2, 3, RSD_E_FORMAT, "don't agree");
    build_usual(NULL);
    assert_patch_refused(zip.end + 12, 4, 1, RSD_E_FORMAT, "don't agree");
    build_usual(NULL);
    assert_patch_refused(zip.end + 16, 4, 1, RSD_E_FORMAT, "don't agree");
}

static void a_full_field_points_to_the_zip64_record(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 8, 4, UINT32_MAX);
    zip_patch(&zip, zip.end + 12, 8, UINT64_MAX);
    assert_accepted();
}

static void a_full_field_without_a_zip64_record_is_refused(void **state)
{
    (void)state;
    build_plain();
    assert_patch_refused(zip.end + 12, 4, UINT32_MAX, RSD_E_FORMAT, "a missing zip64 record");
    build_plain();
    assert_patch_refused(zip.end + 16, 4, UINT32_MAX, RSD_E_FORMAT, "a missing zip64 record");
    build_plain();
    assert_patch_refused(zip.end + 8, 4, UINT32_MAX, RSD_E_FORMAT, "a missing zip64 record");
}

static void an_archive_without_zip64_is_read(void **state)
{
    (void)state;
    build_plain();
    assert_accepted();
}

static void a_directory_outside_the_file_is_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 12, 4, UINT32_MAX);
    assert_patch_refused(zip.end64 + 40, 8, 100000, RSD_E_FORMAT, "claims to have 100000 bytes");
    assert_patch_refused(zip.end64 + 40, 8, UINT64_MAX, RSD_E_FORMAT, "the directory claims");
    build_plain();
    assert_patch_refused(zip.end + 16, 4, 0xfffffff0, RSD_E_FORMAT, "the directory claims");
}

static void bytes_between_directory_and_end_are_refused(void **state)
{
    zip_style style = { .before_end = 3 };

    (void)state;
    zip_build(&zip, NULL, 0, &style);
    zip_refuse(&zip, RSD_E_FORMAT, "3 bytes too many before the end records");
}

static void a_second_end_record_is_refused(void **state)
{
    char      fake[4 + 22] = "XX\x16\0PK\5\6";
    zip_style style = { .extra = fake, .extra_len = sizeof(fake) };

    (void)state;
    fake[4 + 20] = 56 + 20 + 22; /* a comment up to the end of the file */
    zip_build(&zip, NULL, 0, &style);
    zip_refuse(&zip, RSD_E_FORMAT, "a second end record at byte");
    fake[4 + 20] = 1;
    zip_build(&zip, NULL, 0, &style);
    assert_accepted(); /* bytes that only begin like one */
}

/* ---- counts and entries ---------------------------------------------------------------------- */

static void more_records_than_the_directory_can_hold_are_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 8, 4, UINT32_MAX);
    zip_patch(&zip, zip.end64 + 24, 8, (uint64_t)1 << 40);
    assert_patch_refused(zip.end64 + 32, 8, (uint64_t)1 << 40, RSD_E_FORMAT,
                         "claims 1099511627776 records");
}

static void a_count_that_is_too_small_is_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 8, 4, 3 | 3 << 16);
    zip_patch(&zip, zip.end64 + 24, 8, 3);
    assert_patch_refused(zip.end64 + 32, 8, 3, RSD_E_FORMAT, "3 entries end at byte");
}

static void a_count_that_is_too_large_is_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.end + 8, 4, 5 | 5 << 16);
    zip_patch(&zip, zip.end64 + 24, 8, 5);
    assert_patch_refused(zip.end64 + 32, 8, 5, RSD_E_FORMAT, "no directory entry at byte");
}

static void an_archive_of_nothing_is_refused(void **state)
{
    (void)state;
    zip_build(&zip, zip_usual, 0, NULL);
    zip_refuse(&zip, RSD_E_FORMAT, "no record \"version\"");
}

static void a_broken_entry_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[1], 1, 'p', RSD_E_FORMAT, "no directory entry at byte");
}

static void an_entry_that_leaves_the_directory_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[3] + 28, 2, 60000, RSD_E_FORMAT, "leaves the directory");
    build_usual(NULL);
    assert_patch_refused(zip.central[3] + 30, 2, 1, RSD_E_FORMAT, "leaves the directory");
}

static void encrypted_records_are_refused(void **state)
{
    const uint64_t flags[] = { 0x809, 0x848, 0x2808 };

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_patch_refused(zip.central[2] + 8, 2, flags[i], RSD_E_UNSUPPORTED, "encrypted");
}

static void compressed_records_are_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 10, 2, 8, RSD_E_UNSUPPORTED,
                         "record \"archive/data/0\": compressed (method 8");
    assert_patch_refused(zip.central[2] + 10, 2, 93, RSD_E_UNSUPPORTED, "compressed (method 93");
}

static void unknown_flags_are_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 8, 2, 0x828, RSD_E_UNSUPPORTED, "unknown flags 0x828");
}

static void an_entry_with_a_comment_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 32, 2, 4, RSD_E_UNSUPPORTED, "a comment of 4");
}

static void packed_and_true_size_must_be_equal(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 20, 4, 11, RSD_E_FORMAT, "sizes don't agree at byte");
}

static void a_full_size_without_a_zip64_field_is_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.central[2] + 20, 4, UINT32_MAX);
    assert_patch_refused(zip.central[2] + 24, 4, UINT32_MAX, RSD_E_FORMAT, "sizes don't agree");
}

static void a_zip64_field_that_nothing_points_to_is_refused(void **state)
{
    zip_style style = { .wide = true };

    (void)state;
    zip_build(&zip, NULL, 0, &style);
    assert_accepted();
    assert_patch_refused(zip.central[2] + 42, 4, (uint64_t)zip.local[2], RSD_E_FORMAT,
                         "sizes don't agree");
}

static void broken_extra_fields_are_refused(void **state)
{
    const zip_style style[] = {
        { .extra = "XX\x05\0abcd", .extra_len = 8 },     /* longer than there is */
        { .extra = "XX\0", .extra_len = 3 },             /* half a head */
        { .extra = "\1\0\0\0\1\0\0\0", .extra_len = 8 }, /* two zip64 fields */
        { .extra = "\1\0\x1d\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaa", .extra_len = 33 }, /* too long */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(style) / sizeof(style[0]); i++) {
        zip_build(&zip, NULL, 0, &style[i]);
        zip_refuse(&zip, RSD_E_FORMAT, "broken extra field at byte");
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static void names_that_are_not_utf8_are_refused(void **state)
{
    const char *bad[] = { "a/\xff",
                          "a/\x80",
                          "a/\xc0\xaf",
                          "a/\xe0\x80\xaf",
                          "a/\xed\xa0\x80",
                          "a/\xf4\x90\x80\x80",
                          "a/\xf8\x88\x80\x80\x80",
                          "a/\xe4\xbd",
                          "a/\xc3(" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        build_name(bad[i], 0);
        zip_refuse(&zip, RSD_E_FORMAT, "is not UTF-8");
    }
}

static void names_in_utf8_are_accepted(void **state)
{
    const char *good[] = { "a/\xc3\xa4", "a/\xe4\xbd\xa0", "a/\xf0\x9f\x98\x80", "a/..b",
                           "a/b..",      "a/...",          "a/.data/x",          "a/ \t" };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        build_name(good[i], 0);
        assert_accepted();
    }
}

static void a_name_with_a_nul_is_refused(void **state)
{
    (void)state;
    build_name("a/b\0c", 5);
    zip_refuse(&zip, RSD_E_FORMAT, "holds a NUL");
}

static void a_name_with_a_backslash_is_refused(void **state)
{
    (void)state;
    build_name("a/b\\c", 0);
    zip_refuse(&zip, RSD_E_FORMAT, "contains a backslash");
}

static void an_absolute_name_is_refused(void **state)
{
    (void)state;
    build_name("/a/b", 0);
    zip_refuse(&zip, RSD_E_FORMAT, "is absolute");
}

static void a_name_that_leads_out_of_its_folder_is_refused(void **state)
{
    const char *bad[] = { "a/../b", "../a", "a/..", "a/b/../../c" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        build_name(bad[i], 0);
        zip_refuse(&zip, RSD_E_FORMAT, "leads out of its folder");
    }
}

static void a_name_with_an_empty_part_is_refused(void **state)
{
    (void)state;
    build_name("a//b", 0);
    zip_refuse(&zip, RSD_E_FORMAT, "has an empty part");
    build_name("a/b/", 0);
    zip_refuse(&zip, RSD_E_FORMAT, "has an empty part");
}

static void a_name_outside_the_folder_is_refused(void **state)
{
    const char *bad[] = { "b/c", "c", "ab/c", "A/c" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        build_name(bad[i], 0);
        zip_refuse(&zip, RSD_E_FORMAT, "not in the archive's one folder \"a/\"");
    }
}

static void an_archive_without_a_folder_is_refused(void **state)
{
    zip_given given[] = { { .name = "version", .data = "3" } };

    (void)state;
    zip_build(&zip, given, 1, NULL);
    zip_refuse(&zip, RSD_E_FORMAT, "not in the archive's one folder");
}

static void a_name_that_is_too_long_is_refused(void **state)
{
    char name[1030];

    (void)state;
    memset(name, 'a', sizeof(name));
    name[1] = '/';
    build_name(name, 1024);
    assert_accepted();
    build_name(name, 1025);
    zip_refuse(&zip, RSD_E_UNSUPPORTED, "a name of 1025 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_few_bytes_are_no_archive, build_usual),
        cmocka_unit_test_setup(text_is_no_archive, build_usual),
        cmocka_unit_test_setup(an_archive_cut_short_anywhere_is_refused, build_usual),
        cmocka_unit_test_setup(bytes_behind_the_archive_are_refused, build_usual),
        cmocka_unit_test_setup(a_comment_is_refused, build_usual),
        cmocka_unit_test_setup(bytes_before_the_archive_are_refused, build_usual),
        cmocka_unit_test_setup(two_archives_one_behind_the_other_are_refused, build_usual),
        cmocka_unit_test_setup(several_disks_are_refused, build_usual),
        cmocka_unit_test_setup(a_locator_that_points_elsewhere_is_refused, build_usual),
        cmocka_unit_test_setup(a_locator_without_a_zip64_record_is_refused, build_usual),
        cmocka_unit_test_setup(end_records_that_disagree_are_refused, build_usual),
        cmocka_unit_test_setup(a_full_field_points_to_the_zip64_record, build_usual),
        cmocka_unit_test_setup(a_full_field_without_a_zip64_record_is_refused, build_usual),
        cmocka_unit_test_setup(an_archive_without_zip64_is_read, build_usual),
        cmocka_unit_test_setup(a_directory_outside_the_file_is_refused, build_usual),
        cmocka_unit_test_setup(bytes_between_directory_and_end_are_refused, build_usual),
        cmocka_unit_test_setup(a_second_end_record_is_refused, build_usual),
        cmocka_unit_test_setup(more_records_than_the_directory_can_hold_are_refused, build_usual),
        cmocka_unit_test_setup(a_count_that_is_too_small_is_refused, build_usual),
        cmocka_unit_test_setup(a_count_that_is_too_large_is_refused, build_usual),
        cmocka_unit_test_setup(an_archive_of_nothing_is_refused, build_usual),
        cmocka_unit_test_setup(a_broken_entry_is_refused, build_usual),
        cmocka_unit_test_setup(an_entry_that_leaves_the_directory_is_refused, build_usual),
        cmocka_unit_test_setup(encrypted_records_are_refused, build_usual),
        cmocka_unit_test_setup(compressed_records_are_refused, build_usual),
        cmocka_unit_test_setup(unknown_flags_are_refused, build_usual),
        cmocka_unit_test_setup(an_entry_with_a_comment_is_refused, build_usual),
        cmocka_unit_test_setup(packed_and_true_size_must_be_equal, build_usual),
        cmocka_unit_test_setup(a_full_size_without_a_zip64_field_is_refused, build_usual),
        cmocka_unit_test_setup(a_zip64_field_that_nothing_points_to_is_refused, build_usual),
        cmocka_unit_test_setup(broken_extra_fields_are_refused, build_usual),
        cmocka_unit_test_setup(names_that_are_not_utf8_are_refused, build_usual),
        cmocka_unit_test_setup(names_in_utf8_are_accepted, build_usual),
        cmocka_unit_test_setup(a_name_with_a_nul_is_refused, build_usual),
        cmocka_unit_test_setup(a_name_with_a_backslash_is_refused, build_usual),
        cmocka_unit_test_setup(an_absolute_name_is_refused, build_usual),
        cmocka_unit_test_setup(a_name_that_leads_out_of_its_folder_is_refused, build_usual),
        cmocka_unit_test_setup(a_name_with_an_empty_part_is_refused, build_usual),
        cmocka_unit_test_setup(a_name_outside_the_folder_is_refused, build_usual),
        cmocka_unit_test_setup(an_archive_without_a_folder_is_refused, build_usual),
        cmocka_unit_test_setup(a_name_that_is_too_long_is_refused, build_usual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
