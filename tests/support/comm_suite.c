/* SPDX-License-Identifier: Apache-2.0 */
/* Up to 60 ranks. Each case is one fact and its name is that fact. */
#include "comm_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { SHORT_MS = 50 };

/* Byte i of message `id` from rank `from`. */
static unsigned char pattern(int32_t from, size_t id, size_t i)
{
    return (unsigned char)((size_t)from * 31 + id * 7 + i + i / 251);
}

static unsigned char *make_message(int32_t from, size_t id, size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);

    for (size_t i = 0; data && i < bytes; i++)
        data[i] = pattern(from, id, i);
    return data;
}

static bool is_message(const unsigned char *data, int32_t from, size_t id, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != pattern(from, id, i))
            return false;
    return true;
}

/* ---- messages ---- */

/* Each rank sends to the next and receives from the one before. */
static rsd_err ring(rsd_comm *comm, size_t bytes, bool receive_first, rsd_error *err)
{
    int32_t        n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    unsigned char *out = make_message(comm->rank, 1, bytes), *in = malloc(bytes + 1);
    void          *request[2] = { NULL, NULL };
    int32_t        peer[2] = { to, from };
    bool           good;
    rsd_err        rc = RSD_OK;

    in[bytes] = 0xa5;
    if (receive_first)
        rc = rsi_recv(comm, from, 5, in, bytes, &request[1], err);
    if (!rc)
        rc = rsi_send(comm, to, 5, out, bytes, &request[0], err);
    if (!rc && !receive_first)
        rc = rsi_recv(comm, from, 5, in, bytes, &request[1], err);
    if (!rc)
        rc = rsi_wait_all(comm, 2, request, peer, "ring", err);
    good = !rc && is_message(in, from, 1, bytes) && in[bytes] == 0xa5;
    free(out);
    free(in);
    if (rc)
        return rc;
    CHECK(good);
    return RSD_OK;
}

static rsd_err messages_of_any_size_arrive_whole(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0,    1,    2,    7,     63,    1000,   4095,
                                    8191, 8192, 8193, 12345, 65536, 100001, 1000003 };
    rsd_err             rc = RSD_OK;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++) {
        rc = ring(comm, sizes[i], true, err);
        if (!rc)
            rc = ring(comm, sizes[i], false, err);
    }
    return rc;
}

/* Every rank to every rank, itself included, all at once; sizes around every limit. */
static rsd_err many_messages_may_be_under_way(rsd_comm *comm, rsd_error *err)
{
    enum { EACH = 20, BYTES = 20000 };
    size_t         n = (size_t)comm->size * EACH;
    unsigned char *in = calloc(n, BYTES), *out = calloc(n, BYTES);
    void         **request = calloc(2 * n, sizeof(request[0]));
    int32_t       *peer = calloc(2 * n, sizeof(peer[0]));
    bool           good = true;
    rsd_err        rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        int32_t to = (int32_t)(i / EACH);
        size_t  id = i % EACH, bytes = id * 997;

        for (size_t k = 0; k < bytes; k++)
            out[i * BYTES + k] = pattern(comm->rank, id, k);
        peer[i] = peer[n + i] = to;
        rc = rsi_send(comm, to, (int32_t)(id % 3), out + i * BYTES, bytes, &request[i], err);
    }
    for (size_t i = 0; i < n && !rc; i++)
        rc = rsi_recv(comm, (int32_t)(i / EACH), (int32_t)(i % EACH % 3), in + i * BYTES,
                      i % EACH * 997, &request[n + i], err);
    if (!rc)
        rc = rsi_wait_all(comm, 2 * n, request, peer, "many", err);
    for (size_t i = 0; i < n && !rc; i++)
        good = good && is_message(in + i * BYTES, (int32_t)(i / EACH), i % EACH, i % EACH * 997);
    free(in);
    free(out);
    free(request);
    free(peer);
    if (rc)
        return rc;
    CHECK(good);
    return RSD_OK;
}

static rsd_err tags_keep_messages_apart(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    int32_t out[3] = { 10, 20, 30 }, in[3] = { 0 };
    int32_t tag[3] = { 0, 1, RSI_TAG_MAX };
    void   *request[6] = { NULL };
    int32_t peer[6] = { to, to, to, from, from, from };
    rsd_err rc = RSD_OK;

    for (int i = 0; i < 3 && !rc; i++)
        rc = rsi_send(comm, to, tag[i], &out[i], sizeof(out[i]), &request[i], err);
    for (int i = 2; i >= 0 && !rc; i--)
        rc = rsi_recv(comm, from, tag[i], &in[i], sizeof(in[i]), &request[3 + i], err);
    if (!rc)
        rc = rsi_wait_all(comm, 6, request, peer, "tags", err);
    if (rc)
        return rc;
    CHECK(in[0] == 10 && in[1] == 20 && in[2] == 30);
    return RSD_OK;
}

