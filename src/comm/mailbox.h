/* SPDX-License-Identifier: Apache-2.0 */
/* The mailbox contents of a rank, for comm_threads.c and comm_processes.c. */
#ifndef RSI_MAILBOX_H
#define RSI_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A receive in its own box's list, or a message in the receiver's. */
typedef struct rsi_mail {
    struct rsi_mail *next;
    int32_t          owner, from, to, tag; /* owner: the rank that waits for it */
    const void      *src;
    void            *dst;
    size_t           bytes, came; /* expected, and sent */
    bool             queued;      /* guarded by the lock of the box it is queued in, to's */
    bool             done;        /* guarded by the lock of the owner's box */
    bool             receive;     /* else a message */
    bool             eager;       /* not a request; the bytes follow it */

    /* Between processes: */
    uint64_t group;        /* its id */
    uint64_t number, peer; /* its own, which the other side answers with, and the other side's */
    uint64_t at;           /* address of the bytes in the sender */
    size_t   moved;        /* bytes so far */
    _Alignas(16) char data[];
} rsi_mail;

typedef struct rsi_mail_list {
    rsi_mail *first, **end;
} rsi_mail_list;

static inline void rsi_mail_put(rsi_mail_list *l, rsi_mail *m)
{
    m->next = NULL;
    m->queued = true;
    *l->end = m;
    l->end = &m->next;
}

/* Removes the first with that sender and tag, or `one` itself. */
static inline rsi_mail *rsi_mail_take(rsi_mail_list *l, int32_t from, int32_t tag,
                                      const rsi_mail *one)
{
    for (rsi_mail **at = &l->first; *at; at = &(*at)->next) {
        rsi_mail *m = *at;

        if (one ? m != one : m->from != from || m->tag != tag)
            continue;
        *at = m->next;
        if (l->end == &m->next)
            l->end = at;
        m->queued = false;
        return m;
    }
    return NULL;
}

/* The one with that number; NULL: none. */
static inline rsi_mail *rsi_mail_find(const rsi_mail_list *l, uint64_t number)
{
    rsi_mail *m = l->first;

    while (m && m->number != number)
        m = m->next;
    return m;
}

#endif
