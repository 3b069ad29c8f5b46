/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_join.c - parts in several safetensors files become whole tensors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/st_dcp.h"
#include "format/st_write.h"

#include <string.h>

enum { FILES = 3 };

/* Headers made and read back, one after the other. */
typedef struct fixture {
    rsi_st_image  image[FILES];
    rsi_st_header header[FILES];
    rsi_st_dcp    dcp[FILES];
    rsi_st_file   file[FILES];
    size_t        n;
} fixture;

/* off NULL: a plain file of whole tensors. */
static void add_file(fixture *f, const char *path, size_t n, const rsi_st_item *item,
                     const int64_t *const *off)
{
    const char   *name[4];
    int           ndim[4];
    rsi_json_out  info = { 0 };
    rsi_st_pair   pair = { .key = RSI_ST_DCP_INFO };
    rsi_st_image *image = &f->image[f->n];

    for (size_t i = 0; i < n; i++) {
        name[i] = item[i].name;
        ndim[i] = item[i].ndim;
    }
    if (off)
        assert_int_equal(rsi_st_dcp_write(n, name, ndim, off, &info, NULL), RSD_OK);
    pair.value = info.buf;
    pair.value_len = info.len;
    assert_int_equal(rsi_st_image_make(n, item, off != NULL, &pair, image, NULL), RSD_OK);
    assert_int_equal(rsi_st_parse_cut(image->head + 8, image->head_len - 8,
                                      image->head_len + image->data_bytes, false, &f->header[f->n],
                                      NULL),
                     RSD_OK);
    assert_int_equal(rsi_st_dcp_read(&f->header[f->n], &f->dcp[f->n], NULL), RSD_OK);
    f->file[f->n] = (rsi_st_file){ path, &f->header[f->n], &f->dcp[f->n] };
    f->n++;
    rsi_json_out_release(&info);
}

static void release(fixture *f)
{
    for (size_t i = 0; i < f->n; i++) {
        rsi_st_dcp_release(&f->dcp[i]);
        rsi_st_release(&f->header[i]);
        rsi_st_image_release(&f->image[i]);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static const int64_t rows[] = { 2, 3 }, last[] = { 1, 3 }, five[] = { 5 }, at0[] = { 0, 0 },
                     at2[] = { 2, 0 }, at4[] = { 4, 0 };
static const int64_t *const first_off[] = { at0, at0 }, *const second_off[] = { at2 },
                            *const third_off[] = { at4 };
static const rsi_st_item first_items[] = { { "w", RSD_F32, 2, rows }, { "b", RSD_F16, 1, five } };
static const rsi_st_item second_items[] = { { "w", RSD_F32, 2, rows } };
static const rsi_st_item third_items[] = { { "w", RSD_F32, 2, last } };

static void three_files(fixture *f)
{
    add_file(f, "one", 2, first_items, first_off);
    add_file(f, "two", 1, second_items, second_off);
    add_file(f, "three", 1, third_items, third_off);
}

static void the_whole_reaches_as_far_as_its_parts(void **state)
{
    fixture             f = { .n = 0 };
    rsi_st_joined       joined;
    const rsi_st_whole *w;

    (void)state;
    three_files(&f);
    assert_int_equal(rsi_st_join(f.n, f.file, &joined, NULL), RSD_OK);
    assert_int_equal(joined.nwholes, 2);
    assert_int_equal(joined.nparts, 4);
    w = &joined.whole[0];
    assert_string_equal(w->name->text, "w");
    assert_int_equal(w->dtype, RSD_F32);
    assert_int_equal(w->ndim, 2);
    assert_int_equal(w->shape[0], 5);
    assert_int_equal(w->shape[1], 3);
    assert_int_equal(w->parts, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(joined.part[w->first + i].file, i);
        assert_int_equal(joined.part[w->first + i].tensor, 0);
    }
    assert_string_equal(joined.whole[1].name->text, "b");
    assert_int_equal(joined.whole[1].parts, 1);
    assert_int_equal(joined.part[joined.whole[1].first].tensor, 1);
    rsi_st_joined_release(&joined);
    release(&f);
}

static void assert_refused(const rsi_st_item *item, const int64_t *const *off, const char *msg)
{
    fixture       f = { .n = 0 };
    rsi_st_joined joined;
    rsd_error     err = { 0 };

    add_file(&f, "one", 2, first_items, first_off);
    add_file(&f, "two", 1, item, off);
    assert_int_equal(rsi_st_join(f.n, f.file, &joined, &err), RSD_E_FORMAT);
    assert_string_equal(err.msg, msg);
    release(&f);
}

static void parts_that_do_not_agree_are_refused(void **state)
{
    static const rsi_st_item    half = { "w", RSD_F16, 2, rows }, flat = { "w", RSD_F32, 1, five };
    static const int64_t        far[] = { INT64_MAX - 2, INT64_MAX - 3 };
    static const int64_t *const far_off[] = { far };

    (void)state;
    assert_refused(&half, second_off, "tensor \"w\" in \"one\" and \"two\": the dtypes differ");
    assert_refused(&flat, second_off,
                   "tensor \"w\" in \"one\" and \"two\": the numbers of dimensions differ");
    assert_refused(second_items, NULL,
                   "tensor \"w\" in \"one\" and \"two\": only files with DCP_SHARDING_INFO can "
                   "share a tensor");
    assert_refused(second_items, far_off,
                   "tensor \"w\": the size of all parts together does not fit into 64 bits");
}

static void whole_tensors_of_plain_files_are_listed(void **state)
{
    fixture       f = { .n = 0 };
    rsi_st_joined joined;

    (void)state;
    add_file(&f, "one", 1, second_items, NULL);
    add_file(&f, "two", 1, &first_items[1], NULL);
    assert_int_equal(rsi_st_join(f.n, f.file, &joined, NULL), RSD_OK);
    assert_int_equal(joined.nwholes, 2);
    assert_int_equal(joined.part[1].file, 1);
    rsi_st_joined_release(&joined);
    assert_int_equal(rsi_st_join(0, NULL, &joined, NULL), RSD_OK);
    assert_int_equal(joined.nwholes, 0);
    rsi_st_joined_release(&joined);
    release(&f);
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    fixture f = { .n = 0 };
    int64_t before;
    rsd_err rc = RSD_E_NOMEM;

    (void)state;
    three_files(&f);
    before = rsi_mem_stats_get().bytes;
    for (uint64_t n = 1; rc; n++) {
        rsi_st_joined joined = { 0 };
        rsd_error     err = { 0 };

        rsi_mem_fail_at(n, 0);
        rc = rsi_st_join(f.n, f.file, &joined, &err);
        rsi_mem_fail_at(0, 0);
        if (rc)
            assert_int_equal(err.code, RSD_E_NOMEM);
        assert_true(rc || n > 4);
        rsi_st_joined_release(&joined);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_reaches_as_far_as_its_parts),
        cmocka_unit_test(parts_that_do_not_agree_are_refused),
        cmocka_unit_test(whole_tensors_of_plain_files_are_listed),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
