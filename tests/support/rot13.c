/* SPDX-License-Identifier: Apache-2.0 */
/* All that a transform needs, with the least inside. It keeps nothing, so its stream is a pointer
 * to anything. */
#include "rot13.h"

static char stream_of_all;

static rsd_err begin(void *arg, bool encode, void **stream, rsd_error *err)
{
    (void)arg, (void)encode, (void)err;
    *stream = &stream_of_all;
    return RSD_OK;
}

static unsigned char swap_case(unsigned char c)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

    return letter ? (unsigned char)(c ^ 0x20) : c;
}

static rsd_err feed(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                    size_t out_cap, size_t *made, rsd_error *err)
{
    const unsigned char *from = in;
    unsigned char       *to = out;
    size_t               n = in_len < out_cap ? in_len : out_cap;

    (void)stream, (void)err;
    for (size_t i = 0; i < n; i++)
        to[i] = swap_case(from[i]);
    *used = *made = n;
    return RSD_OK;
}

static rsd_err end(void *stream, void *out, size_t out_cap, size_t *made, bool *done,
                   rsd_error *err)
{
    (void)stream, (void)out, (void)out_cap, (void)err;
    *made = 0;
    *done = true;
    return RSD_OK;
}

static void free_stream(void *stream)
{
    (void)stream;
}

const rsd_transform *rot13(void)
{
    static const rsd_transform transform = { .size = sizeof(transform),
                                             .name = "stream.rot13",
                                             .version = "1",
                                             .begin = begin,
                                             .feed = feed,
                                             .end = end,
                                             .free = free_stream };

    return &transform;
}
