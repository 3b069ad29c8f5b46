/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded bytes of a transformed item, with random access in bounded memory. Transforms are
 * streams, so reading forward is cheap, and reading what has left the window starts over. */
#ifndef RSI_DECODED_H
#define RSI_DECODED_H

#include "format/transform.h"

typedef struct rsi_decoded rsi_decoded;

/* As rsi_undo_create; the descriptors too must stay valid. Nothing is read yet. */
rsd_err rsi_decoded_create(const char *const *descriptor, size_t n, const rsi_source *source,
                           uint64_t max_out, rsi_decoded **out, rsd_error *err);
void    rsi_decoded_free(rsi_decoded *decoded);

/* Makes the window larger, for threads that read at places near each other. If all bytes fit, they
 * are decoded now. Before any of the threads reads. */
rsd_err rsi_decoded_widen(rsi_decoded *decoded, size_t window, rsd_error *err);
size_t  rsi_decoded_memory(const rsi_decoded *decoded); /* bytes in use, about */

/* Keeps other threads from reading until it is called with `on` false: two that take turns at
 * distant places would start over each time. */
void rsi_decoded_hold(rsi_decoded *decoded, bool on);

/* The read of an rsi_source: `arg` is the rsi_decoded. Any thread, as are the next three. */
rsd_err rsi_decoded_read(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err);
/* The first bytes, which stay in memory: all there are, at most RSI_DECODED_FRONT. */
enum { RSI_DECODED_FRONT = 1 << 16 };
rsd_err rsi_decoded_front(rsi_decoded *decoded, const unsigned char **out, size_t *len,
                          rsd_error *err);
/* Decodes to the end, which proves that the stream is complete. */
rsd_err rsi_decoded_source(rsi_decoded *decoded, rsi_source *out, rsd_error *err);

/* The CRC32 of these bytes. They need not be decoded once more if they passed after a call of
 * _watch. */
void    rsi_decoded_watch(rsi_decoded *decoded, uint64_t off, uint64_t len);
rsd_err rsi_decoded_crc(rsi_decoded *decoded, uint64_t off, uint64_t len, uint32_t *out,
                        rsd_error *err);

#endif
