/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_catalogue.c - a catalogue says what the metadata say, or nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "ckpt_sample.h"
#include "format/dcp_catalogue.h"
#include "store/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 13, RANKS = 1001, ROWS = 2001 };

#define CATALOGUE "ck/" RSI_CATALOGUE_NAME

/* TENSORS tensors in about 1,000 chunks each, with shards of unequal length, and a value. */
static rsd_store *saved(int64_t columns)
{
    const int64_t    shape[] = { ROWS, columns };
    int32_t         *data = calloc(ROWS * (size_t)columns, sizeof(data[0]));
    rsd_save_opts    opts = { .size = sizeof(opts), .store = fix_store() };
    rsd_values      *values;
    rsd_state       *what;
    const rsd_value *step;
    rsd_error        err;
    char             name[32], rules[64];

    assert_int_equal(rsd_state_create(&what, NULL), RSD_OK);
    snprintf(rules, sizeof(rules), "mesh dp=%d; * shard(0)@dp", RANKS);
    for (int t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof(name), "model.%d.w", t);
        fix_add_ramp(what, name, fix_layout(rules, RSD_I32, 2, shape), 2, shape, data);
    }
    assert_int_equal(rsd_values_create(&values, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(values, 7, &step, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(what, "step", step, NULL), RSD_OK);
    if (rsd_save("ck", NULL, what, &opts, &err))
        fail_msg("%s", err.msg);
    rsd_state_free(what);
    rsd_values_free(values);
    free(data);
    return opts.store;
}

static bool has_catalogue(rsd_store *store)
{
    uint64_t size;

    return rsi_store_file_size(store, CATALOGUE, &size, NULL) == RSD_OK;
}

/* Everything that a checkpoint says of itself, in one number. */
static uint64_t said(rsd_store *store)
{
    rsd_ckpt       *ckpt = fix_open(store, "ck");
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_chunk       chunk = { .size = sizeof(chunk) };
    rsd_path_part   part[8];
    uint64_t        sum = 5381;
    char            text[512];

    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
        assert_int_equal(rsd_ckpt_path(ckpt, info.name, part, 8), 1);
        for (size_t i = 0; i < info.chunks; i++) {
            assert_int_equal(rsd_ckpt_chunk(ckpt, t, i, &chunk, NULL), RSD_OK);
            snprintf(text, sizeof(text),
                     "%s %d %" PRId64 " %s %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64, info.name,
                     (int)info.dtype, info.shape[1], chunk.file, chunk.offset, chunk.length,
                     chunk.box.off[0], chunk.box.len[0]);
            for (const char *c = text; *c; c++)
                sum = sum * 33 + (unsigned char)*c;
        }
    }
    sum = sum * 33 + rsd_ckpt_objects(ckpt);
    rsd_ckpt_close(ckpt);
    return sum;
}

static void only_large_metadata_get_a_catalogue(void **state)
{
    rsd_store *store = saved(1), *small = fix_store();

    (void)state;
    assert_true(has_catalogue(store));
    assert_int_equal(ckpt_sample_save(small, SAMPLE_DCP, NULL), RSD_OK);
    assert_false(has_catalogue(small));
    rsd_store_close(store);
    rsd_store_close(small);
}

static void a_catalogue_says_what_the_metadata_say(void **state)
{
    rsd_store *store = saved(1);
    uint64_t   with = said(store);

    (void)state;
    assert_int_equal(rsi_store_remove(store, CATALOGUE, NULL), RSD_OK);
    assert_true(said(store) == with);
    rsd_store_close(store);
}

static void opening_by_a_catalogue_takes_less_than_half_the_memory(void **state)
{
    rsd_store *store = saved(1);
    int64_t    before, with;

    (void)state;
    rsi_mem_fail_at(0, 0);
    before = rsi_mem_stats_get().bytes;
    rsd_ckpt_close(fix_open(store, "ck"));
    with = rsi_mem_stats_get().peak - before;
    assert_int_equal(rsi_store_remove(store, CATALOGUE, NULL), RSD_OK);
    rsi_mem_fail_at(0, 0);
    before = rsi_mem_stats_get().bytes;
    rsd_ckpt_close(fix_open(store, "ck"));
    assert_true(rsi_mem_stats_get().peak - before > 2 * with);
    rsd_store_close(store);
}

typedef struct damages {
    size_t n;
    char   msg[512];
} damages;

static void note(void *arg, const rsd_error *what)
{
    damages *d = arg;

    d->n++;
    snprintf(d->msg, sizeof(d->msg), "%s", what->msg);
}

static damages verify(rsd_store *store)
{
    rsd_ckpt *ckpt = fix_open(store, "ck");
    damages   found = { 0 };
    size_t    n = 0;
    rsd_error err;

    if (rsd_ckpt_verify(ckpt, NULL, note, &found, &n, &err))
        fail_msg("%s", err.msg);
    rsd_ckpt_close(ckpt);
    return found;
}

