/* SPDX-License-Identifier: Apache-2.0 */
/* The way back of a tensor. Ranks first tell each other what they bring (the head), so that those
 * who mean different things fail together. A chunk in memory that can be reached is copied by who
 * needs it, as soon as its owner's head has come, and a word goes back when that is done; other
 * chunks come in messages, to their place where that is contiguous. Nobody waits but rsi_stash_take
 * and who needs room: all else happens in passing. A rank that has left rsi_stash_take owes nobody
 * a step for that tensor, so that it may wait for the others elsewhere. The ways are independent of
 * each other, except that all ranks begin them in the same order. */
#include "live/stash.h"
#include "comm/clock.h"

#include <inttypes.h>
#include <string.h>

/* Tags. Heads and words come in the order of the ways. */
#define TAG_HEAD  0
#define TAG_WORD  1
#define TAG_DATA  16 /* and on, by the number of the way */
#define DATA_WAYS 1024

static const char what_waits[] = "stash";

/* Keeps the error that ends the use of the stash. */
static rsd_err fail_for_good(rsd_stash *s, rsd_err rc, rsd_error *err)
{
    rsi_break(s->comm, rc, err);
    rsi_drop(s->comm, s->nrequests, s->request);
    s->failed = *err;
    s->broken = true;
    return rc;
}

rsd_err rsi_stash_is_failed(const rsd_stash *s, rsd_error *err)
{
    if (s->failed.code)
        *err = s->failed;
    return (rsd_err)s->failed.code;
}

static void **request_of(rsi_way *way, int32_t r, rsi_stash_kind kind)
{
    return &way->request[(size_t)r * RSI_STASH_KINDS + kind];
}

static int32_t data_tag(const rsi_way *way)
{
    return TAG_DATA + (int32_t)(way->seq % DATA_WAYS);
}

/* ---- do all mean the same? ---- */

static bool same_head(const rsi_stash_head *a, const rsi_stash_head *b)
{
    return a->number == b->number && a->dtype == b->dtype && a->ndim == b->ndim &&
           a->whole == b->whole && memcmp(a->shape, b->shape, sizeof(a->shape)) == 0;
}

static const rsi_stash_head *head_of(const rsd_stash *s, const rsi_way *way, int32_t r)
{
    return r == s->rank ? &way->head : &way->mate[r].head;
}

rsd_err rsi_stash_fail(int32_t r, const rsi_stash_head *head, rsd_error *err)
{
    char text[RSI_PIECE_TEXT];

    rsi_piece_text((rsd_dtype)head->dtype, head->ndim, head->shape, text);
    switch ((rsi_stash_reason)head->reason) {
    case RSI_STASH_NEVER:
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "rank %" PRId32 ": tensor %" PRIu64 " was never saved in this stash", r,
                        head->number);
    case RSI_STASH_TAKEN:
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "rank %" PRId32 ": tensor %" PRIu64 " was taken from the stash already", r,
                        head->number);
    case RSI_STASH_SMALL:
        return rsi_fail(err, RSD_E_INVALID,
                        "rank %" PRId32 ": %s, tensor %" PRIu64
                        " of the stash, does not fit into a buffer of %" PRId64 " bytes",
                        r, text, head->number, head->have);
    case RSI_STASH_FINE:
        break;
    }
    return RSD_OK;
}

