/* SPDX-License-Identifier: Apache-2.0 */
/* Between reading a `.metadata` pickle and the table: what each object of it became. Only
 * dcp_meta*.c include this. */
#ifndef RSI_DCP_META_CORE_H
#define RSI_DCP_META_CORE_H

#include "format/dcp_meta.h"
#include "format/pickle.h"

#define NO_VALUE UINT32_MAX /* of rsi_pv and of numbers of records */

/* What an object folds to is a user value: number of its record << 3 | what it is. */
enum record { REC_CHUNK, REC_TENSOR, REC_PROPERTIES, REC_INDEX, REC_INFO };

/* Classes that the reader knows. */
enum {
    CLS_TORCH, /* dtypes and other constants of torch */
    CLS_SIZE,
    CLS_LAYOUT,
    CLS_MEMORY_FORMAT,
    CLS_POSIX_PATH,
    CLS_WINDOWS_PATH,
    CLS_ORDERED_DICT,
    CLS_META,
    CLS_TENSOR,
    CLS_PROPERTIES,
    CLS_CHUNK,
    CLS_BYTES,
    CLS_INDEX,
    CLS_INFO,
    CLS_STORAGE_META
};

/* Attributes that are looked for, those of one class together. */
enum {
    KEY_OFFSETS,
    KEY_SIZES,
    KEY_PROPERTIES,
    KEY_SIZE,
    KEY_CHUNKS,
    KEY_FQN,    /* of an index, the next too */
    KEY_OFFSET, /* of an info, the next three too */
    KEY_PATH,
    KEY_LENGTH,
    KEY_TRANSFORMS,
    KEY_DTYPE,
    KEY_REQUIRES_GRAD,
    KEY_TENSORS, /* of the whole, the next four too */
    KEY_STORAGE,
    KEY_PLANNER,
    KEY_STORAGE_META,
    KEY_VERSION,
    KEY_CHECKPOINT_ID,
    KEY_SAVE_ID,
    NKEYS
};

typedef struct chunk_record {
    rsi_pv offsets, sizes; /* INTS */
} chunk_record;

typedef struct properties_record {
    rsi_pv dtype; /* CLASS */
    bool   requires_grad;
} properties_record;

typedef struct tensor_record {
    rsi_pv   size;
    uint32_t properties;
    uint32_t first, n; /* of `listed` */
} tensor_record;

typedef struct index_record {
    rsi_pv fqn, offset; /* NO_VALUE: no offset, a bytes item */
} index_record;

typedef struct info_record {
    rsi_pv   path;
    uint32_t transforms;
    int64_t  offset, length;
} info_record;

/* A growing array of one kind of record. */
typedef struct records {
    void  *at;
    size_t n, cap;
} records;

typedef struct dcp_reading {
    rsi_pickle *p;
    rsi_pv      key[NKEYS];
    records     chunk;      /* chunk_record */
    records     tensor;     /* tensor_record */
    records     properties; /* properties_record */
    records     index;      /* index_record */
    records     info;       /* info_record */
    records     listed;     /* uint32_t: chunks in the order of the tensors' lists */
    records     step;       /* rsi_pv: names of transforms, one list after the other */
    records     steps_end;  /* uint32_t: where each of these lists ends in `step` */
    /* [nshared] text that is already in the table's memory */
    const char **copied;
    size_t       memory; /* bytes of all of these */
    uint64_t     size;   /* bytes of the file */
    size_t       limit;  /* bytes of memory for all */
} dcp_reading;

/* Finds n attributes: value[i] becomes that of key[first + i], NO_VALUE if there is none. False if
 * the state is no dict. */
bool rsi_dcp_attributes(const dcp_reading *r, rsi_pv state, int first, int n, rsi_pv *value);

static inline bool is_record(const rsi_pickle *p, rsi_pv v, enum record what, uint32_t *out)
{
    if (rsi_pickle_kind_of(p, v) != RSI_PICKLE_USER || (rsi_pickle_user_of(v) & 7) != what)
        return false;
    *out = rsi_pickle_user_of(v) >> 3;
    return true;
}

/* The table from the records and the root of the pickle; `meta` is empty but for its limit. */
rsd_err rsi_dcp_link(const dcp_reading *r, rsi_pv root, rsi_dcp_meta *meta, rsd_error *err);
/* Its parts that have nothing to do with chunks: planner_data, storage_meta, version. */
rsd_err rsi_dcp_link_extras(const dcp_reading *r, const rsi_pv *attribute, rsi_dcp_meta *meta,
                            rsd_error *err);
rsd_err rsi_dcp_no_memory(rsd_error *err);
/* A copy of a str in the table's memory; RSD_E_FORMAT if there is a NUL in it. */
rsd_err rsi_dcp_text(const dcp_reading *r, rsi_pv v, rsi_dcp_meta *meta, const char **out,
                     rsd_error *err);

#endif
