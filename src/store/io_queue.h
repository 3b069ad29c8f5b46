/* SPDX-License-Identifier: Apache-2.0 */
/* Queues for stores that only have `transfer`: a few threads per store, and a caller waiting in
 * reap works too, so that small requests served from the cache never wait for another thread to
 * wake. */
#ifndef RSI_IO_QUEUE_H
#define RSI_IO_QUEUE_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>

typedef struct rsi_io_threads rsi_io_threads; /* one per store */
typedef struct rsi_io_queue   rsi_io_queue;

/* `threads` includes the caller of reap: 1 creates none. There may be fewer if the system grants
 * fewer. */
rsd_err rsi_io_threads_create(int threads, void (*transfer)(void *self, rsd_io *io), void *self,
                              rsi_io_threads **out, rsd_error *err);
void    rsi_io_threads_free(rsi_io_threads *threads); /* NULL is fine; all queues must be closed */

rsd_err rsi_io_queue_open(rsi_io_threads *threads, rsi_io_queue **out, rsd_error *err);
void    rsi_io_queue_close(rsi_io_queue *queue);
void    rsi_io_queue_submit(rsi_io_queue *queue, rsd_io *io, size_t n);
size_t  rsi_io_queue_reap(rsi_io_queue *queue, size_t min, size_t cap, rsd_io **out);

/* A list of requests, linked through own[0]. Needs no memory, so adding can't fail. */
typedef struct rsi_io_list {
    rsd_io *head, *tail;
    size_t  n;
} rsi_io_list;

static inline void rsi_io_list_add(rsi_io_list *list, rsd_io *io)
{
    io->own[0] = NULL;
    if (list->tail)
        list->tail->own[0] = io;
    else
        list->head = io;
    list->tail = io;
    list->n++;
}

/* NULL if it is empty. */
static inline rsd_io *rsi_io_list_take(rsi_io_list *list)
{
    rsd_io *io = list->head;

    if (!io)
        return NULL;
    list->head = (rsd_io *)io->own[0];
    if (!list->head)
        list->tail = NULL;
    list->n--;
    return io;
}

/* Clears the result. False, with the result set, if the range can't exist in any file. */
static inline bool rsi_io_begin(rsd_io *io)
{
    io->rc = io->off > INT64_MAX || io->len > INT64_MAX - io->off ? RSD_E_INVALID : RSD_OK;
    io->sys_errno = 0;
    io->done = 0;
    return !io->rc;
}

#endif
