/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring a tensor. Ranks first tell each other what they restore (the head), so that ranks that
 * disagree fail together before anything moves. Then a rank copies chunks from reachable memory and
 * notifies their owners; other chunks come in messages, directly into place if that is contiguous,
 * else in parts while all ranks take the tensor. Only rsd_stash_take and a save that needs room
 * wait: everything else happens in passing. A rank that has left rsd_stash_take owes no rank a step
 * for that tensor, so it may wait for the others elsewhere. All ranks begin the ways in the same
 * order and agree on them in that order; otherwise ways are independent of each other. */
#include "comm/clock.h"
#include "live/stash.h"
#include "shape/box.h"

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

/* No message with bytes of the tensor is in flight. */
static bool is_still(const rsd_stash *s, const rsi_stash_way *way)
{
    for (int32_t r = 0; r < s->size; r++)
        if ((!s->reach[r] && *request_of(s, way, r, RSI_STASH_IN)) ||
            (!s->reached[r] && *request_of(s, way, r, RSI_STASH_OUT)))
            return false;
    return true;
}

/* ---- agreement ---- */

/* The way to agree on next, if all heads have arrived; else NULL. */
static rsi_stash_way *next_heard(const rsd_stash *s)
{
    for (rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS && !s->refused; way++)
        if (way->seq == s->agreed + 1)
            return are_done((size_t)s->size, request_of(s, way, 0, RSI_STASH_HEAD_IN)) ? way : NULL;
    return NULL;
}

/* Every rank has all heads and produces the same text. */
static rsd_err judge(const rsd_stash *s, const rsi_stash_way *way, rsd_error *err)
{
    const rsi_stash_head *first = &way->head[0], *other;
    char                  a[RSI_STASH_TEXT], b[RSI_STASH_TEXT];
    int32_t               bad = 0, count = 0;

    for (int32_t r = s->size; r-- > 0;)
        if (way->head[r].code) {
            bad = r;
            count++;
        }
    for (int32_t r = s->size; r-- > 1 && count == 0;)
        if (memcmp(&way->head[r], first, offsetof(rsi_stash_head, offset)) != 0)
            bad = r;
    if (bad == 0 && count == 0)
        return RSD_OK;
    other = &way->head[bad];
    if (count > 0)
        rsi_fail(err, (rsd_err)other->code, "rank %" PRId32 ": %s", bad, other->why);
    else
        rsi_fail(err, RSD_E_MISMATCH,
                 "rank 0 takes tensor %" PRIu64 " of the stash, %s%s, but rank %" PRId32
                 " takes tensor %" PRIu64 ", %s%s",
                 first->number, rsi_stash_text(first, a), first->whole ? " kept whole" : "", bad,
                 other->number, rsi_stash_text(other, b), other->whole ? " kept whole" : "");
    err->rank = bad;
    err->nfailed = count ? count : 1;
    return (rsd_err)err->code;
}

/* ---- moving chunks ---- */

/* A chunk of a tensor that is larger than the caches bypasses them. */
static void unpack(const rsi_stash_way *way, const rsi_stash_tensor *t, const rsd_box *box,
                   const void *packed)
{
    const int64_t elem = rsi_stash_elem(&t->head);
    rsi_area      from = { .box = *box, .data = (unsigned char *)packed };

    rsi_strides(box->ndim, box->len, elem, from.stride);
    (t->bytes >= RSI_COPY_PAST ? rsi_copy_box_past : rsi_copy_box)(box, elem, &way->to, &from);
}

/* Copies rank r's chunk, or starts messages in both directions, unless they must be unpacked. The
 * receive for r's notice is posted first, so that the notice finds a place. */
