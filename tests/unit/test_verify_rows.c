/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify_rows.c - with a checksum file every damaged byte is found, told once, and named by
 * file, place and what lies there; so are files that are missing, cut, longer or not listed. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "ckpt_sample.h"
#include "format/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAMAGES = 64 };

typedef struct damages {
    rsd_error at[DAMAGES];
    size_t    n;
} damages;

static void note(void *arg, const rsd_error *what)
{
    damages *d = arg;

    assert_true(d->n < DAMAGES);
    d->at[d->n++] = *what;
}

static void verify(rsd_ckpt *ckpt, bool quick, damages *found)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 1, .quick = quick };
    size_t              count = 99;

    found->n = 0;
    assert_int_equal(rsd_ckpt_verify(ckpt, &opts, note, found, &count, NULL), RSD_OK);
    assert_int_equal(count, found->n);
}

/* A sample with its checksum file. */
static rsd_store *sealed(ckpt_sample which)
{
    rsd_store *store = fix_store();
    rsd_error  err;

    if (ckpt_sample_save(store, which, &err) ||
        rsd_ckpt_add_checksums(store, ckpt_sample_path(which), NULL, &err))
        fail_msg("%s", err.msg);
    return store;
}

static const char *side_file(ckpt_sample which)
{
    static char name[64];

    snprintf(name, sizeof(name), "%s%s" RSI_SUMS_NAME, ckpt_sample_path(which),
             strcmp(ckpt_sample_path(which), "ck") == 0 ? "/" : "");
    return name;
}

static void what_was_sealed_is_clean(void **state)
{
    (void)state;
    for (int which = 0; which < SAMPLE_COUNT; which++) {
        rsd_store *store = sealed((ckpt_sample)which);
        rsd_ckpt  *ckpt = fix_open(store, ckpt_sample_path((ckpt_sample)which));
        damages    found;

        verify(ckpt, false, &found);
        if (found.n)
            fail_msg("%s", found.at[0].msg);
        verify(ckpt, true, &found);
        assert_int_equal(found.n, 0);
        rsd_ckpt_close(ckpt);
        rsd_store_close(store);
    }
}

/* ---- every byte ---- */

/* The message names the file, the byte and, if the byte is in a chunk, the tensor. */
static void assert_named(rsd_ckpt *ckpt, const char *file, uint64_t at, const char *msg)
{
    const char     *last = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    char            want[128];
    unsigned long   first, end;
    const char     *place;
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_chunk       chunk = { .size = sizeof(chunk) };

    snprintf(want, sizeof(want), "file \"%s\": ", last);
    place = strstr(msg, want);
    if (!place ||
        sscanf(place + strlen(want), "checksum mismatch in bytes %lu-%lu", &first, &end) != 2 ||
        at < first || at > end)
        fail_msg("byte %lu of %s: \"%s\"", (unsigned long)at, file, msg);
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
        for (size_t i = 0; i < info.chunks; i++) {
            assert_int_equal(rsd_ckpt_chunk(ckpt, t, i, &chunk, NULL), RSD_OK);
            snprintf(want, sizeof(want), "tensor \"%s\"", info.name);
            if (strcmp(chunk.file, last) == 0 && at >= chunk.offset &&
                at < chunk.offset + chunk.length && !strstr(msg, want))
                fail_msg("byte %lu of %s is of %s: \"%s\"", (unsigned long)at, file, want, msg);
        }
    }
}

static void flip_every_byte(rsd_store *store, ckpt_sample which, size_t step)
{
    const char *file;
    size_t      opened = 0;

    for (size_t n = 0; (file = ckpt_sample_file(which, n)) != NULL; n++) {
        uint64_t size;

        assert_int_equal(rsi_store_file_size(store, file, &size, NULL), RSD_OK);
        for (uint64_t at = 0; at < size; at += step) {
            rsd_ckpt *ckpt;
            damages   found;

            fix_flip(store, file, at);
            if (!rsd_ckpt_open(store, ckpt_sample_path(which), &ckpt, NULL)) {
                verify(ckpt, false, &found);
                /* Items that wrong metadata lead to astray are told too. */
                if (found.n != 1 && (found.n == 0 || !strstr(file, ".metadata")))
                    fail_msg("byte %lu of %s: %zu damages, %s; %s", (unsigned long)at, file,
                             found.n, found.at[0].msg, found.at[1].msg);
                assert_named(ckpt, file, at, found.at[found.n - 1].msg);
                rsd_ckpt_close(ckpt);
                opened++;
            }
            fix_flip(store, file, at);
        }
    }
    assert_true(opened > 0);
    rsd_store_close(store);
}

