/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring a tensor. Ranks first tell each other what they restore (the head), so that ranks that
 * disagree fail together. A rank copies a chunk from reachable memory as soon as the owner's head
 * has arrived, and sends a notice back when done; other chunks come in messages, directly into
 * place if that is contiguous. Only rsd_stash_take and a save that needs room wait: everything else
 * happens in passing. A rank that has left rsd_stash_take owes no rank a step for that tensor, so
 * it may wait for the others elsewhere. The ways are independent of each other, except that all
 * ranks begin them in the same order. */
#include "comm/clock.h"
#include "live/stash.h"

#include <inttypes.h>
#include <string.h>

/* Tags. Heads arrive in the order of the ways; the rest have tags by the way's number. */
#define TAG_HEAD 0
#define TAG_DATA 16
#define TAG_WORD (TAG_DATA + TAG_WAYS)
#define TAG_WAYS 1024

/* Keeps the error that makes the stash unusable. */
static rsd_err fail_for_good(rsd_stash *s, rsd_err rc, rsd_error *err)
{
    if (!rc)
        return RSD_OK;
    rsi_break(s->comm, rc, err);
    rsi_drop(s->comm, s->nrequests, s->request);
    s->error = *err;
    s->failed = s->broken = true;
    return rc;
}

rsd_err rsi_stash_is_failed(const rsd_stash *s, rsd_error *err)
{
    if (!s->failed)
        return RSD_OK;
    *err = s->error;
    return (rsd_err)s->error.code;
}

static void **request_of(const rsd_stash *s, const rsi_stash_way *way, int32_t r,
                         rsi_stash_kind kind)
{
    return &way->request[(size_t)kind * (size_t)s->size + (size_t)r];
}

static int32_t tag_of(const rsi_stash_way *way, int32_t first)
{
    return first + (int32_t)(way->seq % TAG_WAYS);
}

static bool are_done(size_t n, void *const *request)
{
    while (n > 0 && !request[n - 1])
        n--;
    return n == 0;
}

/* The whole tensor is in place. */
static bool is_in(const rsd_stash *s, const rsi_stash_way *way)
{
    for (int32_t r = 0; r < s->size; r++)
        if (way->peer[r].got < way->peer[r].in)
            return false;
    return true;
}

/* The same, and the others need no more steps from this rank. */
static bool is_done(const rsd_stash *s, const rsi_stash_way *way)
{
    for (int32_t r = 0; r < s->size; r++)
        if (!s->reached[r] && way->peer[r].sent < way->peer[r].out)
            return false;
    return way->judged && is_in(s, way);
}

/* ---- agreement ---- */

static bool same_head(const rsi_stash_head *a, const rsi_stash_head *b)
{
    return memcmp(a, b, offsetof(rsi_stash_head, offset)) == 0;
}

/* Every rank has all heads and produces the same text. */
static rsd_err judge(const rsd_stash *s, const rsi_stash_way *way, rsd_error *err)
{
    const rsi_stash_head *first = &way->peer[0].head, *other;
    char                  a[RSI_STASH_TEXT], b[RSI_STASH_TEXT];
    int32_t               bad = 0, count = 0;
    rsd_err               rc;

    for (int32_t r = s->size; r-- > 0;)
        if (way->peer[r].head.reason) {
            bad = r;
            count++;
        }
    for (int32_t r = s->size; r-- > 1 && count == 0;)
        if (!same_head(&way->peer[r].head, first))
            bad = r;
    if (bad == 0 && count == 0)
        return RSD_OK;
    other = &way->peer[bad].head;
    if (count > 0)
        rc = rsi_stash_fail(s, bad, other, err);
    else
        rc = rsi_fail(err, RSD_E_MISMATCH,
                      "rank 0 takes tensor %" PRIu64 " of the stash, %s%s, where rank %" PRId32
                      " takes tensor %" PRIu64 ", %s%s",
                      first->number, rsi_stash_text(first, a), first->whole ? " kept whole" : "",
                      bad, other->number, rsi_stash_text(other, b),
                      other->whole ? " kept whole" : "");
    err->rank = bad;
    err->nfailed = count ? count : 1;
    return rc;
}

/* ---- one other rank ---- */

/* The number of messages for rank r's chunk: one if it is contiguous, else parts that are
 * staged. */