/* Long and short ones alternate: a short one must not overtake a long one that waits. */
static rsd_err messages_with_one_tag_keep_their_order(rsd_comm *comm, rsd_error *err)
{
    enum { COUNT = 10, LONG = 30000 };
    int32_t             n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    static const size_t bytes[2] = { LONG, 3 };
    unsigned char      *out[COUNT], *in[COUNT];
    void               *request[2 * COUNT] = { NULL };
    int32_t             peer[2 * COUNT];
    bool                good = true;
    rsd_err             rc = RSD_OK;

    for (size_t i = 0; i < COUNT; i++) {
        out[i] = make_message(comm->rank, i, bytes[i % 2]);
        in[i] = calloc(1, LONG);
        peer[i] = to;
        peer[COUNT + i] = from;
    }
    for (size_t i = 0; i < COUNT && !rc; i++)
        rc = rsi_send(comm, to, 3, out[i], bytes[i % 2], &request[i], err);
    for (size_t i = 0; i < COUNT && !rc; i++)
        rc = rsi_recv(comm, from, 3, in[i], bytes[i % 2], &request[COUNT + i], err);
    if (!rc)
        rc = rsi_wait_all(comm, sizeof(peer) / sizeof(peer[0]), request, peer, "order", err);
    for (size_t i = 0; i < COUNT; i++) {
        good = good && is_message(in[i], from, i, bytes[i % 2]);
        free(out[i]);
        free(in[i]);
    }
    if (rc)
        return rc;
    CHECK(good);
    return RSD_OK;
}

static rsd_err a_rank_can_send_to_itself(rsd_comm *comm, rsd_error *err)
{
    enum { BYTES = 100000 };
    char   *mine = malloc(BYTES), *got = malloc(BYTES);
    void   *request[2] = { NULL, NULL };
    int32_t peer[2] = { comm->rank, comm->rank };
    bool    good;
    rsd_err rc;

    memset(mine, 'a' + comm->rank % 26, BYTES);
    memset(got, 0, BYTES);
    rc = rsi_send(comm, comm->rank, 1, mine, BYTES, &request[0], err);
    if (!rc)
        rc = rsi_recv(comm, comm->rank, 1, got, BYTES, &request[1], err);
    if (!rc)
        rc = rsi_wait_all(comm, 2, request, peer, "itself", err);
    good = !rc && memcmp(mine, got, BYTES) == 0;
    free(mine);
    free(got);
    if (rc)
        return rc;
    CHECK(good);
    return RSD_OK;
}

static rsd_err test_finishes_a_request_in_the_end(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    int32_t in = -1, out = comm->rank;
    void   *sent, *got;
    rsd_err rc;

    rc = rsi_recv(comm, from, 1, &in, sizeof(in), &got, err);
    if (!rc)
        rc = rsi_send(comm, to, 1, &out, sizeof(out), &sent, err);
    while (!rc && (sent || got)) {
        rc = sent ? rsi_test(comm, &sent, err) : RSD_OK;
        if (!rc && got)
            rc = rsi_test(comm, &got, err);
    }
    if (rc)
        return rc;
    CHECK(in == from);
    return RSD_OK;
}

static rsd_err waiting_without_time_leaves_requests_under_way(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    int32_t in = -1, out = comm->rank;
    void   *request[3] = { NULL };
    int32_t peer[3] = { from, from, to };
    rsd_err rc;

    rc = rsi_recv(comm, from, 1, &in, sizeof(in), &request[1], err);
    if (rc)
        return rc;
    CHECK(comm->ops.wait_some(comm->self, 3, request, 0, err) == RSD_E_TIMEOUT);
    CHECK(err->rank == -1);
    CHECK(request[1] && !request[0] && !request[2]);
    rc = rsi_barrier(comm, err);
    if (!rc)
        rc = rsi_send(comm, to, 1, &out, sizeof(out), &request[2], err);
    if (!rc)
        rc = rsi_wait_all(comm, 3, request, peer, "wait", err);
    if (rc)
        return rc;
    CHECK(in == from);
    CHECK(comm->ops.wait_some(comm->self, 3, request, 0, err) == RSD_OK); /* all are finished */
    return RSD_OK;
}

