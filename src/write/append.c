/* SPDX-License-Identifier: Apache-2.0 */
/* Collects bytes into blocks. */
#include "write/append.h"
#include "write/block.h"

#include <stdatomic.h>
#include <string.h>

/* Hands the open block to the spool. */
static rsd_err send(rsi_append *s, rsd_error *err)
{
    size_t         len = s->len;
    unsigned char *buf = s->buf;

    s->buf = NULL;
    s->len = 0;
    atomic_fetch_add(&s->to->left, 1);
    return rsi_write_queue_add(s->spool, s->to, s->at - len, buf, len, err);
}

rsd_err rsi_append_cut(rsi_append *s, rsd_error *err)
{
    return s->sums ? rsi_sums_begin(s->sums, s->file, s->at, err) : RSD_OK;
}

rsd_err rsi_append_put(void *stream, const void *bytes, size_t len, rsd_error *err)
{
    rsi_append          *s = stream;
    const unsigned char *from = bytes;
    rsd_err              rc = s->at == 0 && !s->buf ? rsi_append_cut(s, err) : RSD_OK;

    while (len > 0 && !rc) {
        size_t n = RSI_BLOCK_BYTES - s->len < len ? RSI_BLOCK_BYTES - s->len : len;

        if (!s->buf)
            rc = rsi_write_queue_buffer(s->spool, (void **)&s->buf, err);
        if (rc)
            break;
        memcpy(s->buf + s->len, from, n);
        if (s->sums)
            rc = rsi_sums_feed(s->sums, from, n, err);
        s->len += n;
        s->at += n;
        from += n;
        len -= n;
        if (!rc && s->len == RSI_BLOCK_BYTES)
            rc = send(s, err);
    }
    return rc;
}

rsd_err rsi_append_end(rsi_append *s, rsd_error *err)
{
    rsd_err rc = s->sums ? rsi_sums_end(s->sums, err) : RSD_OK;

    if (!rc && s->len)
        rc = send(s, err);
    if (!rc)
        rc = rsi_write_queue_drain(s->spool, err);
    return rc ? rc : rsi_write_queue_done(s->spool, s->to, err);
}

void rsi_append_drop(rsi_append *s)
{
    if (s->buf)
        rsi_pool_put(s->spool->pool, s->buf);
    s->buf = NULL;
    s->len = 0;
}
