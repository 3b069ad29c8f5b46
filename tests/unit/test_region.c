/* SPDX-License-Identifier: Apache-2.0 */
/* test_region.c - what is wanted of a chunk, cut into blocks: each element is in one of them, once,
 * and they come in the order of the file. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "plan/region.h"

#include <string.h>

enum { CELLS = 4096 };

/* Visits every element of every block, as single elements at their file offset: each of `box` once,
 * blocks rising, none larger than `most`. */
static void assert_covers(const rsd_box *box, const rsd_box *chunk, int64_t elem, uint64_t offset,
                          const int64_t *stride, int64_t most)
{
    static unsigned char seen[CELLS];
    rsi_region           r;
    uint64_t             last = 0;
    int64_t              total = 0;

    memset(seen, 0, sizeof(seen));
    rsi_region_make(&r, box, chunk, elem, offset, stride, most);
    for (int64_t i = 0; i < r.nblocks; i++) {
        rsi_block block;
        rsd_box   own;
        int64_t   n;

        rsi_region_block(&r, i, &block);
        rsi_region_box(&r, &block.box, &own);
        n = rsd_box_count(&own);
        assert_int_equal(block.bytes, n * elem);
        assert_true(block.bytes <= most || n == 1);
        assert_true(!r.near || block.span <= most || n == 1);
        assert_true(i == 0 || block.at > last);
        last = block.at;
        total += n;
        for (int64_t k = 0; k < n; k++) {
            int64_t left = k, where = 0, cell = 0;

            for (int d = own.ndim - 1; d >= 0; d--) {
                int64_t at = own.off[d] + left % own.len[d];

                left /= own.len[d];
                where += (at - chunk->off[d]) * stride[d];
                assert_true(at >= box->off[d] && at < box->off[d] + box->len[d]);
            }
            cell = where / elem;
            assert_true(cell >= 0 && cell < CELLS);
            assert_int_equal(seen[cell], 0);
            seen[cell] = 1;
            assert_true(offset + (uint64_t)where >= block.at);
            assert_true(offset + (uint64_t)(where + elem) <= block.at + (uint64_t)block.span);
        }
    }
    assert_int_equal(total, rsd_box_count(box));
}

static void one_block_holds_a_box_that_fits(void **state)
{
    const int64_t stride[] = { 32, 4 }; /* [4, 8] of 4 bytes */
    const rsd_box chunk = fix_box2(10, 20, 4, 8), box = fix_box2(11, 20, 2, 8);
    rsi_region    r;
    rsi_block     block;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 1000, stride, 4096);
    assert_int_equal(r.nblocks, 1);
    assert_int_equal(r.run, 64);
    assert_true(r.near);
    rsi_region_block(&r, 0, &block);
    assert_int_equal(block.at, 1032);
    assert_int_equal(block.bytes, 64);
    assert_int_equal(block.span, 64);
}

static void rows_are_cut_where_the_limit_is(void **state)
{
    const int64_t stride[] = { 32, 4 };
    const rsd_box chunk = fix_box2(0, 0, 5, 8);
    rsi_region    r;
    rsi_block     block;

    (void)state;
    rsi_region_make(&r, &chunk, &chunk, 4, 100, stride, 70); /* two rows of 32, and 6 over */
    assert_int_equal(r.nblocks, 3);
    rsi_region_block(&r, 1, &block);
    assert_int_equal(block.at, 164);
    assert_int_equal(block.bytes, 64);
    rsi_region_block(&r, 2, &block);
    assert_int_equal(block.at, 228);
    assert_int_equal(block.bytes, 32);
    assert_int_equal(block.box.off[0], 4);
    assert_int_equal(block.box.len[0], 1);
}

static void a_row_longer_than_the_limit_is_cut_too(void **state)
{
    const int64_t stride[] = { 32, 4 };
    const rsd_box chunk = fix_box2(0, 0, 2, 8);
    rsi_region    r;
    rsi_block     block;

    (void)state;
    rsi_region_make(&r, &chunk, &chunk, 4, 0, stride, 12); /* three elements */
    assert_int_equal(r.nblocks, 6);
    rsi_region_block(&r, 2, &block);
    assert_int_equal(block.at, 24);
    assert_int_equal(block.bytes, 8);
    rsi_region_block(&r, 3, &block);
    assert_int_equal(block.at, 32);
    assert_int_equal(block.bytes, 12);
}

