/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/rounds.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3, SHORT_MS = 200, NOTE_MAX = 2048 };

static char folder[] = "/tmp/reshard-rounds-XXXXXX";

/* One rank of a round, on a thread. */
typedef struct rank {
    int32_t     rank, size;
    int64_t     ms;     /* 0: long enough */
    uint64_t    brings; /* its bytes */
    bool        leaves; /* hangs up at once, as after an error */
    bool        stays;  /* what it put is left there */
    bool        later;  /* begins when rank 1 has put its bytes */
    rsd_err     rc;
    rsd_error   err;
    rsi_bytes   all;
    rsd_meeting with;
} rank;

static char   note[NOTE_MAX]; /* what rank 1 puts */
static size_t note_len;
static sem_t  note_put;
static rsd_err (*real_put)(void *, const char *, const void *, size_t, rsd_error *);

static rsd_err watch_put(void *arg, const char *key, const void *data, size_t bytes, rsd_error *err)
{
    rsd_err rc = real_put(arg, key, data, bytes, err);

    if (strcmp(key, "x.1") == 0 && bytes <= NOTE_MAX)
        memcpy(note, data, note_len = bytes);
    sem_post(&note_put);
    return rc;
}

static void *take_part(void *arg)
{
    rank      *r = arg;
    rsi_rounds rounds;

    r->err = (rsd_error){ .rank = -1 };
    r->with.size = sizeof(r->with);
    r->rc = rsd_meeting_in_folder(folder, &r->with, &r->err);
    if (r->rc)
        return NULL;
    r->with.timeout_ms = r->ms;
    if (r->later)
        sem_wait(&note_put);
    if (r->rank == 1) {
        real_put = r->with.put;
        r->with.put = watch_put;
    }
    rounds = rsi_rounds_begin(r->rank, r->size, &r->with);
    r->rc = rsi_round(&rounds, "x", RSD_OK, &r->brings, sizeof(r->brings), &r->all, &r->err);
    if (r->leaves)
        r->with.hangup(r->with.arg, true);
    return NULL;
}

/* While the folder has another name nothing in it is found. */
static void hide(bool away)
{
    char other[sizeof(folder) + 1];

    snprintf(other, sizeof(other), "%s+", folder);
    assert_int_equal(rename(away ? folder : other, away ? other : folder), 0);
}

static void meet(rank *r, size_t n)
{
    pthread_t thread[2 * RANKS];

    sem_init(&note_put, 0, 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_part, &r[i]), 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    for (size_t i = 0; i < n; i++) {
        rsi_free(r[i].all.at);
        if (r[i].stays)
            hide(true);
        if (!r[i].leaves)
            r[i].with.hangup(r[i].with.arg, false);
        if (r[i].stays)
            hide(false);
    }
}