static int64_t parts_of(const rsd_stash *s, const rsi_stash_tensor *t, int32_t r, rsi_region *out)
{
    rsd_box box;

    rsi_stash_chunk(s, &t->head, r, &box);
    if (t->head.whole)
        return 0;
    return rsi_region_packed(out, &box, rsi_stash_elem(&t->head),
                             t->apart ? RSI_STASH_STAGE : INT64_MAX);
}

/* Receives a chunk in messages, one at a time. One that must be unpacked is received only while it
 * is taken: then its sender is certain to be in a call with the stash too, and makes progress. */
static rsd_err receive(rsd_stash *s, rsi_stash_way *way, int32_t r, rsd_error *err)
{
    rsi_stash_peer *p = &way->peer[r];
    unsigned char  *stage = s->staging + (int64_t)r * RSI_STASH_STAGE;
    void          **request = request_of(s, way, r, RSI_STASH_IN);
    bool            apart = way->tensor->apart;
    rsi_region      region;
    rsd_box         box;
    rsd_err         rc = RSD_OK;

    parts_of(s, way->tensor, r, &region);
    while (!rc && !*request && p->got < p->in) {
        rsi_region_part(&region, p->got, &box);
        if (p->got == p->asked && apart && way != s->taking)
            break;
        if (p->got == p->asked) {
            int64_t at = rsi_box_offset(&box, &way->to.box, way->to.stride);

            p->asked++;
            rc = rsi_recv(s->comm, r, tag_of(way, TAG_DATA), apart ? stage : way->to.data + at,
                          (size_t)(rsd_box_count(&box) * region.elem_bytes), request, err);
            continue;
        }
        p->got++;
        if (apart && way->to.data)
            rsi_unpack(&box, region.elem_bytes, &way->to, stage);
    }
    return rc;
}

static rsd_err step_in(rsd_stash *s, rsi_stash_way *way, int32_t r, rsd_error *err)
{
    const rsi_stash_head *head = &way->peer[r].head;
    rsi_stash_peer       *p = &way->peer[r];
    rsd_box               box;

    if (p->got == p->in)
        return RSD_OK;
    if (!s->reach[r])
        return receive(s, way, r, err);
    p->got = p->in;
    rsi_stash_chunk(s, head, r, &box);
    if (way->to.data)
        rsi_unpack(&box, rsi_stash_elem(head), &way->to, s->reach[r] + head->offset);
    return rsi_send(s->comm, r, tag_of(way, TAG_WORD), NULL, 0, request_of(s, way, r, RSI_STASH_IN),
                    err);
}

static rsd_err step_out(rsd_stash *s, rsi_stash_way *way, int32_t r, rsd_error *err)
{
    rsi_stash_peer *p = &way->peer[r];
    void          **request = request_of(s, way, r, RSI_STASH_OUT);
    rsi_region      region;
    rsi_block       block;
    rsd_err         rc = RSD_OK;

    if (p->sent < p->out && s->reached[r]) {
        p->sent = p->out;
        return rsi_recv(s->comm, r, tag_of(way, TAG_WORD), NULL, 0, request, err);
    }
    while (!rc && p->sent < p->out && !*request) {
        parts_of(s, way->tensor, s->rank, &region);
        rsi_region_block(&region, p->sent++, &block);
        rc = rsi_send(s->comm, r, tag_of(way, TAG_DATA), way->tensor->at + block.at,
                      (size_t)block.bytes, request, err);
    }
    return rc;
}

/* True if its head has arrived and equals this rank's. */
static bool is_same(const rsd_stash *s, const rsi_stash_way *way, int32_t r)
{
    return way->tensor && !*request_of(s, way, r, RSI_STASH_HEAD_IN) &&
           same_head(&way->peer[r].head, &way->peer[s->rank].head);
}

/* Messages that no rank would receive can't be withdrawn on every transport: all must agree first.
 * The receive for its notice is posted first, so that the notice finds a place. */
static rsd_err step_peer(rsd_stash *s, rsi_stash_way *way, int32_t r, rsd_error *err)
{
    const rsi_stash_peer *p = &way->peer[r];
    rsd_err               rc = RSD_OK;

    if ((p->got == p->in && p->sent == p->out) || !is_same(s, way, r))
        return RSD_OK;
    if (s->reached[r] || way->judged)
        rc = step_out(s, way, r, err);
    if (!rc && (s->reach[r] || way->judged))
        rc = step_in(s, way, r, err);
    return rc;
}

