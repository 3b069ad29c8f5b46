/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor.c - boxes put together out of a caller's views. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "state/tensor.h"

#include <string.h>

static int32_t ramp[24]; /* [4, 6] */

/* Lends out a part of a packed tensor of [4, 6]. */
typedef struct lender {
    const int32_t *packed;
    int            asked;
    rsd_err        rc;
} lender;

static rsd_err lend(void *arg, uint64_t off, void *host, size_t len)
{
    lender *l = arg;

    l->asked++;
    memcpy(host, (const char *)l->packed + off, len);
    return l->rc;
}

/* A state with one tensor "x" of [4, 6]. */
static rsd_state *make(size_t n, const rsd_view *views)
{
    const int64_t shape[] = { 4, 6 };
    rsd_state    *made;

    for (int32_t i = 0; i < 24; i++)
        ramp[i] = i;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, n, views, NULL), RSD_OK);
    return made;
}

static void assert_box(rsd_state *made, const rsd_box *box)
{
    int32_t out[24];
    size_t  k = 0;

    memset(out, 0xee, sizeof(out));
    assert_int_equal(rsi_tensor_check(&made->tensor[0], box, NULL), RSD_OK);
    assert_int_equal(rsi_views_pack(&made->tensor[0].views, box, 0, (unsigned char *)out, NULL),
                     RSD_OK);
    for (int64_t i = box->off[0]; i < box->off[0] + box->len[0]; i++)
        for (int64_t j = box->off[1]; j < box->off[1] + box->len[1]; j++)
            assert_int_equal(out[k++], 6 * i + j);
    for (; k < 24; k++)
        assert_int_equal(out[k], (int32_t)0xeeeeeeee);
}

static void any_box_comes_from_one_packed_view(void **state)
{
    const rsd_view whole = { .box = fix_box2(0, 0, 4, 6), .data = ramp };
    rsd_state     *made = make(1, &whole);

    (void)state;
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 6; j++) {
            rsd_box box = fix_box2(i, j, 4 - i, 6 - j);

            assert_box(made, &box);
        }
    rsd_state_free(made);
}

static void a_box_comes_from_several_views_with_strides(void **state)
{
    int32_t  left[3][4], right[3][4]; /* transposed halves */
    rsd_view views[] = {
        { .box = fix_box2(0, 0, 4, 3), .data = left, .stride = { 4, 16 } },
        { .box = fix_box2(0, 3, 4, 3), .data = &right[2][3], .stride = { -4, -16 } }
    };
    rsd_state *made = make(2, views);
    rsd_box    all = fix_box2(0, 0, 4, 6), middle = fix_box2(1, 2, 2, 3);

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++) {
            left[j][i] = 6 * i + j;
            right[2 - j][3 - i] = 6 * i + j + 3;
        }
    assert_box(made, &all);
    assert_box(made, &middle);
    rsd_state_free(made);
}

static void callbacks_are_asked_for_runs_of_the_packed_view(void **state)
{
    lender         l = { .packed = ramp };
    const rsd_view view = { .box = fix_box2(0, 0, 4, 6), .get = lend, .arg = &l };
    rsd_state     *made = make(1, &view);
    rsd_box        rows = fix_box2(1, 0, 2, 6), columns = fix_box2(0, 2, 4, 3);

    (void)state;
    assert_box(made, &rows);
    assert_int_equal(l.asked, 1);
    assert_box(made, &columns);
    assert_int_equal(l.asked, 5);
    rsd_state_free(made);
}

static void memory_and_callbacks_mix(void **state)
{
    int32_t        lower[12]; /* rows 2 and 3 */
    lender         l = { .packed = lower };
    const rsd_view views[] = { { .box = fix_box2(2, 0, 2, 6), .get = lend, .arg = &l },
                               { .box = fix_box2(0, 0, 2, 6), .data = ramp } };
    rsd_state     *made = make(2, views);
    rsd_box        box = fix_box2(1, 1, 3, 4);

    (void)state;
    memcpy(lower, ramp + 12, sizeof(lower));
    assert_box(made, &box);
    rsd_state_free(made);
}

static void what_a_get_returns_is_passed_on(void **state)
{
    lender         l = { .packed = ramp, .rc = RSD_E_TIMEOUT };
    const rsd_view view = { .box = fix_box2(0, 0, 4, 6), .get = lend, .arg = &l };
    rsd_state     *made = make(1, &view);
    rsd_box        box = fix_box2(0, 0, 4, 6);
    int32_t        out[24];
    rsd_error      err;

    (void)state;
    assert_int_equal(rsi_views_pack(&made->tensor[0].views, &box, 0, (unsigned char *)out, &err),
                     RSD_E_TIMEOUT);
    assert_string_equal(err.msg, "the caller's get failed: RSD_E_TIMEOUT");
    rsd_state_free(made);
}

