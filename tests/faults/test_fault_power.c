/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_power.c - the power is cut after every change and sync of a save, keeping any
 * selection of what was not durable: what has the name is the old checkpoint or the new one (C1),
 * and the new one once the save has returned (C5). Also while a sync fails, and for the other calls
 * that promise to be durable. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "ckpt_fixture.h"
#include "base/hash128.h"
#include "crash_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERDICTS = 512, FEW = 8, FEW_LONG = 12, MORE = 16, MORE_LONG = 300 };

/* One recorded call and what its cuts may leave. */
typedef struct cuts {
    fault_bed   bed;   /* where it was recorded */
    fault_bed   again; /* where the next save after a cut is tried */
    fault_row  *row;
    bool        may_none, may_old, may_new;
    bool        returned;  /* what was promised is there for good */
    bool        keeps;     /* leaves work that only the next conversion removes */
    int         few, more; /* of crash_cut */
    int         after;     /* changes before the cut */
    int         resaves;   /* states in which the next save is still to be tried */
    int         nseen;     /* different contents so far, and what they are */
    uint64_t    sum[VERDICTS];
    fault_found found[VERDICTS];
    const char *what;
} cuts;

/* Most states are equal in what can be seen; each kind is opened once. */
static fault_found verdict(cuts *t)
{
    uint64_t   sum = crash_sum(false);
    rsd_store *store;

    for (int i = 0; i < t->nseen; i++)
        if (t->sum[i] == sum)
            return t->found[i];
    assert_true(t->nseen < VERDICTS);
    store = fix_store();
    crash_put(store, false);
    t->sum[t->nseen] = sum;
    t->found[t->nseen] = fault_look_in(&t->bed, store);
    rsd_store_close(store);
    return t->found[t->nseen++];
}

/* The machine is up again: the next save succeeds and nothing else is left. */
static void save_again(cuts *t)
{
    fault_clear(&t->again);
    crash_put(t->again.quiet, !t->keeps);
    fault_reset(&t->again);
}

static void look_at(void *arg)
{
    cuts       *t = arg;
    fault_found found = verdict(t);
    bool        fine = (found == FAULT_NONE && t->may_none) || (found == FAULT_OLD && t->may_old) ||
                (found == FAULT_NEW && t->may_new);

    t->row->tried++;
    t->row->found_new += found == (t->may_new ? FAULT_NEW : FAULT_NONE);
    t->row->found_old += found == (t->bed.c->overwrite ? FAULT_OLD : FAULT_NONE);
    if (t->returned)
        t->row->silent += !fine;
    else
        t->row->lost += !fine;
    if (!fine)
        fail_msg("%s, %s: a power cut after change %d of %d leaves %s", t->bed.c->name, t->what,
                 t->after, crash_changes(),
                 found == FAULT_NONE  ? "nothing"
                 : found == FAULT_OLD ? "the old checkpoint"
                 : found == FAULT_NEW ? "the new checkpoint"
                                      : "half a checkpoint");
    if (t->resaves > 0) {
        t->resaves--;
        save_again(t);
    }
}

static void cut_from(cuts *t, int first, int last)
{
    for (t->after = first; t->after <= last; t->after++) {
        t->resaves = t->after % (fault_long() ? 1 : 8) == 0 ? 1 : 0;
        crash_cut(t->after, t->few, t->more, (uint64_t)t->after, look_at, t);
    }
}

static void open_cuts(cuts *t, const fault_case *c, fault_row *row, const char *what)
{
    memset(t, 0, sizeof(*t));
    t->row = row;
    t->what = what;
    fault_bed_open(&t->bed, c, NULL);
    fault_bed_open(&t->again, c, NULL);
    for (int32_t r = 0; r < c->ranks; r++)
        t->bed.on[r] = fault_store(&t->bed, crash_sys(), RSI_FILE_IO_THREADS);
    t->may_old = c->overwrite;
    t->may_none = !c->overwrite;
    t->may_new = true;
    t->few = fault_long() ? FEW_LONG : FEW;
    t->more = fault_long() ? MORE_LONG : MORE;
}

static void close_cuts(cuts *t)
{
    crash_end();
    for (int32_t r = 0; r < t->bed.c->ranks; r++)
        rsd_store_close(t->bed.on[r]);
    fault_bed_close(&t->bed);
    fault_bed_close(&t->again);
}

