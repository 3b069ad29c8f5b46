/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_ranks.c - one rank of a save cancels, loses its comm or stops, at every point where it
 * can: all ranks end, with one code, and the previous checkpoint is intact to the last
 * bit. No clock decides: the rank that stops is woken when the others have given up. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "base/mem.h"
#include "comm/comm.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { SHORT_MS = 10, GRACE_MS = 60000 };

/* One rank's calls of its comm; the ranks of a save are one process here. */
static struct {
    int32_t         rank;
    int             at;    /* the call that is disturbed */
    bool            stops; /* it waits for all others to end; else it fails */
    rsd_comm_ops    ops;   /* as they were */
    int             calls;
    pthread_mutex_t lock;
    pthread_cond_t  more;
    bool            stopped;
    int32_t         ended; /* ranks that have their result */
    /* The rank that stopped is missed when the others have looked in vain since anything happened
     * last. */
    int  events;
    int  looked[FAULT_RANKS]; /* events before the rank's last look that found nothing */
    bool missed;
} bad = { .lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER };

static void note_end(int32_t rank)
{
    pthread_mutex_lock(&bad.lock);
    bad.ended += rank != bad.rank;
    bad.looked[rank] = INT_MAX;
    pthread_cond_broadcast(&bad.more);
    pthread_mutex_unlock(&bad.lock);
}

static rsd_err disturb(rsd_error *err)
{
    if (++bad.calls != bad.at)
        return RSD_OK;
    if (!bad.stops)
        return rsi_fail(err, RSD_E_COMM, "the cable is cut");
    pthread_mutex_lock(&bad.lock);
    bad.stopped = true;
    bad.looked[bad.rank] = INT_MAX;
    while (bad.ended < FAULT_RANKS - 1)
        pthread_cond_wait(&bad.more, &bad.lock);
    pthread_mutex_unlock(&bad.lock);
    return RSD_OK;
}

static int happened(bool something)
{
    int events;

    pthread_mutex_lock(&bad.lock);
    bad.events += something;
    events = bad.events;
    pthread_mutex_unlock(&bad.lock);
    return events;
}

static rsd_err bad_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    rsd_err rc = disturb(err);

    rc = rc ? rc : bad.ops.send(self, to, tag, data, bytes, request, err);
    happened(true);
    return rc;
}

static rsd_err bad_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    rsd_err rc = disturb(err);

    return rc ? rc : bad.ops.recv(self, from, tag, data, bytes, request, err);
}

/* This rank found nothing since so many events. True: nobody can find anything any more. */
static bool is_missed(int32_t rank, int events)
{
    bool all = true;

    pthread_mutex_lock(&bad.lock);
    bad.looked[rank] = events;
    for (int32_t r = 0; r < FAULT_RANKS; r++)
        all = all && bad.looked[r] >= bad.events;
    bad.missed = bad.missed || (bad.stopped && all);
    all = bad.missed;
    pthread_mutex_unlock(&bad.lock);
    return all;
}

/* Nobody's time runs out before the rank has stopped and all others wait for it, however slowly
 * they run. */
static rsd_err patient_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                                 rsd_error *err)
{
    int32_t rank = bad.ops.rank(self);
    int     events;
    rsd_err rc;

    do {
        events = happened(false);
        rc = bad.ops.wait_some(self, n, request, timeout_ms, err);
    } while (rc == RSD_E_TIMEOUT && timeout_ms > 0 && !is_missed(rank, events));
    happened(rc != RSD_E_TIMEOUT);
    return rc;
}

static rsd_err noted_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                          void **request, rsd_error *err)
{
    rsd_err rc = bad.ops.send(self, to, tag, data, bytes, request, err);

    happened(true);
    return rc;
}

static void tune(rsd_comm *comm)
{
    bad.ops = comm->ops;
    if (bad.stops) { /* the verdict waits for the three that come */
        comm->grace_ms = GRACE_MS;
        comm->present = FAULT_RANKS - 1;
        comm->timeout_ms = SHORT_MS;
        comm->ops.wait_some = patient_wait_some;
        comm->ops.send = noted_send;
    }
    if (comm->rank != bad.rank)
        return;
    comm->ops.send = bad_send;
    comm->ops.recv = bad_recv;
}

