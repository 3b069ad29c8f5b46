/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the readers of torch.save files: one checkpoint out of one file or several. torch_open.c
 * answers what is asked of it, torch_names.c finds what is in a file, torch_merge.c puts tensors
 * together whose pieces lie in several files. Only those, and the readers of folders, include
 * this. */
#ifndef RSI_TORCH_CORE_H
#define RSI_TORCH_CORE_H

#include "format/torch_archive.h"

/* One file. */
typedef struct rsi_torch_file {
    uint32_t         number; /* in the checkpoint's files */
    rsi_source       source;
    rsi_zip          zip;
    rsd_values      *values;
    const rsd_value *root;
} rsi_torch_file;

/* A box of a tensor, and where it lies: in the part of a storage that `of` is, `offset` elements
 * behind its first. With `flat`, `of` has one dimension, in which the elements of the box follow
 * each other; else its strides are those of the box. */
typedef struct rsi_torch_piece {
    rsd_box                 box;
    const rsd_value_tensor *of;
    int64_t                 offset;
    uint32_t                file; /* of rsi_torch */
    bool                    flat;
} rsi_torch_piece;

/* A tensor in pieces. */
typedef struct rsi_torch_whole {
    rsd_dtype        dtype;
    int32_t          ndim;
    int64_t          shape[RSD_MAX_NDIM];
    rsi_torch_piece *piece; /* [n] */
    size_t           n, cap;
} rsi_torch_whole;

/* A tensor or an object, and the way to it. */
typedef struct rsi_torch_entry {
    const char      *name;
    rsd_path_part   *part;
    size_t           nparts;
    const rsd_value *value; /* in `file`; of a tensor in pieces the first one's object */
    rsi_torch_whole *whole; /* NULL: `value` is the tensor */
    uint32_t         file;
} rsi_torch_entry;

typedef struct rsi_torch_entries {
    rsi_torch_entry *at;
    size_t           n, cap;
} rsi_torch_entries;

/* Something that another file has too. */
typedef struct rsi_torch_replica {
    uint64_t         entry; /* as in `names` */
    const rsd_value *value; /* NULL: the piece */
    rsi_torch_piece  piece;
    uint32_t         file;
} rsi_torch_replica;

typedef struct rsi_torch {
    rsi_torch_file    *file; /* [nfiles] */
    size_t             nfiles, files_cap;
    rsi_torch_entries  tensors, objects;
    rsi_map            names;   /* to tensor number, or ~ object number */
    rsi_torch_replica *replica; /* [nreplicas] to be the same as what is loaded */
    size_t             nreplicas, replicas_cap;
    rsi_arena          mem; /* of names and paths, within the budget of the pickles */
} rsi_torch;

/* ---- torch_open.c ---- */

/* Makes the checkpoint one of torch.save files, none so far. */
rsd_err rsi_torch_begin(rsd_ckpt *ckpt, rsi_torch **out, rsd_error *err);
/* Opens one more and reads its pickle. */
rsd_err rsi_torch_add_file(rsd_ckpt *ckpt, const char *name, rsd_error *err);
/* All is there: checks that every tensor's bytes are. */
rsd_err rsi_torch_end(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_torch_no_memory(rsd_error *err);

/* ---- torch_names.c ---- */

/* Adds an entry, whose name must be a new one; `t` is an rsi_torch. */
rsd_err rsi_torch_add(void *t, const rsi_torch_entry *e, rsd_error *err);
/* The name and the path of these parts, in the checkpoint's memory; the parts live as long. */
rsd_err rsi_torch_name(rsi_torch *t, const char *const *part, size_t n, rsi_torch_entry *out,
                       rsd_error *err);
/* Takes an entry that was found; its memory is the checkpoint's already. */
typedef rsd_err (*rsi_torch_take)(void *arg, const rsi_torch_entry *e, rsd_error *err);
/* Gives every tensor and object of a file to `take`, by the keys on the way to it; `below`, if not
 * NULL, is put before all of them. */
rsd_err rsi_torch_flatten(rsi_torch *t, uint32_t file, const char *below, rsi_torch_take take,
                          void *arg, rsd_error *err);
/* What is opened under this name in a file; NULL: nothing is. */
const rsd_value *rsi_torch_find_inner(const rsi_torch_file *file, const char *name);
/* True if there is a tensor in it. */
bool rsi_torch_has_tensor(const rsd_value *v);

/* ---- torch_merge.c ---- */

/* Adds a piece to the tensor of e->name, which is made if it is new; e->value is not looked at.
 * `like`: the dtype and the shape of the whole. A piece whose box is there becomes a replica. */
rsd_err rsi_torch_add_piece(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                            const rsi_torch_piece *piece, rsd_error *err);
/* The same for an object or a plain tensor: one that is there becomes a replica. */
rsd_err rsi_torch_add_once(rsi_torch *t, const rsi_torch_entry *e, rsd_error *err);
/* One more name for the tensor `same`; nothing if that is not there, or the name is taken. */
rsd_err rsi_torch_alias(rsi_torch *t, const char *name, const char *same, rsd_error *err);
/* Refuses tensors with overlaps and holes. */
rsd_err rsi_torch_check_pieces(const rsi_torch *t, rsd_error *err);
/* zero_open.c: shared parameters that a file of the model lists are more names of what is there. */
rsd_err rsi_zero_add_shared(rsi_torch *t, const rsd_value *root, rsd_error *err);
/* A piece as the tensor that it is. */
void rsi_torch_piece_view(const rsi_torch_piece *piece, rsd_value_tensor *out);

#endif