static void packed_memory_is_used_where_it_lies(void **state)
{
    const rsd_view whole = { .box = fix_box2(0, 0, 4, 6), .data = ramp };
    rsd_state     *made = make(1, &whole);
    rsd_box        rows = fix_box2(2, 0, 2, 6), part = fix_box2(1, 2, 1, 3),
            columns = fix_box2(0, 2, 2, 3);

    (void)state;
    assert_ptr_equal(rsi_tensor_direct(&made->tensor[0], &rows), ramp + 12);
    assert_ptr_equal(rsi_tensor_direct(&made->tensor[0], &part), ramp + 8);
    assert_null(rsi_tensor_direct(&made->tensor[0], &columns));
    rsd_state_free(made);
}

static void a_box_of_two_views_lies_nowhere_packed(void **state)
{
    const rsd_view views[] = { { .box = fix_box2(0, 0, 2, 6), .data = ramp },
                               { .box = fix_box2(2, 0, 2, 6), .data = ramp + 12 } };
    rsd_state     *made = make(2, views);
    rsd_box        all = fix_box2(0, 0, 4, 6), second = fix_box2(3, 0, 1, 6);

    (void)state;
    assert_null(rsi_tensor_direct(&made->tensor[0], &all));
    assert_ptr_equal(rsi_tensor_direct(&made->tensor[0], &second), ramp + 18);
    rsd_state_free(made);
}

static void assert_not_covered(size_t n, const rsd_view *views, const char *text)
{
    rsd_state *made = make(n, views);
    rsd_box    box = fix_box2(0, 0, 4, 6);
    rsd_error  err = { 0 };

    if (!rsi_tensor_check(&made->tensor[0], &box, &err))
        fail_msg("accepted, expected: %s", text);
    assert_int_equal(err.code, RSD_E_MISMATCH);
    assert_non_null(strstr(err.msg, text));
    rsd_state_free(made);
}

static void views_that_leave_a_hole_are_refused(void **state)
{
    const rsd_view view = { .box = fix_box2(0, 0, 3, 6), .data = ramp };

    (void)state;
    assert_not_covered(1, &view, "the views have 18 of the 24 elements of [0:4, 0:6]");
    assert_not_covered(0, NULL, "the views have 0 of the 24 elements");
}

static void views_that_overlap_are_refused(void **state)
{
    const rsd_view views[] = { { .box = fix_box2(0, 0, 4, 6), .data = ramp },
                               { .box = fix_box2(0, 0, 1, 6), .data = ramp } };

    (void)state;
    assert_not_covered(2, views, "");
}

/* As many elements as needed, but some twice and others not at all. */
static void views_that_overlap_and_leave_a_hole_are_refused(void **state)
{
    const rsd_view views[] = { { .box = fix_box2(0, 0, 2, 6), .data = ramp },
                               { .box = fix_box2(1, 0, 2, 6), .data = ramp } };

    (void)state;
    assert_not_covered(2, views, "");
}

static rsd_err take(void *arg, uint64_t off, const void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_OK;
}

static void a_view_with_only_a_put_can_not_be_read(void **state)
{
    const rsd_view view = { .box = fix_box2(0, 0, 4, 6), .put = take };
    rsd_state     *made = make(1, &view);
    rsd_box        box = fix_box2(0, 0, 4, 6);
    rsd_error      err;

    (void)state;
    assert_int_equal(rsi_tensor_check(&made->tensor[0], &box, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"x\": view 0 has neither memory nor a get");
    rsd_state_free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_box_comes_from_one_packed_view),
        cmocka_unit_test(a_box_comes_from_several_views_with_strides),
        cmocka_unit_test(callbacks_are_asked_for_runs_of_the_packed_view),
        cmocka_unit_test(memory_and_callbacks_mix),
        cmocka_unit_test(what_a_get_returns_is_passed_on),
        cmocka_unit_test(packed_memory_is_used_where_it_lies),
        cmocka_unit_test(a_box_of_two_views_lies_nowhere_packed),
        cmocka_unit_test(views_that_leave_a_hole_are_refused),
        cmocka_unit_test(views_that_overlap_are_refused),
        cmocka_unit_test(views_that_overlap_and_leave_a_hole_are_refused),
        cmocka_unit_test(a_view_with_only_a_put_can_not_be_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