/* Every rank has all heads and comes to the same text. */
static rsd_err judge(const rsd_stash *s, const rsi_way *way, rsd_error *err)
{
    const rsi_stash_head *first = head_of(s, way, 0);
    char                  a[RSI_PIECE_TEXT], b[RSI_PIECE_TEXT];
    int32_t               bad = -1, count = 0;
    rsd_err               rc;

    for (int32_t r = 0; r < s->size; r++)
        if (head_of(s, way, r)->reason) {
            bad = bad < 0 ? r : bad;
            count++;
        }
    for (int32_t r = 1; r < s->size && bad < 0; r++)
        if (!same_head(head_of(s, way, r), first))
            bad = r;
    if (bad < 0)
        return RSD_OK;
    if (count > 0) {
        rc = rsi_stash_fail(bad, head_of(s, way, bad), err);
    } else {
        const rsi_stash_head *other = head_of(s, way, bad);

        rsi_piece_text((rsd_dtype)first->dtype, first->ndim, first->shape, a);
        rsi_piece_text((rsd_dtype)other->dtype, other->ndim, other->shape, b);
        rc = rsi_fail(err, RSD_E_MISMATCH,
                      "rank 0 takes tensor %" PRIu64 " of the stash, %s%s, where rank %" PRId32
                      " takes tensor %" PRIu64 ", %s%s",
                      first->number, a, first->whole ? " kept whole" : "", bad, other->number, b,
                      other->whole ? " kept whole" : "");
    }
    err->rank = bad;
    err->nfailed = count ? count : 1;
    return rc;
}

/* ---- one other rank ---- */

static void set_in(rsi_way *way, rsi_stash_mate *m)
{
    m->in = true;
    way->in++;
}

static void set_out(rsi_way *way, rsi_stash_mate *m)
{
    m->out = true;
    way->out++;
}

/* Bytes of a message: all of a chunk that lies in one part, else what can be staged. */
static int64_t part_bytes(const rsi_piece *p, int64_t total, int64_t done)
{
    if (p->outer == 1 || total - done < RSI_STASH_STAGE)
        return total - done;
    return RSI_STASH_STAGE;
}

/* Puts `bytes` of a chunk with rows of `run`, from its byte `at` on, to their places. */
static void unpack(const rsi_way *way, int64_t start, int64_t run, int64_t at, int64_t bytes,
                   const unsigned char *from)
{
    int64_t pitch = way->piece->pitch;

    while (bytes > 0) {
        int64_t        row = at / run, col = at % run;
        unsigned char *to = way->data + row * pitch + start + col;
        int64_t        rows = col == 0 ? bytes / run : 0;
        int64_t        one = run - col < bytes ? run - col : bytes;
        int64_t        moved = rows > 0 ? rows * run : one;

        if (rows > 0)
            rsi_stash_rows(to, pitch, from, run, rows, run);
        else
            memcpy(to, from, (size_t)one);
        from += moved;
        at += moved;
        bytes -= moved;
    }
}

/* A chunk in messages, one at a time. One that has to be unpacked comes only while it is taken:
 * then its sender is sure to be in a call with the stash, too, and goes on. */
static rsd_err receive(rsd_stash *s, rsi_way *way, int32_t r, int64_t start, int64_t run,
                       rsd_error *err)
{
    rsi_stash_mate *m = &way->mate[r];
    unsigned char  *stage = s->staging + (int64_t)r * RSI_STASH_STAGE;
    bool            staged = way->piece->outer > 1;
    int64_t         total = run * way->piece->outer;
    rsd_err         rc = RSD_OK;

    while (!rc && !m->in && !*request_of(way, r, RSI_STASH_IN)) {
        if (m->asked > 0 && staged && way->data)
            unpack(way, start, run, m->got, m->asked, stage);
        m->got += m->asked;
        m->asked = 0;
        if (m->got == total) {
            set_in(way, m);
            break;
        }
        if (staged && way != s->taking)
            break;
        m->asked = part_bytes(way->piece, total, m->got);
        rc = rsi_recv(s->comm, r, data_tag(way), staged ? stage : way->data + start,
                      (size_t)m->asked, request_of(way, r, RSI_STASH_IN), err);
    }
    return rc;
}

static rsd_err step_in(rsd_stash *s, rsi_way *way, int32_t r, rsd_error *err)
{
    rsi_stash_mate  *m = &way->mate[r];
    const rsi_piece *p = way->piece;
    int64_t          start, run = rsi_stash_chunk(p, s->size, r, &start);

    if (m->in)
        return RSD_OK;
    if (p->whole || run == 0) {
        set_in(way, m);
        return RSD_OK;
    }
    if (!s->reach[r])
        return receive(s, way, r, start, run, err);
    if (way->data) /* else it was given up */
        rsi_stash_rows(way->data + start, p->pitch, s->reach[r] + m->head.offset, run, p->outer,
                       run);
    set_in(way, m);
    return rsi_send(s->comm, r, TAG_WORD, NULL, 0, request_of(way, r, RSI_STASH_IN), err);
}