static rsd_err a_message_of_another_size_is_a_mismatch(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    char    out[64] = "x", in[65] = "";
    size_t  wrong[2] = { 32, 40 }, want[2] = { 40, 32 };

    for (int i = 0; i < 4; i++) { /* too short, too long; each with the receive first and last */
        void     *request[2] = { NULL, NULL };
        int32_t   peer[2] = { to, from };
        rsd_error miss = { 0 };
        rsd_err   rc = RSD_OK, got = RSD_OK;

        in[want[i % 2]] = 'z';
        if (i < 2)
            rc = rsi_recv(comm, from, i, in, want[i % 2], &request[1], err);
        if (!rc)
            rc = rsi_barrier(comm, err);
        if (!rc)
            rc = rsi_send(comm, to, i, out, wrong[i % 2], &request[0], err);
        if (!rc)
            rc = rsi_barrier(comm, err);
        if (rc)
            return rc;
        if (i >= 2)
            got = rsi_recv(comm, from, i, in, want[i % 2], &request[1], &miss);
        while (!got && request[1])
            got = rsi_wait_some(comm, 1, &request[1], &peer[1], "size", &miss);
        CHECK(got == RSD_E_MISMATCH);
        CHECK(!request[1]);
        CHECK(in[want[i % 2]] == 'z');
        rc = rsi_wait_all(comm, 2, request, peer, "size", err);
        if (rc)
            return rc;
    }
    return rsi_barrier(comm, err);
}

static rsd_err a_receive_that_was_taken_back_receives_nothing(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    int32_t first = -1, second = -1, out = comm->rank;
    void   *request[2] = { NULL, NULL };
    int32_t peer[2] = { to, from };
    rsd_err rc;

    rc = rsi_recv(comm, from, 9, &first, sizeof(first), &request[1], err);
    if (rc)
        return rc;
    CHECK(rsi_drop(comm, 2, request));
    CHECK(!request[1]);
    rc = rsi_barrier(comm, err);
    if (!rc)
        rc = rsi_send(comm, to, 9, &out, sizeof(out), &request[0], err);
    if (!rc)
        rc = rsi_recv(comm, from, 9, &second, sizeof(second), &request[1], err);
    if (!rc)
        rc = rsi_wait_all(comm, 2, request, peer, "cancel", err);
    if (rc)
        return rc;
    CHECK(first == -1 && second == from);
    return RSD_OK;
}

/* Whether a send can be taken back is the transport's choice; either way both sides go on. */
static rsd_err a_send_is_taken_back_or_still_arrives(rsd_comm *comm, rsd_error *err)
{
    enum { BYTES = 3000000 };
    int32_t        n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    unsigned char *out = make_message(comm->rank, 2, BYTES), *in = calloc(1, BYTES);
    unsigned char *flag = calloc((size_t)n, 1), mine = 0;
    void          *request[2] = { NULL, NULL };
    int32_t        peer[2] = { to, from };
    bool           good = true;
    rsd_err        rc;

    rc = rsi_send(comm, to, 9, out, BYTES, &request[0], err);
    if (!rc && request[0])
        mine = comm->ops.cancel(comm->self, &request[0]);
    if (!rc)
        rc = rsi_allgather(comm, &mine, 1, flag, err);
    if (!rc && !flag[from]) {
        rc = rsi_recv(comm, from, 9, in, BYTES, &request[1], err);
        if (!rc)
            rc = rsi_wait_all(comm, 2, request, peer, "cancel", err);
        good = !rc && is_message(in, from, 2, BYTES);
    } else if (!rc && request[0]) {
        rc = rsi_wait_all(comm, 1, request, peer, "cancel", err);
    }
    if (!rc)
        rc = rsi_barrier(comm, err);
    free(out);
    free(in);
    free(flag);
    if (rc)
        return rc;
    CHECK(good);
    return RSD_OK;
}

static rsd_err wrong_ranks_and_tags_are_refused(rsd_comm *comm, rsd_error *err)
{
    char  c = 0;
    void *request;

    CHECK(rsi_send(comm, comm->size, 0, &c, 1, &request, err) == RSD_E_INVALID);
    CHECK(rsi_recv(comm, -1, 0, &c, 1, &request, err) == RSD_E_INVALID);
    CHECK(rsi_send(comm, 0, -1, &c, 1, &request, err) == RSD_E_INVALID);
    CHECK(rsi_recv(comm, 0, 1 << 15, &c, 1, &request, NULL) == RSD_E_INVALID);
    CHECK(rsi_broadcast(comm, comm->size, &c, 1, err) == RSD_E_INVALID);
    CHECK(rsi_gather(comm, -1, &c, 1, &c, err) == RSD_E_INVALID);
    CHECK(rsd_comm_set_timeout(comm, 0, err) == RSD_E_INVALID);
    return RSD_OK;
}

/* ---- collectives ---- */

