/* SPDX-License-Identifier: Apache-2.0 */
/* Plain Python objects as values: what checkpoints hold besides tensors (steps, schedules,
 * options). The public part is in reshard.h. value.c makes and reads values, value_text.c prints
 * them, value_decode.c makes them from a pickle. */
#ifndef RSI_VALUE_H
#define RSI_VALUE_H

#include "base/arena.h"
#include "format/pickle.h"

struct rsd_value {
    uint8_t  kind;
    bool     classed; /* of a dict: an opaque value after the items has its class and opcodes */
    uint16_t depth;   /* 0: no items */
    uint32_t n;       /* bytes, items or pairs */
    union {
        int64_t                 i; /* bool, int, dtype */
        double                  f;
        const char             *bytes;
        const rsd_value *const *item;
        const rsd_value_tensor *tensor;
    } as;
};

/* A part of a tensor, and where it begins in the whole. */
typedef struct rsi_shard {
    const rsd_value *local; /* a tensor */
    int64_t          off[RSD_MAX_NDIM];
} rsi_shard;

/* A DTensor or ShardedTensor as pickled by one rank: its part, and how the whole is cut. */
typedef struct rsi_dtensor {
    int64_t          ranks, rank; /* of the mesh or group, and the place of this one among them */
    rsd_dtype        dtype;
    int32_t          ndim;
    int64_t          shape[RSD_MAX_NDIM]; /* of the whole */
    bool             listed; /* a ShardedTensor: it has `shard`, all else is a DTensor's */
    rsi_shard       *shard;  /* [nshards] */
    size_t           nshards;
    const rsd_value *local; /* a tensor */
    int32_t          mesh_ndim;
    int64_t          mesh[RSD_MAX_NDIM], coord[RSD_MAX_NDIM]; /* the rank's place in the mesh */
    rsd_placement    place[RSD_MAX_NDIM];                     /* [mesh_ndim] */
    bool             outside; /* the rank is not in the mesh and has no part */
} rsi_dtensor;

/* An object of an unknown class, as described by its pickle. */
typedef struct rsi_opaque {
    uint64_t           digest[2]; /* of the class, arguments and state, without tensors' bytes */
    bool               known;     /* `digest` is valid: not made by hand, not too large */
    const void        *pickle; /* its opcodes, for a copy; NULL: it has storages, or is too large */
    size_t             pickle_bytes;
    size_t             n;
    rsd_value_tensor  *storage; /* [n] whole storages in it, in order of first use */
    const rsi_dtensor *dtensor; /* NULL: neither kind, or a copy in another owner */
    char               name[];  /* "module.Class"; the value's bytes */
} rsi_opaque;

/* Attributes of dicts in pickles, such as _metadata of torch's state_dict, which values can't hold.
 * Each name once. */
enum { RSI_ATTRIBUTES = 8 };
typedef struct rsi_attributes {
    const char *name[RSI_ATTRIBUTES];
    size_t      n; /* at most RSI_ATTRIBUTES: further ones are dropped */
} rsi_attributes;

struct rsd_values {
    rsi_arena mem;
    bool      borrows;    /* values of an opened checkpoint need not be copied: it outlives them */
    rsd_value small[262]; /* the integers -5 to 256, as in Python */
    rsi_attributes lost;  /* found when decoding; the arena owns the names */
    rsi_attributes classes; /* of dicts without tensors, which keep them if copied as a whole */
};

/* The same value in another owner; tensors' bytes are not copied. */
rsd_err rsi_value_copy(const rsd_value *v, rsd_values *owner, const rsd_value **out,
                       rsd_error *err);

/* The class of a dict as an opaque value with opcodes that make the whole dict; NULL: a plain dict,
 * or something else. */
const rsd_value *rsi_value_class(const rsd_value *v);

/* The facts about an opaque value. */
const rsi_opaque *rsi_value_opaque(const rsd_value *v);
/* The first opaque value in it, or it itself; NULL: none. */
const rsd_value *rsi_value_find_opaque(const rsd_value *v);

enum { RSI_PARTS_BYTES = 256 << 10 }; /* of an opaque value's opcodes to look into */
/* What the opcodes of an opaque value say plainly, in `owner`: a dict of its fields by name, or a
 * tuple of its class's arguments. NULL: it is not that plain, or too large, or no memory. */
const rsd_value *rsi_value_parts(const rsd_value *opaque, rsd_values *owner);

/* The classes known to the decoder, for rsi_pickle_options. */
const rsi_pickle_class *rsi_value_classes(size_t *n);
/* A value of a pickle that was read with these classes. Nothing is called: objects of other classes
 * become opaque, tensors become references to their storage. Limited by the owner's memory
 * limit. */
rsd_err rsi_value_decode(const rsi_pickle *p, rsi_pv from, rsd_values *owner, const rsd_value **out,
                         rsd_error *err);
/* Both steps, within rsi_pickle_limit. Shared values count once for each reference: written or
 * printed, the values take at most 4 bytes for each byte of input plus 16 MiB. */
typedef struct rsi_value_pickle {
    const rsd_value *root;
    const char      *unlisted;    /* "module.name" of the first unknown call; NULL: none */
    uint64_t         unlisted_at; /* its byte in the file */
} rsi_value_pickle;
rsd_err rsi_value_read(const rsi_source *source, rsd_values *owner, rsi_value_pickle *out,
                       rsd_error *err);

#endif
