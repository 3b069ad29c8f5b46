/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a safetensors file: u64 length (little endian) | JSON | data. st_read.c parses it,
 * st_write.c makes it, st_index.h is the list of files beside it, st_dcp.h tells which part of a
 * tensor a file has. Other files read and write the bytes. */
#ifndef RSI_ST_HEADER_H
#define RSI_ST_HEADER_H

#include "base/arena.h"
#include "base/error.h"
#include "format/names.h"

#define RSI_ST_PREFIX     8         /* the length */
#define RSI_ST_HEADER_MAX 100000000 /* bytes of JSON: limit set by the format */
#define RSI_ST_METADATA   "__metadata__"
#define RSI_ST_DTYPES     20 /* types that both the format and this library know */

enum { RSI_ST_F6_E2M3 = 254, RSI_ST_F6_E3M2 = 255 }; /* beside rsd_dtype: only listed */

typedef struct rsi_st_tensor {
    rsi_name name;       /* first, for rsi_names */
    uint64_t begin, end; /* bytes, counted from the start of the data */
    uint32_t shape; /* its sizes start at dim[shape] of the header; for F4 counted in bytes of two
                       values, as torch does, unless it is only listed */
    uint8_t dtype;  /* rsd_dtype, or RSI_ST_F6_* */
    uint8_t ndim;
    bool    listed; /* only listed, see below */
} rsi_st_tensor;

typedef struct rsi_st_meta { /* one line of __metadata__ */
    rsi_name    key;
    const char *value; /* UTF-8 followed by a NUL; may contain NULs */
    uint32_t    value_len;
} rsi_st_meta;

typedef struct rsi_st_header {
    /* [ntensors + nlisted] in header order, those that can only be listed last: of 6 bits, of
     * more than RSD_MAX_NDIM dimensions, of 4 bits with an odd last dimension */
    rsi_st_tensor *tensor;
    size_t         ntensors, nlisted;
    int64_t       *dim; /* [ndims] sizes of all tensors, concatenated */
    size_t         ndims;
    uint32_t      *order; /* [ntensors + nlisted] by place of the data; NULL: in this order */
    rsi_st_meta   *meta;  /* [nmeta] */
    size_t         nmeta;
    bool           has_meta;
    uint64_t       data_start, data_bytes; /* in the file */
    rsi_names      names, keys;
    rsi_arena      mem; /* texts with escapes */
} rsi_st_header;

/* The length of the JSON, from the file's first 8 bytes; checked against the file's size. */
rsd_err rsi_st_length(const unsigned char prefix[RSI_ST_PREFIX], uint64_t file_bytes, size_t *out,
                      rsd_error *err);
/* Parses the JSON. The texts of *out point into `json`, where each gets a NUL after it: `json` must
 * live as long as *out and is no longer valid JSON. In an accepted header each byte of data belongs
 * to exactly one tensor. With `cut` the file may have lost its end; data_bytes is then what it
 * should have. */
rsd_err rsi_st_parse_cut(char *json, size_t len, uint64_t file_bytes, bool cut, rsi_st_header *out,
                         rsd_error *err);
void    rsi_st_release(rsi_st_header *header);

/* NULL if there is none; may be one that is only listed. */
const rsi_st_tensor *rsi_st_find(const rsi_st_header *header, const char *name, size_t len);
const rsi_st_meta   *rsi_st_meta_find(const rsi_st_header *header, const char *key);

static inline const int64_t *rsi_st_shape(const rsi_st_header *header, const rsi_st_tensor *tensor)
{
    return header->dim + tensor->shape;
}

/* The tensor whose data come i-th in the file. */
static inline const rsi_st_tensor *rsi_st_nth(const rsi_st_header *header, size_t i)
{
    return &header->tensor[header->order ? header->order[i] : i];
}

/* In the order in which writers of the format store the data: widest first. */
extern const rsd_dtype rsi_st_dtypes[RSI_ST_DTYPES];

/* "F32 [2, 3]", with the shape from the header; cut to `cap`. */
void rsi_st_describe(const rsi_st_header *header, const rsi_st_tensor *tensor, char *buf,
                     size_t cap);

#endif
