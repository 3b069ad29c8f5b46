/* SPDX-License-Identifier: Apache-2.0 */
/* Between a `.metadata` pickle and the table: the record of each object. Included only by
 * dcp_meta*.c. */
#ifndef RSI_DCP_META_CORE_H
#define RSI_DCP_META_CORE_H

#include "format/dcp_meta.h"
#include "format/pickle.h"

#define NO_VALUE UINT32_MAX /* for rsi_pv and record numbers */

/* An object folds to a user value: its record's number << 3 | its kind. */
enum record { REC_CHUNK, REC_TENSOR, REC_PROPERTIES, REC_INDEX, REC_INFO };

/* Known classes. */
enum {
    CLS_TORCH, /* dtypes and other torch constants */
    CLS_SIZE,
    CLS_LAYOUT,
    CLS_MEMORY_FORMAT,
    CLS_GETATTR,
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

enum { PROPERTIES = 5 }; /* known ones; torch 2.15 adds strides */

/* The names of these classes, and those of dtypes. */
const rsi_pickle_class *rsi_dcp_classes(size_t *n);

/* Attributes to look for, grouped by class, in the order in which torch writes them. */
enum {
    KEY_OFFSETS,
    KEY_SIZES,
    KEY_PROPERTIES,
    KEY_SIZE,
    KEY_CHUNKS,
    KEY_FQN, /* of an index, as are the next two */
    KEY_INDEX,
    KEY_OFFSET,
    KEY_PATH, /* of an info, as are the next three */
    KEY_START,
    KEY_LENGTH,
    KEY_TRANSFORMS,
    KEY_DTYPE,
    KEY_REQUIRES_GRAD,
    KEY_TENSORS, /* of the whole, as are the next five */
    KEY_STORAGE,
    KEY_PLANNER,
    KEY_STORAGE_META,
    KEY_VERSION,
    KEY_MCORE,
    KEY_CHECKPOINT_ID,
    KEY_SAVE_ID,
    KEY_TRUE_SHAPE, /* of an entry of mcore_data */
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
    uint32_t first, n; /* in `listed` */
} tensor_record;

typedef struct index_record {
    rsi_pv fqn, offset; /* offset NO_VALUE: none, a bytes item */
} index_record;

typedef struct info_record {
    rsi_pv   path;
    uint32_t transforms;
    int64_t  offset, length;
} info_record;

/* An attribute that is not looked at. */
typedef struct skipped_record {
    const char *class; /* static */
    rsi_pv key;        /* NO_VALUE: a part of a tuple */
} skipped_record;

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
    records     step;       /* rsi_pv: names of transforms, list after list */
    records     steps_end;  /* uint32_t: where each of these lists ends in `step` */
    records     skipped;    /* skipped_record, each once */
    /* [nshared] text already copied to the table's memory */
    const char **copied;
    size_t       memory; /* bytes of all the arrays above */
    uint64_t     size;   /* bytes of the file */
    size_t       limit;  /* bytes of memory in total */
} dcp_reading;

/* Finds n attributes: value[i] is set to that of key[first + i], NO_VALUE if missing. False if the
 * state is not a dict. */
bool rsi_dcp_attributes(const dcp_reading *r, rsi_pv state, int first, int n, rsi_pv *value);

static inline bool is_record(rsi_pv v, enum record what, uint32_t *out)
{
    if (!rsi_pickle_is_user(v) || (rsi_pickle_user_of(v) & 7) != what)
        return false;
    *out = rsi_pickle_user_of(v) >> 3;
    return true;
}

/* Builds the table from the records and the root of the pickle; `meta` is empty except for its
 * limit. */
rsd_err rsi_dcp_link(const dcp_reading *r, rsi_pv root, rsi_dcp_meta *meta, rsd_error *err);
/* The parts unrelated to chunks: planner_data, storage_meta, version, mcore_data. `name` gives the
 * tensor, counted from 1, of each shared text; 0 or a number above their count: none. */
rsd_err rsi_dcp_link_extras(const dcp_reading *r, const rsi_pv *attribute, const uint32_t *name,
                            rsi_dcp_meta *meta, rsd_error *err);
rsd_err rsi_dcp_no_memory(rsd_error *err);
/* Copies a str to the table's memory; RSD_E_FORMAT if it contains a NUL. */
rsd_err rsi_dcp_text(const dcp_reading *r, rsi_pv v, rsi_dcp_meta *meta, const char **out,
                     rsd_error *err);

#endif
