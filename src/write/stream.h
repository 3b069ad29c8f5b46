/* SPDX-License-Identifier: Apache-2.0 */
/* A file written from front to back without knowing its size: items that are transformed,
 * metadata. */
#ifndef RSI_STREAM_H
#define RSI_STREAM_H

#include "write/spool.h"
#include "format/sums.h"

typedef struct rsi_stream {
    rsi_spool     *spool;
    rsi_spooled   *to;
    rsi_sums      *sums; /* NULL: no rows are wanted */
    uint32_t       file; /* their number */
    uint64_t       at;   /* bytes so far */
    unsigned char *buf;  /* the open block */
    size_t         len;
} rsi_stream;

/* An rsi_sink: the next bytes of the file. */
rsd_err rsi_stream_put(void *stream, const void *bytes, size_t len, rsd_error *err);
/* A row of checksums ends here. */
rsd_err rsi_stream_cut(rsi_stream *stream, rsd_error *err);
/* The last block; waits until all are in the file, which is closed then. */
rsd_err rsi_stream_end(rsi_stream *stream, rsd_error *err);
void    rsi_stream_drop(rsi_stream *stream); /* after a failure; also after the end */

#endif