static void columns_of_short_rows_are_near(void **state)
{
    const int64_t stride[] = { 4096, 4 }; /* [10, 1024] of 4 bytes */
    const rsd_box chunk = fix_box2(0, 0, 10, 1024), box = fix_box2(0, 100, 10, 8);
    rsi_region    r;
    rsi_block     block;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 0, stride, 1 << 20);
    assert_int_equal(r.run, 32);
    assert_true(r.near);
    assert_int_equal(r.nblocks, 1);
    rsi_region_block(&r, 0, &block);
    assert_int_equal(block.at, 400);
    assert_int_equal(block.bytes, 320);
    assert_int_equal(block.span, 9 * 4096 + 32);
}

static void columns_of_long_rows_are_far(void **state)
{
    const int64_t stride[] = { 8192, 4 };
    const rsd_box chunk = fix_box2(0, 0, 10, 2048), box = fix_box2(0, 100, 10, 8);
    rsi_region    r;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 0, stride, 1 << 20);
    assert_int_equal(r.run, 32);
    assert_false(r.near);
    assert_int_equal(r.nblocks, 1);
}

static void near_blocks_are_limited_by_their_span(void **state)
{
    const int64_t stride[] = { 4096, 4 };
    const rsd_box chunk = fix_box2(0, 0, 10, 1024), box = fix_box2(0, 0, 10, 8);
    rsi_region    r;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 0, stride, 3 * 4096); /* 2 * 4096 + 32 fit, a third not */
    assert_int_equal(r.block_len[0], 3);
    assert_int_equal(r.nblocks, 4);
}

static void far_blocks_are_limited_by_their_bytes(void **state)
{
    const int64_t stride[] = { 8192, 4 };
    const rsd_box chunk = fix_box2(0, 0, 10, 2048), box = fix_box2(0, 0, 10, 8);
    rsi_region    r;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 0, stride, 100); /* three runs of 32 */
    assert_int_equal(r.block_len[0], 3);
    assert_int_equal(r.nblocks, 4);
}

static void dimensions_stand_in_the_order_of_the_file(void **state)
{
    const int64_t stride[] = { 4, 12, 60 }; /* [3, 5, 2], the first runs fastest */
    const int64_t off[] = { 0, 1, 0 }, len[] = { 3, 2, 2 }, zero[] = { 0, 0, 0 },
                  all[] = { 3, 5, 2 };
    const rsd_box chunk = fix_box3(zero, all), box = fix_box3(off, len);
    int64_t       by_file[3];
    rsi_region    r;
    rsd_box       back;

    (void)state;
    rsi_region_make(&r, &box, &chunk, 4, 0, stride, 4096);
    assert_int_equal(r.dim[0], 2);
    assert_int_equal(r.dim[1], 1);
    assert_int_equal(r.dim[2], 0);
    assert_int_equal(r.start, 12);
    assert_int_equal(r.run, 24);
    rsi_region_order(&r, len, by_file);
    assert_int_equal(by_file[0], 2);
    assert_int_equal(by_file[1], 2);
    assert_int_equal(by_file[2], 3);
    rsi_region_box(&r, &r.box, &back);
    assert_memory_equal(&back, &box, sizeof(box));
}

static void a_scalar_is_one_block(void **state)
{
    const rsd_box scalar = { 0 };
    rsi_region    r;
    rsi_block     block;

    (void)state;
    rsi_region_make(&r, &scalar, &scalar, 8, 77, scalar.off, 4);
    assert_int_equal(r.nblocks, 1);
    rsi_region_block(&r, 0, &block);
    assert_int_equal(block.at, 77);
    assert_int_equal(block.bytes, 8);
    assert_int_equal(block.span, 8);
}

/* An expanded tensor: torch keeps one row for all of them. */
static void a_dimension_without_stride_is_read_again_and_again(void **state)
{
    const int64_t stride[] = { 0, 4 };
    const rsd_box chunk = fix_box2(0, 0, 3, 4);
    rsi_region    r;
    int64_t       elems = 0;

    (void)state;
    rsi_region_make(&r, &chunk, &chunk, 4, 0, stride, 4096);
    for (int64_t i = 0; i < r.nblocks; i++) {
        rsi_block block;

        rsi_region_block(&r, i, &block);
        elems += block.bytes / 4;
        assert_true(block.at + (uint64_t)block.span <= 16);
    }
    assert_int_equal(elems, 12);
}

