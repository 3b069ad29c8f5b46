/* SPDX-License-Identifier: Apache-2.0 */
/* test_views.c - memory that callers give for their boxes: what is refused, and that any box of it
 * comes out and goes in right, however the views are cut and strided. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "view/views.h"
#include "plan_fixture.h"
#include "shape/box.h"

#include <string.h>

static const int64_t six[] = { 6, 4 };
static int32_t       memory[64];

static rsd_layout *rows(void)
{
    return fixture_layout_of("mesh a=2; * shard(0)@a", RSD_I32, 2, six);
}

static rsd_view in_memory(rsd_box box)
{
    return (rsd_view){ .box = box, .data = memory };
}

/* Rank 0 of two holds rows 0 to 2 of six; these views of them end like that. */
static void assert_made(size_t n, const rsd_view *view, bool write, rsd_err want, const char *text)
{
    rsd_layout *layout = rows();
    rsi_arena   mem = { 0 };
    rsd_error   err = { 0 };
    rsi_views   views;
    rsd_err     rc = rsi_views_make(&views, layout, 0, n, view, write, &mem, &err);

    if (rc != want || (text && strcmp(err.msg, text) != 0))
        fail_msg("%s \"%s\", not %s \"%s\"", rsd_err_name(rc), err.msg, rsd_err_name(want),
                 text ? text : "");
    rsi_arena_release(&mem);
    rsd_layout_free(layout);
}

/* ---- what is taken and what is refused ---- */

static void views_may_be_cut_otherwise_than_the_layout(void **state)
{
    const rsd_view one = in_memory(fix_box2(0, 0, 3, 4));
    const rsd_view two[] = { in_memory(fix_box2(0, 2, 3, 2)), in_memory(fix_box2(0, 0, 3, 2)) };
    const rsd_view odd[] = { in_memory(fix_box2(0, 0, 1, 4)), in_memory(fix_box2(1, 0, 2, 3)),
                             in_memory(fix_box2(1, 3, 2, 1)), in_memory(fix_box2(2, 2, 0, 1)) };

    (void)state;
    assert_made(1, &one, false, RSD_OK, NULL);
    assert_made(1, &one, true, RSD_OK, NULL);
    assert_made(2, two, false, RSD_OK, NULL);
    assert_made(4, odd, false, RSD_OK, NULL);
}

static void less_than_the_rank_holds_is_refused(void **state)
{
    const rsd_view less = in_memory(fix_box2(0, 0, 3, 3));

    (void)state;
    assert_made(1, &less, false, RSD_E_MISMATCH,
                "the views have 9 of the 12 elements of [0:3, 0:4]");
    assert_made(0, NULL, false, RSD_E_MISMATCH,
                "the views have 0 of the 12 elements of [0:3, 0:4]");
}

static void more_than_the_rank_holds_is_refused(void **state)
{
    const rsd_view all = in_memory(fix_box2(0, 0, 6, 4));
    const rsd_view two[] = { in_memory(fix_box2(0, 0, 3, 4)), in_memory(fix_box2(5, 0, 1, 4)) };

    (void)state;
    assert_made(1, &all, false, RSD_E_MISMATCH,
                "view 0: the rank holds 12 of the 24 elements of [0:6, 0:4]");
    assert_made(2, two, true, RSD_E_MISMATCH,
                "view 1: the rank holds 0 of the 4 elements of [5:6, 0:4]");
}

static void views_that_overlap_are_named(void **state)
{
    const rsd_view two[] = { in_memory(fix_box2(0, 0, 2, 4)), in_memory(fix_box2(1, 0, 2, 4)) };

    (void)state;
    assert_made(2, two, false, RSD_E_MISMATCH, "the views 0 and 1 overlap");
}