static void a_power_cut_leaves_the_old_or_the_new_checkpoint(void **state)
{
    fault_row before = { .fault = "power cut before the save returned",
                         .silent = FAULT_NOT_COUNTED,
                         .hung = FAULT_NOT_COUNTED };
    fault_row after = { .fault = "power cut after the save returned", .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        cuts t;
        int  n;

        open_cuts(&t, c, &before, "saving");
        crash_start(t.bed.top);
        assert_true(fault_save_version(&t.bed, 2, c->overwrite));
        assert_int_equal(t.bed.rc[0], RSD_OK);
        n = crash_changes();
        assert_true(crash_syncs() >= 2);
        cut_from(&t, 0, n);
        t.row = &after;
        t.what = "saved";
        t.may_old = t.may_none = false;
        t.returned = true;
        cut_from(&t, n, n);
        close_cuts(&t);
    }
    fault_row_print(&before);
    fault_row_print(&after);
    assert_int_equal(before.lost + after.lost, 0);
}

/* False: the save has no nth sync. */
static bool cut_at_failed_sync(const fault_case *c, fault_row *row, int nth, bool for_ever)
{
    cuts t;
    bool hit;

    open_cuts(&t, c, row, "saving while a sync fails");
    crash_start(t.bed.top);
    crash_fail_sync(nth, for_ever);
    assert_true(fault_save_version(&t.bed, 2, c->overwrite));
    hit = crash_syncs() >= nth;
    row->refused += t.bed.rc[0] != RSD_OK;
    row->silent += hit && t.bed.rc[0] == RSD_OK;
    assert_int_equal(t.bed.rc[0], hit ? RSD_E_IO : RSD_OK); /* C3 */
    t.few = FEW;                                            /* there are many of these */
    t.more = MORE;
    cut_from(&t, fault_long() ? 0 : crash_changes() * 3 / 4, crash_changes());
    crash_end();
    fault_reset(&t.bed);
    close_cuts(&t);
    return hit;
}

static void a_failed_sync_and_then_a_power_cut_leave_the_old_or_the_new_checkpoint(void **state)
{
    fault_row row = { .fault = "sync n fails, then a power cut", .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c))
        for (int for_ever = 0; for_ever < 2; for_ever++)
            for (int nth = 1; cut_at_failed_sync(c, &row, nth, for_ever);)
                nth++;
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

/* Makes the bed as a writer leaves it that is killed between its exchange of the two names and the
 * sync behind it. */
static void exchange_and_die(cuts *t)
{
    char from[128], to[128], aside[128];

    snprintf(from, sizeof(from), "%s/.ck.tmp-0123456789abcdef", t->bed.top);
    snprintf(aside, sizeof(aside), "%s/aside", t->bed.top);
    snprintf(to, sizeof(to), "%s/%s", t->bed.top, t->bed.c->path);
    assert_int_equal(rename(to, aside), 0);
    assert_true(fault_save_version(&t->bed, 2, false));
    assert_int_equal(t->bed.rc[0], RSD_OK);
    assert_int_equal(rename(to, from), 0);
    assert_int_equal(rename(aside, to), 0);
    crash_start(t->bed.top);
    assert_int_equal(crash_sys()->renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE), 0);
}

