/* SPDX-License-Identifier: Apache-2.0 */
/* The planned contents of a checkpoint before any byte is written: files, the items in them, the
 * parts of each item. Offsets are pure arithmetic, so every rank can compute all of them alone and
 * write its own part. write_files.c writes the image. */
#ifndef RSI_IMAGE_H
#define RSI_IMAGE_H

#include "state/state.h"
#include "base/bytes.h"
#include "format/dcp_meta.h"
#include "format/st_write.h"
#include "format/value_pickle.h"
#include "format/zip_write.h"

enum {
    RSI_PART_BYTES, /* known bytes */
    RSI_PART_DATA,  /* a box of a tensor, packed */
    RSI_PART_GAP    /* archive bytes between its data; need the data's CRCs */
};

/* A checkpoint has three of these per chunk, so they are kept small. */
typedef struct rsi_out_part {
    uint64_t at; /* where it begins in its file; with a transform: before transforming */
    uint64_t len;
    union {
        const void    *bytes; /* BYTES */
        const int64_t *box;   /* DATA: [2][ndim] offsets, then lengths; in image->mem */
    };
    size_t        tensor; /* DATA: of the state */
    rsi_zip_plan *zip;    /* GAP and DATA in an archive; identical archives share one */
    uint32_t     *crc;    /* of the archive's storages; DATA sets crc[nth] */
    uint32_t      nth;    /* GAP: which gap; DATA: which storage */
    uint8_t       kind;   /* RSI_PART_... */
    bool          opens;  /* the first part of its item */
} rsi_out_part;

/* A unit that readers can locate: consecutive parts. The parts of all items of a file are
 * adjacent. */
typedef struct rsi_out_item {
    size_t       first, nparts;
    rsi_dcp_row *row; /* DCP: receives its place in the file; else NULL */
} rsi_out_item;

typedef struct rsi_out_file {
    const char *name;  /* relative to the checkpoint; NULL: the checkpoint itself */
    int32_t     owner; /* rank that writes it */
    size_t      first, nitems;
    uint64_t    bytes;   /* final size; 0: unknown until written (transformed) */
    bool        guessed; /* holds values known only to their writer */
    bool        plain;   /* never transformed, even if other files are */
} rsi_out_file;

typedef struct rsi_image {
    rsd_format    format;
    const char   *transform; /* descriptor; NULL: none */
    const char   *encode;    /* the same plus what only the writer needs: the level */
    rsi_out_file *file;
    size_t        nfiles, file_cap;
    rsi_out_item *item;
    size_t        nitems, item_cap;
    rsi_out_part *part;
    size_t        nparts, part_cap;
    rsi_dcp_meta *meta; /* DCP: written last, once all rows have their places */
    rsi_dcp_row  *row;  /* meta's rows and boxes, which grow; for rsi_free */
    int64_t      *box;
    rsi_bytes     packed; /* columns of meta's tensors, in place of rows and boxes */
    bool          uneven; /* places of items are set once they are written */
    int32_t       keep;   /* only this rank's files have items, others name and size; -1: all */
    void        **pickle; /* [npickles] of torch.save files; for rsi_free */
    size_t        npickles, pickle_cap;
    rsi_map       pickles, archives; /* identical ones are made once */
    rsi_arena     mem;
} rsi_image;

/* The caller's options that affect the image. */
typedef struct rsi_image_spec {
    rsd_format         format;
    uint64_t           shard_size;  /* safetensors: maximum bytes of a file; 0: one file */
    bool               distributed; /* safetensors: one file per rank, with its parts */
    bool               rank_states; /* safetensors: vLLM's sharded_state, files of every rank */
    const char        *transform;   /* DCP only */
    bool               one_file;    /* the target is a file, not a folder */
    const rsi_st_pair *meta;        /* [nmeta] safetensors: __metadata__ entries of every file */
    size_t             nmeta;
    /* Only the items of `rank`: enough for a rank that writes them. DCP: other files, and chunks
     * and values in them, are left out altogether, except on rank 0, which writes the metadata. */
    bool    own_only;
    int32_t rank;
    bool    uneven; /* ranks will report the places of their items */
} rsi_image_spec;

rsd_err rsi_image_make(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                       rsd_error *err);
void    rsi_image_release(rsi_image *image);

/* An item of a part: a box of a tensor, or bytes that are stored as they are. */
typedef struct rsi_part_item {
    const char *name;
    size_t      tensor; /* in the state, with one view; SIZE_MAX: `bytes` */
    const void *bytes;
    size_t      len;
    rsi_dcp_row row; /* receives its place in the file */
} rsi_part_item;
/* The image of a part: one DCP file, which is the target itself, with the items in this order.
 * transform NULL: none. */
rsd_err rsi_image_items(rsi_image *image, const rsd_state *state, size_t n, rsi_part_item *item,
                        const char *transform, rsd_error *err);
/* The metadata of the same items, once they are written to `file`; for rsi_dcp_meta_free. */
rsd_err rsi_items_meta(const rsi_image *image, const rsd_state *state, size_t n,
                       const rsi_part_item *item, const char *file, rsi_dcp_meta **out,
                       rsd_error *err);
