/* SPDX-License-Identifier: Apache-2.0 */
/* Names that came from a file, and a small table (8 bytes a slot) that finds them in an array and
 * tells if one is there twice. base/map.h needs four times the memory, which counts with a million
 * tensors. */
#ifndef RSI_NAMES_H
#define RSI_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rsi_name {
    const char *text; /* UTF-8 with a NUL behind it and none inside; lives as long as what it was
                         read from */
    uint32_t len;
    uint32_t at; /* byte offset of its opening quote in the file */
} rsi_name;

typedef struct rsi_names {
    uint64_t   *slot; /* upper half: of the hash; lower half: place in the array + 1, 0 if free */
    size_t      cap;  /* a power of two, or 0 */
    const void *first;
    size_t      stride;
} rsi_names; /* zeroed: empty */

/* Indexes n < 2^32 structs of `stride` bytes, each with an rsi_name as its first member; they must
 * stay where they are. *twice is the first one whose name an earlier one has, or n. False: no
 * memory. */
bool rsi_names_build(rsi_names *names, const void *first, size_t stride, size_t n, size_t *twice);
/* Its place in the array; SIZE_MAX if it is not there. */
size_t rsi_names_find(const rsi_names *names, const char *text, size_t len);
void   rsi_names_release(rsi_names *names);

#endif