/* ---- one way ---- */

static rsd_err step_way(rsd_stash *s, rsi_stash_way *way, rsd_error *err)
{
    bool    heard = !way->judged;
    rsd_err rc = RSD_OK;

    for (int32_t r = 0; r < s->size && heard; r++)
        heard = !*request_of(s, way, r, RSI_STASH_HEAD_IN);
    if (heard && (!s->verdict_seq || way->seq < s->verdict_seq)) {
        way->judged = judge(s, way, &s->error) == RSD_OK;
        if (!way->judged)
            s->verdict_seq = way->seq;
    }
    /* Each rank starts with the next one, so that they don't all read the same one. */
    for (int32_t i = 1; i < s->size && !rc; i++)
        rc = step_peer(s, way, (s->rank + i) % s->size, err);
    if (rc)
        return fail_for_good(s, rc, err);
    if (way->taken && are_done((size_t)s->size * RSI_STASH_KINDS, way->request)) {
        way->tensor->head.number = way->seq = 0;
        s->open--;
    }
    return RSD_OK;
}

static rsd_err drive(rsd_stash *s, rsd_error *err)
{
    rsd_err rc;

    if (s->open == 0)
        return RSD_OK;
    rc = s->comm->ops.wait_some(s->comm->self, s->nrequests, s->request, 0, err);
    if (rc && (rc != RSD_E_TIMEOUT || err->rank >= 0))
        return fail_for_good(s, rc, err);
    rc = RSD_OK;
    for (rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS && !rc; way++) {
        if (s->ending && way->judged && (!s->taking || is_in(s, s->taking)))
            s->taking = way; /* no take is waiting: the staging goes round */
        if (way->seq)
            rc = step_way(s, way, err);
    }
    return rc;
}

rsd_err rsi_stash_drive(rsd_stash *s, rsd_error *err)
{
    rsd_err rc = rsi_stash_is_failed(s, err);

    return rc || !s->comm ? rc : drive(s, err);
}

/* Waits until something may have changed, and advances it. */
static rsd_err wait_and_drive(rsd_stash *s, rsd_error *err)
{
    int64_t begin = rsi_clock_ns();
    rsd_err rc = rsi_wait_some(s->comm, s->nrequests, s->request, s->peer, "stash", err);

    s->stats.wait_ns += rsi_clock_ns() - begin;
    return rc ? fail_for_good(s, rc, err) : drive(s, err);
}

/* True if chunks are still missing. Without a take, only those received directly into a caller's
 * memory arrive. */
static bool is_missing(const rsd_stash *s, bool all)
{
    for (const rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS; way++)
        if (way->seq && way->judged && (all || !way->tensor->apart) && !is_in(s, way))
            return true;
    return false;
}

/* True if the ranks disagree in this way or an earlier one. */
static bool is_refused(const rsd_stash *s, const rsi_stash_way *way)
{
    return s->verdict_seq && s->verdict_seq <= way->seq;
}

/* The ranks differ. From now on callers may use their memory again. */
static rsd_err give_up(rsd_stash *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (!rc && is_missing(s, false))
        rc = wait_and_drive(s, err);
    for (int i = 0; i < RSI_STASH_WAYS && !rc; i++)
        s->way[i].to.data = NULL;
    s->failed = true;
    return rsi_stash_is_failed(s, err);
}

/* True if others may still read a taken chunk that lay there. */
static bool is_read(const rsd_stash *s, const unsigned char *at, size_t bytes)
{
    for (const rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS; way++) {
        const rsi_stash_tensor *t = way->tensor;

        if (way->seq && way->taken && t->at < at + bytes && at < t->at + t->room)
            return true;
    }
    return false;
}

rsd_err rsi_stash_settle(rsd_stash *s, const unsigned char *at, size_t bytes, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (!rc && s->comm && is_read(s, at, bytes))
        rc = wait_and_drive(s, err);
    return rc;
}