static rsd_err broadcast_brings_the_roots_bytes_from_any_root(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0, 1, 17, 8193, 100003 };

    for (int32_t root = 0; root < comm->size; root++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *data = make_message(comm->rank, i, sizes[i]);
            rsd_err        rc = rsi_broadcast(comm, root, data, sizes[i], err);
            bool           good = !rc && is_message(data, root, i, sizes[i]);

            free(data);
            if (rc)
                return rc;
            CHECK(good);
        }
    return RSD_OK;
}

static bool are_messages(const unsigned char *all, int32_t n, size_t id, size_t bytes)
{
    for (int32_t r = 0; r < n; r++)
        if (!is_message(all + (size_t)r * bytes, r, id, bytes))
            return false;
    return true;
}

static rsd_err gather_brings_all_to_any_root(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0, 1, 17, 9001 };

    for (int32_t root = 0; root < comm->size; root++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            unsigned char *mine = make_message(comm->rank, i, sizes[i]);
            unsigned char *all =
                comm->rank == root ? calloc((size_t)comm->size, sizes[i] + 1) : NULL;
            rsd_err rc = rsi_gather(comm, root, mine, sizes[i], all, err);
            bool    good = !all || are_messages(all, comm->size, i, sizes[i]);

            free(mine);
            free(all);
            if (rc)
                return rc;
            CHECK(good);
        }
    return RSD_OK;
}

static rsd_err allgather_brings_all_to_all(rsd_comm *comm, rsd_error *err)
{
    static const size_t sizes[] = { 0, 1, 8, 17, 9001 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *mine = make_message(comm->rank, i, sizes[i]);
        unsigned char *all = calloc((size_t)comm->size, sizes[i] + 1);
        rsd_err        rc = rsi_allgather(comm, mine, sizes[i], all, err);
        bool           good = !rc && are_messages(all, comm->size, i, sizes[i]);

        free(mine);
        free(all);
        if (rc)
            return rc;
        CHECK(good);
    }
    return RSD_OK;
}

/* What rank r gives in round `round`: nothing at all, something from some, much from one. */
static size_t any_bytes(int32_t r, int round)
{
    if (round == 0)
        return 0;
    if (round == 1)
        return (size_t)(r % 3) * 11;
    return r == round - 2 ? 50001 : (size_t)r;
}

static rsd_err allgather_takes_any_size_from_each_rank(rsd_comm *comm, rsd_error *err)
{
    for (int round = 0; round < comm->size + 2; round++) {
        size_t         bytes = any_bytes(comm->rank, round), at = 0;
        unsigned char *mine = make_message(comm->rank, (size_t)round, bytes);
        rsi_gathered   all = { 0 };
        rsd_err        rc = rsi_allgather_any(comm, mine, bytes, &all, err);
        bool           good = true;

        free(mine);
        if (rc)
            return rc;
        for (int32_t r = 0; r < comm->size; r++) {
            good =
                good && all.first[r] == at &&
                is_message((unsigned char *)all.data + at, r, (size_t)round, any_bytes(r, round));
            at += any_bytes(r, round);
        }
        good = good && all.first[comm->size] == at;
        rsi_gathered_release(&all);
        CHECK(good);
    }
    return RSD_OK;
}

static rsd_err allreduce_adds_and_compares_every_value(rsd_comm *comm, rsd_error *err)
{
    static const size_t counts[] = { 1, 2, 64, 65, 200 };
    int64_t             n = comm->size;

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (int op = RSI_OP_SUM; op <= RSI_OP_OR; op++) {
            int64_t value[200];
            rsd_err rc;

            for (size_t i = 0; i < counts[c]; i++)
                value[i] = op == RSI_OP_OR ? INT64_C(1) << (comm->rank + (int)(i % 3))
                                           : comm->rank * 10 - (int64_t)i;
            rc = rsi_allreduce(comm, (rsi_reduce_op)op, value, counts[c], err);
            if (rc)
                return rc;
            for (size_t i = 0; i < counts[c]; i++) {
                int64_t k = (int64_t)i;
                int64_t want[4] = { 10 * (n * (n - 1) / 2) - n * k, -k, (n - 1) * 10 - k,
                                    ((INT64_C(1) << n) - 1) << (i % 3) };

                CHECK(value[i] == want[op]);
            }
        }
    return RSD_OK;
}

/* ---- agreement ---- */

static rsd_err ranks_that_all_did_well_agree_on_it(rsd_comm *comm, rsd_error *err)
{
    for (int i = 0; i < 5; i++) {
        CHECK(rsi_agree(comm, RSD_OK, i % 2 ? err : NULL) == RSD_OK);
        CHECK(rsd_comm_failures(comm, NULL, 0) == 0);
    }
    return RSD_OK;
}