static void boxes_outside_the_tensor_are_refused_with_their_number(void **state)
{
    const rsd_box bad[] = { fix_box2(4, 0, 3, 4),         fix_box2(-1, 0, 3, 4),
                            fix_box2(0, INT64_MAX, 1, 1), fix_box2(0, 1, 1, INT64_MAX),
                            fix_box2(0, 0, -1, 4),        fix_box1(0, 3) };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const rsd_view view[] = { in_memory(fix_box2(0, 0, 3, 4)), in_memory(bad[i]) };
        rsd_layout    *layout = rows();
        rsi_arena      mem = { 0 };
        rsd_error      err = { 0 };
        rsi_views      views;

        assert_int_equal(rsi_views_make(&views, layout, 0, 2, view, false, &mem, &err),
                         RSD_E_INVALID);
        assert_non_null(strstr(err.msg, "view 1: "));
        rsi_arena_release(&mem);
        rsd_layout_free(layout);
    }
}

static rsd_err no_get(void *arg, uint64_t off, void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_E_CANCELED;
}

static rsd_err no_put(void *arg, uint64_t off, const void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_E_CANCELED;
}

static void each_side_needs_its_own_callback(void **state)
{
    const rsd_view get = { .box = fix_box2(0, 0, 3, 4), .get = no_get };
    const rsd_view put = { .box = fix_box2(0, 0, 3, 4), .put = no_put };

    (void)state;
    assert_made(1, &get, false, RSD_OK, NULL);
    assert_made(1, &put, true, RSD_OK, NULL);
    assert_made(1, &put, false, RSD_E_INVALID, "view 0: it has neither memory nor a get");
    assert_made(1, &get, true, RSD_E_INVALID, "view 0: it has neither memory nor a put");
    assert_made(1, NULL, true, RSD_E_INVALID, "1 views given, but the list is NULL");
}

static void a_rank_that_holds_nothing_needs_no_memory(void **state)
{
    const int64_t  two[] = { 2 };
    rsd_layout    *layout = fixture_layout_of("mesh a=4; * shard(0)@a", RSD_I32, 1, two);
    const rsd_view empty = { .box = fix_box1(2, 0) }, some = in_memory(fix_box1(0, 1));
    rsi_arena      mem = { 0 };
    rsi_views      views;

    (void)state;
    assert_int_equal(rsi_views_make(&views, layout, 3, 0, NULL, true, &mem, NULL), RSD_OK);
    assert_int_equal(views.n, 0);
    assert_int_equal(rsi_views_make(&views, layout, 3, 1, &empty, true, &mem, NULL), RSD_OK);
    assert_int_equal(rsi_views_make(&views, layout, 3, 1, &some, true, &mem, NULL), RSD_E_MISMATCH);
    rsi_arena_release(&mem);
    rsd_layout_free(layout);
}

static void a_scalar_is_a_view_of_one_element(void **state)
{
    rsd_layout *layout = fixture_layout_of("mesh a=2; * replicate", RSD_I32, 0, NULL);
    rsd_view    view = { .data = memory };
    rsi_arena   mem = { 0 };
    int32_t     out = 0;
    rsi_views   views;

    (void)state;
    memory[0] = 77;
    assert_int_equal(rsi_views_make(&views, layout, 1, 1, &view, false, &mem, NULL), RSD_OK);
    assert_ptr_equal(rsi_views_direct(&views, &view.box, 0), memory);
    assert_int_equal(rsi_views_pack(&views, &view.box, 0, &out, NULL), RSD_OK);
    assert_int_equal(out, 77);
    out = 78;
    assert_int_equal(rsi_views_unpack(&views, &view.box, 0, &out, NULL), RSD_OK);
    assert_int_equal(memory[0], 78);
    rsi_arena_release(&mem);
    rsd_layout_free(layout);
}

static void views_are_copied_and_get_the_strides_they_lack(void **state)
{
    rsd_view    view[] = { in_memory(fix_box2(0, 0, 3, 3)), in_memory(fix_box2(0, 3, 3, 1)) };
    rsd_layout *layout = rows();
    rsi_arena   mem = { 0 };
    rsi_views   views;

    (void)state;
    view[1].stride[0] = 8;
    assert_int_equal(rsi_views_make(&views, layout, 0, 2, view, false, &mem, NULL), RSD_OK);
    memset(view, 0, sizeof(view));
    assert_int_equal(views.elem_bytes, 4);
    assert_int_equal(views.view[0].stride[0], 12);
    assert_int_equal(views.view[0].stride[1], 4);
    assert_int_equal(views.view[1].stride[0], 8);
    assert_int_equal(views.view[1].stride[1], 0);
    assert_int_equal(views.view[1].box.off[1], 3);
    rsi_arena_release(&mem);
    rsd_layout_free(layout);
}

