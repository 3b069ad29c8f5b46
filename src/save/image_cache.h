/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the last save, kept in the state: the next save with the same options reuses it. */
#ifndef RSI_IMAGE_CACHE_H
#define RSI_IMAGE_CACHE_H

#include "write/image.h"

/* True: *image is that of an earlier save and now the caller's. False: none matches. */
bool rsi_image_cache_take(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image);
/* Takes over an image for the next save; drops it if memory is short. */
void rsi_image_cache_keep(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image);

/* Drops the kept image. */
void rsi_image_cache_forget(const rsd_state *state);

/* Number of reuses since the program started; for tests. */
uint64_t rsi_image_cache_reused(void);

#endif