static rsd_err move_chunks(rsd_stash *s, rsi_stash_way *way, int32_t r, rsd_error *err)
{
    const rsi_stash_tensor *t = way->tensor;
    void                  **in = request_of(s, way, r, RSI_STASH_IN);
    void                  **out = request_of(s, way, r, RSI_STASH_OUT);
    rsd_box                 box;
    size_t                  bytes = (size_t)rsi_stash_chunk(s, &t->head, r, &box);
    rsd_err                 rc = RSD_OK;

    if (s->reached[r])
        rc = rsi_recv(s->comm, r, tag_of(way, TAG_WORD), NULL, 0, out, err);
    else if (!t->apart && t->held > 0)
        rc = rsi_send(s->comm, r, tag_of(way, TAG_DATA), t->at, t->held, out, err);
    if (!rc && s->reach[r]) {
        unpack(way, t, &box, s->reach[r] + way->head[r].offset);
        rc = rsi_send(s->comm, r, tag_of(way, TAG_WORD), NULL, 0, in, err);
    } else if (!rc && !t->apart && bytes > 0) {
        rc = rsi_recv(s->comm, r, tag_of(way, TAG_DATA),
                      way->to.data + rsi_box_offset(&box, &way->to.box, way->to.stride), bytes, in,
                      err);
    }
    return rc;
}

/* Agrees on ways in their order and starts to move their chunks. */
static rsd_err start_heard(rsd_stash *s, rsd_error *err)
{
    rsi_stash_way *way;
    rsd_err        rc = RSD_OK;

    while (!rc && (way = next_heard(s))) {
        s->refused = judge(s, way, &s->error) != RSD_OK;
        if (s->refused)
            break;
        s->agreed++;
        /* Each rank starts with the next one, so that they don't all read the same one. */
        for (int32_t i = 1; i < s->size && !rc && !way->tensor->head.whole; i++)
            rc = move_chunks(s, way, (s->rank + i) % s->size, err);
    }
    return fail_for_good(s, rc, err);
}

