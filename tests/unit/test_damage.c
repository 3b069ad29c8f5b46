/* SPDX-License-Identifier: Apache-2.0 */
/* Valid checkpoints of each format, damaged in every way that one fault can: cut at every byte,
 * longer by one, each bit flipped. Whatever was hit, it is an error, it is reported by
 * rsd_ckpt_verify, or it makes no difference to what is read. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_sample.h"
#include "ckpt_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST ((int64_t)1 << 20) /* more than any tensor of a sample has */

static rsd_store *saved(ckpt_sample which)
{
    rsd_store *store;
    rsd_error  err;

    assert_int_equal(rsd_store_open("mem:", &store, &err), RSD_OK);
    if (ckpt_sample_save(store, which, &err))
        fail_msg("%s", err.msg);
    return store;
}

/* What an undamaged checkpoint reads as. */
static uint32_t content_of(rsd_store *store, ckpt_sample which)
{
    ckpt_walk walk;

    ckpt_walk_run(store, ckpt_sample_path(which), MOST, &walk);
    if (ckpt_walk_noticed(&walk))
        fail_msg("the sample is damaged: %s", walk.error.msg);
    return walk.content;
}

/* Every error has a code that blames the file, and a message. */
static void check_words(const ckpt_walk *walk, const char *what, size_t at)
{
    const rsd_error *err = walk->opened || walk->read ? &walk->error : &walk->damage[0];

    if (!ckpt_walk_noticed(walk))
        return;
    if (walk->verified || err->msg[0] == '\0' ||
        (err->code != RSD_E_FORMAT && err->code != RSD_E_CORRUPT &&
         err->code != RSD_E_UNSUPPORTED && err->code != RSD_E_NOTFOUND))
        fail_msg("%s at byte %zu: %s \"%s\"", what, at, rsd_err_name((rsd_err)err->code), err->msg);
}

/* One file of a sample with other bytes. */
static void walk_with(rsd_store *good, ckpt_sample which, const char *file, const void *bytes,
                      size_t len, ckpt_walk *walk)
{
    rsd_store *store = ckpt_sample_copy(good, which, file, bytes, len);

    assert_non_null(store);
    ckpt_walk_run(store, ckpt_sample_path(which), MOST, walk);
    rsd_store_close(store);
}

/* ---- cut and longer ---- */

static void cut_everywhere(ckpt_sample which)
{
    rsd_store  *good = saved(which);
    const char *file;
    ckpt_walk   walk;

    for (size_t n = 0; (file = ckpt_sample_file(which, n)) != NULL; n++) {
        size_t         len;
        unsigned char *bytes = ckpt_sample_bytes(good, file, &len);
        int64_t        before = rsi_mem_stats_get().bytes;

        assert_non_null(bytes);
        for (size_t at = 0; at < len; at++) {
            walk_with(good, which, file, bytes, at, &walk);
            check_words(&walk, file, at);
            if (!ckpt_walk_noticed(&walk))
                fail_msg("%s cut at byte %zu of %zu goes unnoticed", file, at, len);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
        }
        free(bytes);
    }
    rsd_store_close(good);
}

static void a_cut_dcp_file_is_noticed(void **state)
{
    (void)state;
    cut_everywhere(SAMPLE_DCP);
}

static void a_cut_zstd_item_is_noticed(void **state)
{
    (void)state;
    cut_everywhere(SAMPLE_DCP_ZSTD);
}

static void a_cut_safetensors_file_is_noticed(void **state)
{
    (void)state;
    cut_everywhere(SAMPLE_SAFETENSORS);
}

static void a_cut_torch_file_is_noticed(void **state)
{
    (void)state;
    cut_everywhere(SAMPLE_TORCH);
}

