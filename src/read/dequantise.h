/* SPDX-License-Identifier: Apache-2.0 */
/* Values with scales: reads them as float32, and makes them from float32.
 *
 *   FP8     float8_e4m3fn [.., a, b] with float32 [.., a/128, b/128], rounded up: value * scale
 *   MXFP4   uint8 [.., g, 16], two values each, the low half first, with uint8 [.., g]: value *
 *           2^(scale - 127); together [.., g * 32]
 *   LoRA    W [o, i] with A [r, i] and B [o, r]: W + times * B A */
#ifndef RSI_DEQUANTISE_H
#define RSI_DEQUANTISE_H

#include "read/fetch.h"
#include "recipe/recipe.h"

typedef struct rsi_dequantise {
    rsi_item_kind  kind;
    size_t         values, scales; /* tensors of the checkpoint */
    unsigned char *stored, *scale; /* buffers of at least 16 bytes for each value of a box */
    float         *out;            /* packed */
    size_t         low;            /* LoRA: out = values + times * low * scales, summed in double */
    double         times, *sum;    /* `sum`: as many as values */
} rsi_dequantise;

rsd_err rsi_dequantise_box(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                           const rsd_read_opts *opts, const rsd_box *box, rsd_error *err);

/* Makes a box of FP8 values, or of their scales, of a tensor that `fill` supplies in float32. The
 * scale is the largest magnitude of a block / 448; 1 if all are 0. */
rsd_err rsi_quantise_box(int ndim, const int64_t *shape, bool scales, const rsd_box *box,
                         rsd_err (*fill)(void *arg, const rsd_box *box, float *out, rsd_error *err),
                         void *arg, void *out, rsd_error *err);

/* The same for MXFP4, of a tensor with `ndim` axes. The exponent is that of the largest magnitude
 * of 32 values, less 2; values round to nearest even and end at 6. RSD_E_INVALID: one is not
 * finite. */
rsd_err rsi_quantise_mxfp4(int ndim, bool scales, const rsd_box *box,
                           rsd_err (*fill)(void *arg, const rsd_box *box, float *out,
                                           rsd_error *err),
                           void *arg, unsigned char *out, rsd_error *err);

#endif