/* ---- where a box lies ---- */

static void a_box_is_found_in_the_view_that_has_all_of_it(void **state)
{
    const rsd_view  view[] = { in_memory(fix_box2(0, 0, 3, 2)), in_memory(fix_box2(0, 2, 3, 2)) };
    const rsi_views views = { .view = view, .n = 2, .elem_bytes = 4 };
    const rsd_box   left = fix_box2(1, 0, 2, 2), right = fix_box2(1, 2, 2, 1);
    const rsd_box   both = fix_box2(0, 1, 1, 2), outside = fix_box2(3, 0, 1, 1);

    (void)state;
    for (size_t hint = 0; hint < 4; hint++) {
        assert_ptr_equal(rsi_views_find(&views, &left, hint), &view[0]);
        assert_ptr_equal(rsi_views_find(&views, &right, hint), &view[1]);
        assert_null(rsi_views_find(&views, &both, hint));
        assert_null(rsi_views_find(&views, &outside, hint));
    }
}

static void bytes_that_lie_together_are_used_where_they_are(void **state)
{
    const rsd_box  row = fix_box2(1, 0, 1, 4), part = fix_box2(2, 1, 1, 2);
    const rsd_box  two = fix_box2(0, 0, 2, 4), column = fix_box2(0, 1, 2, 1);
    rsd_view       view = { .box = fix_box2(0, 0, 3, 4), .data = memory, .stride = { 16, 4 } };
    rsi_views      views = { .view = &view, .n = 1, .elem_bytes = 4 };
    unsigned char *base = (unsigned char *)memory;

    (void)state;
    assert_ptr_equal(rsi_views_direct(&views, &row, 0), base + 16);
    assert_ptr_equal(rsi_views_direct(&views, &part, 0), base + 36);
    assert_ptr_equal(rsi_views_direct(&views, &two, 0), base);
    assert_null(rsi_views_direct(&views, &column, 0));
    view.stride[0] = 20; /* rows with room between them */
    assert_ptr_equal(rsi_views_direct(&views, &part, 0), base + 44);
    assert_null(rsi_views_direct(&views, &two, 0));
    view.data = NULL;
    assert_null(rsi_views_direct(&views, &row, 0));
}

static void views_can_be_read_if_each_has_memory_or_a_get(void **state)
{
    rsd_view  view[] = { in_memory(fix_box1(0, 1)), { .box = fix_box1(1, 1), .get = no_get } };
    rsi_views views = { .view = view, .n = 2 };

    (void)state;
    assert_true(rsi_views_readable(&views));
    view[1].get = NULL;
    view[1].put = no_put;
    assert_false(rsi_views_readable(&views));
    views.n = 0;
    assert_true(rsi_views_readable(&views));
}

/* ---- packing and unpacking ---- */

enum { D0 = 3, D1 = 4, D2 = 5, ALL = D0 * D1 * D2 };
static const int64_t cube[] = { D0, D1, D2 };

/* A device: packed bytes that only callbacks reach. */
static rsd_err device_get(void *arg, uint64_t off, void *host, size_t len)
{
    memcpy(host, (char *)arg + off, len);
    return len ? RSD_OK : RSD_E_BUG;
}

static rsd_err device_put(void *arg, uint64_t off, const void *host, size_t len)
{
    memcpy((char *)arg + off, host, len);
    return len ? RSD_OK : RSD_E_BUG;
}

/* All of the cube, split in two before `at` of dimension `along` (0: one view) into memory that is
 * packed (0), transposed with room between (1), or a device's (2); the second view the next kind.
 */
typedef struct bed {
    int32_t   data[2][4 * ALL];
    rsd_view  view[2];
    rsi_views views;
} bed;

