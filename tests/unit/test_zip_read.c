/* SPDX-License-Identifier: Apache-2.0 */
/* test_zip_read.c - where records lie, how few reads it takes to know, and what their headers may
 * not say. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "format/zip_write.h"
#include "zip_build.h"

#include <stdlib.h>
#include <string.h>

static zip_built zip;

static int build_usual(void **state)
{
    (void)state;
    zip_build(&zip, NULL, 0, NULL);
    return 0;
}

static void build_styled(zip_style style)
{
    zip_build(&zip, NULL, 0, &style);
}

static void assert_patch_refused(size_t at, int width, uint64_t value, rsd_err code,
                                 const char *text)
{
    zip_patch(&zip, at, width, value);
    zip_refuse(&zip, code, text);
}

/* The archive is read, and everything is where it was put. */
static void assert_found(void)
{
    rsi_arena mem = { 0 };
    rsi_zip   out;

    zip_accept(&zip, &mem, &out);
    assert_string_equal(out.folder, "archive");
    assert_int_equal(out.n, Z_COUNT);
    for (size_t i = 0; i < Z_COUNT; i++) {
        const rsi_zip_record *record = rsi_zip_find(&out, zip_usual[i].name + strlen("archive/"));
        size_t                len = strlen(zip_usual[i].data);

        assert_non_null(record);
        assert_int_equal(record->data, zip.data[i]);
        assert_int_equal(record->size, len);
        assert_int_equal(record->crc32, rsi_crc32(0, zip_usual[i].data, len));
        assert_int_equal(record->method, 0);
    }
    rsi_arena_release(&mem);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static void records_are_where_they_were_put(void **state)
{
    (void)state;
    assert_found();
}

static void all_descriptors_and_none_are_understood(void **state)
{
    const size_t len[] = { 12, 16, 20, 24 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        build_styled((zip_style){ .descriptor = len[i] });
        assert_found();
    }
    build_styled((zip_style){ .sizes_in_front = true });
    assert_found();
}

static void zip64_fields_are_understood(void **state)
{
    (void)state;
    build_styled((zip_style){ .wide = true, .descriptor = 24 });
    assert_found();
    build_styled((zip_style){ .wide = true, .sizes_in_front = true });
    assert_found();
}

static void records_are_listed_by_place_whatever_the_directory(void **state)
{
    unsigned char first[128];
    size_t        len = zip.central[1] - zip.central[0], both = zip.central[2] - zip.central[0];
    rsi_arena     mem = { 0 };
    rsi_zip       out;

    (void)state;
    memcpy(first, zip.bytes + zip.dir, len);
    memmove(zip.bytes + zip.dir, zip.bytes + zip.dir + len, both - len);
    memcpy(zip.bytes + zip.dir + both - len, first, len);
    zip_accept(&zip, &mem, &out);
    assert_string_equal(out.record[0].name, "data.pkl");
    assert_string_equal(out.record[3].name, "version");
    rsi_arena_release(&mem);
}

static void a_name_that_is_not_there_is_not_found(void **state)
{
    rsi_arena mem = { 0 };
    rsi_zip   out;

    (void)state;
    zip_accept(&zip, &mem, &out);
    assert_null(rsi_zip_find(&out, "data/1"));
    assert_null(rsi_zip_find(&out, "data"));
    assert_null(rsi_zip_find(&out, "archive/data/0"));
    assert_null(rsi_zip_find(&out, ""));
    rsi_arena_release(&mem);
}

/* ---- headers --------------------------------------------------------------------------------- */

static void a_record_without_a_header_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.local[2], 1, 'p', RSD_E_FORMAT,
                         "record \"archive/data/0\": no header at byte ");
}

static void a_header_with_another_name_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.local[2] + 30 + 13, 1, '1', RSD_E_FORMAT, "has a different name");
    build_usual(NULL);
    assert_patch_refused(zip.local[2] + 26, 2, 13, RSD_E_FORMAT, "has a different name");
}

static void a_header_with_another_method_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.local[2] + 8, 2, 8, RSD_E_UNSUPPORTED, "compressed (method 8");
}

static void a_header_with_other_flags_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.local[2] + 6, 2, 0x008, RSD_E_FORMAT, "flags 0x8 in the header");
    assert_patch_refused(zip.local[2] + 6, 2, 0x809, RSD_E_UNSUPPORTED, "encrypted");
}