static rsd_err step_out(rsd_stash *s, rsi_way *way, int32_t r, rsd_error *err)
{
    rsi_stash_mate *m = &way->mate[r];
    rsi_piece      *p = way->piece;
    void          **request = request_of(way, r, RSI_STASH_OUT);
    rsd_err         rc = RSD_OK;

    while (!rc && !m->out && !*request) {
        if (p->whole || (s->reached[r] && m->told) || m->sent == (int64_t)p->held) {
            set_out(way, m);
            break;
        }
        if (s->reached[r]) {
            m->told = true;
            rc = rsi_recv(s->comm, r, TAG_WORD, NULL, 0, request, err);
        } else {
            int64_t part = part_bytes(p, (int64_t)p->held, m->sent);

            rc = rsi_send(s->comm, r, data_tag(way), s->arena + p->offset + m->sent, (size_t)part,
                          request, err);
            m->sent += part;
        }
    }
    return rc;
}

static void hear(rsi_way *way, int32_t r)
{
    rsi_stash_mate *m = &way->mate[r];

    if (m->heard || *request_of(way, r, RSI_STASH_HEAD_IN))
        return;
    m->heard = true;
    m->same = !m->head.reason && !way->head.reason && same_head(&m->head, &way->head);
    way->heard++;
}

static rsd_err step_mate(rsd_stash *s, rsi_way *way, int32_t r, rsd_error *err)
{
    const rsi_stash_mate *m = &way->mate[r];
    rsd_err               rc;

    if (!m->heard || !m->same)
        return RSD_OK;
    /* Messages that nobody would receive can't be taken back everywhere: all must agree first.
     * Asking for its word comes first: that finds a place then. */
    rc = s->reached[r] || way->judged ? step_out(s, way, r, err) : RSD_OK;
    if (!rc && (s->reach[r] || way->judged))
        rc = step_in(s, way, r, err);
    return rc;
}

/* ---- one way ---- */

static bool is_quiet(const rsd_stash *s, const rsi_way *way)
{
    for (size_t i = 0; i < (size_t)s->size * RSI_STASH_KINDS; i++)
        if (way->request[i])
            return false;
    return true;
}

void rsi_way_close(rsd_stash *s, rsi_way *way)
{
    if (!way->taken || way->in < s->size - 1 || way->out < s->size - 1 || !is_quiet(s, way))
        return;
    way->piece->number = 0;
    way->seq = 0;
}

bool rsi_way_is_done(const rsd_stash *s, const rsi_way *way)
{
    if (!way->judged || way->in < s->size - 1)
        return false;
    for (int32_t r = 0; r < s->size; r++) {
        const rsi_stash_mate *m = &way->mate[r];

        if (r != s->rank && !m->out && !s->reached[r] && m->sent < (int64_t)way->piece->held)
            return false;
    }
    return true;
}

static rsd_err step_way(rsd_stash *s, rsi_way *way, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t r = 0; r < s->size && !way->judged; r++)
        if (r != s->rank)
            hear(way, r);
    if (!way->judged && way->heard == s->size - 1 && !s->verdict_seq) {
        way->judged = judge(s, way, err) == RSD_OK;
        if (!way->judged) {
            s->verdict = *err;
            s->verdict_seq = way->seq;
        }
    }
    /* Each begins with the next rank, so that not all read the same one. */
    for (int32_t i = 1; i < s->size && !rc; i++)
        rc = step_mate(s, way, (s->rank + i) % s->size, err);
    if (rc)
        return fail_for_good(s, rc, err);
    rsi_way_close(s, way);
    return RSD_OK;
}

/* The one that began first after number `seq`; NULL: none did. */
static rsi_way *next_way(rsd_stash *s, uint64_t seq)
{
    rsi_way *next = NULL;

    for (int i = 0; i < RSI_STASH_WAYS; i++) {
        rsi_way *way = &s->way[i];

        if (way->seq > seq && (!next || way->seq < next->seq))
            next = way;
    }
    return next;
}

