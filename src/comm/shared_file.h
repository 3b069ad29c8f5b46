/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes of one machine share, for transports without a way of their own: each
 * rank's part of an alloc is an anonymous file (memfd). How the other ranks get at the file is up
 * to the transport. The file has no name in any folder, so nothing is left of it after a crash, and
 * the size of /dev/shm does not matter. Without a file it is ordinary memory that can't be exposed:
 * slower, never wrong. */
#ifndef RSI_SHARED_FILE_H
#define RSI_SHARED_FILE_H

#include "comm/window.h"

/* Memory of another rank. */
typedef struct rsi_peer_memory {
    struct rsi_peer_memory *next;
    int32_t                 owner; /* in the first group */
    uint64_t                id;    /* number of the alloc */
    char                   *base;  /* NULL: it can't be mapped here */
    size_t                  bytes;
} rsi_peer_memory;

/* What one rank's end of a group has of its own and of others. */
typedef struct rsi_shared_memory {
    uint64_t         allocs; /* so far: the same number on all ranks */
    rsi_windows      windows;
    rsi_peer_memory *peers;
} rsi_shared_memory;

size_t rsi_whole_pages(size_t bytes);

/* A window of that number, not in the list yet; its file's `name` is seen in /proc only. `data` is
 * NULL if there is no memory for it. NULL: no memory. */
rsi_window *rsi_shared_window(uint64_t id, size_t bytes, const char *name);
/* Closes its file, which stays mapped. */
void rsi_shared_window_close(rsi_window *w);
void rsi_shared_window_free(rsi_window *w);

/* Maps a file of another rank; `fd` -1: there is none. NULL: no memory. */
const rsi_peer_memory *rsi_peer_memory_add(rsi_shared_memory *m, int32_t owner, uint64_t id, int fd,
                                           size_t bytes);
/* NULL: none was added. */
const rsi_peer_memory *rsi_peer_memory_find(const rsi_shared_memory *m, int32_t owner, uint64_t id);

/* Frees the window that begins at `data`, and what other ranks have of the same alloc. */
void rsi_shared_dealloc(rsi_shared_memory *m, const void *data);
/* Frees everything. */
void rsi_shared_memory_free(rsi_shared_memory *m);

#endif
