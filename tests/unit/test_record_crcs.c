/* SPDX-License-Identifier: Apache-2.0 */
/* test_record_crcs.c - CRC32s of records that are read in pieces: in any order, twice, not at all;
 * on the largest record of a torch.save file. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "ckpt_fixture.h"
#include "convert_fixture.h"
#include "read/record_crcs.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 5, MOST = 1024 };

typedef struct reading {
    rsd_store       *store;
    rsd_ckpt        *ckpt;
    unsigned char   *bytes; /* of the file */
    rsi_extents     *claims;
    rsi_record_crcs *crcs;
    size_t           t;
    rsi_extent       x;
    rsd_error        err;
} reading;

/* `damaged`: the piece with a byte that has changed; -1: none. */
static void begin(reading *r, int damaged)
{
    const char     *name = "a.pt";
    rsd_tensor_info info;
    size_t          len;

    *r = (reading){ .store = fix_store() };
    conv_source(r->store, name, RSD_FORMAT_TORCH, NULL, false, NULL);
    assert_int_equal(fix_remove(r->store, "a.pt.reshard-sums"), RSD_OK);
    r->ckpt = fix_open(r->store, name);
    do
        r->ckpt->ops->tensor(r->ckpt, r->t, &info);
    while (strcmp(info.name, "m.big") != 0 && ++r->t);
    assert_int_equal(r->ckpt->ops->locate(r->ckpt, r->t, 0, false, &r->x, NULL), RSD_OK);
    if (damaged >= 0)
        fix_flip(r->store, name,
                 r->x.record + r->x.record_bytes * (uint64_t)damaged / PIECES + 1000);
    r->bytes = fix_get(r->store, name, &len);
    assert_int_equal(rsi_extents_create(r->ckpt, 0, &r->claims, NULL), RSD_OK);
    assert_int_equal(rsi_record_crcs_create(r->ckpt, &r->crcs, NULL), RSD_OK);
}

static void end(reading *r)
{
    rsi_record_crcs_free(r->crcs);
    rsi_extents_free(r->claims);
    rsd_ckpt_close(r->ckpt);
    rsd_store_close(r->store);
    free(r->bytes);
}

static bool wanted(reading *r, const rsi_extent *x)
{
    bool wanted = false;

    assert_int_equal(rsi_record_crcs_want(r->crcs, r->claims, r->t, 0, x, &wanted, NULL), RSD_OK);
    return wanted;
}

/* Adds pieces `from` to `to` - 1 as one. */
static rsd_err add(reading *r, int from, int to)
{
    const uint64_t lo = r->x.record + r->x.record_bytes * (uint64_t)from / PIECES;
    const uint64_t hi = r->x.record + r->x.record_bytes * (uint64_t)to / PIECES;

    return rsi_record_crcs_add(r->crcs, 0, &r->x, lo, hi - lo, rsi_crc32(0, r->bytes + lo, hi - lo),
                               &r->err);
}

static rsd_err finish(reading *r)
{
    return rsi_record_crcs_finish(r->crcs, NULL, &r->err);
}

static void pieces_make_the_record_in_any_order(void **state)
{
    const int order[] = { 3, 0, 4, 2, 1 };

    (void)state;
    for (int damaged = -1; damaged < PIECES; damaged++) {
        reading r;

        begin(&r, damaged);
        assert_true(wanted(&r, &r.x));
        for (int i = 0; i < PIECES; i++)
            assert_int_equal(add(&r, order[i], order[i] + 1),
                             i == PIECES - 1 && damaged >= 0 ? RSD_E_CORRUPT : RSD_OK);
        assert_int_equal(finish(&r), RSD_OK); /* nothing is left */
        assert_false(wanted(&r, &r.x));
        end(&r);
    }
}

static void bytes_that_come_twice_count_once(void **state)
{
    (void)state;
    for (int damaged = -1; damaged < PIECES; damaged++) {
        reading r;

        begin(&r, damaged);
        assert_true(wanted(&r, &r.x));
        assert_int_equal(add(&r, 1, 3), RSD_OK);
        assert_int_equal(add(&r, 1, 3), RSD_OK);
        assert_int_equal(add(&r, 0, 2), RSD_OK);
        assert_int_equal(add(&r, 2, 5), RSD_OK);
        assert_int_equal(add(&r, 0, 5), RSD_OK);
        assert_int_equal(add(&r, 2, 3), RSD_OK);
        assert_int_equal(finish(&r), damaged >= 0 ? RSD_E_CORRUPT : RSD_OK);
        end(&r);
    }
}

static void what_nobody_read_is_read_at_the_end(void **state)
{
    (void)state;
    for (int damaged = -1; damaged < PIECES; damaged++) {
        reading r;

        begin(&r, damaged);
        assert_true(wanted(&r, &r.x));
        assert_int_equal(add(&r, 1, 2), RSD_OK);
        assert_int_equal(add(&r, 3, 4), RSD_OK);
        assert_int_equal(finish(&r), damaged >= 0 ? RSD_E_CORRUPT : RSD_OK);
        if (damaged >= 0)
            assert_non_null(
                strstr(r.err.msg, "tensor \"m.big\": file \"a.pt\": the data from byte "));
        end(&r);
    }
}

static void a_record_that_was_dropped_is_not_compared(void **state)
{
    reading r;

    (void)state;
    begin(&r, 0);
    assert_false(rsi_record_crcs_drop(r.crcs, 0, &r.x));
    assert_true(wanted(&r, &r.x));
    assert_true(rsi_record_crcs_drop(r.crcs, 0, &r.x));
    assert_int_equal(add(&r, 0, PIECES), RSD_OK);
    assert_int_equal(finish(&r), RSD_OK);
    assert_false(wanted(&r, &r.x));
    end(&r);
}

static void a_record_that_somebody_checks_is_not_wanted(void **state)
{
    reading r;
    bool    first;

    (void)state;
    begin(&r, 0);
    assert_int_equal(rsi_extents_first(r.claims, 0, r.x.record, &first, NULL), RSD_OK);
    assert_false(wanted(&r, &r.x));
    assert_int_equal(finish(&r), RSD_OK);
    end(&r);
}

static void of_too_many_records_the_last_are_not_wanted(void **state)
{
    reading    r;
    rsi_extent x;

    (void)state;
    begin(&r, -1);
    x = r.x;
    for (int i = 0; i < MOST; i++, x.record += x.record_bytes)
        assert_true(wanted(&r, &x));
    assert_false(wanted(&r, &x));
    assert_true(rsi_record_crcs_drop(r.crcs, 0, &r.x));
    assert_true(wanted(&r, &x));
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_the_record_in_any_order),
        cmocka_unit_test(bytes_that_come_twice_count_once),
        cmocka_unit_test(what_nobody_read_is_read_at_the_end),
        cmocka_unit_test(a_record_that_was_dropped_is_not_compared),
        cmocka_unit_test(a_record_that_somebody_checks_is_not_wanted),
        cmocka_unit_test(of_too_many_records_the_last_are_not_wanted),
    };

    return fix_has_sums() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
