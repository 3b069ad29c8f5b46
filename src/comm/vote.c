/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up a binary tree and down again. The sum is known only after every rank has arrived, so a
 * vote is a barrier too. */
#include "comm/vote.h"

enum { CHILD, PARENT = 2, OUT = 3, REQUESTS = 5 };
enum { GATHER, SEND_UP, FINISH, DONE };

static int32_t child(const rsi_vote *v, int i)
{
    int64_t rank = 2 * (int64_t)v->comm->rank + 1 + i;

    return rank < v->comm->size ? (int32_t)rank : -1;
}

rsd_err rsi_vote_begin(rsi_vote *vote, rsd_comm *comm, int32_t tag, int64_t mine, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *vote = (rsi_vote){ .comm = comm, .tag = tag, .sum = mine };
    if (comm->alone)
        vote->step = DONE;
    for (int i = 0; i < 2 && !rc && !comm->alone; i++) {
        vote->peer[i] = child(vote, i);
        if (vote->peer[i] >= 0)
            rc = rsi_recv(comm, vote->peer[i], tag, &vote->in[i], sizeof(vote->in[i]),
                          &vote->request[i], err);
    }
    if (comm->rank > 0 && !rc && !comm->alone) {
        vote->peer[PARENT] = (comm->rank - 1) / 2;
        rc = rsi_recv(comm, vote->peer[PARENT], tag, &vote->in[PARENT], sizeof(vote->in[PARENT]),
                      &vote->request[PARENT], err);
    }
    return rc;
}

static bool open(const rsi_vote *v, int first, int end)
{
    for (int i = first; i < end; i++)
        if (v->request[i])
            return true;
    return false;
}

static rsd_err send(rsi_vote *v, int i, int32_t to, rsd_error *err)
{
    v->peer[OUT + i] = to;
    return rsi_send(v->comm, to, v->tag, &v->sum, sizeof(v->sum), &v->request[OUT + i], err);
}

/* Advances as far as possible without waiting. */
static rsd_err advance(rsi_vote *v, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (v->step == GATHER && !open(v, CHILD, PARENT)) {
        v->sum += v->in[0] + v->in[1];
        v->step = SEND_UP;
        if (v->comm->rank > 0)
            rc = send(v, 0, v->peer[PARENT], err);
    }
    if (v->step == SEND_UP && !rc && !open(v, PARENT, REQUESTS)) {
        if (v->comm->rank > 0)
            v->sum = v->in[PARENT];
        v->step = FINISH;
        for (int i = 0; i < 2 && !rc; i++)
            if (child(v, i) >= 0)
                rc = send(v, i, child(v, i), err);
    }
    if (v->step == FINISH && !rc && !open(v, OUT, REQUESTS))
        v->step = DONE;
    return rc;
}

rsd_err rsi_vote_step(rsi_vote *vote, bool wait, bool *done, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < REQUESTS && !rc; i++)
        if (vote->request[i])
            rc = rsi_test(vote->comm, &vote->request[i], err);
    if (!rc)
        rc = advance(vote, err);
    while (wait && !rc && vote->step != DONE) {
        rc = rsi_wait_some(vote->comm, REQUESTS, vote->request, vote->peer, "vote", err);
        if (!rc)
            rc = advance(vote, err);
    }
    *done = vote->step == DONE;
    return rc;
}

bool rsi_vote_drop(rsi_vote *vote)
{
    return !vote->comm || rsi_drop(vote->comm, REQUESTS, vote->request);
}
