/* SPDX-License-Identifier: Apache-2.0 */
/* "stream.zstd" as torch writes it: one frame, level 3, no content size, no checksum. Decoding also
 * accepts several consecutive frames, which some writers make. zstd allocates its own memory: its
 * interface for custom allocation may change. A window of more than 8 MiB is refused (torch's has
 * 2), which limits the memory that a few bytes can make it allocate. */
#include "format/transform.h"

#if defined(RSI_HAVE_ZSTD)
#include "base/mem.h"

#include <zstd.h>

enum { LEVEL = 3, LEVEL_MAX = 19, WINDOW_LOG_MAX = 23 }; /* higher levels have larger windows */

/* Exactly one of the two is set. */
typedef struct zstd_stream {
    ZSTD_CCtx *encode;
    ZSTD_DCtx *decode;
    bool       whole; /* decode: every frame begun has ended */
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
    const int   *level = arg;
    bool         ready = false;

    if (z && encode) {
        z->encode = ZSTD_createCCtx();
        ready = z->encode &&
                !ZSTD_isError(ZSTD_CCtx_setParameter(z->encode, ZSTD_c_compressionLevel, *level)) &&
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

static int levels[] = { LEVEL, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 };

#define AT_LEVEL(n)                                                                                \
    {                                                                                              \
        .name = "stream.zstd", .version = "1", .arg = &levels[n], .begin = begin, .feed = feed,    \
        .end = end, .free = free_stream                                                            \
    }

static const rsd_transform zstd[LEVEL_MAX + 1] = {
    AT_LEVEL(0),  AT_LEVEL(1),  AT_LEVEL(2),  AT_LEVEL(3),  AT_LEVEL(4),
    AT_LEVEL(5),  AT_LEVEL(6),  AT_LEVEL(7),  AT_LEVEL(8),  AT_LEVEL(9),
    AT_LEVEL(10), AT_LEVEL(11), AT_LEVEL(12), AT_LEVEL(13), AT_LEVEL(14),
    AT_LEVEL(15), AT_LEVEL(16), AT_LEVEL(17), AT_LEVEL(18), AT_LEVEL(19),
};

const rsd_transform *rsi_transform_zstd(int level)
{
    return level >= 0 && level <= LEVEL_MAX ? &zstd[level] : NULL;
}
#else
const rsd_transform *rsi_transform_zstd(int level)
{
    (void)level;
    return NULL;
}
#endif