static void a_header_with_another_size_or_crc_is_refused(void **state)
{
    (void)state;
    for (size_t field = 14; field <= 22; field += 4) {
        build_styled((zip_style){ .sizes_in_front = true });
        assert_patch_refused(zip.local[2] + field, 4, 11, RSD_E_FORMAT, "don't agree on its size");
        build_styled((zip_style){ .sizes_in_front = true });
        assert_patch_refused(zip.local[2] + field, 4, 0, RSD_E_FORMAT, "don't agree on its size");
        build_usual(NULL);
        assert_patch_refused(zip.local[2] + field, 4, 11, RSD_E_FORMAT, "don't agree on its size");
    }
}

static void a_header_with_another_zip64_size_is_refused(void **state)
{
    size_t field = 30 + 14 + 4; /* behind the name */

    (void)state;
    build_styled((zip_style){ .wide = true, .descriptor = 24 });
    assert_patch_refused(zip.local[2] + field, 8, 11, RSD_E_FORMAT, "don't agree on its size");
    build_styled((zip_style){ .wide = true, .sizes_in_front = true });
    assert_patch_refused(zip.local[2] + field + 8, 8, 11, RSD_E_FORMAT, "don't agree on its size");
}

static void a_broken_extra_field_in_a_header_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.data[2] - 5, 2, 4, RSD_E_FORMAT, "broken extra field at byte");
}

static void a_wrong_descriptor_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.behind[2], 1, 'p', RSD_E_FORMAT, "no descriptor at byte");
    for (size_t field = 4; field <= 12; field += 4) {
        build_usual(NULL);
        assert_patch_refused(zip.behind[2] + field, 4, 11, RSD_E_FORMAT, "the descriptor at byte");
        build_styled((zip_style){ .descriptor = 24 });
        assert_patch_refused(zip.behind[2] + field + (field > 8 ? 4 : 0), 4, 11, RSD_E_FORMAT,
                             "the descriptor at byte");
        build_styled((zip_style){ .descriptor = 12 });
        assert_patch_refused(zip.behind[2] + field - 4, 4, 11, RSD_E_FORMAT,
                             "the descriptor at byte");
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

static void bytes_before_the_first_record_are_refused(void **state)
{
    (void)state;
    build_styled((zip_style){ .prefix = 9 });
    zip_refuse(&zip, RSD_E_FORMAT, "9 bytes lie before the first record");
}

static void bytes_between_records_are_refused(void **state)
{
    (void)state;
    build_styled((zip_style){ .gap = 5 });
    zip_refuse(&zip, RSD_E_FORMAT, "after its data are not a descriptor");
    build_styled((zip_style){ .gap = 5, .sizes_in_front = true });
    zip_refuse(&zip, RSD_E_FORMAT, "5 bytes at byte 1061 after its data belong to nothing");
}

static void records_at_the_same_place_are_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 42, 4, zip.local[1], RSD_E_FORMAT,
                         "overlaps what begins");
}

static void data_that_reach_into_the_next_record_are_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.central[1] + 20, 4, 100);
    assert_patch_refused(zip.central[1] + 24, 4, 100, RSD_E_FORMAT,
                         "record \"archive/byteorder\": its 100 bytes from byte ");
}

static void data_that_reach_into_the_directory_are_refused(void **state)
{
    (void)state;
    zip_patch(&zip, zip.central[3] + 20, 4, 19);
    assert_patch_refused(zip.central[3] + 24, 4, 19, RSD_E_FORMAT, "its 19 bytes from byte ");
}

static void a_size_near_2_to_the_64_is_refused(void **state)
{
    (void)state;
    build_styled((zip_style){ .wide = true, .descriptor = 24 });
    zip_patch(&zip, zip.central[3] + 46 + 15 + 4, 8, UINT64_MAX);
    assert_patch_refused(zip.central[3] + 46 + 15 + 12, 8, UINT64_MAX, RSD_E_FORMAT,
                         "its 18446744073709551615 bytes");
}

static void a_record_that_begins_behind_the_directory_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[3] + 42, 4, zip.end, RSD_E_FORMAT, "claims to begin at byte");
    assert_patch_refused(zip.central[3] + 42, 4, 0xfffffff0, RSD_E_FORMAT,
                         "claims to begin at byte");
}

static void a_header_that_reaches_into_the_next_record_is_refused(void **state)
{
    (void)state;
    assert_patch_refused(zip.central[2] + 42, 4, zip.local[1] + 10, RSD_E_FORMAT,
                         "overlaps what begins at byte");
}