static rsd_view make_view(bed *b, int i, rsd_box box, int kind)
{
    rsd_view v = { .box = box, .data = b->data[i] };

    rsi_strides(3, box.len, 4, v.stride);
    if (kind == 1) {
        v.stride[0] = 4;
        v.stride[1] = 4 * (box.len[0] + 1);
        v.stride[2] = v.stride[1] * box.len[1];
    } else if (kind == 2) {
        v = (rsd_view){ .box = box, .arg = b->data[i], .get = device_get, .put = device_put };
        rsi_strides(3, box.len, 4, v.stride);
    }
    return v;
}

static void make_bed(bed *b, int along, int64_t at, int kind)
{
    rsd_box box[2] = { { .ndim = 3, .len = { D0, D1, D2 } }, { .ndim = 3, .len = { D0, D1, D2 } } };

    memset(b, 0, sizeof(*b));
    if (at > 0) {
        box[0].len[along] = at;
        box[1].off[along] = at;
        box[1].len[along] -= at;
    }
    b->view[0] = make_view(b, 0, box[0], kind);
    b->view[1] = make_view(b, 1, box[1], (kind + 1) % 3);
    b->views = (rsi_views){ .view = b->view, .n = at > 0 ? 2 : 1, .elem_bytes = 4 };
}

/* The element at an index of the cube, found by hand. */
static int32_t *element(bed *b, const int64_t *index)
{
    for (size_t i = 0; i < b->views.n; i++) {
        const rsd_view *v = &b->view[i];
        int64_t         at = 0;
        bool            in = true;

        for (int d = 0; d < 3; d++) {
            in = in && index[d] >= v->box.off[d] && index[d] < v->box.off[d] + v->box.len[d];
            at += (index[d] - v->box.off[d]) * v->stride[d];
        }
        if (in)
            return &b->data[i][at / 4];
    }
    return NULL;
}

/* Number k of the boxes of the cube, false behind the last. */
static bool nth_box(size_t k, rsd_box *out)
{
    *out = (rsd_box){ .ndim = 3 };
    for (int d = 0; d < 3; d++) {
        size_t n = (size_t)(cube[d] * (cube[d] + 1) / 2), i = k % n;

        k /= n;
        while (i >= (size_t)(cube[d] - out->off[d]))
            i -= (size_t)(cube[d] - out->off[d]++);
        out->len[d] = (int64_t)i + 1;
    }
    return k == 0;
}

/* Counts through the box; the index of its nth element. */
static void nth_index(const rsd_box *box, int64_t n, int64_t *index)
{
    for (int d = 2; d >= 0; d--) {
        index[d] = box->off[d] + n % box->len[d];
        n /= box->len[d];
    }
}

static void check_box(bed *b, const rsd_box *box)
{
    rsd_box whole = { .ndim = 3, .len = { D0, D1, D2 } };
    int64_t count = rsd_box_count(box), index[3];
    int32_t packed[ALL + 1] = { 0 };

    for (int64_t i = 0; i < ALL; i++) {
        nth_index(&whole, i, index);
        *element(b, index) = (int32_t)i + 1;
    }
    packed[count] = -1;
    assert_int_equal(rsi_views_pack(&b->views, box, 1, packed, NULL), RSD_OK);
    for (int64_t i = 0; i < count; i++) {
        nth_index(box, i, index);
        assert_int_equal(packed[i], *element(b, index));
        packed[i] = -packed[i];
    }
    assert_int_equal(packed[count], -1);
    assert_int_equal(rsi_views_unpack(&b->views, box, 0, packed, NULL), RSD_OK);
    for (int64_t i = 0; i < ALL; i++) {
        bool in = true;

        nth_index(&whole, i, index);
        for (int d = 0; d < 3; d++)
            in = in && index[d] >= box->off[d] && index[d] < box->off[d] + box->len[d];
        assert_int_equal(*element(b, index), in ? -(i + 1) : i + 1);
    }
}

static void every_box_of_a_tensor_comes_out_and_goes_in_right(void **state)
{
    static bed b;
    rsd_box    box;

    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        for (int cut = 0; cut < 4; cut++) {
            make_bed(&b, cut % 3, cut < 3 ? cut + 1 : 0, kind);
            for (size_t k = 0; nth_box(k, &box); k++)
                check_box(&b, &box);
        }
    }
}

static rsd_err count_put(void *arg, uint64_t off, const void *host, size_t len)
{
    (void)off, (void)host, (void)len;
    ++*(int *)arg;
    return RSD_OK;
}