/* Data files of DCP may have more bytes than the metadata list: nobody reads them. */
static void a_byte_more_is_noticed_or_belongs_to_nothing(void **state)
{
    static const unsigned char more[] = { 0, ' ', '.', 0xff };

    (void)state;
    for (int which = 0; which < SAMPLE_COUNT; which++) {
        rsd_store  *good = saved((ckpt_sample)which);
        uint32_t    content = content_of(good, (ckpt_sample)which);
        const char *file;

        for (size_t n = 0; (file = ckpt_sample_file((ckpt_sample)which, n)) != NULL; n++) {
            bool           data = strstr(file, ".distcp") != NULL;
            size_t         len;
            unsigned char *bytes = ckpt_sample_bytes(good, file, &len);

            bytes = realloc(bytes, len + 1);
            assert_non_null(bytes);
            for (size_t i = 0; i < sizeof(more); i++) {
                ckpt_walk walk;

                bytes[len] = more[i];
                walk_with(good, (ckpt_sample)which, file, bytes, len + 1, &walk);
                check_words(&walk, file, len);
                if (!ckpt_walk_noticed(&walk) && (!data || walk.content != content))
                    fail_msg("%s with a byte %02x more goes unnoticed", file, more[i]);
            }
            free(bytes);
        }
        rsd_store_close(good);
    }
}

/* ---- bits ---- */

typedef struct tally {
    size_t flips, noticed, same;
} tally;