static rsd_err one_failure_is_everybodys_with_its_text(rsd_comm *comm, rsd_error *err)
{
    for (int32_t bad = 0; bad < comm->size; bad++) {
        rsd_error mine = { .rank = -1 }, kept[2];
        rsd_err   rc = RSD_OK;
        char      want[64];

        if (comm->rank == bad) {
            rc = rsi_fail(&mine, RSD_E_IO, "disk %d is full", bad);
            mine.sys_errno = 28;
        }
        rc = rsi_agree(comm, rc, &mine);
        snprintf(want, sizeof(want), "rank %d: disk %d is full", bad, bad);
        CHECK(rc == RSD_E_IO && mine.code == RSD_E_IO);
        CHECK(mine.rank == bad && mine.nfailed == 1 && mine.sys_errno == 28);
        CHECK(strcmp(mine.msg, want) == 0);
        CHECK(rsd_comm_failures(comm, kept, 2) == 1);
        CHECK(kept[0].rank == bad &&
              strcmp(kept[0].msg, want + strlen("rank 0: ") + (bad > 9)) == 0);
    }
    CHECK(rsi_agree(comm, RSD_OK, err) == RSD_OK);
    CHECK(rsd_comm_failures(comm, NULL, 0) == 0);
    return RSD_OK;
}

static rsd_err of_several_failures_the_lowest_rank_counts(rsd_comm *comm, rsd_error *err)
{
    int32_t   odd = comm->size / 2; /* every odd rank fails, with a code of its own */
    rsd_error mine = { .rank = -1 }, kept[64];
    rsd_err   rc = RSD_OK;

    if (comm->rank % 2 == 1)
        rc = rsi_fail(&mine, comm->rank == 1 ? RSD_E_CORRUPT : RSD_E_NOMEM, "text of %d",
                      comm->rank);
    rc = rsi_agree(comm, rc, &mine);
    CHECK(rc == RSD_E_CORRUPT);
    CHECK(mine.rank == 1 && mine.nfailed == odd);
    CHECK(strcmp(mine.msg, "rank 1: text of 1") == 0);
    CHECK(rsd_comm_failures(comm, kept, 64) == (size_t)odd);
    for (int32_t i = 0; i < odd; i++)
        CHECK(kept[i].rank == 2 * i + 1 && kept[i].code == (i ? RSD_E_NOMEM : RSD_E_CORRUPT));
    (void)err;
    return RSD_OK;
}

static rsd_err a_failure_without_text_has_the_name_of_its_code(rsd_comm *comm, rsd_error *err)
{
    rsd_error kept[64];

    CHECK(rsi_agree(comm, RSD_E_FORMAT, NULL) == RSD_E_FORMAT);
    CHECK(rsd_comm_failures(comm, kept, 64) == (size_t)comm->size);
    CHECK(strcmp(kept[comm->size - 1].msg, "RSD_E_FORMAT") == 0);
    return RSD_OK;
}

/* ---- subgroups ---- */

static rsd_err check_sum(rsd_comm *comm, int64_t mine, int64_t want, rsd_error *err)
{
    rsd_err rc = rsi_allreduce(comm, RSI_OP_SUM, &mine, 1, err);

    if (rc)
        return rc;
    CHECK(mine == want);
    return RSD_OK;
}

static rsd_err even_and_odd_ranks_are_groups_of_their_own(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = 0;
    int64_t   sum = 0;
    rsd_comm *half = NULL;
    rsd_err   rc;

    for (int32_t r = comm->size - 1; r >= 0; r--) /* backwards */
        if (r % 2 == comm->rank % 2) {
            ranks[n++] = r;
            sum += r;
        }
    rc = rsd_comm_split(comm, n, ranks, &half, err);
    if (rc)
        return rc;
    CHECK(half->size == n && ranks[half->rank] == comm->rank);
    for (int i = 0; i < 3 && !rc; i++) { /* the two take turns and do not mix */
        rc = check_sum(half, comm->rank, sum, err);
        if (!rc)
            rc = check_sum(comm, 1, comm->size, err);
    }
    rsd_comm_free(half);
    return rc;
}

static rsd_err groups_can_be_split_again(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], first = 0, n = comm->size - 1;
    rsd_comm *most = NULL, *one = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1; /* all but rank 0 */
    rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &most, err);
    if (rc)
        return rc;
    CHECK(!most == (comm->rank == 0));
    if (most)
        rc = rsd_comm_split(most, most->rank == 0, &first, &one, err);
    if (!rc && most)
        rc = check_sum(most, most->rank, n * (n - 1) / 2, err);
    if (!rc && one)
        rc = check_sum(one, 7, 7, err);
    if (!rc)
        rc = rsi_agree(comm, !one == (comm->rank == 1) ? RSD_E_BUG : RSD_OK, err);
    rsd_comm_free(one);
    rsd_comm_free(most);
    return rc;
}