static void every_flipped_byte_of_dcp_is_told_once_and_named(void **state)
{
    (void)state;
    flip_every_byte(sealed(SAMPLE_DCP), SAMPLE_DCP, 1);
    flip_every_byte(sealed(SAMPLE_DCP_LONG), SAMPLE_DCP_LONG, 37);
}

static void every_flipped_byte_of_zstd_items_is_told_once_and_named(void **state)
{
    (void)state;
    flip_every_byte(sealed(SAMPLE_DCP_ZSTD), SAMPLE_DCP_ZSTD, 1);
}

static void every_flipped_byte_of_safetensors_is_told_once_and_named(void **state)
{
    (void)state;
    flip_every_byte(sealed(SAMPLE_SAFETENSORS), SAMPLE_SAFETENSORS, 1);
}

static void every_flipped_byte_of_a_torch_file_is_told_once_and_named(void **state)
{
    (void)state;
    flip_every_byte(sealed(SAMPLE_TORCH), SAMPLE_TORCH, 1);
    flip_every_byte(sealed(SAMPLE_TORCH_LONG), SAMPLE_TORCH_LONG, 37);
}

/* The checksum file that saving makes leads to the same. */
static void every_flipped_byte_of_what_was_saved_is_told_once_and_named(void **state)
{
    static const ckpt_sample which[] = { SAMPLE_DCP, SAMPLE_DCP_ZSTD, SAMPLE_SAFETENSORS,
                                         SAMPLE_TORCH };

    (void)state;
    for (int i = 0; i < 4; i++) {
        rsd_store *store = fix_store();

        assert_int_equal(ckpt_sample_save_with(store, which[i], RSD_ALWAYS, NULL), RSD_OK);
        flip_every_byte(store, which[i], 3);
    }
}

static void every_flipped_byte_of_the_side_file_is_told(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);
    rsd_ckpt  *ckpt;
    damages    found;
    uint64_t   size;

    (void)state;
    assert_int_equal(rsi_store_file_size(store, "ck/" RSI_SUMS_NAME, &size, NULL), RSD_OK);
    for (uint64_t at = 0; at < size; at++) {
        fix_flip(store, "ck/" RSI_SUMS_NAME, at);
        ckpt = fix_open(store, "ck"); /* opening does not need it */
        for (int quick = 0; quick < 2; quick++) {
            verify(ckpt, quick, &found);
            assert_int_equal(found.n, 1);
            assert_non_null(strstr(found.at[0].msg, "checksum file \"ck/" RSI_SUMS_NAME "\""));
        }
        rsd_ckpt_close(ckpt);
        fix_flip(store, "ck/" RSI_SUMS_NAME, at);
    }
    rsd_store_close(store);
}

/* ---- the box of a tensor ---- */

/* One safetensors file with "a" of [1024, 2048] int32, whose rows are 512 lines each. */
static rsd_store *save_large(void)
{
    const int64_t       shape[] = { 1024, 2048 };
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = store, .threads = 1
    };
    int32_t   *data = malloc(4 * 1024 * 2048);
    rsd_state *state;

    assert_non_null(data);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "a", NULL, 2, shape, data);
    assert_int_equal(rsd_save("x.safetensors", NULL, state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_add_checksums(store, "x.safetensors", NULL, NULL), RSD_OK);
    rsd_state_free(state);
    free(data);
    return store;
}

