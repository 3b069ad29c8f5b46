/* SPDX-License-Identifier: Apache-2.0 */
/* The timeout applies to silence. While a rank waits or works, it occasionally sends its neighbours
 * in a binary tree a sign: that it is alive, and whether a rank on its side of the tree works. So
 * no rank hears from more than three others, and every rank is watched by its neighbours: one that
 * hears nothing from a neighbour for longer than the timeout, or hears of no work at all, gives up
 * and starts a roll call of all ranks (rollcall.c). Ranks that wait for each other report no work,
 * so a deadlock is still detected. Signs are ordinary messages; a transport need not know of them.
 */
#include "comm/signs.h"
#include "base/checked.h"
#include "comm/clock.h"
#include "comm/comm.h"

enum { WORK = 1, ALARM = 2 };

#define EVERY       8    /* signs per timeout; those of work are passed on twice as often */
#define SLICES      256  /* polls per timeout, so that a sign crosses a deep tree well within it */
#define SLICE_MAX   5000 /* ms */
#define UNHEARD_MAX 16   /* signs for a neighbour outside the library: it hears them later */

int64_t (*rsi_comm_clock)(void) = rsi_clock_ms;

int64_t rsi_signs_slice(const rsd_comm *comm)
{
    return rsi_min(rsi_max(comm->timeout_ms / SLICES, 1), SLICE_MAX);
}

/* A rank may be silent for the timeout; its last sign may have been sent slightly before that. */
static bool lately(const rsd_comm *comm, int64_t when, int64_t now)
{
    return now - when - comm->timeout_ms < comm->timeout_ms / 4;
}

static void begin(rsd_comm *comm, int64_t now)
{
    const int64_t rank = comm->rank;
    const int64_t peer[RSI_SIGN_LINKS] = { (rank + 1) / 2 - 1, 2 * rank + 1, 2 * rank + 2 };
    rsi_signs    *s = &comm->signs;

    for (int i = 0; i < RSI_SIGN_LINKS; i++) {
        s->link[i].peer = peer[i] < comm->size ? (int32_t)peer[i] : -1;
        s->link[i].sent = s->link[i].sent_work = now;
        s->link[i].heard = INT64_MIN / 2;
    }
    s->worked = INT64_MIN / 2;
    s->due = now + rsi_signs_slice(comm);
    s->ready = true;
}

/* ---- hearing ---- */

static void take(rsd_comm *comm, rsi_sign_link *from, int64_t now)
{
    rsi_signs *s = &comm->signs;

    from->heard = now;
    from->unheard = 0;
    s->alarm = s->alarm || from->in & ALARM;
    if (!(from->in & WORK))
        return;
    s->worked = now;
    for (int i = 0; i < RSI_SIGN_LINKS; i++)
        s->link[i].work = s->link[i].work || &s->link[i] != from;
}

/* Receives all signs from a neighbour. Errors are left to the next call, which sees them itself. */
static void hear(rsd_comm *comm, rsi_sign_link *from, int64_t now)
{
    while (!from->deaf) {
        if (from->asked)
            from->deaf = rsi_test(comm, &from->coming, NULL) != RSD_OK;
        else
            from->deaf = rsi_recv(comm, from->peer, RSI_TAG_SIGN, &from->in, sizeof(from->in),
                                  &from->coming, NULL) != RSD_OK;
        from->asked = !from->deaf && from->coming;
        if (from->deaf || from->asked)
            return;
        take(comm, from, now);
    }
}

/* ---- sending ---- */

static void send(rsd_comm *comm, rsi_sign_link *to, uint32_t flags, int64_t now)
{
    if (to->going && (rsi_test(comm, &to->going, NULL) || to->going))
        return;
    if (to->unheard >= UNHEARD_MAX && !(flags & ALARM))
        return;
    to->out = flags | (to->work ? WORK : 0);
    if (rsi_send(comm, to->peer, RSI_TAG_SIGN, &to->out, sizeof(to->out), &to->going, NULL))
        return;
    to->sent = now;
    to->sent_work = to->work ? now : to->sent_work;
    to->work = false;
    to->unheard++;
}

static bool is_due(const rsd_comm *comm, const rsi_sign_link *to, int64_t now)
{
    int64_t every = comm->timeout_ms / EVERY;

    return now - to->sent >= every || (to->work && now - to->sent_work >= every / 2);
}

bool rsi_signs_look(rsd_comm *comm, int64_t now)
{
    rsi_signs *s = &comm->signs;

    if (comm->size == 1 || comm->alone)
        return false;
    if (!s->ready)
        begin(comm, now);
    if (now < s->due)
        return s->alarm;
    s->due = now + rsi_signs_slice(comm);
    for (int i = 0; i < RSI_SIGN_LINKS; i++)
        if (s->link[i].peer >= 0)
            hear(comm, &s->link[i], now);
    for (int i = 0; i < RSI_SIGN_LINKS; i++)
        if (s->link[i].peer >= 0 && is_due(comm, &s->link[i], now))
            send(comm, &s->link[i], 0, now);
    return s->alarm;
}

void rsi_signs_alarm(rsd_comm *comm)
{
    rsi_signs *s = &comm->signs;

    for (int i = 0; i < RSI_SIGN_LINKS && s->ready; i++)
        if (s->link[i].peer >= 0)
            send(comm, &s->link[i], ALARM, s->due);
}

/* ---- judging ---- */

bool rsi_signs_good(const rsd_comm *comm, int64_t now)
{
    const rsi_signs *s = &comm->signs;
    bool             good = s->ready && lately(comm, s->worked, now);

    for (int i = 0; i < RSI_SIGN_LINKS && good; i++)
        good = s->link[i].peer < 0 || lately(comm, s->link[i].heard, now);
    return good;
}

/* A missing rank has been silent for the whole timeout, so part of it is enough to tell. */
bool rsi_signs_heard(const rsi_sign_link *link, int64_t timeout_ms, int64_t now)
{
    return link->peer >= 0 && now - link->heard < timeout_ms / 4 * 3;
}

void rsi_signs_end(rsd_comm *comm)
{
    for (int i = 0; i < RSI_SIGN_LINKS; i++) {
        rsi_drop(comm, 1, &comm->signs.link[i].coming);
        rsi_drop(comm, 1, &comm->signs.link[i].going);
    }
}

/* ---- work ---- */

/* On an alarm, a working rank answers the roll call too; its next call learns the verdict. */
static void beat(void *arg)
{
    rsd_comm  *comm = arg;
    rsi_signs *s = &comm->signs;
    bool       before = s->alarm;
    rsd_error  err;

    for (int i = 0; i < RSI_SIGN_LINKS; i++)
        s->link[i].work = true;
    if (!rsi_signs_look(comm, rsi_comm_clock()) || before)
        return;
    rsi_signs_alarm(comm);
    rsi_rollcall(comm, 0, NULL, NULL, "at work", &err);
}

rsi_pulse rsi_comm_enter(rsd_comm *comm)
{
    const rsi_pulse before = rsi_pulse_set((rsi_pulse){ 0 });

    if (!comm || comm->size == 1 || comm->alone) {
        rsi_pulse_set(before); /* may be inside a callback of a call that has ranks */
        return before;
    }
    rsi_signs_look(comm, rsi_comm_clock());
    rsi_pulse_set((rsi_pulse){ beat, comm, rsi_signs_slice(comm) });
    return before;
}

rsd_err rsi_comm_leave(rsi_pulse before, rsd_err rc)
{
    rsi_pulse_set(before);
    return rc;
}
