/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of ranks that are not connected yet: each puts how it fares, rank 0 gathers, and all get
 * the same result. Used while processes_meet.c and comm_ucx_open.c make a comm. */
#include "comm/rounds.h"
#include "comm/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

#define MEET_MS 300000
#define LATE_MS 5000 /* for rank 0's result, behind the last moment for a rank to come */

rsi_rounds rsi_rounds_begin(int32_t rank, int32_t size, const rsd_meeting *with)
{
    const int64_t ms = with->timeout_ms > 0 ? with->timeout_ms : MEET_MS;

    return (rsi_rounds){ rank, size, with, rsi_clock_ms() + ms };
}

static void take_bytes(void *to, const void *data, size_t bytes)
{
    rsi_bytes_add(to, data, bytes);
}

static int64_t time_left(const rsi_rounds *m)
{
    int64_t left = m->until - rsi_clock_ms();

    return left > 1 ? left : 1;
}

/* What one rank contributes: an error, and bytes if there is none. */
static bool pack(rsi_bytes *out, rsd_err rc, const rsd_error *err, const void *data, size_t bytes)
{
    rsd_error none = { .rank = -1 };
    uint64_t  n = rc ? 0 : bytes;

    return rsi_bytes_add(out, rc ? err : &none, sizeof(none)) &&
           rsi_bytes_add(out, &n, sizeof(n)) && (n == 0 || rsi_bytes_add(out, data, n));
}

/* Rank 0: appends what one rank put, without the error; that is returned. */
static rsd_err gather_one(const rsi_rounds *m, const char *name, int32_t rank, rsi_bytes *all,
                          rsd_error *err)
{
    rsi_bytes   got = { 0 };
    rsi_reader  in;
    rsd_error   theirs;
    const void *rest;
    uint64_t    n = 0;
    char        key[64];
    rsd_err     rc;

    snprintf(key, sizeof(key), "%s.%" PRId32, name, rank);
    rc = m->with->get(m->with->arg, key, time_left(m), take_bytes, &got, err);
    if (rc == RSD_E_TIMEOUT) {
        rsi_fail(err, rc, "rank %" PRId32 " did not come to the meeting", rank);
        err->rank = rank;
        err->nfailed = 1;
    }
    in = (rsi_reader){ got.at, got.at + got.len, false };
    if (!rc && rsi_read_copy(&in, &theirs, sizeof(theirs)) && theirs.code) {
        *err = theirs;
        rsi_while(err, (rsd_err)theirs.code, "rank %" PRId32, rank);
        err->rank = rank;
        err->nfailed = 1;
        rc = (rsd_err)theirs.code;
    }
    rsi_read_copy(&in, &n, sizeof(n));
    rest = rsi_read_next(&in, n);
    if (!rc && in.cut)
        rc = rsi_fail(err, RSD_E_COMM, "the entry of rank %" PRId32 " under \"%s\" is truncated",
                      rank, key);
    if (!rc && (!rsi_bytes_add(all, &n, sizeof(n)) || (n && !rsi_bytes_add(all, rest, n))))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to gather from %" PRId32 " ranks", m->size);
    rsi_free(got.at);
    return rc;
}

/* Rank 0 gathers and publishes for all, whatever happened. */
static rsd_err gather_all(const rsi_rounds *m, const char *name, rsd_error *err)
{
    rsi_bytes all = { 0 }, out = { 0 };
    rsd_error local = { .rank = -1 };
    char      key[64];
    rsd_err   rc = RSD_OK, put;

    for (int32_t r = 0; r < m->size && !rc; r++)
        rc = gather_one(m, name, r, &all, err);
    if (!pack(&out, rc, err, all.at, all.len) && !rc)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to gather from %" PRId32 " ranks", m->size);
    snprintf(key, sizeof(key), "%s.all", name);
    put = m->with->put(m->with->arg, key, out.at, out.len, rc ? &local : err);
    rsi_free(all.at);
    rsi_free(out.at);
    return rc ? rc : put;
}

rsd_err rsi_round(const rsi_rounds *m, const char *name, rsd_err mine, const void *data,
                  size_t bytes, rsi_bytes *out, rsd_error *err)
{
    rsi_bytes  packed = { 0 }, got = { 0 };
    rsi_reader in;
    rsd_error  theirs = { .rank = -1 };
    uint64_t   n = 0;
    char       key[64];
    rsd_err    rc;

    snprintf(key, sizeof(key), "%s.%" PRId32, name, m->rank);
    if (!pack(&packed, mine, err, data, bytes))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->size);
    else
        rc = m->with->put(m->with->arg, key, packed.at, packed.len, err);
    rsi_free(packed.at);
    if (!rc && m->rank == 0)
        gather_all(m, name, err); /* the result is read below, like everybody's */
    snprintf(key, sizeof(key), "%s.all", name);
    if (!rc) /* rank 0 may wait to the end for a rank that is missing */
        rc = m->with->get(m->with->arg, key, time_left(m) + LATE_MS, take_bytes, &got, err);
    if (rc) {
        rsi_free(got.at);
        return rsi_while(err, rc, "meeting %" PRId32 " ranks", m->size);
    }
    in = (rsi_reader){ got.at, got.at + got.len, false };
    rsi_read_copy(&in, &theirs, sizeof(theirs));
    rsi_read_copy(&in, &n, sizeof(n));
    if (theirs.code) {
        *err = theirs;
        rc = (rsd_err)theirs.code;
    } else if (in.cut || got.lost || !rsi_bytes_add(out, rsi_read_next(&in, n), n) || in.cut) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->size);
    }
    rsi_free(got.at);
    return rc;
}