static void a_kill_a_next_save_and_a_power_cut_leave_the_old_or_the_new_checkpoint(void **state)
{
    fault_row row = { .fault = "kill at the rename, then a power cut in the next save",
                      .silent = FAULT_NOT_COUNTED,
                      .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        cuts t;

        if (!c->overwrite || strcmp(c->path, "ck") != 0)
            continue;
        open_cuts(&t, c, &row, "saving after a kill");
        exchange_and_die(&t);
        assert_true(fault_save_version(&t.bed, 2, true));
        assert_int_equal(t.bed.rc[0], RSD_OK);
        cut_from(&t, 0, crash_changes());
        close_cuts(&t);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

static void removing_leaves_all_or_nothing_after_a_power_cut(void **state)
{
    fault_row row = { .fault = "power cut while a checkpoint is removed",
                      .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        cuts t;

        if (!c->overwrite)
            continue;
        open_cuts(&t, c, &row, "removing");
        t.may_none = true;
        t.may_new = false;
        crash_start(t.bed.top);
        assert_int_equal(rsi_store_remove(t.bed.on[0], c->path, NULL), RSD_OK);
        cut_from(&t, 0, crash_changes());
        t.what = "removed";
        t.may_old = false; /* gone for good on return */
        t.returned = true;
        cut_from(&t, crash_changes(), crash_changes());
        close_cuts(&t);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

static void sealing_leaves_the_checkpoint_whole_after_a_power_cut(void **state)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true };
    fault_row               row = { .fault = "power cut while a checkpoint is sealed",
                                    .silent = FAULT_NOT_COUNTED,
                                    .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        cuts    t;
        rsd_err rc;

        if (!c->overwrite)
            continue;
        open_cuts(&t, c, &row, "sealing");
        t.may_new = false;
        crash_start(t.bed.top);
        rc = rsd_ckpt_add_checksums(t.bed.on[0], c->path, &opts, NULL);
        if (rc != RSD_E_UNSUPPORTED) /* built without xxHash */
            assert_int_equal(rc, RSD_OK);
        cut_from(&t, 0, crash_changes());
        close_cuts(&t);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

/* Version 2 comes from another checkpoint. */
static void convert(cuts *t, const fault_case *c, bool keep)
{
    const rsd_convert_opts opts = { .size = sizeof(opts),
                                    .store = t->bed.on[0],
                                    .format = c->format,
                                    .threads = 1,
                                    .overwrite = c->overwrite,
                                    .keep = keep && rsi_hash128_available() };
    fault_bed              from;
    rsd_ckpt              *source;

    fault_bed_open(&from, c, NULL);
    assert_true(fault_save_version(&from, 2, c->overwrite));
    source = fix_open(from.quiet, c->path);
    crash_start(t->bed.top);
    assert_int_equal(rsd_convert(source, c->path, NULL, &opts, NULL), RSD_OK);
    rsd_ckpt_close(source);
    fault_bed_close(&from);
}

static void convert_and_cut(const fault_case *c, fault_row *row, bool keep)
{
    cuts t;

    open_cuts(&t, c, row, keep ? "converting with keep" : "converting");
    t.keeps = keep;
    convert(&t, c, keep);
    cut_from(&t, 0, crash_changes());
    t.what = "converted";
    t.may_old = t.may_none = false;
    t.returned = true;
    cut_from(&t, crash_changes(), crash_changes());
    close_cuts(&t);
}

static void converting_leaves_the_old_or_the_new_checkpoint_after_a_power_cut(void **state)
{
    fault_row row = { .fault = "power cut while a checkpoint is converted",
                      .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        convert_and_cut(c, &row, false);
        convert_and_cut(c, &row, true);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

/* ---- folders ---- */

static void must_be_there(void *arg)
{
    assert_true(crash_there(arg));
}

static void a_folder_that_was_made_survives_a_power_cut(void **state)
{
    rsd_store *store;
    fault_bed  bed;
    char       path[128], name[] = "a/b/c";

    (void)state;
    fault_bed_open(&bed, fault_next(NULL), NULL);
    store = fault_store(&bed, crash_sys(), RSI_FILE_IO_THREADS);
    crash_start(bed.top);
    assert_int_equal(rsi_store_make_folder(store, name, NULL), RSD_OK);
    crash_cut(crash_changes(), FEW, 0, 1, must_be_there, name);
    assert_int_equal(rsi_store_remove(bed.quiet, "a", NULL), RSD_OK);
    crash_start(bed.top);
    snprintf(path, sizeof(path), "%s/%s", bed.top, name);
    assert_int_equal(rsi_file_store_make_top(path, crash_sys(), NULL), RSD_OK);
    crash_cut(crash_changes(), FEW, 0, 1, must_be_there, name);
    assert_int_equal(rsi_store_remove(bed.quiet, "a", NULL), RSD_OK);
    crash_end();
    rsd_store_close(store);
    fault_bed_close(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_cut_leaves_the_old_or_the_new_checkpoint),
        cmocka_unit_test(a_failed_sync_and_then_a_power_cut_leave_the_old_or_the_new_checkpoint),
        cmocka_unit_test(a_kill_a_next_save_and_a_power_cut_leave_the_old_or_the_new_checkpoint),
        cmocka_unit_test(removing_leaves_all_or_nothing_after_a_power_cut),
        cmocka_unit_test(sealing_leaves_the_checkpoint_whole_after_a_power_cut),
        cmocka_unit_test(converting_leaves_the_old_or_the_new_checkpoint_after_a_power_cut),
        cmocka_unit_test(a_folder_that_was_made_survives_a_power_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
