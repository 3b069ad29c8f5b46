/* SPDX-License-Identifier: Apache-2.0 */
/* test_copy.c - boxes in memory, moved by copy.c and by a loop over single elements, end up the
 * same; and not a byte beside the box is touched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "plan/copy.h"
#include "plan_fixture.h"

#include <stdlib.h>
#include <string.h>

/* ---- against single elements ---- */

enum { GUARD = 64, SMALL = 1 << 21 }; /* bytes before and behind; the whole */

/* One side of a copy: `all` is memory, `first` the first element of the box in it. */
typedef struct side {
    unsigned char *all;
    size_t         bytes; /* in use, guards included */
    int64_t        first;
    int64_t        stride[RSD_MAX_NDIM];
} side;

static side     to, from;
static uint64_t random_state;

static int begin(void **state)
{
    (void)state;
    random_state = 20250;
    to.all = rsi_alloc_aligned(64, SMALL);
    from.all = rsi_alloc_aligned(64, SMALL);
    if (!to.all || !from.all)
        return -1;
    for (size_t i = 0; i < SMALL; i++)
        from.all[i] = (unsigned char)(i * 7 + i / 251);
    return 0;
}

static int end(void **state)
{
    (void)state;
    rsi_free(to.all);
    rsi_free(from.all);
    return 0;
}

/* 0 .. n-1 */
static int64_t draw(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(random_state >> 33) % n;
}

/* Lays a box out with the dimensions nested in the order `nest`, outermost first, `gap[d]` unused
 * elements behind each line of dimension d; `falls` has a bit for each dimension that runs
 * backwards. */
static void lay_out(side *s, int ndim, const int64_t *len, int64_t elem_bytes, const int *nest,
                    const int64_t *gap, unsigned falls)
{
    int64_t bytes = elem_bytes;

    s->first = GUARD;
    for (int i = ndim - 1; i >= 0; i--) {
        int d = nest[i];

        s->stride[d] = bytes;
        bytes *= len[d] + gap[d];
        if (falls >> d & 1) {
            s->first += (len[d] - 1) * s->stride[d];
            s->stride[d] = -s->stride[d];
        }
    }
    s->bytes = 2 * GUARD + (size_t)bytes;
    assert_true(s->bytes <= SMALL);
}

static void copy_elements(unsigned char *all, int ndim, const int64_t *len, int64_t elem_bytes)
{
    int64_t at[RSD_MAX_NDIM] = { 0 };
    int     d;

    do {
        int64_t t = to.first, f = from.first;

        for (d = 0; d < ndim; d++) {
            t += at[d] * to.stride[d];
            f += at[d] * from.stride[d];
        }
        memcpy(all + t, from.all + f, (size_t)elem_bytes);
        for (d = ndim - 1; d >= 0 && ++at[d] == len[d]; d--)
            at[d] = 0;
    } while (d >= 0);
}

/* Copies the box both ways, into memory full of 0xa5, and compares all of it. */
static void assert_copied(int ndim, const int64_t *len, int64_t elem_bytes)
{
    unsigned char *want = rsi_calloc(1, to.bytes);
    rsi_loops      loops;

    assert_non_null(want);
    memset(want, 0xa5, to.bytes);
    memset(to.all, 0xa5, to.bytes);
    copy_elements(want, ndim, len, elem_bytes);
    rsi_loops_make(&loops, ndim, len, elem_bytes, to.stride, from.stride);
    rsi_copy(&loops, to.all + to.first, from.all + from.first);
    if (memcmp(to.all, want, to.bytes) != 0) {
        for (int d = 0; d < ndim; d++)
            print_error("dimension %d: %lld, strides %lld and %lld\n", d, (long long)len[d],
                        (long long)to.stride[d], (long long)from.stride[d]);
        fail_msg("elements of %lld bytes came out wrong", (long long)elem_bytes);
    }
    rsi_free(want);
}

/* The same for a matrix that bypasses the caches. */
static void assert_copied_past(const int64_t *len, int64_t elem_bytes)
{
    unsigned char *want = rsi_calloc(1, to.bytes);
    rsd_box        box = { .ndim = 2, .len = { len[0], len[1] } };
    rsi_area       at = { .box = box, .data = to.all + to.first };
    rsi_area       of = { .box = box, .data = from.all + from.first };

    assert_non_null(want);
    memcpy(at.stride, to.stride, sizeof(at.stride));
    memcpy(of.stride, from.stride, sizeof(of.stride));
    memset(want, 0xa5, to.bytes);
    memset(to.all, 0xa5, to.bytes);
    copy_elements(want, 2, len, elem_bytes);
    rsi_copy_box_past(&box, elem_bytes, &at, &of);
    assert_memory_equal(to.all, want, to.bytes);
    rsi_free(want);
}