static int make_folder(void **state)
{
    (void)state;
    memcpy(strrchr(folder, '-'), "-XXXXXX", 7);
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

static void fill(rank *r, size_t n, int64_t ms)
{
    for (size_t i = 0; i < n; i++)
        r[i] = (rank){ .rank = (int32_t)i, .size = RANKS, .ms = ms, .brings = 100 + i };
}

static void leave_there(const char *key, const void *data, size_t bytes)
{
    char  path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, key);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

static void check(const rank *r, rsd_err rc, int32_t lost, const char *text)
{
    if (r->rc != rc || r->err.rank != lost || !strstr(r->err.msg, text))
        fail_msg("rank %d: %s of rank %d: %s", (int)r->rank, rsd_err_name(r->rc), (int)r->err.rank,
                 r->err.msg);
}

static void all_ranks_get_the_bytes_of_all_and_leave_nothing(void **state)
{
    rank r[RANKS];

    (void)state;
    fill(r, RANKS, 0);
    meet(r, RANKS);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(r[i].rc, RSD_OK);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void a_result_stays_until_others_have_read_that_they_failed(void **state)
{
    rank r[RANKS];

    (void)state;
    fill(r, RANKS, 0);
    r[0].ms = SHORT_MS;
    r[0].later = true;
    r[0].leaves = r[1].leaves = true;
    meet(r, RANKS - 1);
    for (int i = 0; i < RANKS - 1; i++)
        check(&r[i], RSD_E_TIMEOUT, 2, "rank 2 did not come to the meeting");
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void ranks_that_count_differently_all_hear_it(void **state)
{
    rank r[RANKS + 1];

    (void)state;
    fill(r, RANKS, 0);
    r[2].size = RANKS + 1;
    meet(r, RANKS);
    check(&r[0], RSD_E_MISMATCH, 2, "rank 2 of 4 put \"x.2\", for rank 2 of 3");
    check(&r[1], RSD_E_MISMATCH, 2, "rank 2 of 4 put \"x.2\", for rank 2 of 3");
    check(&r[2], RSD_E_MISMATCH, 0, "rank 0 of 3 put \"x.all\", for rank 0 of 4");
}

static void without_rank_0_the_others_name_it(void **state)
{
    rank r[RANKS];

    (void)state;
    fill(r, RANKS, SHORT_MS);
    meet(r + 1, RANKS - 1);
    for (int i = 1; i < RANKS; i++)
        check(&r[i], RSD_E_TIMEOUT, 0, "rank 0 did not come to the meeting");
}

/* Leaves rank 1's note there, with byte `at` changed, or so many bytes of it. */
static void check_damaged(const char *good, size_t len, size_t at, bool cut)
{
    char bad[NOTE_MAX], path[128];
    rank r[RANKS];

    memcpy(bad, good, len);
    bad[at] ^= 0x40;
    leave_there("x.1", bad, cut ? at : len);
    fill(r, RANKS, 0);
    meet(r, RANKS);
    check(&r[0], RSD_E_COMM, 1, "the entry under \"x.1\" is damaged, or not from rank 1");
    check(&r[1], RSD_E_EXISTS, -1, "x.1\" exists: the folder was used for another meeting");
    check(&r[2], RSD_E_COMM, 1, "the entry under \"x.1\" is damaged, or not from rank 1");
    snprintf(path, sizeof(path), "%s/x.1", folder);
    assert_int_equal(unlink(path), 0);
}

static void damage_under_a_key_is_named(void **state)
{
    char   good[NOTE_MAX];
    size_t len;
    rank   r[RANKS];

    (void)state;
    fill(r, RANKS, 0);
    meet(r, RANKS);
    assert_in_range(note_len, 500, sizeof(good));
    memcpy(good, note, len = note_len);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t at = 0; at < len; at += at < 60 || at > len - 60 ? 1 : 61) {
        check_damaged(good, len, at, false);
        check_damaged(good, len, at, true);
    }
}

static void a_pipe_under_a_key_keeps_nobody_waiting(void **state)
{
    char path[128];
    rank r[RANKS];

    (void)state;
    snprintf(path, sizeof(path), "%s/x.1", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    fill(r, RANKS, 0);
    meet(r, RANKS);
    check(&r[0], RSD_E_IO, 1, "x.1\" is not a file");
    check(&r[1], RSD_E_EXISTS, -1, "x.1\" exists: the folder was used for another meeting");
    check(&r[2], RSD_E_IO, 1, "x.1\" is not a file");
}

/* What rank 0 of an earlier job left: the others see that it is not of theirs. */
static void the_result_of_an_earlier_meeting_is_refused(void **state)
{
    char path[128];
    rank r[RANKS];

    (void)state;
    fill(r, RANKS, 0);
    r[0].stays = true;
    meet(r, RANKS);
    snprintf(path, sizeof(path), "%s/x.all", folder);
    assert_int_equal(access(path, F_OK), 0);
    fill(r, RANKS, 0);
    for (int i = 0; i < RANKS; i++)
        r[i].brings = 200 + (uint64_t)i;
    meet(r, RANKS);
    check(&r[0], RSD_E_EXISTS, -1, "x.0\" exists: the folder was used for another meeting");
    for (int i = 1; i < RANKS; i++)
        check(&r[i], RSD_E_EXISTS, -1, "\"x.all\" is of another meeting");
}

static void of_a_rank_that_was_started_twice_one_is_refused(void **state)
{
    rank r[RANKS + 1];
    bool first;

    (void)state;
    fill(r, RANKS, 0);
    r[RANKS] = r[2];
    meet(r, RANKS + 1);
    first = r[2].rc == RSD_OK;
    check(&r[first ? RANKS : 2], RSD_E_EXISTS, -1, "another meeting");
    for (int i = 0; i < 2; i++)
        assert_int_equal(r[i].rc, RSD_OK);
    assert_int_equal(r[first ? 2 : RANKS].rc, RSD_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_ranks_get_the_bytes_of_all_and_leave_nothing),
        CASE(a_result_stays_until_others_have_read_that_they_failed),
        CASE(ranks_that_count_differently_all_hear_it),
        CASE(without_rank_0_the_others_name_it),
        CASE(damage_under_a_key_is_named),
        CASE(a_pipe_under_a_key_keeps_nobody_waiting),
        CASE(the_result_of_an_earlier_meeting_is_refused),
        CASE(of_a_rank_that_was_started_twice_one_is_refused),
    };

    return cmocka_run_group_tests_name("rounds", tests, NULL, NULL);
}
