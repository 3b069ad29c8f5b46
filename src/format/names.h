/* SPDX-License-Identifier: Apache-2.0 */
/* Names read from a file, and a small table (8 bytes per slot) that finds them in an array and
 * detects duplicates. base/map.h needs four times the memory, which matters with a million
 * tensors. */
#ifndef RSI_NAMES_H
#define RSI_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rsi_name {
    const char *text; /* UTF-8 followed by a NUL, with none inside; lives as long as the text it was
                         read from */
    uint32_t len;
    uint32_t at; /* byte offset of its opening quote in the file */
} rsi_name;

typedef struct rsi_names {
    uint64_t   *slot; /* upper half: from the hash; lower half: place in the array + 1, 0 if free */
    size_t      cap;  /* a power of two, or 0 */
    const void *first;
    size_t      stride;
} rsi_names; /* zeroed: empty */

/* Indexes n < 2^32 structs of `stride` bytes, each with an rsi_name as its first member; they must
 * not move. *twice is the first one whose name duplicates an earlier one's, or n. False: no
 * memory. */
bool rsi_names_build(rsi_names *names, const void *first, size_t stride, size_t n, size_t *twice);
/* Its place in the array; SIZE_MAX if not found. */
size_t rsi_names_find(const rsi_names *names, const char *text, size_t len);
void   rsi_names_release(rsi_names *names);

#endif