static rsd_err drive(rsd_stash *s, rsd_error *err)
{
    rsi_way *way = next_way(s, 0);
    rsd_err  rc;

    if (!way)
        return RSD_OK;
    rc = s->comm->ops.wait_some(s->comm->self, s->nrequests, s->request, 0, err);
    if (rc && (rc != RSD_E_TIMEOUT || err->rank >= 0))
        return fail_for_good(s, rc, err);
    for (rc = RSD_OK; way && !rc;) {
        uint64_t seq = way->seq;

        rc = step_way(s, way, err);
        way = next_way(s, seq);
    }
    return rc;
}

rsd_err rsi_way_drive(rsd_stash *s, rsd_error *err)
{
    rsd_err rc = rsi_stash_is_failed(s, err);

    return rc ? rc : drive(s, err);
}

rsd_err rsi_way_wait(rsd_stash *s, rsd_error *err)
{
    int64_t begin = rsi_clock_ns();
    rsd_err rc = rsi_wait_some(s->comm, s->nrequests, s->request, s->peer, what_waits, err);

    s->stats.wait_ns += rsi_clock_ns() - begin;
    return rc ? fail_for_good(s, rc, err) : RSD_OK;
}

/* A chunk comes in messages straight to its place. */
static bool is_written(const rsd_stash *s, const rsi_way *way)
{
    for (int32_t r = 0; r < s->size; r++)
        if (r != s->rank && !way->mate[r].in && !s->reach[r] && way->piece->outer == 1)
            return true;
    return false;
}

/* Waits until no memory of callers is written to any more, of those ways that all ranks agree on.
 */
static rsd_err run_out(rsd_stash *s, rsd_error *err)
{
    for (;;) {
        rsd_err rc = rsi_way_drive(s, err);
        bool    busy = false;

        for (int i = 0; i < RSI_STASH_WAYS; i++)
            if (s->way[i].seq && s->way[i].seq < s->verdict_seq)
                busy = busy || is_written(s, &s->way[i]);
        if (!rc && busy)
            rc = rsi_way_wait(s, err);
        if (rc || !busy)
            return rc;
    }
}

/* The ranks differ. From now on the memory of callers is theirs again. */
static rsd_err give_up(rsd_stash *s, rsd_error *err)
{
    rsd_err rc = run_out(s, err);

    if (rc)
        return rc;
    for (int i = 0; i < RSI_STASH_WAYS; i++)
        s->way[i].data = NULL;
    s->failed = s->verdict;
    return rsi_stash_is_failed(s, err);
}

rsd_err rsi_way_verdict(rsd_stash *s, const rsi_way *way, rsd_error *err)
{
    return s->verdict_seq && s->verdict_seq <= way->seq ? give_up(s, err) : RSD_OK;
}

/* Others may still read a chunk that lay there and was taken. */
static bool is_read(const rsd_stash *s, size_t offset, size_t bytes)
{
    for (int i = 0; i < RSI_STASH_WAYS; i++) {
        const rsi_way   *way = &s->way[i];
        const rsi_piece *p = way->piece;

        if (way->seq && way->taken && way->out < s->size - 1 && p->offset < offset + bytes &&
            offset < p->offset + p->room)
            return true;
    }
    return false;
}

rsd_err rsi_way_settle(rsd_stash *s, size_t offset, size_t bytes, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (!rc && is_read(s, offset, bytes)) {
        rc = rsi_way_wait(s, err);
        if (!rc)
            rc = rsi_way_drive(s, err);
    }
    return rc;
}

/* ---- the end ---- */

