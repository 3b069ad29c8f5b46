/* SPDX-License-Identifier: Apache-2.0 */
/* An opened checkpoint: one catalogue for all formats. Each format keeps its own compact tables and
 * answers through the functions below, so that a million tensors need no second copy. read/fetch.c
 * reads the bytes. */
#ifndef RSI_CKPT_H
#define RSI_CKPT_H

#include "format/files.h"
#include "format/ckpt_sums.h"
#include "format/source.h"
#include "format/value.h"
#include "shape/layout.h"

struct rsi_archive; /* torch_archive.h */
struct rsi_decoded; /* decoded.h */
struct rsi_extents; /* read/extents.h */

/* Where the elements of a chunk lie in its file, once located. */
typedef struct rsi_extent {
    uint64_t offset;               /* of the chunk's first element */
    int64_t  stride[RSD_MAX_NDIM]; /* bytes */
    uint64_t record, record_bytes; /* the stored record around them, which its CRC covers */
    uint32_t crc32;
    bool     has_crc;
    bool     big_endian, conj, neg; /* conversions to apply to the elements after reading */
    /* Not NULL: the item was transformed, and these are its decoded bytes; `offset` and `record`
     * count in them. The caller that asked for the extent frees them. */
    struct rsi_decoded *decoded;
    bool                proved; /* of decoded bytes: all of them were checked */
} rsi_extent;

/* A range of a file that has a meaning. */
typedef struct rsi_item {
    uint32_t    file;
    uint64_t    off, len;
    const char *what;   /* "metadata": read when the checkpoint was opened; NULL: see `object` */
    const char *object; /* the object's name; NULL: a chunk */
    size_t      t, i;   /* chunk i of tensor t */
    bool        transformed;
} rsi_item;

/* Something that opening found and that is no damage. */
typedef struct rsi_note {
    const char *name, *why; /* of a tensor or an object, which may be left out */
} rsi_note;

typedef struct rsi_ckpt_ops {
    /* Tensor t < ntensors, chunk i < info->chunks. Never fails: opening checked everything. */
    void (*tensor)(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out);
    void (*chunk)(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file);
    /* Looks into the file and checks it against the catalogue; with `all` also every checksum
     * around the chunk except that of *out. Any thread. */
    rsd_err (*locate)(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                      rsd_error *err);
    /* Looks at all of an extent's decoded bytes, of which `locate` saw the first, and checks that
     * they are what it expected, as `locate` does. Sets the CRC. Called for decoded bytes only. Any
     * thread. */
    rsd_err (*prove)(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *x, rsd_error *err);
    bool (*find)(const rsd_ckpt *ckpt, const char *name, size_t *out);
    /* Object i < nobjects: its name and, if `owner` is not NULL, its value, created in `owner`. Any
     * thread. */
    rsd_err (*object)(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                      const rsd_value **out, rsd_error *err);
    /* The whole dict or list of this name, if opening split it into its contents; RSD_E_NOTFOUND
     * otherwise. `owner` NULL: only looks. Any thread. NULL: the format does not keep
     * containers. */
    rsd_err (*inner)(rsd_ckpt *ckpt, const char *name, rsd_values *owner, const rsd_value **out,
                     rsd_error *err);
    /* The outermost dict with a class around object i, which opening split, at the first *parts of
     * its path; NULL: none. NULL: the format does not split dicts. */
    const rsd_value *(*dict)(const rsd_ckpt *ckpt, size_t i, size_t *parts);
    /* The archive that contains object i, and the object as it stands there; i >= nobjects: the
     * checkpoint's archive i - nobjects. Sets out->zip.n to 0 if there is none. Close with
     * rsi_archive_close, also after a failure. Any thread. */
    rsd_err (*archive)(rsd_ckpt *ckpt, size_t i, struct rsi_archive *out, rsd_error *err);
    /* RSD_E_CORRUPT if replica k < nreplicas differs from the data loaded in its place. Any thread.
     * NULL: the format has no replicas. */
    rsd_err (*replica)(rsd_ckpt *ckpt, size_t k, rsd_error *err);
    /* The path of a name through the source's nesting; 0 if the format has none. */
    size_t (*path)(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap);
    /* Item k, counted from 0, of those that are not chunks; false after the last. Bytes outside all
     * items are padding or were compared when the checkpoint was opened. */
    bool (*span)(const rsd_ckpt *ckpt, size_t k, rsi_item *out);
    void (*close)(rsd_ckpt *ckpt);
} rsi_ckpt_ops;

struct rsd_ckpt {
    const rsi_ckpt_ops *ops;
    void               *self; /* the format's */
    rsd_format          format;
    const char         *kind; /* variant of the format, in words; NULL: the usual one */
    size_t              ntensors, nobjects;
    size_t              narchives, nreplicas;
    rsd_meta           *meta; /* [nmeta] returned by rsd_ckpt_meta */
    size_t              nmeta;
    rsi_attributes      lost_attributes; /* of dicts, found when opening */
    rsi_attributes      classes;         /* of dicts that opening split */
    const char *const  *skipped;         /* [nskipped] attributes of metadata, not looked at */
    size_t              nskipped;
    /* [nnotes], followed by `ndiffering` tensors whose replicas differ, which `verify` reports as
     * damage. */
    const rsi_note *note;
    size_t          nnotes, ndiffering;
    bool            salvage; /* files may be missing or short */
    bool            inside;  /* no file is: opening found every item inside its file */
    bool            alone;   /* only the metadata of rank `rank` */
    int32_t         rank;
    /* [ntensors + nobjects] rsd_health of each; NULL: all are whole as far as is known. Changed by
     * one thread. */
    uint8_t      *health;
    const char  **lost; /* [nlost] names of tensors of which only the name is known */
    size_t        nlost;
    rsd_error    *broken; /* [nbroken] why files that opening can do without are unreadable */
    size_t        nbroken;
    rsi_files     files;
    rsi_ckpt_sums sums;
    /* read/extents.h: decoders between reads; NULL: not needed yet. `sums.lock` guards it. */
    struct rsi_extents *extents;
    rsi_arena           mem;
};

/* Each opens a checkpoint of its format, or fails; `ckpt` already has its files. */
rsd_err rsi_dcp_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_st_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_torch_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_bins_open(rsd_ckpt *ckpt, rsd_error *err); /* several torch.save files and an index */
rsd_err rsi_ranks_open(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_zero_open(rsd_ckpt *ckpt, rsd_error *err); /* calls the next one if needed */
rsd_err rsi_universal_open(rsd_ckpt *ckpt, rsd_error *err);

/* True if the name is usual for torch.save files. */
bool rsi_torch_is_name(const char *name);
/* The same for DeepSpeed's optimizer files, and for an index of torch.save files. */
bool rsi_zero_is_name(const char *name);
bool rsi_zero_is_latest(const char *name); /* a file that names the checkpoint's folder */
bool rsi_torch_is_index(const char *name);

/* Refuses chunks that overlap or leave holes; `get` returns box i of n, all of them inside
 * `shape`. */
rsd_err rsi_refuse_bad_tiles(int ndim, const int64_t *shape, size_t n,
                             void (*get)(const void *arg, size_t i, rsd_box *out), const void *arg,
                             rsd_error *err);

#endif