static const int64_t sizes[] = { 1, 2, 4, 8, 16 };
static const int     in_order[] = { 0, 1, 2, 3 }, swapped[] = { 1, 0 };
static const int64_t dense[4] = { 0 };

static void transposing_is_right_around_the_edges_of_tiles(void **state)
{
    static const int64_t lens[] = { 1, 2, 31, 32, 33, 64, 65 };

    (void)state;
    for (size_t s = 0; s < 5; s++)
        for (size_t i = 0; i < 7; i++)
            for (size_t j = 0; j < 7; j++) {
                int64_t len[] = { lens[i], lens[j] };

                lay_out(&to, 2, len, sizes[s], in_order, dense, 0);
                lay_out(&from, 2, len, sizes[s], swapped, dense, 0);
                assert_copied(2, len, sizes[s]);
            }
}

/* Sizes around those of squares and tiles, pitches that are and aren't multiples of a cache line,
 * and targets that begin anywhere in one; through the caches and past them. */
static void transposing_is_right_at_every_alignment(void **state)
{
    static const int64_t lens[] = { 5, 15, 16, 17, 127, 129, 260 };

    (void)state;
    for (int64_t s = 0; s < 5; s++)
        for (int64_t i = 0; i < 7; i++)
            for (int64_t j = 0; j < 7; j++) {
                int64_t len[] = { lens[i], lens[j] }, to_gap[] = { 0, draw(3) };
                int64_t from_gap[] = { draw(3), 0 };

                if (draw(2)) /* lines of the target at the same place in each row */
                    to_gap[1] = 64 - len[1] % 64;
                lay_out(&to, 2, len, sizes[s], in_order, to_gap, 0);
                lay_out(&from, 2, len, sizes[s], swapped, from_gap, 0);
                to.first += draw(48);
                from.first += draw(48);
                assert_copied(2, len, sizes[s]);
                assert_copied_past(len, sizes[s]);
            }
}

static void narrow_columns_are_right_for_every_run_length(void **state)
{
    (void)state;
    for (int64_t bytes = 1; bytes <= 70; bytes++) {
        int64_t len[] = { 33, bytes }, gap[] = { 0, 5 };

        lay_out(&to, 2, len, 1, in_order, dense, 0);
        lay_out(&from, 2, len, 1, in_order, gap, 0);
        assert_copied(2, len, 1);
        lay_out(&to, 2, len, 1, in_order, gap, 0);
        lay_out(&from, 2, len, 1, in_order, dense, 0);
        assert_copied(2, len, 1);
    }
}

static void planes_of_every_run_length_change_places(void **state)
{
    static const int nest[] = { 1, 0, 2 };

    (void)state;
    for (int64_t bytes = 1; bytes <= 20; bytes++) { /* up to 16 in tiles */
        int64_t len[] = { 33, 40, bytes };

        lay_out(&to, 3, len, 1, in_order, dense, 0);
        lay_out(&from, 3, len, 1, nest, dense, 0);
        assert_copied(3, len, 1);
    }
}

/* A random order of the dimensions. */
static void shuffle(int ndim, int *nest)
{
    for (int i = 0; i < ndim; i++) {
        int j = (int)draw(i + 1);

        nest[i] = nest[j];
        nest[j] = i;
    }
}

static void draw_layout(side *s, int ndim, const int64_t *len, int64_t elem_bytes)
{
    int     nest[4];
    int64_t gap[4];

    shuffle(ndim, nest);
    for (int d = 0; d < ndim; d++)
        gap[d] = draw(2) ? 0 : draw(3);
    lay_out(s, ndim, len, elem_bytes, nest, gap, (unsigned)draw(3) ? 0 : (unsigned)draw(16));
}

static void assert_random_boxes(int ndim, int64_t longest)
{
    for (int i = 0; i < 400; i++) {
        int64_t elem_bytes = sizes[draw(5)], len[4];

        for (int d = 0; d < ndim; d++)
            len[d] = draw(4) ? 1 + draw(longest / 3) : 1 + draw(longest);
        draw_layout(&to, ndim, len, elem_bytes);
        draw_layout(&from, ndim, len, elem_bytes);
        to.first += draw(16); /* also where nothing is aligned; the guard is large enough */
        from.first += draw(16);
        assert_copied(ndim, len, elem_bytes);
    }
}