static void an_empty_box_moves_nothing(void **state)
{
    int             puts = 0;
    const rsd_view  view = { .box = fix_box2(0, 0, 3, 4), .put = count_put, .arg = &puts };
    const rsi_views views = { .view = &view, .n = 1, .elem_bytes = 4 };
    const rsd_box   empty[] = { fix_box2(1, 1, 0, 2), fix_box2(1, 1, 2, 0), fix_box2(3, 4, 0, 0) };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rsi_views_unpack(&views, &empty[i], 0, NULL, NULL), RSD_OK);
        assert_int_equal(rsi_view_put(&view, &empty[i], 4, NULL, NULL), RSD_OK);
        assert_int_equal(rsi_views_pack(&views, &empty[i], 0, NULL, NULL), RSD_OK);
    }
    assert_int_equal(puts, 0);
}

static void a_put_is_called_once_for_each_run(void **state)
{
    int            puts = 0;
    const rsd_view view = { .box = fix_box2(2, 0, 3, 4), .put = count_put, .arg = &puts };
    const rsd_box  rows2 = fix_box2(3, 0, 2, 4), column = fix_box2(2, 1, 3, 2);

    (void)state;
    assert_int_equal(rsi_view_put(&view, &rows2, 4, memory, NULL), RSD_OK);
    assert_int_equal(puts, 1);
    assert_int_equal(rsi_view_put(&view, &column, 4, memory, NULL), RSD_OK);
    assert_int_equal(puts, 4);
}

static void what_a_callback_returns_is_told(void **state)
{
    const rsd_view  view = { .box = fix_box2(0, 0, 3, 4), .get = no_get, .put = no_put };
    const rsi_views views = { .view = &view, .n = 1, .elem_bytes = 4 };
    rsd_error       err;

    (void)state;
    assert_int_equal(rsi_views_pack(&views, &view.box, 0, memory, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "the caller's get failed: RSD_E_CANCELED");
    assert_int_equal(rsi_views_unpack(&views, &view.box, 0, memory, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "the caller's put failed: RSD_E_CANCELED");
    assert_int_equal(rsi_view_put(&view, &view.box, 4, memory, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "the caller's put failed: RSD_E_CANCELED");
}

static rsd_err make_and_release(void *arg, rsd_error *err)
{
    const rsd_view two[] = { in_memory(fix_box2(0, 2, 3, 2)), in_memory(fix_box2(0, 0, 3, 2)) };
    rsi_arena      mem = { 0 };
    rsi_views      views;
    rsd_err        rc = rsi_views_make(&views, arg, 0, 2, two, false, &mem, err);

    rsi_arena_release(&mem);
    return rc;
}

static void every_allocation_that_fails_is_told(void **state)
{
    rsd_layout *layout = rows();

    (void)state;
    assert_survives_no_memory(make_and_release, layout);
    rsd_layout_free(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_may_be_cut_otherwise_than_the_layout),
        cmocka_unit_test(less_than_the_rank_holds_is_refused),
        cmocka_unit_test(more_than_the_rank_holds_is_refused),
        cmocka_unit_test(views_that_overlap_are_named),
        cmocka_unit_test(boxes_outside_the_tensor_are_refused_with_their_number),
        cmocka_unit_test(each_side_needs_its_own_callback),
        cmocka_unit_test(a_rank_that_holds_nothing_needs_no_memory),
        cmocka_unit_test(a_scalar_is_a_view_of_one_element),
        cmocka_unit_test(views_are_copied_and_get_the_strides_they_lack),
        cmocka_unit_test(a_box_is_found_in_the_view_that_has_all_of_it),
        cmocka_unit_test(bytes_that_lie_together_are_used_where_they_are),
        cmocka_unit_test(views_can_be_read_if_each_has_memory_or_a_get),
        cmocka_unit_test(every_box_of_a_tensor_comes_out_and_goes_in_right),
        cmocka_unit_test(an_empty_box_moves_nothing),
        cmocka_unit_test(a_put_is_called_once_for_each_run),
        cmocka_unit_test(what_a_callback_returns_is_told),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
