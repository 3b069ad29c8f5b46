/* SPDX-License-Identifier: Apache-2.0 */
/* test_journal.c - what a journal says about blocks after any of its bytes changed or were lost:
 * too little, never something wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "convert/journal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 32, RECORD = 32, BLOCKS = 300, THREADS = 4 };
#define ID UINT64_C(0x1122334455667788)

/* n blocks of other lengths and hashes each, or none of them known. */
typedef struct blocks {
    rsi_convert_block  at[BLOCKS];
    rsi_convert_blocks cuts;
} blocks;

static void make(blocks *b, size_t n, bool known)
{
    memset(b, 0, sizeof(*b));
    for (size_t i = 0; i < n; i++) {
        b->at[i].len = (uint32_t)(1000 + i);
        for (size_t k = 0; k < RSI_HASH128_BYTES && known; k++)
            b->at[i].hash[k] = (unsigned char)(i * 7 + k + 1);
    }
    b->cuts = (rsi_convert_blocks){ .at = b->at, .n = n };
}

static rsi_journal *open_journal(rsd_store *store, uint64_t id)
{
    rsi_journal *journal;

    assert_int_equal(rsi_journal_open(store, "j", id, &journal, NULL), RSD_OK);
    return journal;
}

static void add(rsd_store *store, const blocks *b, size_t first, size_t n)
{
    rsi_journal *journal = open_journal(store, ID);

    assert_int_equal(rsi_journal_add(journal, &b->cuts, first, n, NULL), RSD_OK);
    rsi_journal_close(journal);
}

/* How many of n blocks the journal knows; each with the hash that it was added with. */
static size_t known(rsd_store *store, const char *name, size_t n)
{
    size_t count = 0;
    blocks want, got;

    make(&want, n, true);
    make(&got, n, false);
    assert_int_equal(rsi_journal_read(store, name, ID, &got.cuts, NULL), RSD_OK);
    for (size_t i = 0; i < n; i++) {
        count += got.at[i].done;
        assert_int_equal(got.at[i].len, want.at[i].len);
        if (got.at[i].done)
            assert_memory_equal(got.at[i].hash, want.at[i].hash, RSI_HASH128_BYTES);
    }
    return count;
}

static void blocks_that_were_added_are_done_with_their_hashes(void **state)
{
    rsd_store *store = fix_store();
    blocks     b, got;

    (void)state;
    make(&b, 10, true);
    add(store, &b, 2, 3);
    add(store, &b, 7, 1);
    make(&got, 10, false);
    assert_int_equal(rsi_journal_read(store, "j", ID, &got.cuts, NULL), RSD_OK);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(got.at[i].done, (i >= 2 && i < 5) || i == 7);
    assert_int_equal(known(store, "j", 10), 4);
    rsd_store_close(store);
}

static void many_blocks_at_once_are_all_there(void **state)
{
    rsd_store *store = fix_store();
    blocks     b;

    (void)state;
    make(&b, BLOCKS, true);
    add(store, &b, 0, BLOCKS);
    assert_int_equal(known(store, "j", BLOCKS), BLOCKS);
    rsd_store_close(store);
}

static void a_new_journal_knows_nothing(void **state)
{
    rsd_store *store = fix_store();
    blocks     b;

    (void)state;
    make(&b, 3, true);
    add(store, &b, 0, 0);
    assert_int_equal(known(store, "j", 3), 0);
    rsi_journal_close(NULL);
    rsd_store_close(store);
}

static void a_journal_that_is_not_there_is_an_error(void **state)
{
    rsd_store *store = fix_store();
    blocks     b;

    (void)state;
    make(&b, 3, false);
    assert_int_equal(rsi_journal_read(store, "j", ID, &b.cuts, NULL), RSD_E_NOTFOUND);
    rsd_store_close(store);
}

static void a_journal_of_something_else_knows_nothing(void **state)
{
    rsd_store *store = fix_store();
    blocks     b, got;

    (void)state;
    make(&b, 3, true);
    add(store, &b, 0, 3);
    make(&got, 3, false);
    assert_int_equal(rsi_journal_read(store, "j", ID + 1, &got.cuts, NULL), RSD_OK);
    for (size_t i = 0; i < 3; i++)
        assert_false(got.at[i].done);
    rsd_store_close(store);
}

/* Its blocks are not this one's, whatever was there before. */
static void a_journal_of_something_else_is_begun_anew(void **state)
{
    rsd_store *store = fix_store();
    blocks     b;

    (void)state;
    make(&b, 3, true);
    add(store, &b, 0, 3);
    rsi_journal_close(open_journal(store, ID + 1));
    rsi_journal_close(open_journal(store, ID));
    assert_int_equal(known(store, "j", 3), 0);
    add(store, &b, 1, 1);
    assert_int_equal(known(store, "j", 3), 1);
    rsd_store_close(store);
}

static void records_of_blocks_that_are_not_these_are_passed_over(void **state)
{
    rsd_store *store = fix_store();
    blocks     b, got;

    (void)state;
    make(&b, 6, true);
    b.at[1].len++;
    add(store, &b, 0, 6);
    assert_int_equal(known(store, "j", 3), 2); /* 1 has another length, 3 to 5 are not there */
    make(&got, 0, false);
    assert_int_equal(rsi_journal_read(store, "j", ID, &got.cuts, NULL), RSD_OK);
    rsd_store_close(store);
}

