/* SPDX-License-Identifier: Apache-2.0 */
/* "stream.zstd" as torch writes it: one frame, level 3, no content size, no checksum. Decoding
 * takes several frames one after the other too, which some writers make. zstd takes its memory
 * itself: its interface for anything else may change. A window of more than 8 MiB is refused
 * (torch's has 2), which bounds what a few bytes can make it take. */
#include "format/transform.h"

#if defined(RSI_HAVE_ZSTD)
#include "base/mem.h"

#include <zstd.h>

enum { LEVEL = 3, WINDOW_LOG_MAX = 23 };

/* One of the two is set. */
typedef struct zstd_stream {
    ZSTD_CCtx *encode;
    ZSTD_DCtx *decode;
    bool       whole; /* decode: no frame has begun that has not ended */
} zstd_stream;

static void free_stream(void *stream)
{
    zstd_stream *z = stream;

    ZSTD_freeCCtx(z->encode);
    ZSTD_freeDCtx(z->decode);
    rsi_free(z);
}

static rsd_err begin(void *arg, bool encode, void **stream, rsd_error *err)
{
    zstd_stream *z = rsi_calloc(1, sizeof(*z));
    bool         ready = false;

    (void)arg;
    if (z && encode) {
        z->encode = ZSTD_createCCtx();
        ready = z->encode &&
                !ZSTD_isError(ZSTD_CCtx_setParameter(z->encode, ZSTD_c_compressionLevel, LEVEL)) &&
                !ZSTD_isError(ZSTD_CCtx_setParameter(z->encode, ZSTD_c_contentSizeFlag, 0));
    } else if (z) {
        z->decode = ZSTD_createDCtx();
        ready = z->decode && !ZSTD_isError(ZSTD_DCtx_setParameter(z->decode, ZSTD_d_windowLogMax,
                                                                  WINDOW_LOG_MAX));
    }
    if (!ready) {
        if (z)
            free_stream(z);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a zstd stream");
    }
    *stream = z;
    return RSD_OK;
}

static rsd_err refuse(size_t code, rsd_error *err)
{
    return rsi_fail(err, RSD_E_FORMAT, "zstd: %s", ZSTD_getErrorName(code));
}

static rsd_err feed(void *stream, const void *bytes, size_t in_len, size_t *used, void *buf,
                    size_t out_cap, size_t *made, rsd_error *err)
{
    zstd_stream   *z = stream;
    ZSTD_inBuffer  in = { .src = bytes, .size = in_len };
    ZSTD_outBuffer out = { .dst = buf, .size = out_cap };

    while (in.pos < in.size && out.pos < out.size) {
        size_t code = z->encode ? ZSTD_compressStream2(z->encode, &out, &in, ZSTD_e_continue)
                                : ZSTD_decompressStream(z->decode, &out, &in);

        if (ZSTD_isError(code))
            return refuse(code, err);
        z->whole = code == 0;
    }
    *used = in.pos;
    *made = out.pos;
    return RSD_OK;
}

static rsd_err end(void *stream, void *buf, size_t out_cap, size_t *made, bool *done,
                   rsd_error *err)
{
    zstd_stream   *z = stream;
    ZSTD_inBuffer  in = { .src = NULL };
    ZSTD_outBuffer out = { .dst = buf, .size = out_cap };
    size_t         code = 0;

    if (z->encode)
        code = ZSTD_compressStream2(z->encode, &out, &in, ZSTD_e_end);
    else if (!z->whole)
        code = ZSTD_decompressStream(z->decode, &out, &in);
    if (ZSTD_isError(code))
        return refuse(code, err);
    if (z->decode && code != 0 && out.pos == 0)
        return rsi_fail(err, RSD_E_FORMAT, "zstd: the data were cut short");
    z->whole = code == 0;
    *made = out.pos;
    *done = code == 0;
    return RSD_OK;
}

static const rsd_transform zstd = { .name = "stream.zstd",
                                    .version = "1",
                                    .begin = begin,
                                    .feed = feed,
                                    .end = end,
                                    .free = free_stream };

const rsd_transform *rsi_transform_zstd(void)
{
    return &zstd;
}
#else
const rsd_transform *rsi_transform_zstd(void)
{
    return NULL;
}
#endif
