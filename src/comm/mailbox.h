/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in the mailbox of a rank that is a thread, for comm_threads.c. */
#ifndef RSI_MAILBOX_H
#define RSI_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A receive in the list of its own box, or a message in the list of the receiver's. */
typedef struct rsi_mail {
    struct rsi_mail *next;
    int32_t          owner, from, to, tag; /* owner: the rank that waits for it */
    const void      *src;
    void            *dst;
    size_t           bytes, came; /* asked for, and how many the sender had */
    bool             queued;      /* guarded by the box it is queued in, to's */
    bool             done;        /* guarded by the owner's box */
    bool             receive;     /* else a message */
    bool             eager;       /* nobody's request; the bytes follow it */
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

/* Takes out the first with that sender and tag, or `one` itself. */
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

#endif
