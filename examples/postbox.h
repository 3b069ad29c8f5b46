/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for a network in 08_own_comm.c: messages between threads, copied into one box. */
#ifndef POSTBOX_H
#define POSTBOX_H

#include <reshard/reshard_plugin.h>

extern const rsd_comm_ops postbox_ops; /* of two ranks; `self` is a pointer to one's own, int32_t */

/* A message on its way, or a receive that waits for one. */
typedef struct letter {
    int32_t        from, to, tag;
    bool           receive, here; /* it is a receive; its message has come */
    size_t         bytes;
    void          *data;
    struct letter *next;
} letter;

/* Puts in a receive, or a message, whose bytes are copied; NULL: no memory. */
letter *postbox_post(letter what);
/* True if a receive has its message; it is gone then. */
bool postbox_done(letter *receive);
/* Takes a receive back. */
void postbox_cancel(letter *receive);
/* Waits until something comes after news number `seen` or the time is over; the number now. */
uint64_t postbox_wait(uint64_t seen, int64_t timeout_ms);
/* Wakes all that wait. */
void postbox_ring(void);

#endif
