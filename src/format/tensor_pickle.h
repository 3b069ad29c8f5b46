/* SPDX-License-Identifier: Apache-2.0 */
/* The data.pkl of one tensor, as torch.save writes it: nearly every item of a checkpoint is exactly
 * this. Anything else, even the same tensor pickled differently, is left to the general pickle
 * reader. */
#ifndef RSI_TENSOR_PICKLE_H
#define RSI_TENSOR_PICKLE_H

#include "base/error.h"

enum {
    RSI_TENSOR_PICKLE_MAX = 640, /* bytes, enough for any of them */
    RSI_TENSOR_KEY_MAX = 20
};

/* A view of a storage. */
typedef struct rsi_tensor_pickle {
    rsd_dtype dtype;
    int32_t   ndim;
    int64_t   size[RSD_MAX_NDIM], stride[RSD_MAX_NDIM]; /* elements */
    int64_t   offset;                                   /* elements into the storage */
    int64_t   storage_bytes;                            /* of the record data/<key> */
    char      key[RSI_TENSOR_KEY_MAX + 1];              /* "" stands for "0" */
    bool      conj, neg; /* values must be conjugated, negated; at most one when written */
} rsi_tensor_pickle;

/* Writes the pickle to `buf`, which has RSI_TENSOR_PICKLE_MAX bytes; *len is set to its length. */
rsd_err rsi_tensor_pickle_write(const rsi_tensor_pickle *tensor, unsigned char *buf, size_t *len,
                                rsd_error *err);
/* True and *out set if the bytes are exactly what rsi_tensor_pickle_write makes for some tensor. */
bool rsi_tensor_pickle_read(const void *bytes, size_t len, rsi_tensor_pickle *out);
/* Refuses a view that exceeds its storage, and a storage whose size is not the `record_bytes` bytes
 * of its record. */
rsd_err rsi_tensor_pickle_check(const rsi_tensor_pickle *tensor, uint64_t record_bytes,
                                rsd_error *err);

/* Writes the opcode of an integer, the shortest as Python's pickle does; returns its bytes. */
enum { RSI_PICKLE_INT_MAX = 10 };
size_t rsi_pickle_put_int(unsigned char *code, int64_t x);

#endif
