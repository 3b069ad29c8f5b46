/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of a DCP checkpoint (`.metadata`, `__{rank}.metadata`) as a compact table: read from
 * a pickle without running it, written as a pickle that torch loads. The contents and sizes of the
 * files, and whether chunks cover their tensors, are checked elsewhere.
 *
 * To read: dcp_meta_read.c (pickle to records) -> dcp_meta_link.c (records to this table, with the
 * checks). dcp_meta_merge.c joins the tables of several ranks; dcp_meta_write.c writes.
 * dcp_catalogue.c reads the same table from fewer bytes. */
#ifndef RSI_DCP_META_H
#define RSI_DCP_META_H

#include "base/arena.h"
#include "format/packed.h"
#include "format/source.h"

#define RSI_DCP_NO_TRANSFORMS UINT32_MAX
#define RSI_DCP_NO_FILE       UINT32_MAX /* in a table that one rank made: an item of another rank */

/* Where the bytes of a chunk or of a bytes item lie. */
typedef struct rsi_dcp_row {
    uint32_t file;       /* index in rsi_dcp_meta.file */
    uint32_t transforms; /* index in rsi_dcp_meta.transforms, or RSI_DCP_NO_TRANSFORMS */
    int64_t  offset, length;
} rsi_dcp_row;

typedef struct rsi_dcp_tensor {
    const char    *name;
    const int64_t *shape; /* [ndim] */
    size_t         first; /* chunks are rows first .. first + nchunks - 1 */
    size_t         nchunks;
    size_t         box; /* of the first chunk, in rsi_dcp_meta.box */
    rsd_dtype      dtype;
    int            ndim;
    bool           requires_grad;
    /* [ndim - 1] Megatron-Core's true shape of a tensor that is stored as a grid of blocks, each
     * flattened into the last dimension; NULL: `shape` is the true one. */
    const int64_t *whole;
    /* [RSI_DCP_BOX + 2 * ndim] From a catalogue: the chunks, which then are in neither `row` nor
     * `box` of the table. NULL: they are. */
    const rsi_packed *column;
    /* Of a tensor with columns: bytes that tensors of the same shape and boxes have in common. */
    const void *same;
    size_t      same_len;
} rsi_dcp_tensor;

/* Columns of a tensor's chunks; the box's offsets and sizes come last. */
enum { RSI_DCP_FILE, RSI_DCP_TRANSFORMS, RSI_DCP_OFFSET, RSI_DCP_LENGTH, RSI_DCP_BOX };

typedef struct rsi_dcp_item {
    const char *name;
    rsi_dcp_row row;
} rsi_dcp_item;

/* Names of the transforms applied to the bytes, in stored order: the last is undone first. */
typedef struct rsi_dcp_transforms {
    size_t             n;
    const char *const *name;
} rsi_dcp_transforms;

/* A dict key or, if key is NULL, an index into a list. */
typedef struct rsi_dcp_part {
    const char *key;
    int64_t     index;
} rsi_dcp_part;

typedef struct rsi_dcp_path {
    const char         *name;
    const rsi_dcp_part *part;
    size_t              nparts;
} rsi_dcp_path;

/* Lists keep the order of the file. Text contains no NUL. `mem` owns what the reader made; a table
 * made by hand may point anywhere. */
typedef struct rsi_dcp_meta {
    rsi_dcp_tensor     *tensor;
    size_t              ntensors;
    int64_t            *box; /* ndim offsets, then ndim sizes for each chunk */
    rsi_dcp_row        *row; /* [nchunks] */
    size_t              nchunks;
    rsi_dcp_item       *item;
    size_t              nitems;
    const char        **file; /* names, each once */
    size_t              nfiles;
    rsi_dcp_transforms *transforms;
    size_t              ntransforms;
    rsi_dcp_path       *path; /* planner_data */
    size_t              npaths;
    bool                has_paths;     /* false: planner_data is None or missing */
    const char         *checkpoint_id; /* these three may be NULL */
    const char         *save_id;
    const char         *version;
    const char        **skipped; /* "Class.attribute" that the reader does not know, each once */
    size_t              nskipped;
    rsi_arena           mem;
} rsi_dcp_meta;

/* Chunk i of a tensor: where its bytes lie, and its offsets, then its sizes. */
rsi_dcp_row rsi_dcp_row_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i);
void        rsi_dcp_box_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i,
                           int64_t box[2 * RSD_MAX_NDIM]);

/* The same in the table's own memory. Not of a tensor with columns. */
static inline const int64_t *rsi_dcp_chunk_offset(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t,
                                                  size_t i)
{
    return meta->box + t->box + i * 2 * (size_t)t->ndim;
}

static inline const int64_t *rsi_dcp_chunk_size(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t,
                                                size_t i)
{
    return rsi_dcp_chunk_offset(meta, t, i) + t->ndim;
}

/* Reads and cross-checks one file. Unknown attributes of the metadata, tensors, their properties
 * and chunks are skipped, whatever they hold, and listed: later versions and other projects add
 * some. Unknown attributes of storage rows and their keys, which say where and how bytes lie, are
 * refused. So is an unknown class anywhere else, as loading such a file in Python could run foreign
 * code. */
rsd_err rsi_dcp_meta_read(const rsi_source *source, rsi_dcp_meta **out, rsd_error *err);
/* Joins the tables of several ranks, which may be freed afterwards. A tensor in several tables must
 * have the same dtype and shape in each; a chunk or item that several ranks wrote is taken from the
 * first. */
rsd_err rsi_dcp_meta_merge(size_t n, const rsi_dcp_meta *const *part, rsi_dcp_meta **out,
                           rsd_error *err);
void    rsi_dcp_meta_free(rsi_dcp_meta *meta);

/* Writes a table as torch's `.metadata`: equal tables give equal bytes. `put` gets the parts in
 * order, at most 64 KiB each. Only checks that the table can be written. */
typedef rsd_err (*rsi_dcp_put)(void *arg, const void *bytes, size_t len, rsd_error *err);
rsd_err rsi_dcp_meta_write(const rsi_dcp_meta *meta, rsi_dcp_put put, void *arg, rsd_error *err);

/* Checks a file name inside a checkpoint: one component, not empty, "." or "..", no NUL (`len`
 * counts). */
rsd_err rsi_dcp_file_check(const char *name, size_t len, rsd_error *err);

#endif