static rsd_err lists_that_do_not_fit_are_refused_everywhere(rsd_comm *comm, rsd_error *err)
{
    int32_t   two[2] = { 0, 1 }, twice[2] = { comm->rank, comm->rank };
    int32_t   high = comm->size, me = comm->rank;
    rsd_comm *group = NULL;

    /* Rank 0 means both, rank 1 only itself. */
    CHECK(rsd_comm_split(comm, me == 0 ? 2 : 1, me == 0 ? two : &me, &group, err) ==
          RSD_E_MISMATCH);
    CHECK(rsd_comm_split(comm, 2, twice, &group, err) == RSD_E_INVALID);
    CHECK(strstr(err->msg, "twice"));
    CHECK(rsd_comm_split(comm, 1, me == 1 ? &high : &me, &group, err) == RSD_E_INVALID);
    CHECK(err->rank == 1 && err->nfailed == 1);
    CHECK(rsd_comm_split(comm, 1, &two[0], &group, err) == RSD_E_INVALID);
    CHECK(strstr(err->msg, "not in itself"));
    CHECK(!group);
    return rsi_barrier(comm, err);
}

/* ---- memory ---- */

static rsd_err ranks_reach_what_others_expose(rsd_comm *comm, rsd_error *err)
{
    size_t      n = (size_t)comm->size, bytes = 1000 * ((size_t)comm->rank + 1);
    rsd_exposed mine = { { 0 } }, all[64];
    void       *data = NULL;
    int32_t    *peer;
    int64_t     no;
    rsd_err     rc;

    rc = rsd_comm_alloc(comm, bytes, &data, err);
    if (rc)
        return rc;
    CHECK((uintptr_t)data % 64 == 0);
    memset(data, 0, bytes);
    no = rsi_expose(comm, (char *)data + 64, bytes - 64, &mine, err) != RSD_OK;
    rc = rsi_allreduce(comm, RSI_OP_SUM, &no, 1, err);
    if (!rc)
        rc = rsi_allgather(comm, &mine, sizeof(mine), all, err);
    for (int32_t r = 0; r < comm->size && !rc && !no; r++) { /* each leaves its number with each */
        rc = rsi_reach(comm, r, &all[r], (void **)&peer, err);
        if (!rc)
            peer[comm->rank] = comm->rank + 100;
    }
    if (!rc)
        rc = rsi_barrier(comm, err);
    for (size_t r = 0; r < n && !rc && !no; r++)
        CHECK(((int32_t *)data)[16 + r] == (int32_t)r + 100);
    rsd_comm_dealloc(comm, data);
    return rc;
}

/* A rank that came out of a barrier sees what all wrote before they went in. */
static rsd_err nobody_leaves_a_barrier_before_all_came(rsd_comm *comm, rsd_error *err)
{
    rsd_exposed mine = { { 0 } }, all[64];
    void       *data = NULL;
    int32_t    *at[64] = { NULL };
    int64_t     no;
    rsd_err     rc;

    rc = rsd_comm_alloc(comm, 64, &data, err);
    if (rc)
        return rc;
    memset(data, 0, 64);
    no = rsi_expose(comm, data, 64, &mine, err) != RSD_OK;
    rc = rsi_allreduce(comm, RSI_OP_SUM, &no, 1, err);
    if (!rc)
        rc = rsi_allgather(comm, &mine, sizeof(mine), all, err);
    for (int32_t r = 0; r < comm->size && !rc && !no; r++)
        rc = rsi_reach(comm, r, &all[r], (void **)&at[r], err);
    for (int32_t round = 1; round <= 20 && !rc && !no; round++) {
        *at[comm->rank] = round;
        rc = rsi_barrier(comm, err);
        for (int32_t r = 0; r < comm->size && !rc; r++)
            CHECK(*at[r] == round);
        if (!rc)
            rc = rsi_barrier(comm, err);
    }
    rsd_comm_dealloc(comm, data);
    return rc;
}

static rsd_err foreign_memory_is_exposed_or_refused_with_a_reason(rsd_comm *comm, rsd_error *err)
{
    int32_t     here = 1;
    rsd_exposed what;
    rsd_err     rc = rsi_expose(comm, &here, sizeof(here), &what, err);

    CHECK(rc == RSD_OK || (rc == RSD_E_UNSUPPORTED && err->msg[0]));
    CHECK(rsi_reach(comm, comm->size, &what, (void **)&what, err) == RSD_E_INVALID);
    return RSD_OK;
}

/* ---- the end ---- */

