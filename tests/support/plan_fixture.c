/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fixture.c - short ways to say the layouts, boxes and moves that tests of plan/ talk about.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_fixture.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

rsd_layout *fixture_layout_of(const char *rules, rsd_dtype dtype, int ndim, const int64_t *shape)
{
    rsd_rules  *parsed;
    rsd_layout *layout;
    rsd_error   err;

    if (rsd_rules_parse(rules, &parsed, &err) != RSD_OK)
        fail_msg("\"%s\": %s", rules, err.msg);
    if (rsd_rules_layout(parsed, "w", dtype, ndim, shape, &layout, &err) != RSD_OK)
        fail_msg("\"%s\": %s", rules, err.msg);
    rsd_rules_free(parsed);
    return layout;
}

rsd_layout *fixture_layout(const char *rules, int ndim, const int64_t *shape)
{
    return fixture_layout_of(rules, RSD_F32, ndim, shape);
}

rsd_box fixture_box1(int64_t from, int64_t to)
{
    return (rsd_box){ .ndim = 1, .off = { from }, .len = { to - from } };
}

rsd_box fixture_box2(int64_t from0, int64_t to0, int64_t from1, int64_t to1)
{
    return (rsd_box){ .ndim = 2, .off = { from0, from1 }, .len = { to0 - from0, to1 - from1 } };
}

void assert_box(const rsd_box *box, const char *want)
{
    char text[512];

    rsd_box_text(box, text, sizeof(text));
    assert_string_equal(text, want);
}

rsd_plan *fixture_plan(const rsd_layout *src, const rsd_layout *dst, int32_t rank)
{
    rsd_plan *plan;
    rsd_error err;

    if (rsd_plan_create(1, &src, &dst, rank, &plan, &err) != RSD_OK)
        fail_msg("no plan for rank %" PRId32 ": %s", rank, err.msg);
    return plan;
}

static rsd_err keep_move(void *arg, const rsd_move *move)
{
    fixture_moves *moves = arg;

    assert_true(moves->n < FIXTURE_MOVES);
    moves->at[moves->n++] = *move;
    return RSD_OK;
}

void fixture_list(const rsd_plan *plan, fixture_moves *out)
{
    out->n = 0;
    assert_int_equal(rsd_plan_each(plan, keep_move, out, NULL), RSD_OK);
}

void assert_move(const rsd_move *move, const char *want)
{
    char box[512], text[600];

    rsd_box_text(&move->box, box, sizeof(box));
    snprintf(text, sizeof(text), "%zu: %" PRId32 ">%" PRId32 " %s", move->tensor, move->from,
             move->to, box);
    assert_string_equal(text, want);
}

static void assert_each_failure_is_clean(rsd_err (*make)(void *arg, rsd_error *err), void *arg,
                                         int for_ever)
{
    int64_t   before = rsi_mem_stats_get().bytes;
    uint64_t  nth = 0;
    rsd_err   rc;
    rsd_error err;

    do {
        memset(&err, 0, sizeof(err));
        rsi_mem_fail_at(++nth, for_ever);
        rc = make(arg, &err);
        rsi_mem_fail_at(0, 0);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
        if (rc) {
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_int_equal(err.code, RSD_E_NOMEM);
            assert_non_null(strstr(err.msg, "no memory"));
        }
    } while (rc);
    assert_true(nth > 1); /* there was something to fail */
}

void assert_survives_no_memory(rsd_err (*make)(void *arg, rsd_error *err), void *arg)
{
    assert_each_failure_is_clean(make, arg, 0);
    assert_each_failure_is_clean(make, arg, 1);
}
