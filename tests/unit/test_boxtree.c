/* SPDX-License-Identifier: Apache-2.0 */
/* test_boxtree.c - the index finds exactly the boxes that meet a query, as a loop over all of them
 * does. Grids, random guillotine cuts and boxes that lie on each other, in 1 to 5 dimensions. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "shape/boxtree.h"

/* ---- helpers -------------------------------------------------------------------------------- */

static uint64_t seed;

/* splitmix64: the same numbers everywhere */
static int64_t random_below(int64_t n)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

typedef struct index_of {
    rsi_boxes   boxes;
    rsi_boxtree tree;
    rsi_arena   mem;
    uint8_t    *seen;       /* [n] how often the last search told a box */
    size_t      hits, most; /* told by the last search; it stops at `most` */
} index_of;

static void make_room(index_of *x, int ndim, size_t n)
{
    *x = (index_of){ .boxes = { .ndim = ndim, .n = n }, .most = SIZE_MAX };
    x->boxes.at = rsi_arena_array(&x->mem, n, 2 * (size_t)ndim * sizeof(int64_t));
    x->seen = rsi_arena_array(&x->mem, n, 1);
    assert_non_null(x->boxes.at);
    assert_non_null(x->seen);
}

static void build(index_of *x)
{
    assert_int_equal(rsi_boxtree_build(&x->tree, &x->boxes, &x->mem, NULL), RSD_OK);
}

static bool note(void *arg, uint32_t i)
{
    index_of *x = arg;

    assert_true(i < x->boxes.n);
    x->seen[i]++;
    return ++x->hits < x->most;
}

static size_t search(index_of *x, const rsd_box *query)
{
    memset(x->seen, 0, x->boxes.n);
    x->hits = 0;
    rsi_boxtree_find(&x->tree, query, note, x);
    return x->hits;
}

/* Not the library's: empty boxes meet nothing. */
static bool meet(const rsd_box *a, const rsd_box *b)
{
    for (int d = 0; d < a->ndim; d++)
        if (a->len[d] == 0 || b->len[d] == 0 || a->off[d] >= b->off[d] + b->len[d] ||
            b->off[d] >= a->off[d] + a->len[d])
            return false;
    return true;
}

static void assert_search_is_a_loop(index_of *x, const rsd_box *query)
{
    search(x, query);
    for (size_t i = 0; i < x->boxes.n; i++) {
        rsd_box box = rsi_boxes_get(&x->boxes, i);

        assert_int_equal(x->seen[i], meet(&box, query));
    }
}

/* Random queries around a tensor of `size` in each dimension, empty and outside ones among them. */
static void assert_random_searches(index_of *x, int64_t size, int queries)
{
    while (queries-- > 0) {
        rsd_box query = { .ndim = x->boxes.ndim };

        for (int d = 0; d < query.ndim; d++) {
            query.off[d] = random_below(size + 4) - 2;
            query.len[d] = random_below(size);
        }
        assert_search_is_a_loop(x, &query);
    }
}

/* Box i of a grid of `side` cells of `step` in each dimension. */
static rsd_box cell(int ndim, int64_t side, int64_t step, size_t i)
{
    rsd_box box = { .ndim = ndim };

    for (int d = ndim - 1; d >= 0; d--) {
        box.off[d] = (int64_t)(i % (size_t)side) * step;
        box.len[d] = step;
        i /= (size_t)side;
    }
    return box;
}