static rsd_err abort_wakes_everybody(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc;

    if (comm->rank == 1)
        rsd_comm_abort(comm, "the roof is on fire");
    rc = rsi_barrier(comm, err);
    CHECK(rc == RSD_E_COMM);
    CHECK(err->rank == 1 && err->nfailed == 1);
    CHECK(strcmp(err->msg, "rank 1 gave up: the roof is on fire") == 0);
    CHECK(rsi_agree(comm, RSD_OK, err) == RSD_E_COMM); /* and it stays so */
    CHECK(rsi_agree(comm, RSD_E_IO, NULL) == RSD_E_COMM);
    rsd_comm_abort(comm, "another reason");
    CHECK(rsi_barrier(comm, err) == RSD_E_COMM && strstr(err->msg, "roof"));
    return RSD_OK;
}

static rsd_err abort_of_a_group_wakes_the_others_too(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = comm->size - 1;
    rsd_comm *group = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1;
    rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &group, err);
    if (rc)
        return rc;
    if (comm->rank == n)
        rsd_comm_abort(group, "enough");
    rc = rsi_barrier(comm->rank % 2 && group ? group : comm, err);
    rsd_comm_free(group);
    CHECK(rc == RSD_E_COMM);
    CHECK(err->rank == n && strstr(err->msg, "enough"));
    return RSD_OK;
}

/* What a rank does that does not come: it is there, but deaf until the others have given up. */
static rsd_err stay_away(rsd_comm *comm, rsd_error *err)
{
    char    never;
    void   *request = NULL;
    rsd_err rc = rsi_recv(comm, comm->rank, 77, &never, 1, &request, err);

    if (rc == RSD_OK)
        rc = comm->ops.wait_some(comm->self, 1, &request, 60000, err);
    rsi_drop(comm, 1, &request);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank >= 0); /* not by its own clock */
    CHECK(rsi_barrier(comm, err) == RSD_E_TIMEOUT);
    return RSD_OK;
}

static rsd_err some_collective(rsd_comm *comm, int which, rsd_error *err)
{
    char mine = 1, all[64];

    if (which == 0)
        return rsi_barrier(comm, err);
    if (which == 1)
        return rsi_allgather(comm, &mine, 1, all, err);
    return rsi_agree(comm, RSD_E_IO, err);
}

/* All but `absent` call a collective that none of them can finish without it. */
static rsd_err without(rsd_comm *comm, int32_t absent, int which, rsd_error *err)
{
    char    text[32];
    rsd_err rc = rsd_comm_set_timeout(comm, SHORT_MS, err);

    if (rc)
        return rc;
    if (comm->rank == absent)
        return stay_away(comm, err);
    rc = some_collective(comm, which, err);
    snprintf(text, sizeof(text), "rank %d did not come", absent);
    CHECK(rc == RSD_E_TIMEOUT && err->code == RSD_E_TIMEOUT);
    CHECK(strstr(err->msg, text));
    CHECK(err->rank == absent && err->nfailed == 1);
    CHECK(rsi_barrier(comm, err) == RSD_E_TIMEOUT); /* and it stays so */
    return RSD_OK;
}

static rsd_err a_barrier_without_the_last_rank_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, comm->size - 1, 0, err);
}

static rsd_err an_allgather_without_rank_1_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, 1, 1, err);
}

static rsd_err an_agreement_without_rank_0_times_out(rsd_comm *comm, rsd_error *err)
{
    return without(comm, 0, 2, err);
}

/* In the barrier rank 2 waits for 1 and rank 0 for the last one. */
static rsd_err of_several_missing_ranks_none_that_came_is_named(rsd_comm *comm, rsd_error *err)
{
    int32_t last = comm->size - 1;
    rsd_err rc = rsd_comm_set_timeout(comm, SHORT_MS, err);

    if (rc)
        return rc;
    if (comm->rank == 1 || comm->rank == last)
        return stay_away(comm, err);
    rc = rsi_barrier(comm, err);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == 1 && err->nfailed == 2);
    return RSD_OK;
}

static rsd_err a_group_that_waits_in_vain_names_ranks_as_the_whole(rsd_comm *comm, rsd_error *err)
{
    int32_t   ranks[64], n = comm->size - 1;
    rsd_comm *group = NULL;
    rsd_err   rc;

    for (int32_t i = 0; i < n; i++)
        ranks[i] = i + 1;
    rc = rsd_comm_set_timeout(comm, SHORT_MS, err);
    if (!rc)
        rc = rsd_comm_split(comm, comm->rank ? n : 0, ranks, &group, err);
    if (rc)
        return rc;
    rc = comm->rank == n || comm->rank == 0 ? stay_away(comm, err) : rsi_barrier(group, err);
    rsd_comm_free(group);
    if (comm->rank == n || comm->rank == 0)
        return rc;
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == n && err->nfailed == 1);
    return RSD_OK;
}