static void random_boxes_of_one_and_two_dimensions_are_copied(void **state)
{
    (void)state;
    assert_random_boxes(1, 1000);
    assert_random_boxes(2, 70);
}

static void random_boxes_of_three_dimensions_are_copied(void **state)
{
    (void)state;
    assert_random_boxes(3, 36);
}

static void random_boxes_of_four_dimensions_are_copied(void **state)
{
    (void)state;
    assert_random_boxes(4, 15);
}

static void eight_dimensions_in_reverse_are_copied(void **state)
{
    static const int nest[] = { 7, 6, 5, 4, 3, 2, 1, 0 }, straight[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int64_t          len[] = { 2, 3, 2, 3, 2, 3, 2, 3 }, gap[8] = { 0 };

    (void)state;
    lay_out(&to, 8, len, 4, straight, gap, 0);
    lay_out(&from, 8, len, 4, nest, gap, 0x35);
    assert_copied(8, len, 4);
}

static void a_source_that_is_repeated_fills_every_row(void **state)
{
    int64_t len[] = { 40, 33 };

    (void)state;
    for (size_t s = 0; s < 5; s++) {
        lay_out(&to, 2, len, sizes[s], in_order, dense, 0);
        lay_out(&from, 2, len, sizes[s], in_order, dense, 0);
        from.stride[0] = 0;
        assert_copied(2, len, sizes[s]);
        from.stride[0] = sizes[s];
        from.stride[1] = 0;
        assert_copied(2, len, sizes[s]);
    }
}

static void nothing_to_do_touches_nothing(void **state)
{
    unsigned char byte = 0xa5;
    rsi_loops     loops;

    (void)state;
    rsi_loops_make(&loops, 2, (int64_t[]){ 4, 0 }, 4, NULL, NULL);
    rsi_copy(&loops, &byte, NULL);
    assert_int_equal(byte, 0xa5);
}

/* ---- areas ---- */

/* The bytes of a 4 x 6 area that lies at [10, 20]: 10 * row + column. */
static const unsigned char numbers[4][6] = { { 0, 1, 2, 3, 4, 5 },
                                             { 10, 11, 12, 13, 14, 15 },
                                             { 20, 21, 22, 23, 24, 25 },
                                             { 30, 31, 32, 33, 34, 35 } };

static rsi_area area_at_10_20(unsigned char *data)
{
    return (rsi_area){ .box = fixture_box2(10, 14, 20, 26), .data = data, .stride = { 6, 1 } };
}

static void packing_takes_the_box_out_row_by_row(void **state)
{
    unsigned char data[4][6], packed[8];
    rsi_area      area = area_at_10_20(data[0]);
    rsd_box       box = fixture_box2(11, 13, 22, 25);

    (void)state;
    memcpy(data, numbers, sizeof(data));
    memset(packed, 99, sizeof(packed));
    rsi_pack(&box, 1, packed + 1, &area);
    assert_memory_equal(packed, "\x63\x0c\x0d\x0e\x16\x17\x18\x63", 8); /* 12 13 14 22 23 24 */
}

static void unpacking_writes_the_box_and_nothing_else(void **state)
{
    unsigned char data[4][6], want[4][6];
    rsi_area      area = area_at_10_20(data[0]);
    rsd_box       box = fixture_box2(12, 14, 20, 22);

    (void)state;
    memcpy(data, numbers, sizeof(data));
    memcpy(want, numbers, sizeof(data));
    want[2][0] = 'a';
    want[2][1] = 'b';
    want[3][0] = 'c';
    want[3][1] = 'd';
    rsi_unpack(&box, 1, &area, "abcd");
    assert_memory_equal(data, want, sizeof(data));
}

static void copying_a_box_finds_it_on_both_sides(void **state)
{
    unsigned char data[4][6], other[3][5], want[3][5];
    rsi_area      area = area_at_10_20(data[0]);
    rsi_area      small = { .box = fixture_box2(11, 16, 23, 26),
                            .data = other[0],
                            .stride = { 1, 5 } }; /* transposed: 3 columns of 5 */
    rsd_box       box = fixture_box2(12, 14, 24, 26);

    (void)state;
    memcpy(data, numbers, sizeof(data));
    memset(other, 99, sizeof(other));
    memset(want, 99, sizeof(want));
    want[1][1] = 24; /* [12, 24] is row 2, column 4; column 1, row 1 of the small one */
    want[2][1] = 25;
    want[1][2] = 34;
    want[2][2] = 35;
    rsi_copy_box(&box, 1, &small, &area);
    assert_memory_equal(other, want, sizeof(other));
}

static void packing_and_unpacking_larger_elements_is_the_identity(void **state)
{
    int64_t  data[5][7], back[5][7], packed[12];
    rsi_area area = { .box = fixture_box2(0, 5, 0, 7),
                      .data = (unsigned char *)data,
                      .stride = { 56, 8 } };
    rsi_area other = area;
    rsd_box  box = fixture_box2(1, 5, 2, 5);

    (void)state;
    for (int i = 0; i < 35; i++)
        data[i / 7][i % 7] = i;
    memcpy(back, data, sizeof(back));
    for (int i = 0; i < 12; i++)
        back[1 + i / 3][2 + i % 3] = -1;
    other.data = (unsigned char *)back;
    rsi_pack(&box, 8, packed, &area);
    for (int i = 0; i < 12; i++)
        assert_int_equal(packed[i], (1 + i / 3) * 7 + 2 + i % 3);
    rsi_unpack(&box, 8, &other, packed);
    assert_memory_equal(back, data, sizeof(data));
}

/* ---- copies that go past the caches: 32 MiB and more, in lines of 64 bytes ---- */

enum { ROWS = 8192, RUN = 4096, LARGE = 36 << 20 };

typedef struct large {
    int64_t planes, rows, run; /* rows of each plane, bytes of each row */
    int64_t shift;             /* of the first byte from an address that 64 divides */
    int64_t to_plane, to_step;
    int64_t from_plane, from_step;
} large;

static unsigned char *large_to, *large_from;

static int begin_large(void **state)
{
    uint64_t x = 1;

    (void)state;
    large_to = rsi_alloc_aligned(64, LARGE);
    large_from = rsi_alloc_aligned(64, LARGE);
    if (!large_to || !large_from)
        return -1;
    for (size_t i = 0; i < LARGE; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(large_from + i, &x, 8);
    }
    return 0;
}

static int end_large(void **state)
{
    (void)state;
    rsi_free(large_to);
    rsi_free(large_from);
    return 0;
}

/* Where the first row starts when rows fall: behind all others. */
static int64_t start_of(int64_t shift, int64_t rows, int64_t step)
{
    return shift + (step < 0 ? -(rows - 1) * step : 0);
}

static bool all_are(const unsigned char *at, unsigned char value, int64_t n)
{
    return n == 0 || (at[0] == value && memcmp(at, at + 1, (size_t)n - 1) == 0);
}

/* Every row is there; the gap behind each one, up to 64 bytes, and what lies before the first are
 * as they were, and so is all behind the last row. */
static void assert_large(const large *c)
{
    int64_t   len[] = { c->planes, c->rows, c->run };
    int64_t   to_stride[] = { c->to_plane, c->to_step, 1 };
    int64_t   from_stride[] = { c->from_plane, c->from_step, 1 };
    int64_t   t = start_of(64 + c->shift, c->rows, c->to_step);
    int64_t   f = start_of(0, c->rows, c->from_step), gap = llabs(c->to_step) - c->run;
    int64_t   last = c->to_step < 0 ? 0 : (c->rows - 1) * c->to_step;
    int64_t   end = t + (c->planes - 1) * c->to_plane + last + c->run;
    rsi_loops loops;

    memset(large_to, 0xa5, LARGE);
    rsi_loops_make(&loops, 3, len, 1, to_stride, from_stride);
    rsi_copy(&loops, large_to + t, large_from + f);
    assert_true(all_are(large_to, 0xa5, 64 + c->shift));
    assert_true(all_are(large_to + end, 0xa5, LARGE - end));
    for (int64_t p = 0; p < c->planes; p++)
        for (int64_t r = 0; r < c->rows; r++) {
            const unsigned char *row = large_to + t + p * c->to_plane + r * c->to_step;

            if (memcmp(row, large_from + f + p * c->from_plane + r * c->from_step,
                       (size_t)c->run) != 0)
                fail_msg("row %lld of plane %lld came out wrong", (long long)r, (long long)p);
            if (!all_are(row + c->run, 0xa5, gap))
                fail_msg("the gap behind row %lld of plane %lld was written", (long long)r,
                         (long long)p);
        }
}

static void many_whole_lines_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN, 0, 0, RUN + 64, 0, RUN + 8 });
}

