/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that has been opened: one catalogue for all formats. Each format keeps its own
 * compact tables and answers through the functions below, so that a million tensors need no second
 * copy. Reading bytes is read/fetch.c's. */
#ifndef RSI_CKPT_H
#define RSI_CKPT_H

#include "format/files.h"
#include "format/ckpt_sums.h"
#include "format/source.h"
#include "format/value.h"
#include "shape/layout.h"

struct rsi_archive; /* torch_archive.h */

/* Where the elements of a chunk are in its file, when one has looked. */
typedef struct rsi_extent {
    uint64_t offset;               /* of the chunk's first element */
    int64_t  stride[RSD_MAX_NDIM]; /* bytes */
    uint64_t record, record_bytes; /* the stored record around it: what its CRC covers */
    uint32_t crc32;
    bool     has_crc;
    bool     big_endian, conj, neg; /* what has to be done to the elements after reading */
    /* Not NULL: the item was transformed; these are its bytes as they were before, `offset` and
     * `record` count in them, and who asked for the extent frees them. */
    unsigned char *decoded;
} rsi_extent;

/* Bytes of a file that mean something. */
typedef struct rsi_item {
    uint32_t    file;
    uint64_t    off, len;
    const char *what;   /* "metadata": opening the checkpoint read them; NULL: an object, */
    const char *object; /* this one; NULL: */
    size_t      t, i;   /* chunk i of tensor t, */
    bool        transformed;
} rsi_item;

typedef struct rsi_ckpt_ops {
    /* Tensor t < ntensors, chunk i < info->chunks. Never fails: all has been checked on opening. */
    void (*tensor)(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out);
    void (*chunk)(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file);
    /* Looks into the file. Checks what it finds against what the catalogue says; with `all` also
     * every checksum around it but that of *out. Any thread. */
    rsd_err (*locate)(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                      rsd_error *err);
    bool (*find)(const rsd_ckpt *ckpt, const char *name, size_t *out);
    /* Object i < nobjects: its name and, if `owner` is not NULL, its value, made in it. Any
     * thread. */
    rsd_err (*object)(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                      const rsd_value **out, rsd_error *err);
    /* The dict or list of this name, whole, if it was opened for what is in it; RSD_E_NOTFOUND
     * otherwise. `owner` NULL: only looks. Any thread. NULL: the format keeps only what is in
     * them. */
    rsd_err (*inner)(rsd_ckpt *ckpt, const char *name, rsd_values *owner, const rsd_value **out,
                     rsd_error *err);
    /* The archive that object i is in, and the object as it stands there; i >= nobjects: archive
     * i - nobjects of those that the checkpoint is made of. Sets out->zip.n to 0 if there is none.
     * For rsi_archive_close, also after a failure. Any thread. */
    rsd_err (*archive)(rsd_ckpt *ckpt, size_t i, struct rsi_archive *out, rsd_error *err);
    /* RSD_E_CORRUPT if replica k < nreplicas is not what is loaded in its place. Any thread. NULL:
     * the format has none. */
    rsd_err (*replica)(rsd_ckpt *ckpt, size_t k, rsd_error *err);
    /* The path of a name in the nesting of the source; 0 if the format has none. */
    size_t (*path)(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap);
    /* Item k of those that are no chunks, counted from 0; false behind the last. What no item has
     * is padding or was compared when the checkpoint was opened. */
    bool (*span)(const rsd_ckpt *ckpt, size_t k, rsi_item *out);
    void (*close)(rsd_ckpt *ckpt);
} rsi_ckpt_ops;

struct rsd_ckpt {
    const rsi_ckpt_ops *ops;
    void               *self; /* the format's */
    rsd_format          format;
    const char         *kind; /* of the format's forms, in words; NULL: the usual one */
    size_t              ntensors, nobjects;
    size_t              narchives, nreplicas;
    rsd_meta           *meta; /* [nmeta] what rsd_ckpt_meta tells */
    size_t              nmeta;
    rsi_attributes      lost_attributes; /* of dicts, met on opening */
    bool                salvage;         /* files may be missing or short */
    /* [ntensors + nobjects] rsd_health of each; NULL: all are whole as far as is known. Changed by
     * one thread. */
    uint8_t     *health;
    const char **lost; /* [nlost] names of tensors of which nothing else is known */
    size_t       nlost;
    rsd_error
             *broken; /* [nbroken] why the files of `lost` can't be read, of those that are there */
    size_t    nbroken;
    rsi_files files;
    rsi_ckpt_sums sums;
    rsi_arena     mem;
};

/* Each opens a checkpoint of its format, or fails; `ckpt` has its files. */
rsd_err rsi_dcp_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_st_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_torch_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_bins_open(rsd_ckpt *ckpt, rsd_error *err); /* several torch.save files and an index */
rsd_err rsi_ranks_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_zero_open(rsd_ckpt *ckpt, rsd_error *err); /* the next one too */
rsd_err rsi_universal_open(rsd_ckpt *ckpt, rsd_error *err);

/* True if torch.save files are called like this. */
bool rsi_torch_is_name(const char *name);
/* The same for DeepSpeed's files of the optimizer, and an index of torch.save files. */
bool rsi_zero_is_name(const char *name);
bool rsi_zero_is_latest(const char *name); /* a file that names the folder */
bool rsi_torch_is_index(const char *name);

/* Refuses chunks that overlap or leave holes; `get` gives box i of n, all of them inside `shape`.
 */
rsd_err rsi_refuse_bad_tiles(int ndim, const int64_t *shape, size_t n,
                             void (*get)(const void *arg, size_t i, rsd_box *out), const void *arg,
                             rsd_error *err);

#endif