static rsd_err different_collectives_at_once_are_told(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = rsd_comm_set_timeout(comm, SHORT_MS, err);

    if (!rc)
        rc = some_collective(comm, comm->rank % 2, err);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(strstr(err->msg, "same order"));
    CHECK(err->rank == 0 && err->nfailed == comm->size);
    return RSD_OK;
}

static rsd_err messages_that_never_come_time_out(rsd_comm *comm, rsd_error *err)
{
    int32_t peer[64];
    char    in[64];
    void   *request[64] = { NULL };
    rsd_err rc = rsd_comm_set_timeout(comm, SHORT_MS, err);

    if (rc)
        return rc;
    if (comm->rank == 0)
        return stay_away(comm, err);
    for (int32_t r = 0; r < comm->size && !rc; r++) {
        peer[r] = r;
        rc = rsi_recv(comm, r, 4, &in[r], 1, &request[r], err);
    }
    if (!rc)
        rc = rsi_wait_all(comm, (size_t)comm->size, request, peer, "exchange", err);
    CHECK(rsi_drop(comm, (size_t)comm->size, request));
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == 0 && strstr(err->msg, "exchange: rank 0 did not come within 50 ms"));
    return RSD_OK;
}

static rsd_err requests_can_be_taken_back_after_an_abort(rsd_comm *comm, rsd_error *err)
{
    int32_t in = -1, to = (comm->rank + 1) % comm->size;
    char    here = 1, all[64];
    void   *request[2] = { NULL, NULL };
    rsd_err rc = rsi_recv(comm, to, 6, &in, sizeof(in), &request[0], err);

    if (!rc)
        rc = rsi_gather(comm, 0, &here, 1, all, err); /* all have asked */
    if (comm->rank == 0)
        rsd_comm_abort(comm, NULL);
    while (!rc)
        rc = rsi_test(comm, &request[0], err);
    CHECK(rc == RSD_E_COMM && request[0]);
    CHECK(rsi_drop(comm, 2, request));
    CHECK(!request[0] && in == -1);
    CHECK(rsi_recv(comm, to, 6, &in, sizeof(in), &request[0], err) == RSD_E_COMM);
    return RSD_OK;
}

#define CASE(name, min)                                                                            \
    {                                                                                              \
#name, name, min                                                                           \
    }
const comm_case comm_suite[] = {
    CASE(messages_of_any_size_arrive_whole, 1),
    CASE(many_messages_may_be_under_way, 1),
    CASE(tags_keep_messages_apart, 1),
    CASE(messages_with_one_tag_keep_their_order, 1),
    CASE(a_rank_can_send_to_itself, 1),
    CASE(test_finishes_a_request_in_the_end, 1),
    CASE(waiting_without_time_leaves_requests_under_way, 1),
    CASE(a_message_of_another_size_is_a_mismatch, 1),
    CASE(a_receive_that_was_taken_back_receives_nothing, 1),
    CASE(a_send_is_taken_back_or_still_arrives, 1),
    CASE(wrong_ranks_and_tags_are_refused, 1),
    CASE(broadcast_brings_the_roots_bytes_from_any_root, 1),
    CASE(gather_brings_all_to_any_root, 1),
    CASE(allgather_brings_all_to_all, 1),
    CASE(allgather_takes_any_size_from_each_rank, 1),
    CASE(allreduce_adds_and_compares_every_value, 1),
    CASE(ranks_that_all_did_well_agree_on_it, 1),
    CASE(one_failure_is_everybodys_with_its_text, 1),
    CASE(of_several_failures_the_lowest_rank_counts, 2),
    CASE(a_failure_without_text_has_the_name_of_its_code, 1),
    CASE(even_and_odd_ranks_are_groups_of_their_own, 1),
    CASE(groups_can_be_split_again, 2),
    CASE(lists_that_do_not_fit_are_refused_everywhere, 2),
    CASE(ranks_reach_what_others_expose, 1),
    CASE(nobody_leaves_a_barrier_before_all_came, 1),
    CASE(foreign_memory_is_exposed_or_refused_with_a_reason, 1),
    CASE(abort_wakes_everybody, 2),
    CASE(abort_of_a_group_wakes_the_others_too, 3),
    CASE(requests_can_be_taken_back_after_an_abort, 1),
    CASE(a_barrier_without_the_last_rank_times_out, 2),
    CASE(an_allgather_without_rank_1_times_out, 2),
    CASE(an_agreement_without_rank_0_times_out, 2),
    CASE(of_several_missing_ranks_none_that_came_is_named, 4),
    CASE(a_group_that_waits_in_vain_names_ranks_as_the_whole, 3),
    CASE(different_collectives_at_once_are_told, 2),
    CASE(messages_that_never_come_time_out, 2),
};
const size_t comm_suite_count = sizeof(comm_suite) / sizeof(comm_suite[0]);