static void many_lines_to_a_target_between_lines_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN, 8, 0, RUN + 64, 0, RUN + 8 });
    assert_large(&(large){ 1, ROWS, RUN, 1, 0, RUN + 64, 0, RUN });
}

static void many_rows_whose_length_is_no_multiple_of_a_line_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN + 8, 0, 0, RUN + 64, 0, RUN + 16 });
}

static void many_rows_whose_step_is_no_multiple_of_a_line_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN, 0, 0, RUN + 8, 0, RUN + 16 });
}

static void just_too_few_lines_for_that_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS - 1, RUN, 0, 0, RUN + 64, 0, RUN + 8 });
}

/* Long rows with gaps are copied eight at a time. */
static void rows_that_are_left_over_from_eights_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS + 3, RUN, 0, 0, RUN + 64, 0, RUN + 8 });
    assert_large(&(large){ 1, ROWS + 7, RUN + 24, 40, 0, RUN + 72, 0, RUN + 48 });
    assert_large(&(large){ 1, 5, 7 << 20, 3, 0, (7 << 20) + 5, 0, (7 << 20) + 1 });
}

static void many_short_rows_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ((32 << 20) + 383) / 384, 384, 0, 0, 384, 0, 408 });
}

static void many_lines_in_falling_order_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN, 0, 0, RUN + 64, 0, -(RUN + 8) });
    assert_large(&(large){ 1, ROWS, RUN, 0, 0, -(RUN + 64), 0, RUN + 8 });
}