static void damage_names_the_part_of_the_tensor(void **state)
{
    rsd_store *store = save_large();
    rsd_ckpt  *ckpt = fix_open(store, "x.safetensors");
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    damages    found;
    char       want[128];
    uint64_t   row;

    (void)state;
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, &chunk, NULL), RSD_OK);
    row = (uint64_t)chunk.offset + RSI_SUM_ROW_BYTES;
    snprintf(want, sizeof(want),
             "file \"x.safetensors\": checksum mismatch in bytes %lu-%lu: ", (unsigned long)row,
             (unsigned long)(row + RSI_SUM_ROW_BYTES - 1));
    fix_flip(store, "x.safetensors", row + 5);
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.at[0].code, RSD_E_CORRUPT);
    assert_non_null(strstr(found.at[0].msg, want));
    assert_non_null(strstr(found.at[0].msg, ": tensor \"a\" [512:1024, 0:2048]"));
    verify(ckpt, true, &found); /* reads no data */
    assert_int_equal(found.n, 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void damages_come_in_order_whatever_the_threads_do(void **state)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 4, .max_memory = 1 };
    rsd_store          *store = save_large();
    rsd_ckpt           *ckpt = fix_open(store, "x.safetensors");
    rsd_chunk           chunk = { .size = sizeof(chunk) };
    damages             found;

    (void)state;
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, &chunk, NULL), RSD_OK);
    fix_flip(store, "x.safetensors", chunk.offset + RSI_SUM_ROW_BYTES + 5);
    fix_flip(store, "x.safetensors", chunk.offset);
    for (int round = 0; round < 20; round++) {
        found.n = 0;
        assert_int_equal(rsd_ckpt_verify(ckpt, &opts, note, &found, NULL, NULL), RSD_OK);
        assert_int_equal(found.n, 2);
        assert_non_null(strstr(found.at[0].msg, "[0:512, 0:2048]"));
        assert_non_null(strstr(found.at[1].msg, "[512:1024, 0:2048]"));
    }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* ---- metadata ---- */

static void a_flipped_letter_of_a_name_is_found_quickly(void **state)
{
    rsd_store     *store = sealed(SAMPLE_DCP);
    rsd_ckpt      *ckpt;
    damages        found;
    size_t         len;
    unsigned char *bytes = fix_get(store, "ck/.metadata", &len);

    (void)state;
    for (unsigned char *at = bytes; (at = memmem(at, len - (size_t)(at - bytes), "weight", 6));
         at++) {
        unsigned char letter = 'o';
        rsi_file     *file;

        assert_int_equal(rsi_file_open(store, "ck/.metadata", RSD_OPEN_WRITE, 0, &file, NULL),
                         RSD_OK);
        assert_int_equal(rsi_file_write(file, (uint64_t)(at - bytes) + 1, &letter, 1, NULL),
                         RSD_OK);
        assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
    }
    ckpt = fix_open(store, "ck");
    verify(ckpt, true, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "file \".metadata\": metadata"));
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "file \".metadata\""));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    free(bytes);
}

/* ---- files as a whole ---- */

/* Exchanges the checksum file for one with this text in front of its last line. */
static void put_sums(rsd_store *store, const char *name, const char *text)
{
    unsigned char hash[RSI_HASH128_BYTES];
    char          all[2048];
    size_t        len = strlen(text);

    rsi_hash128(text, len, hash);
    memcpy(all, text, len);
    memcpy(all + len, "self ", 5);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(all + len + 5 + 2 * i, 3, "%02x", hash[i]);
    all[len + 37] = '\n';
    rsi_store_remove(store, name, NULL);
    fix_put(store, name, all, len + 38);
}

/* The text of a checksum file without its last line; free it. */
static char *get_sums(rsd_store *store, const char *name)
{
    size_t         len;
    unsigned char *bytes = fix_get(store, name, &len);

    bytes[len - 38] = '\0';
    return (char *)bytes;
}