rsd_err rsi_way_begin(rsd_stash *s, rsi_stash_tensor *t, const rsi_stash_head *head,
                      rsi_stash_way **out, rsd_error *err)
{
    rsi_stash_way  *way = s->way;
    rsi_stash_head *mine;
    rsi_region      region;
    rsd_box         box;
    rsd_err         rc = rsi_stash_drive(s, err);

    while (!rc && s->open == RSI_STASH_WAYS)
        rc = wait_and_drive(s, err);
    if (rc)
        return rc;
    while (way->seq)
        way++;
    memset(way->peer, 0, (size_t)s->size * sizeof(way->peer[0]));
    *way = (rsi_stash_way){ .seq = ++s->seq,
                            .tensor = t,
                            .to = rsi_stash_area(head, t ? t->data : NULL),
                            .peer = way->peer,
                            .request = way->request };
    mine = &way->peer[s->rank].head;
    *mine = *head;
    s->ahead++;
    s->open++;
    if (t) {
        mine->offset = (uint64_t)(t->at - s->arena);
        t->way = way;
    }
    for (int32_t i = 1; i < s->size && !rc; i++) {
        int32_t         r = (s->rank + i) % s->size;
        rsi_stash_peer *p = &way->peer[r];

        p->in = t ? parts_of(s, t, r, &region) : 0;
        p->out = t ? parts_of(s, t, s->rank, &region) : 0;
        rc = rsi_recv(s->comm, r, TAG_HEAD, &p->head, sizeof(p->head),
                      request_of(s, way, r, RSI_STASH_HEAD_IN), err);
        if (!rc)
            rc = rsi_send(s->comm, r, TAG_HEAD, mine, sizeof(*mine),
                          request_of(s, way, r, RSI_STASH_HEAD_OUT), err);
    }
    if (t && !rc) { /* its own chunk while the heads are in flight */
        rsi_stash_chunk(s, head, s->rank, &box);
        rsi_unpack(&box, rsi_stash_elem(head), &way->to, t->at);
    }
    *out = way;
    return fail_for_good(s, rc, err);
}

rsd_err rsi_way_take(rsd_stash *s, rsi_stash_way *way, rsd_error *err)
{
    rsd_err rc;

    s->taking = way;
    rc = rsi_stash_drive(s, err);
    while (!rc && !is_done(s, way) && !is_refused(s, way))
        rc = wait_and_drive(s, err);
    if (!rc && is_refused(s, way))
        rc = give_up(s, err);
    s->taking = NULL;
    way->taken = !rc;
    s->ahead -= !rc;
    return rc;
}

/* ---- the end ---- */

/* Receives heads of ways that only others have begun. */
static rsd_err hear_more(rsd_stash *s, rsd_error *err)
{
    rsi_stash_head head;
    rsd_err        rc = RSD_OK;

    for (int32_t r = 0; r < s->size; r++)
        for (uint64_t seq = s->seq; seq < s->begun[r] && !rc; seq++) {
            void *request = NULL;

            rc = rsi_recv(s->comm, r, TAG_HEAD, &head, sizeof(head), &request, err);
            if (!rc)
                rc = rsi_wait_all(s->comm, 1, &request, &r, "stash", err);
        }
    return fail_for_good(s, rc, err);
}

/* Leaves no message behind, even after ranks differed: a comm created later could mistake it for
 * its own. */
void rsi_stash_end(rsd_stash *s)
{
    rsd_error err;
    rsd_err   rc;

    if (!s->request || s->broken)
        return;
    s->ending = true;
    rc = rsi_allgather(s->comm, &s->seq, sizeof(s->seq), s->begun, &err);
    for (size_t i = 0; i < s->nrequests && !rc; i++) {
        const rsi_stash_way *way = &s->way[i / (RSI_STASH_KINDS * (size_t)s->size)];

        if (way->seq > s->begun[s->peer[i]]) /* that rank never began it: no head will come */
            rsi_drop(s->comm, 1, request_of(s, way, s->peer[i], RSI_STASH_HEAD_IN));
    }
    if (!rc)
        rc = drive(s, &err);
    while (!rc && (!are_done(s->nrequests, s->request) || is_missing(s, true)))
        rc = wait_and_drive(s, &err);
    if (!rc)
        rc = hear_more(s, &err);
    if (rc)
        rsi_drop(s->comm, s->nrequests, s->request);
}
