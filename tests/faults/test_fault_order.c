/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_order.c - the order of what a save does to the disk is that of the commit protocol
 * (C2 to C6), read from what the disk that forgets has noted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "crash_log.h"

#include <string.h>

/* Runs the check on what each case has noted. */
static void each_case(void (*look)(const fault_case *c))
{
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        fault_bed bed;

        fault_bed_open(&bed, c, NULL);
        for (int32_t r = 0; r < c->ranks; r++)
            bed.on[r] = fault_store(&bed, crash_sys(), RSI_FILE_IO_THREADS);
        crash_start(bed.top);
        assert_true(fault_save_version(&bed, 2, c->overwrite));
        assert_int_equal(bed.rc[0], RSD_OK);
        look(c);
        crash_end();
        for (int32_t r = 0; r < c->ranks; r++)
            rsd_store_close(bed.on[r]);
        fault_bed_close(&bed);
    }
}

static bool writes(const crash_change *c)
{
    return c->kind == CRASH_WRITE || c->kind == CRASH_SIZE;
}

/* The change that gave the checkpoint its name; there is only one. */
static int published(const fault_case *c)
{
    int name = crash_name(c->path), at = -1;

    for (int i = 0; i < crash.nchanges; i++) {
        const crash_change *change = &crash.change[i];

        if (change->kind != CRASH_SET || change->node != 0 ||
            (change->other != name && change->name != name))
            continue;
        assert_int_equal(at, -1);
        at = i;
    }
    assert_true(at >= 0);
    return at;
}

static void only_new_files(const fault_case *c)
{
    int name = published(c);

    for (int i = 0; i < crash.nchanges; i++) {
        const crash_change *change = &crash.change[i];

        assert_false(writes(change) && change->node < crash.nfirst);
        if (change->kind == CRASH_SET && change->node != 0 && change->node < crash.nfirst)
            assert_true(i > name); /* the old one's files are removed when it has no name */
    }
}

static void nothing_that_was_there_is_written_to(void **state) /* C2 */
{
    (void)state;
    each_case(only_new_files);
}

/* Files first, then the folder that has their names, then the name. */
static void synced_behind(const fault_case *c)
{
    int name = published(c);

    for (int i = 0; i < name; i++) {
        const crash_change *change = &crash.change[i];
        int                 k = i + 1;

        if (change->kind >= CRASH_SYNC || change->node == 0)
            continue; /* the temporary name in the top is synced with the final one */
        while (k < name &&
               !(crash.change[k].kind == CRASH_SYNC && crash.change[k].node == change->node))
            k++;
        assert_true(k < name);
    }
    for (int i = name; i < crash.nchanges; i++)
        assert_false(writes(&crash.change[i]));
}

static void all_files_and_folders_are_synced_before_the_name_is_given(void **state) /* C3, C5 */
{
    (void)state;
    each_case(synced_behind);
}

static void top_synced(const fault_case *c)
{
    int  name = published(c);
    bool synced = false;

    for (int i = name + 1; i < crash.nchanges; i++) {
        synced = synced || (crash.change[i].kind == CRASH_SYNC && crash.change[i].node == 0);
        if (crash.change[i].kind == CRASH_SET)
            assert_true(synced); /* nothing is removed before */
    }
    assert_true(synced);
}

static void the_folder_is_synced_behind_the_one_rename(void **state) /* C5 */
{
    (void)state;
    each_case(top_synced);
}

/* ".metadata" is made when every file of data is written and synced. */
static void metadata_last(const fault_case *c)
{
    int  meta = -1;
    bool data[CRASH_NODES] = { false };

    if (c->format != RSD_FORMAT_DCP)
        return;
    for (int i = 0; i < crash.nchanges; i++) {
        const crash_change *change = &crash.change[i];

        if (change->kind != CRASH_SET || change->child < crash.nfirst)
            continue;
        data[change->child] = strstr(crash.name[change->name], ".distcp") != NULL;
        if (strcmp(crash.name[change->name], ".metadata") == 0)
            meta = i;
    }
    assert_true(meta >= 0);
    for (int i = meta; i < crash.nchanges; i++)
        assert_false(crash.change[i].kind != CRASH_SET && data[crash.change[i].node]);
}

static void metadata_are_written_when_all_data_are_synced(void **state) /* C4 */
{
    (void)state;
    each_case(metadata_last);
}

static void written_once(const fault_case *c)
{
    (void)c;
    for (int i = 0; i < crash.nchanges; i++)
        for (int k = i + 1; k < crash.nchanges; k++) {
            const crash_change *a = &crash.change[i], *b = &crash.change[k];

            if (a->kind == CRASH_WRITE && b->kind == CRASH_WRITE && a->node == b->node)
                assert_true(a->off + a->len <= b->off || b->off + b->len <= a->off);
        }
}

static void no_byte_is_written_twice(void **state) /* C6 */
{
    (void)state;
    each_case(written_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_was_there_is_written_to),
        cmocka_unit_test(all_files_and_folders_are_synced_before_the_name_is_given),
        cmocka_unit_test(the_folder_is_synced_behind_the_one_rename),
        cmocka_unit_test(metadata_are_written_when_all_data_are_synced),
        cmocka_unit_test(no_byte_is_written_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
