/* SPDX-License-Identifier: Apache-2.0 */
/* test_make_sums.c - a checkpoint gets its checksum file whole or not at all, and nothing else
 * changes.
 */
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

static rsd_store *saved(ckpt_sample which)
{
    rsd_store *store = fix_store();

    assert_int_equal(ckpt_sample_save(store, which, NULL), RSD_OK);
    return store;
}

static rsi_sums_book *book_of(rsd_store *store, const char *name)
{
    rsi_sums_book *book;
    rsd_error      err;
    size_t         len;
    void          *text = fix_get(store, name, &len);

    if (rsi_sums_read(text, len, &book, &err))
        fail_msg("%s", err.msg);
    free(text);
    return book;
}

static void a_folder_gets_its_side_file_inside(void **state)
{
    rsd_store     *store = saved(SAMPLE_DCP);
    rsi_sums_book *book;

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"),
                        ".metadata " RSI_SUMS_NAME " __0_0.distcp __1_0.distcp");
    book = book_of(store, "ck/" RSI_SUMS_NAME);
    assert_int_equal(book->nfiles, 3);
    rsi_sums_book_free(book);
    rsd_store_close(store);
}

static void a_single_file_gets_its_side_file_beside(void **state)
{
    rsd_store     *store = saved(SAMPLE_TORCH);
    rsi_sums_book *book;

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck.pt", NULL, NULL), RSD_OK);
    assert_string_equal(fix_list(store, ""), "ck.pt ck.pt" RSI_SUMS_NAME);
    book = book_of(store, "ck.pt" RSI_SUMS_NAME);
    assert_int_equal(book->nfiles, 1);
    assert_string_equal(book->file[0].name, "ck.pt");
    rsi_sums_book_free(book);
    rsd_store_close(store);
}

/* Every chunk, and every object of DCP, starts a row. */
static void rows_start_where_items_do(void **state)
{
    (void)state;
    for (int which = 0; which < SAMPLE_COUNT; which++) {
        const char    *path = ckpt_sample_path((ckpt_sample)which);
        bool           folder = strcmp(path, "ck") == 0;
        rsd_store     *store = saved((ckpt_sample)which);
        char           name[64];
        rsd_ckpt      *ckpt = fix_open(store, path);
        rsi_sums_book *book;

        assert_int_equal(rsd_ckpt_add_checksums(store, path, NULL, NULL), RSD_OK);
        snprintf(name, sizeof(name), "%s%s" RSI_SUMS_NAME, path, folder ? "/" : "");
        book = book_of(store, name);
        for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
            const rsi_sum_row *row;
            rsd_chunk          chunk = { .size = sizeof(chunk) };
            size_t             n, i = 0;

            assert_int_equal(rsd_ckpt_chunk(ckpt, t, 0, &chunk, NULL), RSD_OK);
            assert_true(rsi_sums_find(book, chunk.file) < book->nfiles);
            row = rsi_sums_rows_of(book, rsi_sums_find(book, chunk.file), &n);
            while (i < n && row[i].off != chunk.offset)
                i++;
            assert_true(i < n);
        }
        rsi_sums_book_free(book);
        rsd_ckpt_close(ckpt);
        rsd_store_close(store);
    }
}

static void the_same_checkpoint_gets_the_same_side_file(void **state)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true, .threads = 3 };
    rsd_store              *store = saved(SAMPLE_DCP);
    size_t                  len, again;
    void                   *one, *two;

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, NULL), RSD_OK);
    one = fix_get(store, "ck/" RSI_SUMS_NAME, &len);
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", &opts, NULL), RSD_OK);
    two = fix_get(store, "ck/" RSI_SUMS_NAME, &again);
    assert_int_equal(len, again);
    assert_memory_equal(one, two, len);
    free(one);
    free(two);
    rsd_store_close(store);
}

static void a_side_file_is_replaced_only_if_asked(void **state)
{
    const rsd_checksum_opts over = { .size = sizeof(over), .overwrite = true };
    rsd_store              *store = saved(SAMPLE_DCP);
    uint32_t                before;
    rsd_error               err;

    (void)state;
    fix_put_text(store, "ck/" RSI_SUMS_NAME, "broken");
    before = fix_sum(store, "ck");
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, &err), RSD_E_EXISTS);
    assert_non_null(strstr(err.msg, "has a checksum file already"));
    assert_int_equal(fix_sum(store, "ck"), before);
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", &over, &err), RSD_OK);
    rsi_sums_book_free(book_of(store, "ck/" RSI_SUMS_NAME));
    rsd_store_close(store);
}

