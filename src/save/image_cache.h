/* SPDX-License-Identifier: Apache-2.0 */
/* The image of the last save, kept in the state: the next save with the same options takes it
 * instead of making it again. */
#ifndef RSI_IMAGE_CACHE_H
#define RSI_IMAGE_CACHE_H

#include "write/image.h"

/* True: *image is that of an earlier save and now the caller's. False: there is none that fits. */
bool rsi_image_cache_take(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image);
/* Takes an image over for the next save; without memory it is dropped. */
void rsi_image_cache_keep(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image);

/* Drops what is kept. */
void rsi_image_cache_forget(const rsd_state *state);

/* How often an image was found since the program started; for tests. */
uint64_t rsi_image_cache_reused(void);

#endif