static void a_damaged_catalogue_is_not_believed_and_verify_says_so(void **state)
{
    rsd_store *store = saved(1);
    uint64_t   good = said(store), size;
    damages    found;

    (void)state;
    assert_int_equal(verify(store).n, 0);
    assert_int_equal(rsi_store_file_size(store, CATALOGUE, &size, NULL), RSD_OK);
    for (uint64_t at = 0; at < size; at += at < 200 ? 7 : size / 8) {
        fix_flip(store, CATALOGUE, at);
        assert_true(said(store) == good);
        fix_flip(store, CATALOGUE, at);
    }
    fix_flip(store, CATALOGUE, size / 2);
    found = verify(store);
    assert_int_equal(found.n, 1);
    assert_non_null(
        strstr(found.msg, "catalogue \"" CATALOGUE "\": it does not match the metadata"));
    rsd_store_close(store);
}

static void metadata_written_by_others_make_a_catalogue_void(void **state)
{
    rsd_store     *store = saved(1), *other = saved(2);
    uint64_t       good = said(other);
    size_t         len;
    unsigned char *bytes = fix_get(store, CATALOGUE, &len);

    (void)state;
    rsi_store_remove(other, CATALOGUE, NULL);
    fix_put(other, CATALOGUE, bytes, len);
    assert_true(said(other) == good);
    assert_int_equal(verify(other).n, 1);
    free(bytes);
    rsd_store_close(store);
    rsd_store_close(other);
}

/* Its hashes fit, but a word of it is another: it may lie, but every box lies in its tensor and
 * every item in its file, else it is refused. */
static void a_forged_catalogue_does_no_harm(void **state)
{
    const uint64_t forged[] = { 0, 1, 3, UINT32_MAX, UINT64_MAX, (uint64_t)1 << 62 };
    rsd_store     *store = saved(1);
    size_t         len;
    unsigned char *bytes = fix_get(store, CATALOGUE, &len), *copy = malloc(len);

    (void)state;
    for (size_t at = 40, step = 8; at + 24 <= len; at += step)
        for (size_t k = 0; k < sizeof(forged) / sizeof(forged[0]); k++) {
            rsd_ckpt *ckpt = NULL;

            /* counts and the last tensor in full, a sample of what lies between */
            step = at > 160 && at + 1000 < len ? 8 * 1009 : 8;
            memcpy(copy, bytes, len);
            memcpy(copy + at, &forged[k], 8);
            rsi_hash128(copy, len - RSI_HASH128_BYTES, copy + len - RSI_HASH128_BYTES);
            rsi_store_remove(store, CATALOGUE, NULL);
            fix_put(store, CATALOGUE, copy, len);
            if (rsd_ckpt_open(store, "ck", &ckpt, NULL))
                continue;
            for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
                rsd_tensor_info info = { .size = sizeof(info) };
                rsd_chunk       chunk = { .size = sizeof(chunk) };

                assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
                for (size_t i = 0; i < info.chunks; i += 100) {
                    uint64_t size;
                    char     name[64];

                    assert_int_equal(rsd_ckpt_chunk(ckpt, t, i, &chunk, NULL), RSD_OK);
                    snprintf(name, sizeof(name), "ck/%s", chunk.file);
                    assert_int_equal(rsi_store_file_size(store, name, &size, NULL), RSD_OK);
                    assert_true(chunk.offset + chunk.length <= size);
                    assert_true(chunk.box.off[0] + chunk.box.len[0] <= info.shape[0]);
                }
            }
            rsd_ckpt_close(ckpt);
        }
    free(bytes);
    free(copy);
    rsd_store_close(store);
}

static void adding_checksums_adds_the_catalogue(void **state)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true };
    rsd_store              *store = saved(1);
    size_t                  len, again;
    unsigned char          *one = fix_get(store, CATALOGUE, &len), *two;

    (void)state;
    rsi_store_remove(store, CATALOGUE, NULL);
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", &opts, NULL), RSD_OK);
    two = fix_get(store, CATALOGUE, &again);
    assert_int_equal(len, again);
    assert_memory_equal(one, two, len);
    free(one);
    free(two);
    rsd_store_close(store);
}

static void adding_checksums_removes_a_catalogue_that_small_metadata_have_from_others(void **state)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true };
    rsd_store              *store = saved(1), *small = fix_store();
    size_t                  len;
    unsigned char          *bytes = fix_get(store, CATALOGUE, &len);

    (void)state;
    assert_int_equal(ckpt_sample_save(small, SAMPLE_DCP, NULL), RSD_OK);
    fix_put(small, CATALOGUE, bytes, len);
    assert_int_equal(verify(small).n, 1);
    assert_int_equal(rsd_ckpt_add_checksums(small, "ck", &opts, NULL), RSD_OK);
    assert_int_equal(verify(small).n, 0);
    assert_false(has_catalogue(small));
    free(bytes);
    rsd_store_close(store);
    rsd_store_close(small);
}