static void a_flipped_byte_costs_its_record_only(void **state)
{
    rsd_store *store = fix_store();
    blocks     b;

    (void)state;
    make(&b, 4, true);
    add(store, &b, 0, 4);
    for (uint64_t at = 0; at < HEAD + 4 * RECORD; at++) {
        fix_flip(store, "j", at);
        assert_int_equal(known(store, "j", 4), at < HEAD ? 0 : 3);
        fix_flip(store, "j", at);
    }
    assert_int_equal(known(store, "j", 4), 4);
    rsd_store_close(store);
}

/* Any end, as a power cut leaves it, and what is added after it. */
static void a_journal_that_was_cut_off_keeps_what_is_whole(void **state)
{
    rsd_store     *store = fix_store();
    size_t         len;
    unsigned char *bytes;
    blocks         b;

    (void)state;
    make(&b, 5, true);
    add(store, &b, 0, 4);
    bytes = fix_get(store, "j", &len);
    assert_int_equal(len, HEAD + 4 * RECORD);
    for (size_t cut = 0; cut <= len; cut++) {
        size_t whole = cut < HEAD ? 0 : (cut - HEAD) / RECORD;

        fix_put(store, "cut", bytes, cut);
        assert_int_equal(known(store, "cut", 5), whole);
        assert_int_equal(rsi_store_remove(store, "j", NULL), RSD_OK);
        fix_put(store, "j", bytes, cut);
        add(store, &b, 4, 1);
        assert_int_equal(known(store, "j", 5), whole + 1);
        assert_int_equal(rsi_store_remove(store, "cut", NULL), RSD_OK);
    }
    free(bytes);
    rsd_store_close(store);
}

/* A record that never came between two that did, as after a write that failed. */
static void a_hole_of_zeros_is_passed_over(void **state)
{
    rsd_store     *store = fix_store();
    size_t         len;
    unsigned char *bytes;
    blocks         b;

    (void)state;
    make(&b, 3, true);
    add(store, &b, 0, 3);
    bytes = fix_get(store, "j", &len);
    memset(bytes + HEAD + RECORD, 0, RECORD);
    fix_put(store, "holed", bytes, len);
    assert_int_equal(known(store, "holed", 3), 2);
    free(bytes);
    rsd_store_close(store);
}

typedef struct adding {
    rsi_journal  *journal;
    const blocks *b;
    size_t        first, n;
    rsd_err       rc;
} adding;

static void *add_some(void *arg)
{
    adding *a = arg;

    for (size_t i = 0; i < a->n && !a->rc; i++)
        a->rc = rsi_journal_add(a->journal, &a->b->cuts, a->first + i, 1, NULL);
    return NULL;
}

static void threads_may_add_at_once(void **state)
{
    rsd_store   *store = fix_store();
    rsi_journal *journal = open_journal(store, ID);
    pthread_t    thread[THREADS];
    adding       a[THREADS];
    blocks       b;

    (void)state;
    make(&b, BLOCKS, true);
    for (size_t i = 0; i < THREADS; i++) {
        a[i] = (adding){ .journal = journal, .b = &b, .n = BLOCKS / THREADS };
        a[i].first = i * a[i].n;
        assert_int_equal(pthread_create(&thread[i], NULL, add_some, &a[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(a[i].rc, RSD_OK);
    }
    rsi_journal_close(journal);
    assert_int_equal(known(store, "j", BLOCKS), BLOCKS);
    rsd_store_close(store);
}

/* In a store of its own each time, so that nothing of an earlier turn counts as lost. */
static rsd_err write_and_read(void *arg, rsd_error *err)
{
    rsi_journal *journal = NULL;
    rsd_store   *store;
    blocks       b;
    rsd_err      rc = rsd_store_open("mem:", &store, err);

    (void)arg;
    if (rc)
        return rc;
    make(&b, 3, true);
    rc = rsi_journal_open(store, "j", ID, &journal, err);
    for (int i = 0; i < 2 && !rc; i++) { /* made, then opened again */
        rc = rsi_journal_add(journal, &b.cuts, 0, 3, err);
        rsi_journal_close(journal);
        journal = NULL;
        if (!rc)
            rc = rsi_journal_open(store, "j", ID + (uint64_t)i, &journal, err);
    }
    rsi_journal_close(journal);
    if (!rc)
        rc = rsi_journal_read(store, "j", ID, &b.cuts, err);
    rsd_store_close(store);
    return rc;
}

static void nothing_is_left(void *arg, rsd_err rc)
{
    const int64_t *before = arg;

    (void)rc;
    assert_int_equal(rsi_mem_stats_get().bytes, *before);
}

static void every_allocation_that_fails_is_told(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    fix_every_allocation(write_and_read, nothing_is_left, &before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_that_were_added_are_done_with_their_hashes),
        cmocka_unit_test(many_blocks_at_once_are_all_there),
        cmocka_unit_test(a_new_journal_knows_nothing),
        cmocka_unit_test(a_journal_that_is_not_there_is_an_error),
        cmocka_unit_test(a_journal_of_something_else_knows_nothing),
        cmocka_unit_test(a_journal_of_something_else_is_begun_anew),
        cmocka_unit_test(records_of_blocks_that_are_not_these_are_passed_over),
        cmocka_unit_test(a_flipped_byte_costs_its_record_only),
        cmocka_unit_test(a_journal_that_was_cut_off_keeps_what_is_whole),
        cmocka_unit_test(a_hole_of_zeros_is_passed_over),
        cmocka_unit_test(threads_may_add_at_once),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
