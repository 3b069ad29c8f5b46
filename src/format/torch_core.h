/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the readers of torch.save files: one checkpoint from one or several files. torch_open.c
 * implements the checkpoint's operations, torch_names.c finds the contents of a file, torch_merge.c
 * joins tensors whose pieces lie in several files. Included only by these and the readers of
 * folders. */
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

/* A box of a tensor and its place: in the part of a storage given by `of`, `offset` elements after
 * its first. With `flat`, `of` has one dimension, in which the elements of the box are consecutive;
 * else its strides are those of the box. */
typedef struct rsi_torch_piece {
    rsd_box                 box;
    const rsd_value_tensor *of;
    int64_t                 offset;
    uint32_t                file; /* index in rsi_torch.file */
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

/* A tensor or an object, and the path to it. */
typedef struct rsi_torch_entry {
    const char      *name;
    rsd_path_part   *part;
    size_t           nparts;
    const rsd_value *value; /* in `file`; for a tensor in pieces, the first piece's object */
    rsi_torch_whole *whole; /* NULL: `value` is the tensor */
    uint32_t         file;
    /* The outermost dict with a class that it lies in, at the first `above` parts; NULL: none. */
    const rsd_value *dict;
    size_t           above;
} rsi_torch_entry;

typedef struct rsi_torch_entries {
    rsi_torch_entry *at;
    size_t           n, cap;
} rsi_torch_entries;

/* Something that another file has as well. */
typedef struct rsi_torch_replica {
    uint64_t         entry; /* tensor or object, as in `names` */
    const rsd_value *value; /* NULL: see the piece */
    rsi_torch_piece  piece;
    uint32_t         file;
    bool             own; /* ranks may differ, and opening has compared it */
} rsi_torch_replica;

typedef struct rsi_torch {
    rsi_torch_file    *file; /* [nfiles] */
    size_t             nfiles, files_cap;
    rsi_torch_entries  tensors, objects;
    rsi_map            names;   /* to tensor number, or ~ object number */
    rsi_torch_replica *replica; /* [nreplicas] must equal the loaded data */
    size_t             nreplicas, replicas_cap;
    rsi_arena          mem; /* for names and paths, within the pickles' budget */
} rsi_torch;

/* ---- torch_open.c ---- */

/* Makes the checkpoint one of torch.save files, initially without any. */
rsd_err rsi_torch_begin(rsd_ckpt *ckpt, rsi_torch **out, rsd_error *err);
/* Opens one more file and reads its pickle. */
rsd_err rsi_torch_add_file(rsd_ckpt *ckpt, const char *name, rsd_error *err);
/* Looks into a file of the folder without adding it: sets *out to rsi_torch_has_part. */
rsd_err rsi_torch_is_sharded(rsd_ckpt *ckpt, const char *name, bool *out, rsd_error *err);
/* Call when all files are added: checks that every tensor's bytes exist. */
rsd_err rsi_torch_end(rsd_ckpt *ckpt, rsd_error *err);
rsd_err rsi_torch_no_memory(rsd_error *err);

/* ---- torch_names.c ---- */

/* Adds an entry, whose name must be new; `t` is an rsi_torch. */
rsd_err rsi_torch_add(void *t, const rsi_torch_entry *e, rsd_error *err);
/* The name and the path of these parts, in the checkpoint's memory; the parts must live as long. */
rsd_err rsi_torch_name(rsi_torch *t, const char *const *part, size_t n, rsi_torch_entry *out,
                       rsd_error *err);
/* Receives an entry that was found; its memory already belongs to the checkpoint. */
typedef rsd_err (*rsi_torch_take)(void *arg, const rsi_torch_entry *e, rsd_error *err);
/* Passes every tensor and object of a file to `take`, named by the keys on its path; `below`, if
 * not NULL, is prepended to all names. */
rsd_err rsi_torch_flatten(rsi_torch *t, uint32_t file, const char *below, rsi_torch_take take,
                          void *arg, rsd_error *err);
/* The container that was split under this name in a file; NULL: none. */
const rsd_value *rsi_torch_find_inner(const rsi_torch_file *file, const char *name);
/* True if it contains a tensor. */
bool rsi_torch_has_tensor(const rsd_value *v);
/* True if it contains a tensor of which a rank pickled its part. */
bool rsi_torch_has_part(const rsd_value *v);

/* ---- torch_merge.c ---- */

/* Adds a piece to the tensor of e->name, which is created if new; e->value is ignored. `like`:
 * dtype and shape of the whole tensor. A piece whose box already exists becomes a replica. */
rsd_err rsi_torch_add_piece(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                            const rsi_torch_piece *piece, rsd_error *err);
/* Only creates the tensor, if new: a file may know of it without having a piece. */
rsd_err rsi_torch_add_whole(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                            rsd_error *err);
/* Adds a replica of a piece; one that is not cut like a piece of the tensor is not compared. */
rsd_err rsi_torch_add_replica(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_piece *piece,
                              rsd_error *err);
/* As rsi_torch_add_piece for an object or a plain tensor: one that already exists becomes a
 * replica. */
rsd_err rsi_torch_add_once(rsi_torch *t, const rsi_torch_entry *e, rsd_error *err);
/* Adds a name for the tensor `same`; does nothing if `same` is missing or the name is taken. */
rsd_err rsi_torch_alias(rsi_torch *t, const char *name, const char *same, rsd_error *err);
/* Refuses tensors with overlaps or holes, from number `first` on. */
rsd_err rsi_torch_check_pieces(const rsi_torch *t, size_t first, rsd_error *err);
/* A piece as a tensor. */
void rsi_torch_piece_view(const rsi_torch_piece *piece, rsd_value_tensor *out);

/* ---- torch_nanotron.c ---- */

/* True if a folder with these names is nanotron's "optimizer". */
bool    rsi_nanotron_is_optimizer(char *const *names, size_t n);
rsd_err rsi_nanotron_open_optimizer(rsd_ckpt *ckpt, char *const *names, size_t n, rsd_error *err);

/* ---- zero_open.c ---- */

/* DeepSpeed's version that a model file names; NULL: none. */
const char *rsi_zero_version(const rsd_value *root);

/* ---- zero_rest.c ---- */

/* Adds names for the shared parameters that a model file lists. */
rsd_err rsi_zero_add_shared(rsi_torch *t, const rsd_value *root, rsd_error *err);
/* Adds the tensors of a dict under its keys, except those whose names are taken: buffers, whose
 * parameters were added in fp32. */
rsd_err rsi_zero_add_tensors(rsi_torch *t, uint32_t file, const rsd_value *dict, rsd_error *err);
/* The same for the model file of another model-parallel rank: a buffer that an earlier one has is a
 * replica. */
rsd_err rsi_zero_add_buffers(rsi_torch *t, uint32_t file, rsd_error *err);
/* True for "layer_0_expert_1_mp_rank_00_model_states.pt" and the older "expert_1_..". */
bool rsi_zero_is_expert(const char *name);
/* Opens the files of experts among these and adds their tensors; *count is how many files. */
rsd_err rsi_zero_add_experts(rsd_ckpt *ckpt, rsi_torch *t, char *const *names, size_t n,
                             size_t *count, rsd_error *err);
/* Adds the items of a dict below a name, except those with a key in `known`, which ends with NULL;
 * the file's root is no longer valid then. */
rsd_err rsi_zero_add_items(rsi_torch *t, uint32_t file, const rsd_value *dict, const char *below,
                           const char *const *known, rsd_error *err);
/* Adds the values of a model file, or of an optimizer file, whose dict this is; its root is no
 * longer valid then. */
rsd_err rsi_zero_add_model(rsi_torch *t, uint32_t file, rsd_error *err);
rsd_err rsi_zero_add_optim(rsi_torch *t, uint32_t file, const rsd_value *dict, rsd_error *err);

#endif