/* Heads of ways that only others have begun. */
static rsd_err hear_more(rsd_stash *s, rsd_error *err)
{
    rsi_stash_head head;
    rsd_err        rc = RSD_OK;

    for (int32_t r = 0; r < s->size; r++)
        for (uint64_t seq = s->seq; seq < s->begun[r] && !rc; seq++) {
            void *request = NULL;

            rc = rsi_recv(s->comm, r, TAG_HEAD, &head, sizeof(head), &request, err);
            if (!rc)
                rc = rsi_wait_all(s->comm, 1, &request, &r, what_waits, err);
        }
    return rc ? fail_for_good(s, rc, err) : RSD_OK;
}

/* True if the other rank sends nothing more for this way, nor waits for anything. */
static bool is_through(rsd_stash *s, rsi_way *way, int32_t r)
{
    const rsi_stash_mate *m = &way->mate[r];

    if (way->seq > s->begun[r])
        return rsi_drop(s->comm, 1, request_of(way, r, RSI_STASH_HEAD_IN));
    return m->heard && (!m->same || ((m->in || !(s->reach[r] || way->judged)) &&
                                     (m->out || !(s->reached[r] || way->judged))));
}

static bool all_through(rsd_stash *s)
{
    bool all = true;

    s->taking = NULL;
    for (rsi_way *way = next_way(s, 0); way; way = next_way(s, way->seq)) {
        if (!s->taking && way->judged && way->in < s->size - 1)
            s->taking = way;
        for (int32_t r = 0; r < s->size; r++)
            all = (r == s->rank || is_through(s, way, r)) && all;
        all = is_quiet(s, way) && all;
    }
    return all;
}

/* No message is left behind, also after ranks differed: a comm that is made later could take it for
 * its own. */
void rsi_way_end(rsd_stash *s)
{
    rsd_error err;
    rsd_err   rc;

    if (!s->request || s->broken)
        return;
    rc = rsi_allgather(s->comm, &s->seq, sizeof(s->seq), s->begun, &err);
    while (!rc && !all_through(s)) {
        rc = drive(s, &err);
        if (!rc && !all_through(s))
            rc = rsi_way_wait(s, &err);
    }
    if (!rc)
        rc = hear_more(s, &err);
    if (rc)
        rsi_drop(s->comm, s->nrequests, s->request);
}

/* ---- beginning ---- */

static rsd_err find_way(rsd_stash *s, rsi_way **out, rsd_error *err)
{
    for (;;) {
        rsd_err rc = rsi_way_drive(s, err);

        for (int i = 0; i < RSI_STASH_WAYS && !rc; i++)
            if (!s->way[i].seq) {
                *out = &s->way[i];
                return RSD_OK;
            }
        if (!rc)
            rc = rsi_way_wait(s, err);
        if (rc)
            return rc;
    }
}

rsd_err rsi_way_begin(rsd_stash *s, rsi_piece *p, const rsi_stash_head *head, unsigned char *data,
                      rsi_way **out, rsd_error *err)
{
    rsi_way *way;
    int64_t  start, run;
    rsd_err  rc = find_way(s, &way, err);

    if (rc)
        return rc;
    memset(way->mate, 0, (size_t)s->size * sizeof(way->mate[0]));
    *way = (rsi_way){ .seq = ++s->seq,
                      .piece = p,
                      .data = data,
                      .head = *head,
                      .mate = way->mate,
                      .request = way->request };
    if (p)
        p->way = way;
    s->ahead++;
    for (int32_t r = 0; r < s->size && !rc; r++)
        if (r != s->rank)
            rc = rsi_recv(s->comm, r, TAG_HEAD, &way->mate[r].head, sizeof(way->head),
                          request_of(way, r, RSI_STASH_HEAD_IN), err);
    for (int32_t r = 0; r < s->size && !rc; r++)
        if (r != s->rank)
            rc = rsi_send(s->comm, r, TAG_HEAD, &way->head, sizeof(way->head),
                          request_of(way, r, RSI_STASH_HEAD_OUT), err);
    if (rc)
        return fail_for_good(s, rc, err);
    if (p) { /* its own chunk while the heads fly */
        run = rsi_stash_chunk(p, s->size, s->rank, &start);
        rsi_stash_rows(data + start, p->pitch, s->arena + p->offset, run, p->outer, run);
    }
    *out = way;
    return RSD_OK;
}
