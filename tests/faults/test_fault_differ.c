/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_differ.c - one rank of a save is given something else than the others. Options: all
 * ranks say no, and the previous checkpoint is intact to the last bit. Values: the new
 * one is there and has those of rank 0. Nobody waits: the time limit is that of a hang. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"

#include <stdio.h>
#include <string.h>

static struct {
    int32_t rank;
    size_t  what;
} odd;

enum { WHATS = 8 };

/* A rank that waits for another is an error of the test, soon. */
static void be_quick(rsd_comm *comm)
{
    rsd_comm_set_timeout(comm, 20000, NULL);
}

static void change_option(int32_t rank, const char **path, rsd_save_opts *opts)
{
    if (rank != odd.rank)
        return;
    switch (odd.what) {
    case 0:
        *path = "other";
        break;
    case 1:
        opts->format = opts->format == RSD_FORMAT_DCP ? RSD_FORMAT_SAFETENSORS : RSD_FORMAT_DCP;
        break;
    case 2:
        opts->transform = "stream.zstd";
        break;
    case 3:
        opts->checksum = RSD_NEVER;
        break;
    case 4:
        opts->sync = RSD_NEVER;
        break;
    case 5:
        opts->overwrite = !opts->overwrite;
        break;
    case 6:
        opts->uneven_keys = true;
        break;
    default:
        opts->shard_size = 100;
    }
}

static void every_option(const fault_case *c, fault_row *row)
{
    fault_bed bed;

    fault_bed_open(&bed, c, NULL);
    bed.tune = be_quick;
    for (odd.rank = 0; odd.rank < c->ranks; odd.rank++)
        for (odd.what = 0; odd.what < WHATS; odd.what++) {
            bool same;

            bed.change = change_option;
            same = fault_save_version(&bed, 2, c->overwrite);
            fault_count(row, &bed, fault_look(&bed));
            if (!same || bed.rc[0] != RSD_E_MISMATCH)
                fail_msg("%s: option %zu of rank %d: %s: %s", c->name, odd.what, (int)odd.rank,
                         rsd_err_name(bed.rc[0]), bed.err[0].msg);
            assert_int_equal(bed.err[0].rank, odd.rank ? odd.rank : 1);
            assert_int_equal(fault_look(&bed), c->overwrite ? FAULT_OLD : FAULT_NONE);
            bed.change = NULL;
            fault_reset(&bed);
        }
    fault_bed_close(&bed);
}

static void options_that_differ_change_nothing_and_are_told(void **state)
{
    fault_row row = { .fault = "options differ" };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c))
        if (c->ranks > 1)
            every_option(c, &row);
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
    assert_int_equal(row.refused, row.tried);
}

/* Each rank but the first has a text of another length where rank 0 has the number. */
static void every_length(const fault_case *c, fault_row *row)
{
    fault_bed bed;

    fault_bed_open(&bed, c, NULL);
    bed.tune = be_quick;
    for (int turn = 0; turn < 8; turn++) {
        for (int32_t r = 1; r < c->ranks; r++) {
            const rsd_value *v;
            char             text[4096];
            size_t           len = (size_t)(turn * 500 + r * 7) % sizeof(text);

            memset(text, 'x', sizeof(text));
            assert_int_equal(rsd_value_create_bytes(bed.values, RSD_VALUE_STR, text, len, &v, NULL),
                             RSD_OK);
            assert_int_equal(rsd_state_set_value(bed.state[1][r], "step", v, NULL), RSD_OK);
        }
        if (!fault_save_version(&bed, 2, c->overwrite) || bed.rc[0])
            fail_msg("%s: %s", c->name, bed.err[0].msg);
        fault_count(row, &bed, fault_look(&bed));
        assert_int_equal(fault_look(&bed), FAULT_NEW);
        fault_reset(&bed);
    }
    fault_bed_close(&bed);
}

static void values_that_differ_leave_a_checkpoint_with_those_of_rank_0(void **state)
{
    fault_row row = { .fault = "values differ" };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c))
        if (c->ranks > 1 && c->format == RSD_FORMAT_DCP)
            every_length(c, &row);
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
    assert_int_equal(row.found_new, row.tried);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_that_differ_change_nothing_and_are_told),
        cmocka_unit_test(values_that_differ_leave_a_checkpoint_with_those_of_rank_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