static const int64_t limits[] = { 1, 4, 9, 16, 23, 64, 100, 333, 1 << 20 };

static void row_major_blocks_cover_every_part_once(void **state)
{
    const int64_t stride[] = { 4 * 7 * 6, 4 * 7, 4 }, zero[] = { 3, 5, 7 }, all[] = { 5, 6, 7 };
    const rsd_box chunk = fix_box3(zero, all);

    (void)state;
    for (size_t m = 0; m < sizeof(limits) / sizeof(limits[0]); m++)
        for (int64_t a = 0; a < 3; a++)
            for (int64_t b = 0; b < 3; b++)
                for (int64_t c = 0; c < 3; c++) {
                    const int64_t off[] = { 3 + a, 5 + b, 7 + c },
                                  len[] = { 5 - 2 * a, 6 - b, 7 - 3 * c };
                    const rsd_box box = fix_box3(off, len);

                    assert_covers(&box, &chunk, 4, 64, stride, limits[m]);
                }
}

static void transposed_blocks_cover_every_part_once(void **state)
{
    const int64_t stride[] = { 4, 4 * 5, 4 * 5 * 6 }, zero[] = { 0, 0, 0 }, all[] = { 5, 6, 7 };
    const int64_t off[] = { 1, 2, 0 }, len[] = { 3, 4, 6 };
    const rsd_box chunk = fix_box3(zero, all), box = fix_box3(off, len);

    (void)state;
    for (size_t m = 0; m < sizeof(limits) / sizeof(limits[0]); m++) {
        assert_covers(&chunk, &chunk, 4, 0, stride, limits[m]);
        assert_covers(&box, &chunk, 4, 0, stride, limits[m]);
    }
}

static void channels_last_blocks_cover_every_part_once(void **state)
{
    /* [2, 3, 4, 5]: channels, dimension 1, run fastest */
    const int64_t stride[] = { 2 * 60, 2, 2 * 15, 2 * 3 };
    const rsd_box chunk = { .ndim = 4, .len = { 2, 3, 4, 5 } };
    const rsd_box box = { .ndim = 4, .off = { 0, 1, 1, 2 }, .len = { 2, 2, 2, 3 } };

    (void)state;
    for (size_t m = 0; m < sizeof(limits) / sizeof(limits[0]); m++) {
        assert_covers(&chunk, &chunk, 2, 0, stride, limits[m]);
        assert_covers(&box, &chunk, 2, 0, stride, limits[m]);
    }
}

static void blocks_of_far_runs_cover_every_part_once(void **state)
{
    const int64_t stride[] = { 8192, 8 }; /* a page and more between the rows */
    const rsd_box chunk = fix_box2(0, 0, 3, 1024), box = fix_box2(0, 1000, 3, 20);

    (void)state;
    for (size_t m = 0; m < sizeof(limits) / sizeof(limits[0]); m++)
        assert_covers(&box, &chunk, 8, 0, stride, limits[m]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_block_holds_a_box_that_fits),
        cmocka_unit_test(rows_are_cut_where_the_limit_is),
        cmocka_unit_test(a_row_longer_than_the_limit_is_cut_too),
        cmocka_unit_test(columns_of_short_rows_are_near),
        cmocka_unit_test(columns_of_long_rows_are_far),
        cmocka_unit_test(near_blocks_are_limited_by_their_span),
        cmocka_unit_test(far_blocks_are_limited_by_their_bytes),
        cmocka_unit_test(dimensions_stand_in_the_order_of_the_file),
        cmocka_unit_test(a_scalar_is_one_block),
        cmocka_unit_test(a_dimension_without_stride_is_read_again_and_again),
        cmocka_unit_test(row_major_blocks_cover_every_part_once),
        cmocka_unit_test(transposed_blocks_cover_every_part_once),
        cmocka_unit_test(channels_last_blocks_cover_every_part_once),
        cmocka_unit_test(blocks_of_far_runs_cover_every_part_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
