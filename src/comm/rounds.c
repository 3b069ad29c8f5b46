/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of ranks that are not connected yet: each puts how it fares, rank 0 gathers, and all get
 * the same result. Used while processes_meet.c and comm_ucx_open.c make a comm. */
#include "comm/rounds.h"
#include "comm/clock.h"
#include "base/digest.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MAGIC   UINT64_C(0x3174656d6b727372) /* of this protocol and byte order */
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

/* Before the bytes that a rank puts, or rank 0 for all. What lies under a key may be damaged, or
 * another job's. */
typedef struct note {
    uint64_t  magic, digest; /* of what follows and the bytes */
    int32_t   rank, size;    /* as the writer takes them */
    uint64_t  bytes;
    rsd_error err; /* how the writer fares; then there are no bytes */
} note;

static uint64_t digest_of(const note *n, const void *data)
{
    const size_t skip = offsetof(note, rank);

    return rsi_digest(rsi_digest(0, (const char *)n + skip, sizeof(*n) - skip), data, n->bytes);
}

static rsd_err put_note(const rsi_rounds *m, const char *key, rsd_err rc, const rsd_error *fared,
                        const void *data, size_t bytes, rsd_error *err)
{
    rsi_bytes packed = { 0 };
    note      n = { .magic = MAGIC, .rank = m->rank, .size = m->size };

    n.err = rc ? *fared : (rsd_error){ .rank = -1 };
    n.bytes = rc ? 0 : bytes;
    n.digest = digest_of(&n, data);
    if (!rsi_bytes_add(&packed, &n, sizeof(n)) || !rsi_bytes_add(&packed, data, (size_t)n.bytes))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->size);
    else
        rc = m->with->put(m->with->arg, key, packed.at, packed.len, err);
    rsi_free(packed.at);
    return rc;
}

/* Gets the note of a rank and its bytes, which are in *got. */
static rsd_err get_note(const rsi_rounds *m, const char *key, int32_t rank, int64_t ms, note *out,
                        rsi_bytes *got, rsd_error *err)
{
    rsi_reader in;
    rsd_err    rc = m->with->get(m->with->arg, key, ms, take_bytes, got, err);

    in = (rsi_reader){ got->at, got->at + got->len, false };
    if (rc == RSD_E_TIMEOUT)
        rsi_fail(err, rc, "rank %" PRId32 " did not come to the meeting", rank);
    else if (!rc && got->lost)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->size);
    else if (!rc &&
             (!rsi_read_copy(&in, out, sizeof(*out)) || out->magic != MAGIC ||
              out->bytes != (uint64_t)(in.end - in.at) || out->digest != digest_of(out, in.at)))
        rc = rsi_fail(err, RSD_E_COMM,
                      "the entry under \"%s\" is damaged, or not from rank %" PRId32
                      " with this version of the library",
                      key, rank);
    else if (!rc && (out->rank != rank || out->size != m->size))
        rc =
            rsi_fail(err, RSD_E_MISMATCH,
                     "rank %" PRId32 " of %" PRId32 " put \"%s\", for rank %" PRId32 " of %" PRId32,
                     out->rank, out->size, key, rank, m->size);
    if (rc) {
        err->rank = rank;
        err->nfailed = 1;
    }
    return rc;
}

/* Rank 0: appends what one rank put, without the error; that is returned. */
static rsd_err gather_one(const rsi_rounds *m, const char *name, int32_t rank, rsi_bytes *all,
                          rsd_error *err)
{
    rsi_bytes got = { 0 };
    note      n;
    char      key[64];
    rsd_err   rc;

    snprintf(key, sizeof(key), "%s.%" PRId32, name, rank);
    rc = get_note(m, key, rank, time_left(m), &n, &got, err);
    if (!rc && n.err.code) {
        *err = n.err;
        rc = rsi_while(err, (rsd_err)n.err.code, "rank %" PRId32, rank);
        err->rank = rank;
        err->nfailed = 1;
    }
    if (!rc && (!rsi_bytes_add(all, &n.bytes, sizeof(n.bytes)) ||
                !rsi_bytes_add(all, got.at + sizeof(n), (size_t)n.bytes)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to gather from %" PRId32 " ranks", m->size);
    rsi_free(got.at);
    return rc;
}

/* Rank 0 gathers and publishes for all, whatever happened. */
static rsd_err gather_all(const rsi_rounds *m, const char *name, const char *key, rsd_error *err)
{
    rsi_bytes all = { 0 };
    rsd_error fared = { .rank = -1 };
    rsd_err   rc = RSD_OK;

    for (int32_t r = 0; r < m->size && !rc; r++)
        rc = gather_one(m, name, r, &all, &fared);
    rc = put_note(m, key, rc, &fared, all.at, all.len, err);
    rsi_free(all.at);
    return rc;
}

/* Whether this rank's bytes are among those of all: otherwise they are of an earlier meeting. */
static bool has_mine(const rsi_rounds *m, const rsi_bytes *all, const void *data, size_t bytes)
{
    rsi_reader  in = { all->at, all->at + all->len, false };
    const void *at = NULL;
    uint64_t    n = 0;

    for (int32_t r = 0; r <= m->rank; r++) {
        rsi_read_copy(&in, &n, sizeof(n));
        at = rsi_read_next(&in, (size_t)n);
    }
    return at && n == bytes && (n == 0 || memcmp(at, data, bytes) == 0);
}

rsd_err rsi_round(const rsi_rounds *m, const char *name, rsd_err mine, const void *data,
                  size_t bytes, rsi_bytes *out, rsd_error *err)
{
    const rsd_error fared = *err;
    rsi_bytes       got = { 0 };
    note            n = { .bytes = 0 };
    char            key[64], all[64];
    rsd_err         rc;

    snprintf(key, sizeof(key), "%s.%" PRId32, name, m->rank);
    snprintf(all, sizeof(all), "%s.all", name);
    rc = put_note(m, key, mine, &fared, data, bytes, err);
    if (!rc && m->rank == 0)
        rc = gather_all(m, name, all, err);
    if (!rc) /* rank 0 may wait to the end for a rank that is missing */
        rc = get_note(m, all, 0, time_left(m) + LATE_MS, &n, &got, err);
    if (!rc && n.err.code) {
        *err = n.err;
        rc = (rsd_err)n.err.code;
    }
    if (!rc && !rsi_bytes_add(out, got.at + sizeof(n), (size_t)n.bytes))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to meet %" PRId32 " ranks", m->size);
    if (!rc && !has_mine(m, out, data, bytes))
        rc = rsi_fail(err, RSD_E_EXISTS, "\"%s\" is of another meeting; give a new place to meet",
                      all);
    rsi_free(got.at);
    return rc ? rsi_while(err, rc, "meeting %" PRId32 " ranks", m->size) : RSD_OK;
}