static void many_copies_of_one_row_are_made(void **state)
{
    (void)state;
    assert_large(&(large){ 1, ROWS, RUN, 0, 0, RUN + 64, 0, 0 });
}

static void many_lines_in_several_planes_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 4, ROWS / 4, RUN, 0, ROWS / 4 * (RUN + 64) + 128, RUN + 64,
                           ROWS / 4 * (RUN + 8) + 24, RUN + 8 });
}

static void planes_that_start_between_lines_are_copied(void **state)
{
    (void)state;
    assert_large(&(large){ 4, ROWS / 4, RUN, 0, ROWS / 4 * (RUN + 64) + 8, RUN + 64,
                           ROWS / 4 * (RUN + 8), RUN + 8 });
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, begin, end)
#define LARGE_TEST(name) cmocka_unit_test_setup_teardown(name, begin_large, end_large)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(transposing_is_right_around_the_edges_of_tiles),
        TEST(transposing_is_right_at_every_alignment),
        TEST(narrow_columns_are_right_for_every_run_length),
        TEST(planes_of_every_run_length_change_places),
        TEST(random_boxes_of_one_and_two_dimensions_are_copied),
        TEST(random_boxes_of_three_dimensions_are_copied),
        TEST(random_boxes_of_four_dimensions_are_copied),
        TEST(eight_dimensions_in_reverse_are_copied),
        TEST(a_source_that_is_repeated_fills_every_row),
        cmocka_unit_test(nothing_to_do_touches_nothing),
        cmocka_unit_test(packing_takes_the_box_out_row_by_row),
        cmocka_unit_test(unpacking_writes_the_box_and_nothing_else),
        cmocka_unit_test(copying_a_box_finds_it_on_both_sides),
        cmocka_unit_test(packing_and_unpacking_larger_elements_is_the_identity),
        LARGE_TEST(many_whole_lines_are_copied),
        LARGE_TEST(many_lines_to_a_target_between_lines_are_copied),
        LARGE_TEST(many_rows_whose_length_is_no_multiple_of_a_line_are_copied),
        LARGE_TEST(many_rows_whose_step_is_no_multiple_of_a_line_are_copied),
        LARGE_TEST(just_too_few_lines_for_that_are_copied),
        LARGE_TEST(rows_that_are_left_over_from_eights_are_copied),
        LARGE_TEST(many_short_rows_are_copied),
        LARGE_TEST(many_lines_in_falling_order_are_copied),
        LARGE_TEST(many_copies_of_one_row_are_made),
        LARGE_TEST(many_lines_in_several_planes_are_copied),
        LARGE_TEST(planes_that_start_between_lines_are_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