/* A digest of all parts, including headers, pickles and values but not the tensors' bytes: equal
 * images have equal digests. `before` as in digest.h. */
uint64_t rsi_image_digest(const rsi_image *image, const rsd_state *state, uint64_t before);

/* ---- for the formats: image_dcp.c, image_st.c, image_torch.c, image_universal.c ---- */

rsd_err rsi_image_dcp(rsi_image *image, const rsd_state *state, rsd_error *err);
rsd_err rsi_image_st(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                     rsd_error *err);
rsd_err rsi_image_torch(rsi_image *image, const rsd_state *state, rsd_error *err);
rsd_err rsi_image_universal(rsi_image *image, const rsd_state *state, rsd_error *err);
/* Adds a torch.save file with this value, in which tensors of the state may occur. *owner is freed
 * once the value is no longer needed; NULL: it stays. */
rsd_err rsi_image_torch_file(rsi_image *image, const rsd_state *state, const char *name,
                             const rsd_value *root, rsd_values **owner, rsd_error *err);
/* The value that stands for a tensor of the state. */
rsd_err rsi_image_tensor_value(const rsi_state_tensor *tensor, rsd_values *owner,
                               const rsd_value **out, rsd_error *err);
/* Sets the transform of a DCP image: its name with a version, by which readers find it, and the
 * text for the encoder. */
rsd_err rsi_image_transform(rsi_image *image, const char *transform, rsd_error *err);
/* Adds a box of tensor t, [2][ndim] in memory that lives as long as the image, as one chunk of
 * DCP. */
rsd_err rsi_image_chunk(rsi_image *image, const rsd_state *state, size_t t, const int64_t *box,
                        rsi_dcp_row *row, rsd_error *err);
/* The bytes that such a chunk takes if it starts at byte `start` of a file. */
rsd_err rsi_image_chunk_bytes(rsi_image *image, const rsd_state *state, size_t t,
                              const rsd_box *box, uint64_t start, uint64_t *out, rsd_error *err);
/* Lists the chunks of all ranks in columns of image->meta, adds those of rank 0 to its file, which
 * may be open, and the other files by name and size. Without a transform. */
rsd_err rsi_image_dcp_all(rsi_image *image, const rsd_state *state, rsd_error *err);
/* Serializes a torch.save image, for rsi_free, and recreates it from those bytes on another rank,
 * replacing its present contents: its pickle and the bytes of its values; tensors come from
 * `state`. */
rsd_err rsi_image_torch_tell(const rsi_image *image, rsi_bytes *out, rsd_error *err);
rsd_err rsi_image_torch_told(rsi_image *image, const rsd_state *state, const rsi_bytes *told,
                             rsd_error *err);

/* Each of these appends. */
rsd_err rsi_image_file(rsi_image *image, const char *name, int32_t owner, rsd_error *err);
rsd_err rsi_image_item(rsi_image *image, rsi_dcp_row *row, rsd_error *err);
/* True if the items of the open file are wanted. */
bool rsi_image_keeps(const rsi_image *image);
/* The box of a DATA part. */
rsd_box rsi_part_box(const rsd_state *state, const rsi_out_part *part);
/* A box in the form that parts store, in image->mem; NULL: no memory. */
const int64_t *rsi_image_box(rsi_image *image, const rsd_box *box);
rsd_err        rsi_image_part(rsi_image *image, const rsi_out_part *part, rsd_error *err);

/* Adds a torch.save archive as one item of the open file: its pickle, in image->mem, and n
 * storages, each DATA or BYTES. */
rsd_err rsi_image_archive(rsi_image *image, rsi_dcp_row *row, const void *pickle, size_t pickle_len,
                          size_t n, const rsi_out_part *storage, rsd_error *err);
/* The bytes of an archive with one storage, if it starts at byte `start` of a file. */
rsd_err rsi_image_archive_bytes(rsi_image *image, const void *pickle, size_t pickle_len,
                                uint64_t storage, uint64_t start, uint64_t *out, rsd_error *err);
/* The storages of tensors inside a value, as parts in image->mem. RSD_E_UNSUPPORTED if the bytes of
 * one are unavailable. */
rsd_err rsi_image_storages(rsi_image *image, const rsi_storages *from, rsi_out_part **out,
                           rsd_error *err);

/* A box of a tensor stored as one chunk, and the rank that writes it. */
typedef struct rsi_stored {
    rsd_box box;
    int32_t rank;
} rsi_stored;
typedef struct rsi_stored_list {
    rsi_stored *at; /* for rsi_free */
    size_t      n, cap;
} rsi_stored_list; /* zeroed: empty */
/* The chunks that tensor t is stored as: the distinct boxes of its layout, each written by one of
 * its holders or, if large, in equal parts by several (docs/layouts.md has the formula). With
 * `empties` empty boxes are included, as torch does. A tensor without a layout is one chunk of rank
 * 0. `rank` above 0: only those of that rank, at no cost for the others'. Replaces the previous
 * contents of the list. */
rsd_err rsi_stored_chunks(const rsd_state *state, size_t t, bool empties, int32_t rank,
                          rsi_stored_list *list, rsd_error *err);

#endif