static void a_listed_file_that_is_missing_is_told(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);
    char      *text = get_sums(store, "ck/" RSI_SUMS_NAME), more[2048];
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    snprintf(more, sizeof(more), "%sfile 5 extra\n0 5 00112233445566778899aabbccddeeff\n", text);
    put_sums(store, "ck/" RSI_SUMS_NAME, more);
    ckpt = fix_open(store, "ck");
    for (int quick = 0; quick < 2; quick++) {
        verify(ckpt, quick, &found);
        assert_int_equal(found.n, 1);
        assert_int_equal(found.at[0].code, RSD_E_NOTFOUND);
        assert_non_null(strstr(found.at[0].msg, "file \"extra\" is missing"));
    }
    fix_put_text(store, "ck/extra", "tool");
    verify(ckpt, true, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "file \"extra\" differs in size"));
    rsi_store_remove(store, "ck/extra", NULL);
    fix_put_text(store, "ck/extra", "tools");
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "file \"extra\": checksum mismatch in bytes 0-4"));
    free(text);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_file_that_is_not_listed_is_told(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);
    char      *text = get_sums(store, "ck/" RSI_SUMS_NAME), *cut;
    int64_t    stride[RSD_MAX_NDIM];
    uint64_t   at;
    size_t     t;
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    cut = strstr(text, "file ");
    cut = strstr(cut + 1, "file ");
    cut = strstr(cut + 1, "file "); /* the last of three */
    assert_non_null(cut);
    *cut = '\0';
    put_sums(store, "ck/" RSI_SUMS_NAME, text);
    ckpt = fix_open(store, "ck");
    for (int quick = 0; quick < 2; quick++) {
        verify(ckpt, quick, &found);
        assert_int_equal(found.n, 1);
        assert_non_null(strstr(found.at[0].msg, "file \"__1_0.distcp\" of the checkpoint is not"));
    }
    assert_int_equal(rsd_ckpt_find(ckpt, "weight", &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_extent(ckpt, t, 1, &at, stride, NULL), RSD_OK);
    fix_flip(store, "ck/__1_0.distcp", at); /* torch's CRC32 still helps */
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 2);
    free(text);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_file_with_another_size_is_told(void **state)
{
    rsd_store     *store = sealed(SAMPLE_DCP);
    size_t         len;
    unsigned char *bytes = fix_get(store, "ck/__0_0.distcp", &len);
    rsd_ckpt      *ckpt;
    damages        found;

    (void)state;
    bytes = realloc(bytes, len + 1);
    assert_non_null(bytes);
    bytes[len] = 0;
    rsi_store_remove(store, "ck/__0_0.distcp", NULL);
    fix_put(store, "ck/__0_0.distcp", bytes, len + 1);
    ckpt = fix_open(store, "ck");
    for (int quick = 0; quick < 2; quick++) {
        verify(ckpt, quick, &found);
        assert_int_equal(found.n, 1);
        assert_non_null(strstr(found.at[0].msg, "file \"__0_0.distcp\" has "));
        assert_non_null(strstr(found.at[0].msg, "its checksum file says"));
    }
    free(bytes);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* Cut where no item is hurt: behind what the metadata list there is nothing, so the size in the
 * checksum file is made larger instead. */
static void a_file_shorter_than_its_rows_is_told_once(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS);
    char      *text = get_sums(store, side_file(SAMPLE_SAFETENSORS)), more[2048], *line;
    uint64_t   size;
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    assert_int_equal(rsi_store_file_size(store, "ck.safetensors", &size, NULL), RSD_OK);
    line = strchr(strstr(text, "file "), '\n');
    snprintf(more, sizeof(more),
             "reshard sums 1\nfile %lu ck.safetensors%s%lu 10 00112233445566778899aabbccddeeff\n",
             (unsigned long)size + 10, line, (unsigned long)size);
    put_sums(store, side_file(SAMPLE_SAFETENSORS), more);
    ckpt = fix_open(store, "ck.safetensors");
    for (int quick = 0; quick < 2; quick++) {
        verify(ckpt, quick, &found);
        assert_int_equal(found.n, 1);
        assert_non_null(strstr(found.at[0].msg, "its checksum file says"));
    }
    free(text);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void the_side_file_of_another_file_is_told_as_that(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS);
    rsd_store *other = save_large();
    rsd_ckpt  *ckpt;
    damages    found;
    size_t     len;
    void      *bytes = fix_get(other, "x.safetensors" RSI_SUMS_NAME, &len);

    (void)state;
    rsi_store_remove(store, "ck.safetensors" RSI_SUMS_NAME, NULL);
    fix_put(store, "ck.safetensors" RSI_SUMS_NAME, bytes, len);
    ckpt = fix_open(store, "ck.safetensors");
    for (int quick = 0; quick < 2; quick++) {
        verify(ckpt, quick, &found);
        assert_int_equal(found.n, 1);
        assert_non_null(strstr(found.at[0].msg, "belongs to another file"));
    }
    free(bytes);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(other);
}