static void two_records_of_one_name_are_refused(void **state)
{
    zip_given given[] = { { .name = "a/version", .data = "3" },
                          { .name = "a/data/0", .data = "zeros" },
                          { .name = "a/data/1", .data = "more" },
                          { .name = "a/data/0", .data = "ones" } };

    (void)state;
    zip_build(&zip, given, 4, NULL);
    zip_refuse(&zip, RSD_E_FORMAT, "two records \"data/0\"");
}

/* ---- torch's records ------------------------------------------------------------------------- */

static void build_words(const char *version_name, const char *version, const char *byteorder)
{
    zip_given given[] = { { .name = version_name, .data = version },
                          { .name = "a/byteorder", .data = byteorder } };

    zip_build(&zip, given, byteorder ? 2 : 1, NULL);
}

static void an_archive_without_a_version_is_refused(void **state)
{
    (void)state;
    build_words("a/versio", "3", NULL);
    zip_refuse(&zip, RSD_E_FORMAT, "no record \"version\"");
}

static void versions_1_to_10_are_read(void **state)
{
    const char *text[] = { "1", "2\n", "3", "4", "5", "6", "7", "8", "9", "10\n" };

    (void)state;
    for (int i = 0; i < 10; i++) {
        rsi_arena mem = { 0 };
        rsi_zip   out;

        build_words(i % 2 ? "a/version" : "a/.data/version", text[i], NULL);
        zip_accept(&zip, &mem, &out);
        assert_int_equal(out.version, i + 1);
        rsi_arena_release(&mem);
    }
}

static void other_versions_are_refused(void **state)
{
    const char *text[] = { "0", "11", "", "three", "3 ", " 3", "03", "-1", "1\n\n" };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
        build_words("a/version", text[i], NULL);
        zip_refuse(&zip, RSD_E_UNSUPPORTED, "not 1 to 10");
    }
    build_words("a/version", "1234567890123456", NULL);
    zip_refuse(&zip, RSD_E_FORMAT, "a word is expected");
}

static void byteorder_is_little_big_or_missing(void **state)
{
    const char *text[] = { "little", "big", NULL };

    (void)state;
    for (int i = 0; i < 3; i++) {
        rsi_arena mem = { 0 };
        rsi_zip   out;

        build_words("a/version", "3", text[i]);
        zip_accept(&zip, &mem, &out);
        assert_int_equal(out.big_endian, i == 1);
        rsi_arena_release(&mem);
    }
}

static void another_byteorder_is_refused(void **state)
{
    (void)state;
    build_words("a/version", "3", "middle");
    zip_refuse(&zip, RSD_E_FORMAT, "says \"middle\", not little or big");
}

static void a_small_record_with_a_wrong_crc_is_corrupt(void **state)
{
    const int small[] = { Z_PICKLE, Z_BYTEORDER, Z_VERSION };

    (void)state;
    for (int i = 0; i < 3; i++) {
        build_usual(NULL);
        zip.bytes[zip.data[small[i]]] ^= 1;
        zip_refuse(&zip, RSD_E_CORRUPT, "has the CRC");
    }
}

/* torch.serialization.set_crc32_options(False) */
static void crcs_of_0_are_taken_for_none(void **state)
{
    rsi_arena mem = { 0 };
    rsi_zip   out;

    (void)state;
    for (size_t i = 0; i < Z_COUNT; i++) {
        zip_patch(&zip, zip.behind[i] + 4, 4, 0);
        zip_patch(&zip, zip.central[i] + 16, 4, 0);
    }
    zip_accept(&zip, &mem, &out);
    rsi_arena_release(&mem);
}

/* ---- effort ---------------------------------------------------------------------------------- */

/* A file in memory that counts, and fails at the nth read. */
typedef struct counted {
    const unsigned char *bytes;
    int                  reads, fail_at;
    size_t               got;
} counted;

static rsd_err counted_read(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    counted *c = arg;

    if (++c->reads == c->fail_at)
        return rsi_fail(err, RSD_E_IO, "the disk is gone");
    c->got += len;
    memcpy(buf, c->bytes + off, len);
    return RSD_OK;
}

