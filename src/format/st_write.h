/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the header of a safetensors file, and divides tensors among several files. The data are
 * written by others, at the offsets told here. Next: st_index.h. */
#ifndef RSI_ST_WRITE_H
#define RSI_ST_WRITE_H

#include "base/error.h"
#include "format/st_header.h"

#define RSI_ST_ALIGN 64 /* data start at a multiple of this in the file */

typedef struct rsi_st_item { /* borrowed */
    const char    *name;
    rsd_dtype      dtype;
    int            ndim;
    const int64_t *shape; /* F4: in bytes of two values, as torch counts */
} rsi_st_item;

typedef struct rsi_st_pair { /* borrowed; one line of __metadata__ */
    const char *key, *value;
    size_t      value_len;
} rsi_st_pair;

typedef struct rsi_st_image {
    char     *head; /* what the file starts with: length, JSON and spaces up to the data */
    size_t    head_len;
    uint32_t *order; /* [n] tensors by where their data lie: by dtype, widest first, then by name */
    uint64_t *begin; /* [n] where the data of tensor i begin, counted from head_len */
    uint64_t  data_bytes;
} rsi_st_image;

/* The same tensors and metadata give the same bytes, in whatever order they are passed. Refused
 * with the tensor's name: what the format can't hold (RSD_E_UNSUPPORTED), a name that is there
 * twice or is no UTF-8. Without metadata there is no __metadata__. */
rsd_err rsi_st_image_make(size_t n, const rsi_st_item *item, size_t nmeta, const rsi_st_pair *meta,
                          rsi_st_image *out, rsd_error *err);
void    rsi_st_image_release(rsi_st_image *image);

/* Bytes of a tensor's data; RSD_E_UNSUPPORTED or RSD_E_INVALID with its name if the format can't
 * hold it. */
rsd_err rsi_st_item_bytes(const rsi_st_item *item, uint64_t *out, rsd_error *err);

/* Divides tensors among files of at most `limit` bytes of data (0: one file): each goes, in the
 * order given, into the file that is open, or opens the next if it does not fit; one that is larger
 * than the limit gets a file of its own and leaves the open one open. of[i] is the file of tensor
 * i; files count from 0. No tensors still make one file. */
rsd_err rsi_st_split(size_t n, const rsi_st_item *item, uint64_t limit, uint32_t *of,
                     uint32_t *files, rsd_error *err);
/* "model-00001-of-00002.safetensors" for file 0 of 2, "model.safetensors" for file 0 of 1. */
size_t rsi_st_file_name(uint32_t file, uint32_t files, char *buf, size_t cap);

#endif
