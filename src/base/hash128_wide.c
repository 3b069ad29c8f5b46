/* SPDX-License-Identifier: Apache-2.0 */
/* The hash compiled for AVX2. The rest of the library is not, so hash128.c checks the processor
 * before it calls these functions. */
#if defined(RSI_HAVE_XXHASH) && defined(__x86_64__)
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR 2 /* XXH_AVX2 */
#include "base/hash128_way.h"

const rsi_hash128_way rsi_hash128_wide = { .once = hash_once, .feed = hash_feed, .end = hash_end };

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int rsi_hash128_no_wide; /* a translation unit must not be empty */
#endif