static rsd_err drive(rsd_stash *s, rsd_error *err)
{
    rsd_err rc;

    if (s->open == 0)
        return RSD_OK;
    rc = s->comm->ops.wait_some(s->comm->self, s->nrequests, s->request, 0, err);
    if (rc && (rc != RSD_E_TIMEOUT || err->rank >= 0))
        return fail_for_good(s, rc, err);
    rc = start_heard(s, err);
    for (rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS && !rc; way++)
        if (way->seq && (way->taken || (s->ending && (s->refused || way->seq <= s->agreed))) &&
            are_done((size_t)s->size * RSI_STASH_KINDS, way->request)) {
            if (way->tensor)
                way->tensor->head.number = 0;
            way->seq = 0;
            s->open--;
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

/* Cuts rank r's chunk into parts that fit into the staging; returns their number. */
static int64_t parts_of(const rsd_stash *s, const rsi_stash_head *head, int32_t r, rsi_region *out)
{
    rsd_box box;

    rsi_stash_chunk(s, head, r, &box);
    return rsi_region_packed(out, &box, rsi_stash_elem(head), RSI_STASH_STAGE);
}

/* Moves one part of every chunk that must be unpacked. All ranks take the tensor now. */
static rsd_err move_parts(rsd_stash *s, rsi_stash_way *way, int64_t part, bool *more,
                          rsd_error *err)
{
    const rsi_stash_tensor *t = way->tensor;
    rsi_region              region;
    rsi_block               block;
    rsd_box                 box;
    rsd_err                 rc = RSD_OK;

    *more = false;
    for (int32_t r = 0; r < s->size && !rc; r++) {
        if (!s->reached[r] && part < parts_of(s, &t->head, s->rank, &region)) {
            *more = true;
            rsi_region_block(&region, part, &block);
            rc = rsi_send(s->comm, r, tag_of(way, TAG_DATA), t->at + block.at, (size_t)block.bytes,
                          request_of(s, way, r, RSI_STASH_OUT), err);
        }
        if (!rc && !s->reach[r] && part < parts_of(s, &t->head, r, &region)) {
            *more = true;
            rsi_region_block(&region, part, &block);
            rc = rsi_recv(s->comm, r, tag_of(way, TAG_DATA), s->staging + r * RSI_STASH_STAGE,
                          (size_t)block.bytes, request_of(s, way, r, RSI_STASH_IN), err);
        }
    }
    rc = fail_for_good(s, rc, err);
    while (!rc && !is_still(s, way))
        rc = wait_and_drive(s, err);
    for (int32_t r = 0; r < s->size && !rc; r++)
        if (!s->reach[r] && part < parts_of(s, &t->head, r, &region)) {
            rsi_region_part(&region, part, &box);
            unpack(way, t, &box, s->staging + r * RSI_STASH_STAGE);
        }
    return rc;
}

/* The ranks differ. From now on callers may use their memory again. */
static rsd_err give_up(rsd_stash *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (rsi_stash_way *way = s->way; way < s->way + RSI_STASH_WAYS; way++)
        while (!rc && way->seq && !is_still(s, way))
            rc = wait_and_drive(s, err);
    s->failed = true;
    return rsi_stash_is_failed(s, err);
}

/* ---- for saving and taking ---- */

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
    rsd_box         box;
    rsd_err         rc = drive(s, err);

    while (!rc && s->open == RSI_STASH_WAYS)
        rc = wait_and_drive(s, err);
    if (rc)
        return rc;
    while (way->seq)
        way++;
    *way = (rsi_stash_way){ .seq = ++s->seq,
                            .tensor = t,
                            .to = rsi_stash_area(head, t ? t->data : NULL),
                            .head = way->head,
                            .request = way->request };
    mine = &way->head[s->rank];
    *mine = *head;
    s->ahead++;
    s->open++;
    if (t) {
        mine->offset = (uint64_t)(t->at - s->arena);
        t->way = way;
    }
    for (int32_t i = 1; i < s->size && !rc; i++) {
        int32_t r = (s->rank + i) % s->size;

        rc = rsi_recv(s->comm, r, TAG_HEAD, &way->head[r], sizeof(*mine),
                      request_of(s, way, r, RSI_STASH_HEAD_IN), err);
        if (!rc)
            rc = rsi_send(s->comm, r, TAG_HEAD, mine, sizeof(*mine),
                          request_of(s, way, r, RSI_STASH_HEAD_OUT), err);
    }
    if (t && !rc) { /* its own chunk while the heads are in flight */
        rsi_stash_chunk(s, head, s->rank, &box);
        unpack(way, t, &box, t->at);
    }
    *out = way;
    return fail_for_good(s, rc, err);
}

rsd_err rsi_way_take(rsd_stash *s, rsi_stash_way *way, rsd_error *err)
{
    bool    more = way->tensor && way->tensor->apart;
    rsd_err rc = drive(s, err);

    while (!rc && (way->seq > s->agreed ? !s->refused : !is_still(s, way)))
        rc = wait_and_drive(s, err);
    if (!rc && way->seq > s->agreed)
        rc = give_up(s, err);
    for (int64_t part = 0; !rc && more; part++)
        rc = move_parts(s, way, part, &more, err);
    way->taken = !rc;
    s->ahead -= !rc;
    return rc;
}

/* Leaves no message behind, even after ranks differed: a comm created later could mistake it for
 * its own. So every rank begins as many ways as the one that began most. */
void rsi_stash_end(rsd_stash *s)
{
    const rsi_stash_head none = { .code = RSD_E_NOTFOUND };
    rsi_stash_way       *way;
    int64_t              last = (int64_t)s->seq;
    rsd_error            err;
    rsd_err              rc;

    if (!s->request || s->broken)
        return;
    s->ending = true;
    rc = rsi_allreduce(s->comm, RSI_OP_MAX, &last, 1, &err);
    while (!rc && (int64_t)s->seq < last)
        rc = rsi_way_begin(s, NULL, &none, &way, &err);
    if (!rc)
        rc = drive(s, &err);
    while (!rc && !are_done(s->nrequests, s->request))
        rc = wait_and_drive(s, &err);
    if (rc)
        rsi_drop(s->comm, s->nrequests, s->request);
}