/* Ranks of several processes: one reads, the others get its log. */
static void ranks_get_the_hash_of_the_metadata_and_not_their_bytes(void **state)
{
    rsd_store  *store = saved(1), *record, *replay, *nothing = fix_store();
    rsd_ckpt   *ckpt;
    const void *log;
    size_t      len;
    uint64_t    size;

    (void)state;
    assert_int_equal(rsi_record_open(store, &record, NULL), RSD_OK);
    ckpt = fix_open(record, "ck");
    rsi_record_end(record, &log, &len);
    assert_int_equal(rsi_store_file_size(store, "ck/.metadata", &size, NULL), RSD_OK);
    assert_true(len < size / 2);
    assert_int_equal(rsi_replay_open(nothing, log, len, &replay, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    ckpt = fix_open(replay, "ck");
    assert_int_equal(rsd_ckpt_tensors(ckpt), TENSORS);
    rsd_ckpt_close(ckpt);
    rsd_store_close(replay);
    rsd_store_close(record);
    rsd_store_close(nothing);
    rsd_store_close(store);
}

/* Reads one element; the first read compares what opening read with the checksum file. */
static rsd_err read_one(rsd_store *store, fix_counts *counts, uint64_t *bytes)
{
    rsd_store *counting = fix_counting_store(store, counts);
    rsd_ckpt  *ckpt = fix_open(counting, "ck");
    int32_t    element[4] = { 0 };
    rsd_view   view = { .box = fix_box2(5, 0, 1, 1), .data = element };
    rsd_err    rc;

    *bytes = counts->bytes;
    rc = rsd_ckpt_read(ckpt, 0, &view, NULL, NULL);
    *bytes = counts->bytes - *bytes;
    rsd_ckpt_close(ckpt);
    rsd_store_close(counting);
    return rc;
}

static void metadata_that_opening_hashed_are_not_read_again(void **state)
{
    rsd_store *store = saved(1);
    fix_counts counts = { 0 };
    uint64_t   size, sums, bytes;

    (void)state;
    assert_int_equal(rsi_store_file_size(store, "ck/.metadata", &size, NULL), RSD_OK);
    assert_int_equal(rsi_store_file_size(store, "ck/" RSI_SUMS_NAME, &sums, NULL), RSD_OK);
    assert_int_equal(read_one(store, &counts, &bytes), RSD_OK);
    assert_in_range(bytes, sums, sums + size / 2);
    rsd_store_close(store);
}

static void metadata_that_the_checksum_file_does_not_confirm_are_refused(void **state)
{
    rsd_store     *store = saved(1);
    fix_counts     counts = { 0 };
    uint64_t       bytes;
    size_t         len;
    unsigned char *text = fix_get(store, "ck/" RSI_SUMS_NAME, &len), hash[RSI_HASH128_BYTES];
    char          *row = strstr((char *)text, " .metadata\n");

    (void)state;
    row = strchr(row + 11, '\n') - 1; /* the last digit of its first row */
    *row = *row == '0' ? '1' : '0';
    rsi_hash128(text, len - RSI_SUMS_TRAILER, hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf((char *)text + len - 33 + 2 * i, 3, "%02x", hash[i]);
    text[len - 1] = '\n';
    rsi_store_remove(store, "ck/" RSI_SUMS_NAME, NULL);
    fix_put(store, "ck/" RSI_SUMS_NAME, text, len);
    assert_int_equal(read_one(store, &counts, &bytes), RSD_E_CORRUPT);
    free(text);
    rsd_store_close(store);
}

static void without_xxhash_there_is_no_catalogue(void **state)
{
    rsd_store *store = saved(1);

    (void)state;
    assert_false(has_catalogue(store));
    said(store);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_large_metadata_get_a_catalogue),
        cmocka_unit_test(a_catalogue_says_what_the_metadata_say),
        cmocka_unit_test(opening_by_a_catalogue_takes_less_than_half_the_memory),
        cmocka_unit_test(a_damaged_catalogue_is_not_believed_and_verify_says_so),
        cmocka_unit_test(metadata_written_by_others_make_a_catalogue_void),
        cmocka_unit_test(a_forged_catalogue_does_no_harm),
        cmocka_unit_test(adding_checksums_adds_the_catalogue),
        cmocka_unit_test(adding_checksums_removes_a_catalogue_that_small_metadata_have_from_others),
        cmocka_unit_test(ranks_get_the_hash_of_the_metadata_and_not_their_bytes),
        cmocka_unit_test(metadata_that_opening_hashed_are_not_read_again),
        cmocka_unit_test(metadata_that_the_checksum_file_does_not_confirm_are_refused),
    };

    const struct CMUnitTest without[] = { cmocka_unit_test(without_xxhash_there_is_no_catalogue) };

    if (!rsi_hash128_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