/* A torch archive of n storages of `size` bytes each; for free(). */
static unsigned char *torch_archive(size_t n, uint64_t size, size_t pickle_len, size_t *len)
{
    unsigned char *pickle = calloc(pickle_len, 1), *bytes;
    uint64_t      *sizes = calloc(n, sizeof(sizes[0]));
    uint32_t      *crc = calloc(n, sizeof(crc[0]));
    rsi_arena      mem = { 0 };
    rsi_zip_spec   spec = { .pickle = pickle, .pickle_len = pickle_len, .n = n, .size = sizes };
    rsi_zip_plan   plan;

    for (size_t i = 0; i < n; i++)
        sizes[i] = size;
    assert_int_equal(rsi_zip_plan_make(&spec, &mem, &plan, NULL), RSD_OK);
    bytes = calloc((size_t)plan.size, 1);
    for (size_t i = 0; i <= n; i++) {
        rsi_zip_gap_write(&plan, i, crc, 0, (size_t)rsi_zip_gap_size(&plan, i),
                          bytes + rsi_zip_gap_at(&plan, i));
        if (i < n)
            crc[i] = rsi_crc32(0, bytes + rsi_zip_data_at(&plan, i), (size_t)size);
    }
    *len = (size_t)plan.size;
    rsi_arena_release(&mem);
    free(pickle);
    free(sizes);
    free(crc);
    return bytes;
}

/* Reads an archive of n storages and returns how many reads it took. */
static int reads_of(size_t n, uint64_t size, size_t *got)
{
    size_t         len;
    unsigned char *bytes = torch_archive(n, size, 150, &len);
    counted        c = { .bytes = bytes };
    rsi_source     source = { .read = counted_read, .arg = &c, .size = len, .name = "f" };
    rsi_arena      mem = { 0 };
    rsi_zip        out;

    assert_int_equal(rsi_zip_read(&source, &mem, &out, NULL), RSD_OK);
    assert_int_equal(out.n, n + 6);
    if (n == 1) {
        assert_int_equal(out.pickle_len, 150);
        assert_memory_equal(out.pickle, bytes + 64, 150);
        assert_int_equal(rsi_zip_find(&out, "data/0")->size, size);
    }
    rsi_arena_release(&mem);
    free(bytes);
    *got = c.got;
    return c.reads;
}

static void a_small_item_takes_one_read(void **state)
{
    size_t got;

    (void)state;
    assert_int_equal(reads_of(1, 0, &got), 1);
    assert_int_equal(reads_of(1, 4096 - 1577, &got), 1);
    assert_true(got <= 4096);
}

static void a_large_item_takes_two_reads_of_1_kib(void **state)
{
    size_t got;

    (void)state;
    for (uint64_t size = 4096; size < 4096 + 64; size++) {
        assert_int_equal(reads_of(1, size, &got), 2);
        assert_int_equal(got, 2048);
    }
    assert_int_equal(reads_of(1, 1 << 22, &got), 2);
}

static void a_file_of_many_storages_takes_one_read_for_each(void **state)
{
    size_t got;

    (void)state;
    assert_in_range(reads_of(300, 5000, &got), 1, 305);
}

static void a_failing_read_is_reported_wherever_it_happens(void **state)
{
    size_t         len;
    unsigned char *bytes = torch_archive(5, 5000, 150, &len);
    rsd_err        rc = RSD_E_IO;

    (void)state;
    for (int n = 1; rc; n++) {
        counted    c = { .bytes = bytes, .fail_at = n };
        rsi_source source = { .read = counted_read, .arg = &c, .size = len, .name = "f" };
        rsi_arena  mem = { 0 };
        rsi_zip    out;
        rsd_error  err;

        rc = rsi_zip_read(&source, &mem, &out, &err);
        if (rc)
            assert_non_null(strstr(err.msg, "file \"f\": "));
        assert_true(rc == RSD_E_IO || (rc == RSD_OK && n > 4));
        rsi_arena_release(&mem);
    }
    free(bytes);
}

static void every_allocation_that_fails_is_no_memory(void **state)
{
    size_t         len;
    unsigned char *bytes = torch_archive(300, 100, 150, &len);
    rsi_source     source = rsi_memory_source(bytes, len, "f");
    rsd_err        rc = RSD_E_NOMEM;
    int64_t        before = rsi_mem_stats_get().bytes;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_arena mem = { 0 };
        rsi_zip   out;

        rsi_mem_fail_at(n, n % 2 == 0);
        rc = rsi_zip_read(&source, &mem, &out, NULL);
        rsi_mem_fail_at(0, 0);
        assert_true(rc == RSD_E_NOMEM || (rc == RSD_OK && n > 3));
        rsi_arena_release(&mem);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    free(bytes);
}

