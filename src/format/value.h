/* SPDX-License-Identifier: Apache-2.0 */
/* Plain Python objects as values: what checkpoints hold beside tensors (steps, schedules, options).
 * The first part is meant for the public header. value.c makes and reads values, value_text.c
 * prints them, value_decode.c makes them from a pickle. */
#ifndef RSI_VALUE_H
#define RSI_VALUE_H

#include "base/arena.h"
#include "format/pickle.h"

/* ---- values: plain Python objects -------------------------------------------------------- */

typedef enum rsd_value_type { /* values are fixed for ever */
                              RSD_VALUE_NONE = 1,
                              RSD_VALUE_BOOL = 2,
                              RSD_VALUE_INT = 3,    /* fits 64 bits */
                              RSD_VALUE_BIGINT = 4, /* rsd_value_bytes: decimal digits */
                              RSD_VALUE_FLOAT = 5,
                              RSD_VALUE_STR = 6, /* UTF-8 */
                              RSD_VALUE_BYTES = 7,
                              RSD_VALUE_LIST = 8,
                              RSD_VALUE_TUPLE = 9, /* torch.Size too */
                              RSD_VALUE_SET = 10,
                              RSD_VALUE_DICT = 11,   /* keys may be any values, in their order */
                              RSD_VALUE_DTYPE = 12,  /* torch.bfloat16 */
                              RSD_VALUE_DEVICE = 13, /* rsd_value_bytes: "cuda:0" */
                              RSD_VALUE_TENSOR = 14,
                              RSD_VALUE_OPAQUE =
                                  15 /* anything else; rsd_value_bytes: its class, "module.name" */
} rsd_value_type;

/* Immutable; belongs to the rsd_values it was made in. */
typedef struct rsd_value rsd_value;
/* Owns values. Not for several threads while values are made. */
typedef struct rsd_values rsd_values;

/* A tensor inside an object: a strided view of a storage. */
typedef struct rsd_value_tensor {
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     stride[RSD_MAX_NDIM]; /* elements */
    int64_t     offset;               /* elements from the storage's start */
    int64_t     storage_bytes;        /* the view lies inside */
    const char *storage;              /* its name in the archive, "0"; NULL: only `bytes` */
    const char *location;             /* "cpu", "cuda:0"; may be NULL */
    const void *bytes;                /* of the storage; NULL: not read */
    bool        requires_grad;
    bool        conj, neg; /* the values are the conjugates, the negatives, of what is stored */
} rsd_value_tensor;

#define RSD_VALUE_MAX_DEPTH 512 /* containers in each other */

RSD_API rsd_err rsd_values_create(rsd_values **out, rsd_error *err);
RSD_API void    rsd_values_free(rsd_values *owner);

/* Text, bytes and tensors are copied; a tensor's bytes are not. [local] */
RSD_API rsd_err rsd_value_create_none(rsd_values *owner, const rsd_value **out, rsd_error *err);
RSD_API rsd_err rsd_value_create_bool(rsd_values *owner, bool x, const rsd_value **out,
                                      rsd_error *err);
RSD_API rsd_err rsd_value_create_int(rsd_values *owner, int64_t x, const rsd_value **out,
                                     rsd_error *err);
RSD_API rsd_err rsd_value_create_float(rsd_values *owner, double x, const rsd_value **out,
                                       rsd_error *err);
RSD_API rsd_err rsd_value_create_dtype(rsd_values *owner, rsd_dtype x, const rsd_value **out,
                                       rsd_error *err);
RSD_API rsd_err rsd_value_create_tensor(rsd_values *owner, const rsd_value_tensor *tensor,
                                        const rsd_value **out, rsd_error *err);
/* One of BIGINT, STR, BYTES, DEVICE and OPAQUE. */
RSD_API rsd_err rsd_value_create_bytes(rsd_values *owner, rsd_value_type type, const void *bytes,
                                       size_t len, const rsd_value **out, rsd_error *err);