static void what_is_no_checkpoint_is_not_sealed(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    fix_put_text(store, "x.pt", "nothing");
    assert_int_equal(rsd_ckpt_add_checksums(store, "x.pt", NULL, NULL), RSD_E_FORMAT);
    assert_int_equal(rsd_ckpt_add_checksums(store, "y.pt", NULL, NULL), RSD_E_NOTFOUND);
    assert_int_equal(rsd_ckpt_add_checksums(store, NULL, NULL, NULL), RSD_E_INVALID);
    assert_string_equal(fix_list(store, ""), "x.pt");
    rsd_store_close(store);
}

typedef struct progress {
    int64_t last, total;
    int     stop;
} progress;

static int watch(void *arg, int64_t done, int64_t total)
{
    progress *p = arg;

    assert_true(done > p->last && done <= total);
    p->last = done;
    p->total = total;
    return p->stop;
}

static void progress_ends_at_all_bytes(void **state)
{
    progress                p = { 0 };
    const rsd_checksum_opts opts = { .size = sizeof(opts), .on_progress = watch, .arg = &p };
    rsd_store              *store = saved(SAMPLE_DCP);

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", &opts, NULL), RSD_OK);
    assert_true(p.total > 0 && p.last == p.total);
    rsd_store_close(store);
}

static void a_seal_that_is_canceled_leaves_nothing(void **state)
{
    progress                p = { .stop = 1 };
    const rsd_checksum_opts opts = { .size = sizeof(opts), .on_progress = watch, .arg = &p };
    rsd_store              *store = saved(SAMPLE_DCP);

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", &opts, NULL), RSD_E_CANCELED);
    assert_string_equal(fix_list(store, "ck"), ".metadata __0_0.distcp __1_0.distcp");
    rsd_store_close(store);
}

static void a_read_that_fails_leaves_nothing(void **state)
{
    rsd_store *inner = saved(SAMPLE_SAFETENSORS), *store;
    fix_counts counts = { 0 };
    rsd_ckpt  *ckpt;
    uint64_t   reads;

    (void)state;
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck.safetensors");
    rsd_ckpt_close(ckpt);
    reads = counts.reads;
    counts = (fix_counts){ .fail_at = (int64_t)reads + 1 };
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck.safetensors", NULL, NULL), RSD_E_IO);
    assert_string_equal(fix_list(inner, ""), "ck.safetensors");
    rsd_store_close(store);
    rsd_store_close(inner);
}

static rsd_err seal_once(void *arg, rsd_error *err)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true, .threads = 1 };

    return rsd_ckpt_add_checksums(arg, "ck", &opts, err);
}

static void sealing_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = saved(SAMPLE_DCP);

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, NULL), RSD_OK);
    fix_every_allocation(seal_once, NULL, store);
    assert_string_equal(fix_list(store, "ck"),
                        ".metadata " RSI_SUMS_NAME " __0_0.distcp __1_0.distcp");
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void without_xxhash_nothing_is_sealed(void **state)
{
    rsd_store *store = saved(SAMPLE_DCP);

    (void)state;
    assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, NULL), RSD_E_UNSUPPORTED);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_gets_its_side_file_inside),
        cmocka_unit_test(a_single_file_gets_its_side_file_beside),
        cmocka_unit_test(rows_start_where_items_do),
        cmocka_unit_test(the_same_checkpoint_gets_the_same_side_file),
        cmocka_unit_test(a_side_file_is_replaced_only_if_asked),
        cmocka_unit_test(what_is_no_checkpoint_is_not_sealed),
        cmocka_unit_test(progress_ends_at_all_bytes),
        cmocka_unit_test(a_seal_that_is_canceled_leaves_nothing),
        cmocka_unit_test(a_read_that_fails_leaves_nothing),
        cmocka_unit_test(sealing_without_memory_fails_cleanly),
    };
    const struct CMUnitTest without[] = { cmocka_unit_test(without_xxhash_nothing_is_sealed) };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
