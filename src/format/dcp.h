/* SPDX-License-Identifier: Apache-2.0 */
/* An opened DCP checkpoint: its metadata and its file numbers. */
#ifndef RSI_DCP_H
#define RSI_DCP_H

#include "format/ckpt.h"
#include "format/dcp_meta.h"

/* A box of a tensor whose true shape is not the stored one: elements of a stored chunk from `first`
 * on, as many as make a box. */
typedef struct rsi_dcp_piece {
    int64_t  first;
    uint32_t chunk;
} rsi_dcp_piece;

typedef struct rsi_dcp {
    rsi_dcp_meta *meta;
    uint32_t     *file;   /* [meta->nfiles] number in ckpt->files */
    size_t        nmetas; /* files 0 .. nmetas - 1 of the checkpoint are metadata */
    rsi_map       names;  /* of the tensors */
    rsi_map       paths;  /* from name to meta->path */
    /* Of tensors with a true shape: tensor t has pieces first_piece[t] .. first_piece[t + 1] - 1.
     */
    rsi_dcp_piece *piece; /* [npieces] */
    size_t         npieces, piece_cap;
    size_t        *first_piece; /* [ntensors + 1] NULL: there are none */
} rsi_dcp;

/* "__12.metadata": written by one rank when the ranks did not gather. */
bool rsi_dcp_is_rank_metadata(const char *name);

/* "__12_3.distcp", the name of a data file: rank 12's number 3. */
bool rsi_dcp_data_name(const char *name, int32_t *rank, int64_t *number);
/* The data file after which the checksum file of a save inside a folder is named: the first by rank
 * and number. NULL: no file has such a name. */
const char *rsi_dcp_key_file(const rsi_dcp_meta *meta, int32_t *rank, int64_t *number);
/* The table from the catalogue, if it belongs to `.metadata`, which becomes a file of the
 * checkpoint. */
rsd_err rsi_dcp_read_catalogue(rsd_ckpt *ckpt, rsi_dcp_meta **out, rsd_error *err);
/* Refuses items of a table that lie outside their files or overlap. */
rsd_err rsi_dcp_check_files(rsd_ckpt *ckpt, rsi_dcp_meta *meta, rsd_error *err);
/* Appends the catalogue that the checkpoint should have, from all of its metadata, which it checks
 * as if they were just opened, or nothing if it needs none; any format. */
rsd_err rsi_dcp_make_catalogue(rsd_ckpt *ckpt, rsi_bytes *out, rsd_error *err);
/* Refuses shapes that are too large and, unless `partial`, chunks that overlap or leave holes. */
rsd_err rsi_dcp_check_tensors(const rsi_dcp_meta *meta, bool partial, rsd_error *err);

/* dcp_flat.c: makes the pieces */
rsd_err rsi_dcp_unflatten(rsi_dcp *dcp, rsi_arena *mem, rsd_error *err);
/* Piece i of tensor t; NULL: its chunks are as stored. */
const rsi_dcp_piece *rsi_dcp_piece_of(const rsi_dcp *dcp, size_t t, size_t i);
void rsi_dcp_piece_box(const rsi_dcp *dcp, const rsi_dcp_tensor *t, const rsi_dcp_piece *piece,
                       rsd_box *out);
/* From the place of a stored chunk to that of its piece. */
rsd_err rsi_dcp_piece_extent(const rsi_dcp_tensor *t, const rsi_dcp_piece *piece,
                             rsi_extent *extent, rsd_error *err);

/* dcp_megatron.c: describes a checkpoint of Megatron-Core in ckpt->kind; others are left alone. */
rsd_err rsi_dcp_describe(rsd_ckpt *ckpt, rsd_error *err);

/* dcp_item.c: rsi_ckpt_ops.locate, .prove, .object and .archive */
rsd_err rsi_dcp_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                       rsd_error *err);
rsd_err rsi_dcp_prove(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *x, rsd_error *err);
rsd_err rsi_dcp_archive(rsd_ckpt *ckpt, size_t i, struct rsi_archive *out, rsd_error *err);
rsd_err rsi_dcp_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                       const rsd_value **out, rsd_error *err);

/* All bytes of object i as stored, transforms undone; for rsi_free. */
rsd_err rsi_dcp_object_bytes(rsd_ckpt *ckpt, size_t i, unsigned char **bytes, size_t *len,
                             rsd_error *err);

#endif