/* Cuts a random box in two until there are n, which tile the tensor. */
static void cut_at_random(index_of *x, int ndim, int64_t size, size_t n)
{
    make_room(x, ndim, n);
    for (int d = 0; d < ndim; d++)
        x->boxes.at[ndim + d] = size;
    for (size_t made = 1; made < n;) {
        size_t  i = (size_t)random_below((int64_t)made);
        int     d = (int)random_below(ndim);
        rsd_box low = rsi_boxes_get(&x->boxes, i), high = low;

        if (low.len[d] < 2)
            continue;
        low.len[d] = 1 + random_below(low.len[d] - 1);
        high.off[d] += low.len[d];
        high.len[d] -= low.len[d];
        rsi_boxes_set(&x->boxes, i, &low);
        rsi_boxes_set(&x->boxes, made++, &high);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void box_that_was_set_is_the_one_got(void **state)
{
    const rsd_box want = { .ndim = 3, .off = { 1, 2, 3 }, .len = { 4, 5, 6 } };
    rsd_box       got;
    index_of      x;

    (void)state;
    make_room(&x, 3, 4);
    rsi_boxes_set(&x.boxes, 2, &want);
    got = rsi_boxes_get(&x.boxes, 2);
    assert_int_equal(got.ndim, 3);
    assert_memory_equal(got.off, want.off, sizeof(got.off)); /* unused dimensions are zero */
    assert_memory_equal(got.len, want.len, sizeof(got.len));
    got = rsi_boxes_get(&x.boxes, 1);
    assert_int_equal(got.len[2], 0);
    got = rsi_boxes_get(&x.boxes, 3);
    assert_int_equal(got.off[0], 0);
    rsi_arena_release(&x.mem);
}

static void index_of_no_boxes_finds_nothing(void **state)
{
    const rsd_box query = { .ndim = 2, .len = { 9, 9 } };
    index_of      x;

    (void)state;
    make_room(&x, 2, 0);
    build(&x);
    assert_int_equal(search(&x, &query), 0);
    rsi_arena_release(&x.mem);
}

static void index_of_one_box_finds_it_or_not(void **state)
{
    const rsd_box box = { .ndim = 1, .off = { 3 }, .len = { 2 } };
    const int64_t starts[] = { 1, 2, 3, 4, 5 }, want[] = { 0, 0, 1, 1, 0 };
    index_of      x;

    (void)state;
    make_room(&x, 1, 1);
    rsi_boxes_set(&x.boxes, 0, &box);
    build(&x);
    for (int i = 0; i < 5; i++) {
        rsd_box query = { .ndim = 1, .off = { starts[i] }, .len = { 1 } };

        assert_int_equal(search(&x, &query), want[i]);
    }
    rsi_arena_release(&x.mem);
}

static void index_of_one_scalar_finds_it(void **state)
{
    const rsd_box scalar = { .ndim = 0 };
    index_of      x;

    (void)state;
    make_room(&x, 0, 1);
    build(&x);
    assert_int_equal(search(&x, &scalar), 1);
    rsi_arena_release(&x.mem);
}

static void query_finds_the_cells_of_a_grid_that_it_touches(void **state)
{
    /* cells of 10 x 10: rows 1 and 2, columns 0 to 3 */
    const rsd_box query = { .ndim = 2, .off = { 19, 5 }, .len = { 2, 26 } };
    index_of      x;

    (void)state;
    make_room(&x, 2, 64);
    for (size_t i = 0; i < 64; i++) {
        rsd_box box = cell(2, 8, 10, i);

        rsi_boxes_set(&x.boxes, i, &box);
    }
    build(&x);
    assert_int_equal(search(&x, &query), 8);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(x.seen[i], (i / 8 == 1 || i / 8 == 2) && i % 8 <= 3);
    rsi_arena_release(&x.mem);
}

static void grids_of_1_to_5_dimensions_are_searched_like_a_loop(void **state)
{
    const int64_t sides[] = { 0, 500, 23, 8, 5, 3 };

    (void)state;
    seed = 1;
    for (int ndim = 1; ndim <= 5; ndim++) {
        size_t   n = 1;
        index_of x;

        for (int d = 0; d < ndim; d++)
            n *= (size_t)sides[ndim];
        make_room(&x, ndim, n);
        for (size_t i = 0; i < n; i++) {
            rsd_box box = cell(ndim, sides[ndim], 3, i);

            rsi_boxes_set(&x.boxes, (i * 7919 + 13) % n, &box); /* shuffled: 7919 is prime */
        }
        build(&x);
        assert_random_searches(&x, 3 * sides[ndim], 60);
        rsi_arena_release(&x.mem);
    }
}

static void guillotine_cuts_of_1_to_5_dimensions_are_searched_like_a_loop(void **state)
{
    const size_t counts[] = { 2, 7, 8, 9, 16, 17, 33, 100, 333 };

    (void)state;
    seed = 2;
    for (int ndim = 1; ndim <= 5; ndim++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            index_of x;

            cut_at_random(&x, ndim, 400, counts[i]);
            build(&x);
            assert_random_searches(&x, 400, 25);
            rsi_arena_release(&x.mem);
        }
}

static void boxes_with_one_start_and_many_ends_are_searched_like_a_loop(void **state)
{
    index_of x;

    (void)state;
    seed = 3;
    make_room(&x, 2, 1000);
    for (size_t i = 0; i < 1000; i++) {
        rsd_box box = { .ndim = 2, .off = { 5, 5 } };

        box.len[0] = 1 + (int64_t)(i * 37 % 1000);
        box.len[1] = 1 + (int64_t)(i % 10);
        rsi_boxes_set(&x.boxes, i, &box);
    }
    build(&x);
    for (int i = 0; i < 50; i++) {
        rsd_box query = { .ndim = 2, .off = { random_below(1010), random_below(20) } };

        query.len[0] = query.len[1] = 1 + random_below(3);
        assert_search_is_a_loop(&x, &query);
    }
    rsi_arena_release(&x.mem);
}

static void equal_boxes_are_all_found(void **state)
{
    const rsd_box box = { .ndim = 3, .off = { 1, 1, 1 }, .len = { 2, 2, 2 } };
    const rsd_box beside = { .ndim = 3, .off = { 1, 3, 1 }, .len = { 2, 2, 2 } };
    index_of      x;

    (void)state;
    make_room(&x, 3, 300);
    for (size_t i = 0; i < 300; i++)
        rsi_boxes_set(&x.boxes, i, &box);
    build(&x);
    assert_int_equal(search(&x, &box), 300);
    assert_int_equal(search(&x, &beside), 0);
    rsi_arena_release(&x.mem);
}

static void empty_boxes_and_empty_queries_meet_nothing(void **state)
{
    const rsd_box none = { .ndim = 1, .off = { 5 } }, all = { .ndim = 1, .len = { 100 } };
    index_of      x;

    (void)state;
    make_room(&x, 1, 20);
    for (size_t i = 0; i < 20; i++) {
        rsd_box box = { .ndim = 1, .off = { (int64_t)i }, .len = { (int64_t)(i % 2) } };

        rsi_boxes_set(&x.boxes, i, &box);
    }
    build(&x);
    assert_int_equal(search(&x, &all), 10);
    assert_int_equal(search(&x, &none), 0);
    rsi_arena_release(&x.mem);
}

static void boxes_near_2_to_the_62_are_found(void **state)
{
    const int64_t far = (int64_t)1 << 62;
    const rsd_box query = { .ndim = 1, .off = { far + 10 }, .len = { far - 11 } };
    index_of      x;

    (void)state;
    make_room(&x, 1, 40);
    for (size_t i = 0; i < 40; i++) {
        rsd_box box = { .ndim = 1, .off = { i % 2 ? far + (int64_t)i : (int64_t)i }, .len = { 1 } };

        rsi_boxes_set(&x.boxes, i, &box);
    }
    build(&x);
    assert_int_equal(search(&x, &query), 15); /* odd ones from 11 to 39 */
    rsi_arena_release(&x.mem);
}

static void search_among_100000_boxes_is_right(void **state)
{
    const rsd_box block = { .ndim = 2, .off = { 10, 5 }, .len = { 20, 3 } };
    const rsd_box row = { .ndim = 2, .off = { 999, 0 }, .len = { 1, 100 } };
    const rsd_box all = { .ndim = 2, .len = { 1000, 100 } };
    index_of      x;

    (void)state;
    seed = 4;
    make_room(&x, 2, 100000);
    for (size_t i = 0; i < 100000; i++) {
        rsd_box box = { .ndim = 2, .len = { 1, 1 } };

        box.off[0] = (int64_t)(i / 100);
        box.off[1] = (int64_t)(i % 100);
        rsi_boxes_set(&x.boxes, i * 77777 % 100000, &box); /* 77777 and 100000 share no factor */
    }
    build(&x);
    assert_int_equal(search(&x, &block), 60);
    assert_int_equal(search(&x, &row), 100);
    assert_int_equal(search(&x, &all), 100000);
    for (size_t i = 0; i < 100000; i++)
        if (x.seen[i] != 1)
            fail_msg("box %zu was told %d times", i, x.seen[i]);
    rsi_arena_release(&x.mem);
}

static void search_stops_when_the_visitor_says_so(void **state)
{
    const rsd_box all = { .ndim = 2, .len = { 1000, 1000 } };
    index_of      x;

    (void)state;
    seed = 5;
    cut_at_random(&x, 2, 400, 200);
    build(&x);
    for (x.most = 1; x.most < 200; x.most++)
        assert_int_equal(search(&x, &all), x.most);
    rsi_arena_release(&x.mem);
}

static void more_than_2_to_the_31_boxes_are_unsupported(void **state)
{
    const rsi_boxes boxes = { .ndim = 1, .n = (size_t)INT32_MAX + 1 };
    rsi_boxtree     tree;
    rsi_arena       mem = { 0 };
    rsd_error       err;

    (void)state;
    assert_int_equal(rsi_boxtree_build(&tree, &boxes, &mem, &err), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "2147483648 boxes in one layout are too many");
    assert_null(mem.blocks);
}

static void index_without_memory_is_refused(void **state)
{
    uint64_t n;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (n = 1;; n++) {
            rsi_arena mem = { 0 };
            rsd_error err;
            rsd_err   rc;
            index_of  x;

            make_room(&x, 1, 1000);
            rsi_mem_fail_at(n, for_ever);
            rc = rsi_boxtree_build(&x.tree, &x.boxes, &mem, &err);
            rsi_mem_fail_at(0, 0);
            rsi_arena_release(&mem);
            rsi_arena_release(&x.mem);
            if (!rc)
                break;
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_string_equal(err.msg, "no memory for an index of 1000 boxes");
        }
        assert_true(n > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(box_that_was_set_is_the_one_got),
        cmocka_unit_test(index_of_no_boxes_finds_nothing),
        cmocka_unit_test(index_of_one_box_finds_it_or_not),
        cmocka_unit_test(index_of_one_scalar_finds_it),
        cmocka_unit_test(query_finds_the_cells_of_a_grid_that_it_touches),
        cmocka_unit_test(grids_of_1_to_5_dimensions_are_searched_like_a_loop),
        cmocka_unit_test(guillotine_cuts_of_1_to_5_dimensions_are_searched_like_a_loop),
        cmocka_unit_test(boxes_with_one_start_and_many_ends_are_searched_like_a_loop),
        cmocka_unit_test(equal_boxes_are_all_found),
        cmocka_unit_test(empty_boxes_and_empty_queries_meet_nothing),
        cmocka_unit_test(boxes_near_2_to_the_62_are_found),
        cmocka_unit_test(search_among_100000_boxes_is_right),
        cmocka_unit_test(search_stops_when_the_visitor_says_so),
        cmocka_unit_test(more_than_2_to_the_31_boxes_are_unsupported),
        cmocka_unit_test(index_without_memory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