/* ---- machines ---- */

static void a_read_that_fails_is_damage_of_its_rows(void **state)
{
    rsd_store *inner = sealed(SAMPLE_DCP), *store;
    fix_counts counts = { 0 };
    rsd_ckpt  *ckpt;
    damages    found;
    uint64_t   reads;

    (void)state;
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    verify(ckpt, false, &found); /* the checksum file is read now */
    counts.reads = 0;
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 0);
    reads = counts.reads;
    for (uint64_t n = 1; n <= reads; n++) {
        counts = (fix_counts){ .fail_at = (int64_t)n };
        verify(ckpt, false, &found);
        assert_int_equal(found.n, 1);
        assert_int_equal(found.at[0].code, RSD_E_IO);
        assert_non_null(strstr(found.at[0].msg, "file \""));
    }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

static rsd_err verify_all(void *arg, rsd_error *err)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    rsd_ckpt           *ckpt = NULL;
    damages             found = { .n = 0 };
    rsd_err             rc = rsd_ckpt_open(arg, "ck", &ckpt, err);

    if (!rc)
        rc = rsd_ckpt_verify(ckpt, &opts, note, &found, NULL, err);
    assert_int_equal(found.n, rc ? 0 : 1); /* no memory is no damage */
    rsd_ckpt_close(ckpt);
    return rc;
}

static void verifying_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);

    (void)state;
    fix_flip(store, "ck/__0_0.distcp", 0);
    fix_every_allocation(verify_all, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void without_xxhash_a_side_file_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    assert_int_equal(ckpt_sample_save(store, SAMPLE_DCP, NULL), RSD_OK);
    fix_put_text(store, "ck/" RSI_SUMS_NAME, "reshard sums 1\n");
    ckpt = fix_open(store, "ck");
    verify(ckpt, false, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "xxHash"));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_sealed_is_clean),
        cmocka_unit_test(every_flipped_byte_of_dcp_is_told_once_and_named),
        cmocka_unit_test(every_flipped_byte_of_zstd_items_is_told_once_and_named),
        cmocka_unit_test(every_flipped_byte_of_safetensors_is_told_once_and_named),
        cmocka_unit_test(every_flipped_byte_of_a_torch_file_is_told_once_and_named),
        cmocka_unit_test(every_flipped_byte_of_what_was_saved_is_told_once_and_named),
        cmocka_unit_test(every_flipped_byte_of_the_side_file_is_told),
        cmocka_unit_test(damage_names_the_part_of_the_tensor),
        cmocka_unit_test(damages_come_in_order_whatever_the_threads_do),
        cmocka_unit_test(a_flipped_letter_of_a_name_is_found_quickly),
        cmocka_unit_test(a_listed_file_that_is_missing_is_told),
        cmocka_unit_test(a_file_that_is_not_listed_is_told),
        cmocka_unit_test(a_file_with_another_size_is_told),
        cmocka_unit_test(a_file_shorter_than_its_rows_is_told_once),
        cmocka_unit_test(the_side_file_of_another_file_is_told_as_that),
        cmocka_unit_test(a_read_that_fails_is_damage_of_its_rows),
        cmocka_unit_test(verifying_without_memory_fails_cleanly),
    };
    const struct CMUnitTest without[] = { cmocka_unit_test(without_xxhash_a_side_file_is_told) };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