/* Living ranks agree, unless the last agreement itself was cut: then the new one is there. */
static void check(fault_bed *bed, fault_row *row, bool same, rsd_err code)
{
    fault_found found = fault_look(bed);
    fault_found before = bed->c->overwrite ? FAULT_OLD : FAULT_NONE;

    fault_count(row, bed, found);
    if (found != before && found != FAULT_NEW)
        fail_msg("%s: call %d of rank %d: the checkpoint is lost", bed->c->name, bad.at,
                 (int)bad.rank);
    for (int32_t r = 0; r < bed->c->ranks; r++) {
        if (bed->rc[r] && bed->rc[r] != code)
            fail_msg("%s: call %d of rank %d: rank %d says %s: %s", bed->c->name, bad.at,
                     (int)bad.rank, (int)r, rsd_err_name(bed->rc[r]), bed->err[r].msg);
        if (bed->rc[r] && bed->err[r].rank != bad.rank)
            fail_msg("%s: call %d of rank %d: another rank is named: %s", bed->c->name, bad.at,
                     (int)bad.rank, bed->err[r].msg);
        if (!bed->rc[r])
            assert_int_equal(found, FAULT_NEW);
    }
    if (!same)
        assert_int_equal(found, FAULT_NEW);
    fault_reset(bed);
}

/* Disturbs every call of a rank, `step` apart. */
static void every_comm_call(const fault_case *c, fault_row *row, int32_t rank, bool stops, int step)
{
    int64_t   bytes = rsi_mem_stats_get().bytes;
    fault_bed bed;

    fault_bed_open(&bed, c, NULL);
    bed.tune = tune;
    bed.ended = note_end;
    bad.rank = rank;
    bad.stops = stops;
    for (bad.at = 1;; bad.at += step) {
        bool same;

        bad.calls = 0;
        bad.ended = 0;
        bad.stopped = bad.missed = false;
        bad.events = 1;
        memset(bad.looked, 0, sizeof(bad.looked));
        same = fault_save_version(&bed, 2, c->overwrite);
        if (bad.calls < bad.at && !same)
            fail_msg("%s: nothing was disturbed: %s", c->name, bed.err[0].msg);
        check(&bed, row, same, stops ? RSD_E_TIMEOUT : RSD_E_COMM);
        if (bad.calls < bad.at)
            break;
    }
    fault_bed_close(&bed);
    assert_int_equal(rsi_mem_stats_get().bytes, bytes);
}

static void a_rank_whose_comm_fails_fails_the_save_everywhere(void **state)
{
    fault_row row = { .fault = "one rank fails at call n of its comm" };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c))
        for (int32_t r = 0; r < c->ranks && c->ranks > 1; r++)
            if (fault_long() || r == 0 || r == 3)
                every_comm_call(c, &row, r, false, 1);
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

static void a_rank_that_stops_times_out_everywhere(void **state)
{
    fault_row row = { .fault = "one rank stops at call n of its comm" };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c))
        for (int32_t r = 0; r < c->ranks && c->ranks > 1; r++)
            if (fault_long() || (r == 1 && c->format == RSD_FORMAT_DCP))
                every_comm_call(c, &row, r, true, fault_long() ? 1 : 5);
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

/* ---- canceled ---- */

static struct {
    atomic_int left;
    void      *only; /* the rank that cancels, by its argument; NULL: whoever comes */
} cancel;

static int stop(void *arg, int64_t done, int64_t total)
{
    (void)done, (void)total;
    return (!cancel.only || arg == cancel.only) && atomic_fetch_sub(&cancel.left, 1) == 1;
}

static void every_progress(fault_bed *bed, fault_row *row, int32_t rank)
{
    for (int nth = 1;; nth++) {
        bool hit, same;

        atomic_store(&cancel.left, nth);
        cancel.only = rank < 0 ? NULL : (void *)&bed->rc[rank];
        same = fault_save_version(bed, 2, bed->c->overwrite);
        hit = atomic_load(&cancel.left) <= 0;
        assert_true(same);
        assert_int_equal(bed->rc[0], hit ? RSD_E_CANCELED : RSD_OK);
        if (hit && rank >= 0)
            assert_int_equal(bed->err[0].rank, rank);
        fault_count(row, bed, fault_look(bed));
        assert_int_equal(fault_look(bed), !hit                ? FAULT_NEW
                                          : bed->c->overwrite ? FAULT_OLD
                                                              : FAULT_NONE);
        fault_reset(bed);
        if (!hit)
            break;
    }
}

static void a_save_that_one_rank_cancels_ends_on_all(void **state)
{
    fault_row row = { .fault = "canceled at the nth report of progress" };

    (void)state;
    for (const fault_case *c = fault_next(NULL); c; c = fault_next(c)) {
        fault_bed bed;

        fault_bed_open(&bed, c, NULL);
        bed.on_progress = stop;
        for (int32_t r = -1; r < c->ranks; r++)
            every_progress(&bed, &row, r);
        fault_bed_close(&bed);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_that_one_rank_cancels_ends_on_all),
        cmocka_unit_test(a_rank_whose_comm_fails_fails_the_save_everywhere),
        cmocka_unit_test(a_rank_that_stops_times_out_everywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
