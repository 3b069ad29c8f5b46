/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the header of a safetensors file, and divides tensors among several files. Other files
 * write the data, at the offsets given here. Next: st_index.h. */
#ifndef RSI_ST_WRITE_H
#define RSI_ST_WRITE_H

#include "base/error.h"
#include "format/st_header.h"

#define RSI_ST_ALIGN 64 /* data start at a multiple of this in the file */

typedef struct rsi_st_item { /* borrowed */
    const char    *name;
    rsd_dtype      dtype;
    int            ndim;
    const int64_t *shape; /* F4: counted in bytes of two values, as torch does */
} rsi_st_item;

typedef struct rsi_st_pair { /* borrowed; one line of __metadata__ */
    const char *key, *value;
    size_t      value_len;
} rsi_st_pair;

typedef struct rsi_st_image {
    char     *head; /* the start of the file: length, JSON and spaces up to the data */
    size_t    head_len;
    uint32_t *order; /* [n] tensors by place of their data: by dtype, widest first, then by name */
    uint64_t *begin; /* [n] where the data of tensor i begin, counted from head_len */
    uint64_t  data_bytes;
} rsi_st_image;

/* Equal tensors and metadata give equal bytes, in whatever order they are passed. Refused, with the
 * tensor's name: what the format can't hold (RSD_E_UNSUPPORTED), a name that is a duplicate or not
 * UTF-8. Without metadata, __metadata__ is left out. */
rsd_err rsi_st_image_make(size_t n, const rsi_st_item *item, size_t nmeta, const rsi_st_pair *meta,
                          rsi_st_image *out, rsd_error *err);
void    rsi_st_image_release(rsi_st_image *image);

/* Bytes of a tensor's data; RSD_E_UNSUPPORTED or RSD_E_INVALID with its name if the format can't
 * hold it. */
rsd_err rsi_st_item_bytes(const rsi_st_item *item, uint64_t *out, rsd_error *err);

/* Divides tensors among files of at most `limit` bytes of data (0: one file). Each tensor, in the
 * given order, goes into the open file, or opens the next if it does not fit; one larger than the
 * limit gets its own file, and the open file stays open. of[i] is the file of tensor i; files count
 * from 0. Without tensors there is still one file. */
rsd_err rsi_st_split(size_t n, const rsi_st_item *item, uint64_t limit, uint32_t *of,
                     uint32_t *files, rsd_error *err);
/* "model-00001-of-00002.safetensors" for file 0 of 2, "model.safetensors" for file 0 of 1. */
size_t rsi_st_file_name(uint32_t file, uint32_t files, char *buf, size_t cap);

#endif
