/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files that can only be listed. */
#ifndef RSI_ST_LISTED_H
#define RSI_ST_LISTED_H

#include "base/map.h"
#include "format/ckpt.h"
#include "format/st_header.h"

typedef struct rsi_st_listed_one {
    const rsi_st_header *header;
    const rsi_st_tensor *tensor;
    uint32_t             file; /* in ckpt->files */
} rsi_st_listed_one;

typedef struct rsi_st_listed {
    rsi_st_listed_one *at; /* [n] */
    size_t             n, cap;
    rsi_map            names;
} rsi_st_listed;

/* Adds those of one file, whose header must outlive *all. */
rsd_err rsi_st_listed_add(rsi_st_listed *all, const rsi_st_header *header, uint32_t file,
                          rsd_error *err);
/* "F6_E2M3 [4, 4], 12 bytes in <path>", as an opaque value. */
rsd_err rsi_st_listed_value(const rsi_st_listed *all, size_t i, const char *path, rsd_values *owner,
                            const rsd_value **out, rsd_error *err);
void    rsi_st_listed_span(const rsi_st_listed *all, size_t i, rsi_item *out);
void    rsi_st_listed_release(rsi_st_listed *all);

#endif