static void write_byte(rsd_store *store, const char *name, uint64_t at, unsigned char byte)
{
    rsi_file *file;

    assert_int_equal(rsi_file_open(store, name, RSD_OPEN_WRITE, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_file_write(file, at, &byte, 1, NULL), RSD_OK);
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
}

/* What a flip that goes unnoticed must leave as it is. */
typedef enum keeps { KEEPS_NOTHING, KEEPS_ELEMENTS, KEEPS_ALL } keeps;

static bool is_same(const ckpt_walk *a, const ckpt_walk *b, keeps what)
{
    return what == KEEPS_ELEMENTS ? a->elements == b->elements : a->content == b->content;
}

/* RESHARD_FLIP_STEP=11 flips every 11th bit only: under the sanitizers all of them take minutes. */
static size_t flip_step(void)
{
    const char *text = getenv("RESHARD_FLIP_STEP");
    size_t      step = text ? strtoull(text, NULL, 10) : 1;

    return step ? step : 1;
}

/* Flips every `step`-th of the bits [8 * from, 8 * to) of a file, one by one. */
static tally flip_each(rsd_store *store, ckpt_sample which, const char *file, size_t from,
                       size_t to, size_t step, keeps what)
{
    ckpt_walk      good;
    int64_t        before;
    tally          t = { 0 };
    size_t         len;
    unsigned char *bytes = ckpt_sample_bytes(store, file, &len);

    assert_non_null(bytes);
    ckpt_walk_run(store, ckpt_sample_path(which), MOST, &good);
    assert_false(ckpt_walk_noticed(&good));
    before = rsi_mem_stats_get().bytes;
    step *= flip_step();
    for (size_t bit = 8 * from; bit < 8 * (to < len ? to : len); bit += step) {
        ckpt_walk walk;

        write_byte(store, file, bit / 8, bytes[bit / 8] ^ (unsigned char)(1 << bit % 8));
        ckpt_walk_run(store, ckpt_sample_path(which), MOST, &walk);
        write_byte(store, file, bit / 8, bytes[bit / 8]);
        check_words(&walk, file, bit / 8);
        t.flips++;
        t.noticed += ckpt_walk_noticed(&walk);
        t.same += !ckpt_walk_noticed(&walk) && is_same(&walk, &good, what);
        if (what && !ckpt_walk_noticed(&walk) && !is_same(&walk, &good, what) &&
            t.flips - t.noticed - t.same <= 8) /* the first few are enough */
            print_error("%s: bit %zu of byte %zu changes what is read and goes unnoticed\n", file,
                        bit % 8, bit / 8);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    free(bytes);
    if (what && t.noticed + t.same < t.flips)
        fail_msg("%s: %zu of %zu flips go unnoticed", file, t.flips - t.noticed - t.same, t.flips);
    return t;
}

static void flip_file(ckpt_sample which, size_t n, size_t step, keeps what)
{
    rsd_store *store = saved(which);
    tally      t = flip_each(store, which, ckpt_sample_file(which, n), 0, SIZE_MAX, step, what);

    /* Most of a file matters: a test that sees nothing would be a bad one. */
    assert_true(t.flips > 0 && t.noticed > t.flips / 2);
    rsd_store_close(store);
}

static void no_flipped_bit_of_a_dcp_data_file_changes_what_is_read(void **state)
{
    (void)state;
    flip_file(SAMPLE_DCP, 0, 1, KEEPS_ALL);
}

/* A name is there once and has no checksum: a flip can rename a tensor. */
static void no_flipped_bit_of_dcp_metadata_changes_an_element(void **state)
{
    (void)state;
    flip_file(SAMPLE_DCP, 2, 1, KEEPS_ELEMENTS);
}

static void no_flipped_bit_of_a_zstd_item_changes_what_is_read(void **state)
{
    (void)state;
    flip_file(SAMPLE_DCP_ZSTD, 0, 1, KEEPS_ALL);
}

static void no_flipped_bit_of_a_torch_file_changes_what_is_read(void **state)
{
    (void)state;
    flip_file(SAMPLE_TORCH, 0, 1, KEEPS_ALL);
}

/* Readers look at the ends of a file first: here the pickle is in the middle. */
static void no_flipped_bit_of_a_long_torch_file_changes_what_is_read(void **state)
{
    (void)state;
    flip_file(SAMPLE_TORCH_LONG, 0, 7, KEEPS_ALL);
}

static void no_flipped_bit_of_a_long_object_changes_what_is_read(void **state)
{
    (void)state;
    flip_file(SAMPLE_DCP_LONG, 0, 7, KEEPS_ALL);
}

/* The length, the braces, the numbers: but a letter of a name or a dtype of the same size can't be
 * seen, as the format has no checksum. */
static void a_flipped_bit_of_a_safetensors_file_does_no_harm(void **state)
{
    rsd_store     *store = saved(SAMPLE_SAFETENSORS);
    size_t         len;
    unsigned char *bytes = ckpt_sample_bytes(store, "ck.safetensors", &len);
    tally          head, data;

    (void)state;
    assert_non_null(bytes);
    head = flip_each(store, SAMPLE_SAFETENSORS, "ck.safetensors", 0, 8 + (size_t)bytes[0], 1,
                     KEEPS_NOTHING);
    data = flip_each(store, SAMPLE_SAFETENSORS, "ck.safetensors", 8 + (size_t)bytes[0], len, 1,
                     KEEPS_NOTHING);
    assert_true(head.noticed > head.flips / 2);
    assert_int_equal(data.noticed + data.same, 0); /* each is read as it is */
    free(bytes);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_dcp_file_is_noticed),
        cmocka_unit_test(a_cut_zstd_item_is_noticed),
        cmocka_unit_test(a_cut_safetensors_file_is_noticed),
        cmocka_unit_test(a_cut_torch_file_is_noticed),
        cmocka_unit_test(a_byte_more_is_noticed_or_belongs_to_nothing),
        cmocka_unit_test(no_flipped_bit_of_a_dcp_data_file_changes_what_is_read),
        cmocka_unit_test(no_flipped_bit_of_dcp_metadata_changes_an_element),
        cmocka_unit_test(no_flipped_bit_of_a_zstd_item_changes_what_is_read),
        cmocka_unit_test(no_flipped_bit_of_a_torch_file_changes_what_is_read),
        cmocka_unit_test(no_flipped_bit_of_a_long_torch_file_changes_what_is_read),
        cmocka_unit_test(no_flipped_bit_of_a_long_object_changes_what_is_read),
        cmocka_unit_test(a_flipped_bit_of_a_safetensors_file_does_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
