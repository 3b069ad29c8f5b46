/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the comm suite about messages. */
#include "comm_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

/* Each rank sends to the next and receives from the one before. */
static rsd_err ring(rsd_comm *comm, size_t bytes, bool receive_first, rsd_error *err)
{
    int32_t        n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    unsigned char *out = suite_message(comm->rank, 1, bytes), *in = malloc(bytes + 1);
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
    good = !rc && suite_is_message(in, from, 1, bytes) && in[bytes] == 0xa5;
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
            out[i * BYTES + k] = suite_byte(comm->rank, id, k);
        peer[i] = peer[n + i] = to;
        rc = rsi_send(comm, to, (int32_t)(id % 3), out + i * BYTES, bytes, &request[i], err);
    }
    for (size_t i = 0; i < n && !rc; i++)
        rc = rsi_recv(comm, (int32_t)(i / EACH), (int32_t)(i % EACH % 3), in + i * BYTES,
                      i % EACH * 997, &request[n + i], err);
    if (!rc)
        rc = rsi_wait_all(comm, 2 * n, request, peer, "many", err);
    for (size_t i = 0; i < n && !rc; i++)
        good =
            good && suite_is_message(in + i * BYTES, (int32_t)(i / EACH), i % EACH, i % EACH * 997);
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
        out[i] = suite_message(comm->rank, i, bytes[i % 2]);
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
        good = good && suite_is_message(in[i], from, i, bytes[i % 2]);
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

/* Sends `bytes` where `want` are expected, once with the receive asked for first, once last. */
static rsd_err expect_mismatch(rsd_comm *comm, size_t bytes, size_t want, rsd_error *err)
{
    int32_t n = comm->size, to = (comm->rank + 1) % n, from = (comm->rank + n - 1) % n;
    int32_t peer[2] = { to, from };
    char    out[64] = "x", in[65] = "";

    in[want] = 'z';
    for (int first = 0; first < 2; first++) {
        void     *request[2] = { NULL, NULL };
        rsd_error miss = { 0 };
        rsd_err   rc = RSD_OK, got = RSD_OK;

        if (first)
            rc = rsi_recv(comm, from, 1, in, want, &request[1], err);
        if (!rc)
            rc = rsi_barrier(comm, err);
        if (!rc)
            rc = rsi_send(comm, to, 1, out, bytes, &request[0], err);
        if (!rc)
            rc = rsi_barrier(comm, err);
        if (rc)
            return rc;
        if (!first)
            got = rsi_recv(comm, from, 1, in, want, &request[1], &miss);
        while (!got && request[1])
            got = rsi_wait_some(comm, 1, &request[1], &peer[1], "size", &miss);
        CHECK(got == RSD_E_MISMATCH && miss.rank == -1);
        CHECK(!request[1] && in[want] == 'z');
        rc = rsi_wait_all(comm, 2, request, peer, "size", err);
        if (rc)
            return rc;
    }
    return rsi_barrier(comm, err); /* the comm is as good as before */
}

static rsd_err a_message_that_is_too_short_is_a_mismatch(rsd_comm *comm, rsd_error *err)
{
    return expect_mismatch(comm, 32, 40, err);
}

/* Not from a rank to itself: Open MPI cuts that off without a word. */
static rsd_err a_message_that_is_too_long_is_a_mismatch(rsd_comm *comm, rsd_error *err)
{
    return expect_mismatch(comm, 40, 32, err);
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
    unsigned char *out = suite_message(comm->rank, 2, BYTES), *in = calloc(1, BYTES);
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
        good = !rc && suite_is_message(in, from, 2, BYTES);
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
    CHECK(rsd_comm_set_timeout(comm, 0, err) == RSD_E_INVALID);
    return RSD_OK;
}

const comm_case comm_suite_messages[] = {
    { COMM_CASE(messages_of_any_size_arrive_whole), 1, false },
    { COMM_CASE(many_messages_may_be_under_way), 1, false },
    { COMM_CASE(tags_keep_messages_apart), 1, false },
    { COMM_CASE(messages_with_one_tag_keep_their_order), 1, false },
    { COMM_CASE(a_rank_can_send_to_itself), 1, false },
    { COMM_CASE(test_finishes_a_request_in_the_end), 1, false },
    { COMM_CASE(waiting_without_time_leaves_requests_under_way), 1, false },
    { COMM_CASE(a_message_that_is_too_short_is_a_mismatch), 1, false },
    { COMM_CASE(a_message_that_is_too_long_is_a_mismatch), 2, false },
    { COMM_CASE(a_receive_that_was_taken_back_receives_nothing), 1, false },
    { COMM_CASE(a_send_is_taken_back_or_still_arrives), 1, false },
    { COMM_CASE(wrong_ranks_and_tags_are_refused), 1, false },
    { NULL, NULL, 0, false },
};