/* One of LIST, TUPLE, SET and DICT. A dict has n pairs: `item` holds n keys and values in turn. The
 * items are values of the same owner; RSD_E_UNSUPPORTED if they nest deeper than the limit. */
RSD_API rsd_err rsd_value_create_list(rsd_values *owner, rsd_value_type type, size_t n,
                                      const rsd_value *const *item, const rsd_value **out,
                                      rsd_error *err);

RSD_API rsd_value_type rsd_value_kind(const rsd_value *v);
/* These give 0, false or NULL if the value is of another kind. */
RSD_API bool    rsd_value_bool(const rsd_value *v);
RSD_API int64_t rsd_value_int(const rsd_value *v);   /* also of a bool */
RSD_API double  rsd_value_float(const rsd_value *v); /* also of an int */
/* Of BIGINT, STR, BYTES, DEVICE and OPAQUE, with a NUL behind; `len` may be NULL. */
RSD_API const char             *rsd_value_bytes(const rsd_value *v, size_t *len);
RSD_API rsd_dtype               rsd_value_dtype(const rsd_value *v);
RSD_API const rsd_value_tensor *rsd_value_tensor_of(const rsd_value *v);
/* Items of a list, tuple or set, pairs of a dict. */
RSD_API size_t           rsd_value_count(const rsd_value *v);
RSD_API const rsd_value *rsd_value_item(const rsd_value *v, size_t i); /* of a dict: the value */
RSD_API const rsd_value *rsd_value_key(const rsd_value *v, size_t i);
/* The value that a dict has for a str; NULL if there is none. */
RSD_API const rsd_value *rsd_value_get(const rsd_value *dict, const char *key);
/* As Python would print it: "{'step': 100, 'lr': [0.1, 0.2]}". Opaque objects are "<module.name>".
 */
RSD_API size_t rsd_value_text(const rsd_value *v, char *buf, size_t cap);
/* As JSON. Tuples are lists. What JSON lacks is an object with one key: {"$bytes": "00ff"},
 * {"$set": [..]}, {"$dict": [[key, value], ..]} where a key is no str, {"$float": "nan"},
 * {"$dtype": ".."}, {"$device": ".."}, {"$opaque": ".."}, {"$tensor": {"dtype": "..", "shape":
 * [..]}}. */
RSD_API size_t rsd_value_json(const rsd_value *v, char *buf, size_t cap);

/* ---- inside the library ------------------------------------------------------------------- */

struct rsd_value {
    uint8_t  kind;
    uint16_t depth; /* 0: no items */
    uint32_t n;     /* bytes, items or pairs */
    union {
        int64_t                 i; /* bool, int, dtype */
        double                  f;
        const char             *bytes;
        const rsd_value *const *item;
        const rsd_value_tensor *tensor;
    } as;
};

struct rsd_values {
    rsi_arena mem;
    rsd_value small[262]; /* the integers -5 to 256, as in Python */
};

/* The classes that decoding knows, for rsi_pickle_options. */
const rsi_pickle_class *rsi_value_classes(size_t *n);
/* A value of a pickle that was read with these classes. Nothing is called: objects of other classes
 * become opaque, tensors the place of their storage. Takes what memory the owner's limit allows. */
rsd_err rsi_value_decode(const rsi_pickle *p, rsi_pv from, rsd_values *owner, const rsd_value **out,
                         rsd_error *err);
/* Both steps, within 16 bytes of memory for each byte of input and 1 MiB. */
typedef struct rsi_value_pickle {
    const rsd_value *root;
    const char      *unlisted; /* "module.name" of the first call that is not known; NULL: none */
    uint64_t         unlisted_at; /* its byte in the file */
} rsi_value_pickle;
rsd_err rsi_value_read(const rsi_source *source, rsd_values *owner, rsi_value_pickle *out,
                       rsd_error *err);

#endif