/* All that is said about the records, in one number. */
static uint64_t summary(const rsi_zip *z)
{
    uint64_t sum = z->n;

    for (size_t i = 0; i < z->n; i++)
        sum = sum * 31 + z->record[i].data * 7 + z->record[i].size + z->record[i].crc32 +
              rsi_crc32(0, z->record[i].name, strlen(z->record[i].name));
    return sum * 2 + z->big_endian + (uint64_t)z->version * 100;
}

static void a_flipped_bit_is_refused_or_changes_nothing(void **state)
{
    rsi_arena mem = { 0 };
    rsi_zip   out;
    uint64_t  right;
    int       refused = 0;

    (void)state;
    zip_accept(&zip, &mem, &out);
    right = summary(&out);
    rsi_arena_release(&mem);
    for (size_t bit = 0; bit < 8 * zip.len; bit++) {
        rsi_source source = rsi_memory_source(zip.bytes, zip.len, "f");

        zip.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        rsi_mem_fail_at(0, 0);
        if (rsi_zip_read(&source, &mem, &out, NULL))
            refused++;
        else
            assert_int_equal(summary(&out), right);
        assert_true(rsi_mem_stats_get().peak < (int64_t)(1 << 20));
        rsi_arena_release(&mem);
        zip.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(refused > 4000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(records_are_where_they_were_put, build_usual),
        cmocka_unit_test_setup(all_descriptors_and_none_are_understood, build_usual),
        cmocka_unit_test_setup(zip64_fields_are_understood, build_usual),
        cmocka_unit_test_setup(records_are_listed_by_place_whatever_the_directory, build_usual),
        cmocka_unit_test_setup(a_name_that_is_not_there_is_not_found, build_usual),
        cmocka_unit_test_setup(a_record_without_a_header_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_with_another_name_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_with_another_method_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_with_other_flags_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_with_another_size_or_crc_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_with_another_zip64_size_is_refused, build_usual),
        cmocka_unit_test_setup(a_broken_extra_field_in_a_header_is_refused, build_usual),
        cmocka_unit_test_setup(a_wrong_descriptor_is_refused, build_usual),
        cmocka_unit_test_setup(bytes_before_the_first_record_are_refused, build_usual),
        cmocka_unit_test_setup(bytes_between_records_are_refused, build_usual),
        cmocka_unit_test_setup(records_at_the_same_place_are_refused, build_usual),
        cmocka_unit_test_setup(data_that_reach_into_the_next_record_are_refused, build_usual),
        cmocka_unit_test_setup(data_that_reach_into_the_directory_are_refused, build_usual),
        cmocka_unit_test_setup(a_size_near_2_to_the_64_is_refused, build_usual),
        cmocka_unit_test_setup(a_record_that_begins_behind_the_directory_is_refused, build_usual),
        cmocka_unit_test_setup(a_header_that_reaches_into_the_next_record_is_refused, build_usual),
        cmocka_unit_test_setup(two_records_of_one_name_are_refused, build_usual),
        cmocka_unit_test_setup(an_archive_without_a_version_is_refused, build_usual),
        cmocka_unit_test_setup(versions_1_to_10_are_read, build_usual),
        cmocka_unit_test_setup(other_versions_are_refused, build_usual),
        cmocka_unit_test_setup(byteorder_is_little_big_or_missing, build_usual),
        cmocka_unit_test_setup(another_byteorder_is_refused, build_usual),
        cmocka_unit_test_setup(a_small_record_with_a_wrong_crc_is_corrupt, build_usual),
        cmocka_unit_test_setup(crcs_of_0_are_taken_for_none, build_usual),
        cmocka_unit_test_setup(a_small_item_takes_one_read, build_usual),
        cmocka_unit_test_setup(a_large_item_takes_two_reads_of_1_kib, build_usual),
        cmocka_unit_test_setup(a_file_of_many_storages_takes_one_read_for_each, build_usual),
        cmocka_unit_test_setup(a_failing_read_is_reported_wherever_it_happens, build_usual),
        cmocka_unit_test_setup(every_allocation_that_fails_is_no_memory, build_usual),
        cmocka_unit_test_setup(a_flipped_bit_is_refused_or_changes_nothing, build_usual),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
