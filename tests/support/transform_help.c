/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of transforms do again and again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "transform_help.h"

#include <string.h>

rsd_err keep_bytes(void *arg, const void *piece, size_t len, rsd_error *err)
{
    held_bytes *to = arg;

    (void)err;
    assert_true(len > 0 && len <= sizeof(to->at) - to->len);
    memcpy(to->at + to->len, piece, len);
    to->len += len;
    return RSD_OK;
}

rsd_err encode_bytes(const char *descriptor, const void *data, size_t len, size_t step,
                     held_bytes *to, rsd_error *err)
{
    const unsigned char *at = data;
    rsi_encoder         *encoder = NULL;
    rsd_err              rc;

    to->len = 0;
    rc = rsi_encoder_create(descriptor, keep_bytes, to, &encoder, err);
    for (; !rc && len; at += step, len -= step) {
        step = len < step ? len : step;
        rc = rsi_encoder_feed(encoder, at, step, err);
    }
    if (!rc)
        rc = rsi_encoder_end(encoder, err);
    rsi_encoder_free(encoder);
    return rc;
}

rsd_err undo_bytes(const char *first, const char *second, const void *data, size_t len,
                   uint64_t most, unsigned char **out, size_t *out_len, rsd_error *err)
{
    const char *descriptor[] = { first, second };
    rsi_source  source = rsi_memory_source(data, len, "__0_0.distcp");

    return rsi_undo_all(descriptor, second ? 2 : first ? 1 : 0, &source, most, out, out_len, err);
}

void assert_undone(const char *first, const char *second, const held_bytes *from, const void *want,
                   size_t want_len)
{
    unsigned char *got = NULL;
    size_t         got_len = 0;
    rsd_error      err;

    assert_int_equal(undo_bytes(first, second, from->at, from->len, want_len, &got, &got_len, &err),
                     0);
    assert_int_equal(got_len, want_len);
    assert_memory_equal(got, want, want_len);
    rsi_free(got);
}

void assert_refused(const char *descriptor, const void *data, size_t len, uint64_t most,
                    rsd_err code, const char *text)
{
    unsigned char *got = NULL;
    size_t         got_len = 0;
    rsd_error      err = { 0 };

    assert_int_equal(undo_bytes(descriptor, NULL, data, len, most, &got, &got_len, &err), code);
    assert_null(got);
    assert_non_null(strstr(err.msg, text));
    assert_non_null(strstr(err.msg, "__0_0.distcp"));
}

unsigned char *long_text(void)
{
    static unsigned char text[LONG];
    uint32_t             x = 7;

    for (size_t i = 0; i < LONG; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (unsigned char)("the quick brown FOX 0123"[x >> 24 & 15] + (i % 31 == 0));
    }
    return text;
}
