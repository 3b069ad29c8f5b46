/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes with random access: a whole file, one item inside a .distcp, or memory. The parsers of this
 * layer read through it and give places as offsets in the file, so that a message leads to the
 * byte. */
#ifndef RSI_SOURCE_H
#define RSI_SOURCE_H

#include "base/error.h"

#include <inttypes.h>
#include <string.h>

/* Bytes [start, start + size) of a file. The code that makes one has checked that the file has them
 * and that the sum does not overflow. */
typedef struct rsi_source {
    /* Reads exactly `len` bytes from `off` on, counted from the start of the file, or fails. */
    rsd_err (*read)(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err);
    void       *arg;
    uint64_t    start, size;
    const char *name; /* of the file, for messages */
} rsi_source;

/* `off` counts from the source's start; nothing outside the source is read. */
static inline rsd_err rsi_source_read(const rsi_source *source, uint64_t off, void *buf, size_t len,
                                      rsd_error *err)
{
    if (off > source->size || len > source->size - off)
        return rsi_fail(err, RSD_E_FORMAT,
                        "%zu bytes are needed at byte %" PRIu64 ", the data end at byte %" PRIu64,
                        len, source->start + off, source->start + source->size);
    return len ? source->read(source->arg, source->start + off, buf, len, err) : RSD_OK;
}

/* The `read` of a source in memory: `arg` is its first byte. */
static inline rsd_err rsi_memory_read(void *arg, uint64_t off, void *buf, size_t len,
                                      rsd_error *err)
{
    (void)err;
    memcpy(buf, (const unsigned char *)arg + off, len);
    return RSD_OK;
}

/* The bytes are never written. */
static inline rsi_source rsi_memory_source(const void *bytes, size_t len, const char *name)
{
    return (rsi_source){
        .read = rsi_memory_read, .arg = (void *)(uintptr_t)bytes, .size = len, .name = name
    };
}

#endif
