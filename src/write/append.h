/* SPDX-License-Identifier: Apache-2.0 */
/* A file written front to back without knowing its size: transformed items, metadata. */
#ifndef RSI_APPEND_H
#define RSI_APPEND_H

#include "write/write_queue.h"
#include "format/sums.h"

typedef struct rsi_append {
    rsi_write_queue *spool;
    rsi_queued_file *to;
    rsi_sums        *sums; /* NULL: no rows are wanted */
    uint32_t         file; /* the file's number in them */
    uint64_t         at;   /* bytes so far */
    unsigned char   *buf;  /* the open block */
    size_t           len;
} rsi_append;

/* An rsi_sink: the next bytes of the file. */
rsd_err rsi_append_put(void *stream, const void *bytes, size_t len, rsd_error *err);
/* Ends a row of checksums here. */
rsd_err rsi_append_cut(rsi_append *stream, rsd_error *err);
/* Writes the last block and waits until all blocks are in the file, which is then closed. */
rsd_err rsi_append_end(rsi_append *stream, rsd_error *err);
void    rsi_append_drop(rsi_append *stream); /* after a failure; allowed after the end too */

#endif
