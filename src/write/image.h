/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint will look like on disk, before a byte of it is written: files, the items in
 * them, the parts of each item. Offsets are arithmetic, so every rank can work out all of it alone
 * and write its own part. write_files.c writes it. */
#ifndef RSI_IMAGE_H
#define RSI_IMAGE_H

#include "state/state.h"
#include "format/dcp_meta.h"
#include "format/st_write.h"
#include "format/value_pickle.h"
#include "format/zip_write.h"

enum {
    RSI_PART_BYTES, /* known bytes */
    RSI_PART_DATA,  /* a box of a tensor, packed */
    RSI_PART_GAP    /* what an archive has between its data; needs their CRCs */
};

/* A checkpoint has three for each chunk, so they are kept small. */
typedef struct rsi_out_part {
    uint64_t at; /* where it begins in its file; with a transform: before that */
    uint64_t len;
    union {
        const void    *bytes; /* BYTES */
        const int64_t *box;   /* DATA: [2][ndim] offsets, then lengths; in image->mem */
    };
    size_t        tensor; /* DATA: of the state */
    rsi_zip_plan *zip;    /* GAP and DATA in an archive; archives that are alike share one */
    uint32_t     *crc;    /* of the archive's storages; DATA sets crc[nth] */
    uint32_t      nth;    /* GAP: which gap; DATA: which storage */
    uint8_t       kind;   /* RSI_PART_... */
    bool          opens;  /* the first part of its item */
} rsi_out_part;

/* Something that can be found again: parts one after the other. The parts of all items of a file
 * stand together. */
typedef struct rsi_out_item {
    size_t       first, nparts;
    rsi_dcp_row *row; /* DCP: gets its place in the file; else NULL */
} rsi_out_item;

typedef struct rsi_out_file {
    const char *name;  /* below the checkpoint; NULL: it is the checkpoint */
    int32_t     owner; /* rank that writes it */
    size_t      first, nitems;
    uint64_t    bytes;   /* that it will have; 0: not known before it is written (transformed) */
    bool        guessed; /* values in it are known to their writer alone */
    bool        plain;   /* is not transformed, whatever the others are */
} rsi_out_file;

typedef struct rsi_image {
    rsd_format    format;
    const char   *transform; /* descriptor; NULL: none */
    const char   *encode;    /* the same with what only the writer has to know: the level */
    rsi_out_file *file;
    size_t        nfiles, file_cap;
    rsi_out_item *item;
    size_t        nitems, item_cap;
    rsi_out_part *part;
    size_t        nparts, part_cap;
    rsi_dcp_meta *meta; /* DCP: written last, when all rows have their place */
    int32_t       keep; /* files of other ranks than this are known by name and size only; -1: all
                           have items */
    void     *pickle;   /* the one of a torch.save file; for rsi_free */
    rsi_map   pickles, archives; /* those that are alike are made once */
    rsi_arena mem;
} rsi_image;

/* How the caller wants it, as far as the image depends on it. */
typedef struct rsi_image_spec {
    rsd_format         format;
    uint64_t           shard_size;  /* safetensors: bytes of a file at most; 0: one file */
    bool               distributed; /* safetensors: one file for each rank, with its parts */
    const char        *transform;   /* DCP only */
    bool               one_file;    /* the target is a file, not a folder */
    const rsi_st_pair *meta;        /* [nmeta] safetensors: lines of __metadata__ of every file */
    size_t             nmeta;
    bool               own_only; /* the items of `rank` alone: what a rank needs that writes them */
    int32_t            rank;
} rsi_image_spec;

rsd_err rsi_image_make(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                       rsd_error *err);
void    rsi_image_release(rsi_image *image);
/* A digest of all parts, with headers, pickles and values but without the tensors' bytes: equal
 * images have equal ones. `before` as in digest.h. */
uint64_t rsi_image_digest(const rsi_image *image, const rsd_state *state, uint64_t before);

/* ---- for the formats: image_dcp.c, image_st.c, image_torch.c ---- */

rsd_err rsi_image_dcp(rsi_image *image, const rsd_state *state, rsd_error *err);
rsd_err rsi_image_st(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                     rsd_error *err);
rsd_err rsi_image_torch(rsi_image *image, const rsd_state *state, rsd_error *err);
/* Such an image as bytes, for rsi_free, and the same one from them on another rank, in place of
 * what is there: its pickle and the bytes of its values; tensors are those of `state`. */
rsd_err rsi_image_torch_tell(const rsi_image *image, rsi_bytes *out, rsd_error *err);
rsd_err rsi_image_torch_told(rsi_image *image, const rsd_state *state, const rsi_bytes *told,
                             rsd_error *err);

/* Each adds behind what is there. */
rsd_err rsi_image_file(rsi_image *image, const char *name, int32_t owner, rsd_error *err);
rsd_err rsi_image_item(rsi_image *image, rsi_dcp_row *row, rsd_error *err);
/* Is the open file one whose items are wanted? */
bool rsi_image_keeps(const rsi_image *image);
/* The box of a DATA part. */
rsd_box rsi_part_box(const rsd_state *state, const rsi_out_part *part);
/* A box as parts have it, in image->mem; NULL: no memory. */
const int64_t *rsi_image_box(rsi_image *image, const rsd_box *box);
rsd_err        rsi_image_part(rsi_image *image, const rsi_out_part *part, rsd_error *err);

/* Adds a torch.save archive as one item of the open file: its pickle, in image->mem, and n
 * storages, each DATA or BYTES. */
rsd_err rsi_image_archive(rsi_image *image, rsi_dcp_row *row, const void *pickle, size_t pickle_len,
                          size_t n, const rsi_out_part *storage, rsd_error *err);
/* The storages of tensors inside a value, as parts in image->mem. RSD_E_UNSUPPORTED if the bytes of
 * one are not at hand. */
rsd_err rsi_image_storages(rsi_image *image, const rsi_storages *from, rsi_out_part **out,
                           rsd_error *err);

/* A box of a tensor that is stored as one chunk, and the rank that writes it. */
typedef struct rsi_stored {
    rsd_box box;
    int32_t rank;
} rsi_stored;
typedef struct rsi_stored_list {
    rsi_stored *at; /* for rsi_free */
    size_t      n, cap;
} rsi_stored_list; /* zeroed: empty */
/* The chunks that tensor t is stored as: the different boxes of its layout, each written by one of
 * its holders, or if it is large in equal parts by several (docs/layouts.md has the formula); and
 * for `empties`, as torch has it, the empty ones too. A tensor without a layout is one chunk of
 * rank 0. They take the place of what the list had. */
rsd_err rsi_stored_chunks(const rsd_state *state, size_t t, bool empties, rsi_stored_list *list,
                          rsd_error *err);

#endif
