/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_folder.h - DCP checkpoints inside folders that belong to other programs too, reading by
 * another program's plan, objects that it pickles, and series of checkpoints. The rules at the top
 * of reshard.h apply here too.
 *
 * rsd_save publishes a whole folder and refuses one that holds anything else. Here the folder
 * exists and keeps its other files: each rank writes a part, a data file with a new number, and one
 * rank publishes all parts by renaming `.metadata`. Nothing communicates: the caller carries the
 * parts' receipts to the rank that publishes (rule C8 in docs/commit.md).
 *
 *     every rank   rsd_part_create, rsd_part_tensor ..., rsd_part_write, rsd_part_receipt
 *     one rank     rsd_parts_publish with all receipts
 *     every rank   rsd_part_free
 */
#ifndef RESHARD_FOLDER_H
#define RESHARD_FOLDER_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a part: the items that one rank writes ---- */

typedef struct rsd_part rsd_part;

typedef struct rsd_part_opts {
    size_t       size;       /* sizeof(rsd_part_opts) */
    rsd_store   *store;      /* NULL: `path` is a local path */
    const char  *transform;  /* "stream.zstd", "stream.zstd:9" or a registered one; NULL: none */
    rsd_choice   sync;       /* NEVER: return before the bytes are safe from a power cut */
    rsd_choice   checksum;   /* as in rsd_save_opts */
    int32_t      threads;    /* 0: one per available processor */
    size_t       max_memory; /* bytes of buffers; 0: 64 MiB; at least 8 MiB are used */
    rsd_progress on_progress;
    void        *arg;
} rsd_part_opts;

/* Begins rank `rank`'s part of a checkpoint in the folder `path`, which is created if missing.
 * RSD_E_UNSUPPORTED for stores without claims (see rsd_store_ops); local files have them. [local]
 */
RSD_API rsd_err rsd_part_create(const char *path, int32_t rank, const rsd_part_opts *opts,
                                rsd_part **out, rsd_error *err);
/* Releases the part. What it wrote stays if it was published; otherwise a later save removes it.
 * Keep the part until it is published: it is also the claim that protects its file from the
 * clean-up of other writers. */
RSD_API void rsd_part_free(rsd_part *part);

/* Adds a box of a tensor with the given global shape, `view` being the caller's memory for it. It
 * becomes one item, as torch.save would store the box. A tensor may have several boxes in a part.
 * The memory is read by rsd_part_write; dtype, shape and name are copied. [local] */
RSD_API rsd_err rsd_part_tensor(rsd_part *part, const char *name, rsd_dtype dtype, int ndim,
                                const int64_t *shape, const rsd_view *view, rsd_error *err);
/* Adds an object as bytes that are stored as they are. torch expects what torch.save writes. They
 * must stay until rsd_part_write returns. [local] */
RSD_API rsd_err rsd_part_object(rsd_part *part, const char *name, const void *bytes, size_t len,
                                rsd_error *err);

/* Writes all items, in the order added, to `__<rank>_<n>.distcp` with a number that no file of this
 * rank has (0 in a fresh folder) and syncs file and folder. A part without items writes nothing.
 * First removes files that earlier saves left, see rsd_parts_publish. Once per part: after a
 * failure nothing is left and the part can only be freed. [local] */
RSD_API rsd_err rsd_part_write(rsd_part *part, rsd_error *err);

/* Number of items; of these, the i-th in the order added. Known once written: */
RSD_API size_t rsd_part_items(const rsd_part *part);
/* its place: file, offset, length and transforms; for a tensor also its box. */
RSD_API rsd_err rsd_part_extent(const rsd_part *part, size_t i, rsd_chunk *out, rsd_error *err);

/* What the publishing rank must know of this part: the file and its hashes and, with `describe`,
 * the names, dtypes, shapes and places of all items. Plain bytes that can be sent to another
 * process; they live as long as the part or until the next call. [local] */
RSD_API rsd_err rsd_part_receipt(rsd_part *part, bool describe, const void **bytes, size_t *len,
                                 rsd_error *err);

/* ---- publishing ---- */

typedef struct rsd_receipt {
    const void *bytes;
    size_t      len;
} rsd_receipt;

typedef struct rsd_publish_opts {
    size_t     size;  /* sizeof(rsd_publish_opts) */
    rsd_store *store; /* NULL: `path` is a local path */
    /* The pickle to become `.metadata`, made by the caller, for example by torch. NULL: made from
     * the receipts, which must then have descriptions; the boxes must tile their tensors. */
    const void *metadata;
    size_t      metadata_len;
    const char *save_id, *checkpoint_id; /* for metadata made here; NULL: none, "reshard" */
    bool        overwrite; /* replace the folder's `.metadata`; otherwise that is RSD_E_EXISTS */
    /* For ranks that don't communicate: this is rank `rank`'s own `__<rank>.metadata`, and only
     * that rank's files are ever removed. No checksum file is written. */
    bool       alone;
    int32_t    rank;
    rsd_choice sync;     /* NEVER: return before the bytes are safe from a power cut */
    rsd_choice checksum; /* DEFAULT: if all parts have hashes and the library can read the metadata;
                            ALWAYS: otherwise RSD_E_UNSUPPORTED */
    /* May be NULL. Its code becomes 0, or if the library can't read `metadata`, with the reason:
     * then there is no checksum file, nothing was compared, and no file is removed. */
    rsd_error *unread;
} rsd_publish_opts;

/* Makes the parts the folder's checkpoint: checks that their files are present, writes the checksum
 * file, then a temporary file that is renamed to `.metadata`, in one step and durably. Before that
 * the folder holds the previous checkpoint whole, after it the new one; files with other names are
 * never touched. A failure leaves the previous one.
 *
 * The previous checkpoint's data files stay: a reader may have read its metadata and not yet its
 * data. The next save removes them, and what killed writers left, but never the files of a part
 * that still exists. [local] */
RSD_API rsd_err rsd_parts_publish(const char *path, size_t n, const rsd_receipt *receipts,
                                  const rsd_publish_opts *opts, rsd_error *err);

/* ---- reading for another program's plan ---- */

/* One of many reads: a box of tensor t and where it goes. */
typedef struct rsd_read {
    size_t    t;
    rsd_dtype dtype; /* of the view; cast if the tensor has another one; 0: the tensor's */
    rsd_view  view;
} rsd_read;
/* All of them at once, in an order of the library's choosing, sharing threads and buffers. Views
 * must not overlap. After a failure their contents are undefined. Any thread may call it. */
RSD_API rsd_err rsd_ckpt_read_many(rsd_ckpt *ckpt, size_t n, const rsd_read *reads,
                                   const rsd_read_opts *opts, rsd_error *err);

/* The same by several ranks, each with its own list, of the checkpoint that each has opened: what
 * several ranks of a machine want, or want in short runs, is read by one of them and passed on, as
 * rsd_load does. RSD_E_MISMATCH if they have different ones open, by their files and tensors.
 * [collective] */
RSD_API rsd_err rsd_ckpt_read_together(rsd_ckpt *ckpt, rsd_comm *comm, size_t n,
                                       const rsd_read *reads, const rsd_read_opts *opts,
                                       rsd_error *err);

/* ---- objects as they are stored ---- */

/* Where object i is stored, if it has bytes of its own: in DCP. RSD_E_UNSUPPORTED otherwise. `box`
 * is that of a scalar. */
RSD_API rsd_err rsd_ckpt_object_extent(const rsd_ckpt *ckpt, size_t i, rsd_chunk *out,
                                       rsd_error *err);
/* Those bytes, transforms undone: a torch.save archive. `put` is called once, with all of them;
 * they are gone afterwards. The caller gets the code that it returns. Checksums are compared unless
 * opts->verify is NEVER. Nothing is unpickled. */
RSD_API rsd_err rsd_ckpt_object_bytes(rsd_ckpt *ckpt, size_t i, const rsd_read_opts *opts,
                                      rsd_err (*put)(void *arg, const void *bytes, size_t len),
                                      void *arg, rsd_error *err);
/* A digest of object i or, if `part` is not NULL, of that value inside it, which rsd_ckpt_object
 * made of object i: equal digests mean equal values, across checkpoints and formats. Dicts and sets
 * are unordered; tensors count by their elements, objects of unknown classes by their whole pickle.
 * Reads as much of the file as that takes, whatever the size. RSD_E_UNSUPPORTED if the contents
 * can't be determined. */
RSD_API rsd_err rsd_ckpt_object_digest(rsd_ckpt *ckpt, size_t i, const rsd_value *part,
                                       uint64_t digest[2], rsd_error *err);
/* Storages inside objects of unknown classes, such as a whole nn.Module: their number and bytes.
 * They are not tensors of the checkpoint; saving a state_dict instead makes them tensors. */
RSD_API rsd_err rsd_ckpt_hidden(rsd_ckpt *ckpt, size_t *storages, int64_t *bytes, rsd_error *err);
/* What a DCP checkpoint's metadata say about the save; each text may be NULL. */
typedef struct rsd_dcp_info {
    size_t      size;          /* sizeof(rsd_dcp_info) */
    const char *checkpoint_id; /* of storage_meta */
    const char *save_id;
    const char *version; /* of the metadata: "1.0.0" */
    bool        paths;   /* planner_data exist: rsd_ckpt_path has them */
} rsd_dcp_info;
/* RSD_E_UNSUPPORTED for other formats. */
RSD_API rsd_err rsd_ckpt_dcp(const rsd_ckpt *ckpt, rsd_dcp_info *out, rsd_error *err);

/* ---- objects that another program pickles, and a state for each save ---- */

/* Adds an object as what torch.save writes for it, bytes that a DCP checkpoint stores as they are.
 * `value`, which may be opaque, stands for it in other formats. Value and bytes must live as long
 * as the state. */
RSD_API rsd_err rsd_state_object(rsd_state *state, const char *name, const rsd_value *value,
                                 const void *bytes, size_t len, rsd_error *err);
/* rsd_state_want for a caller that can unpickle. If the value is more than numbers, text, bytes and
 * lists, tuples and sets of them, and has stored bytes of its own (DCP), `put` gets these: a
 * torch.save archive, gone when it returns. The caller of rsd_load gets the code that it returns.
 * Nothing is unpickled by the library. */
RSD_API rsd_err rsd_state_want_object(rsd_state *state, const char *name, rsd_values *owner,
                                      const rsd_value **value,
                                      rsd_err (*put)(void *arg, const void *bytes, size_t len),
                                      void *arg, rsd_error *err);
/* Moves the memory that RSD_STAGE_COPY left with a state to another one, if each save has a state
 * of its own. [local] */
RSD_API void rsd_state_restage(rsd_state *to, rsd_state *from);

/* ---- a series: the checkpoints of a run, one for each step ---- */

/* The entries of a folder whose names are a number, alone or behind one of "step", "step_",
 * "step-", "checkpoint", "checkpoint_", "checkpoint-", "ckpt", "ckpt_", "ckpt-", "global_step",
 * "iter_": folders or, with ".safetensors" or ".pt" behind the number, files. Others are
 * ignored. */
typedef struct rsd_series rsd_series;

typedef struct rsd_step {
    size_t      size; /* sizeof(rsd_step) */
    int64_t     step;
    const char *name; /* in the folder; lives until the series is listed again or closed */
} rsd_step;

/* `path` may not exist yet: the series is then empty. `store` NULL: a local path. [local] */
RSD_API rsd_err rsd_series_open(rsd_store *store, const char *path, rsd_series **out,
                                rsd_error *err);
RSD_API void    rsd_series_close(rsd_series *series);
/* Lists the folder again; opening does so the first time. [local] */
RSD_API rsd_err rsd_series_list(rsd_series *series, rsd_error *err);
/* Entries at the last listing, by rising step; complete or not. */
RSD_API size_t  rsd_series_count(const rsd_series *series);
RSD_API rsd_err rsd_series_step(const rsd_series *series, size_t i, rsd_step *out, rsd_error *err);
/* The path of a step: that of its entry or, for a new one, named like the last entry, "step-<N>" in
 * an empty series. */
RSD_API size_t rsd_series_path(const rsd_series *series, int64_t step, char *buf, size_t cap);

/* The highest step that rsd_ckpt_open accepts, after listing again; RSD_E_NOTFOUND if there is
 * none. `comm` NULL: [local]. Otherwise [collective]: rank 0 looks, all get its answer. */
RSD_API rsd_err rsd_series_latest(rsd_series *series, rsd_comm *comm, int64_t *out, rsd_error *err);

typedef struct rsd_prune_opts {
    size_t  size;    /* sizeof(rsd_prune_opts) */
    int64_t last;    /* keep this many of the latest complete ones; at least 1 */
    int64_t every;   /* keep those whose step is a multiple of it too; 0: none */
    bool    dry_run; /* only report */
    /* Called for each one that is removed, or would be, before that. Returning nonzero ends
     * the call with RSD_E_CANCELED: this one and the others stay. */
    int (*on_remove)(void *arg, const rsd_step *step);
    void *arg;
} rsd_prune_opts;
/* Removes complete checkpoints, with everything in their folders, except those that the options
 * keep. Incomplete ones stay: they may be in the making. Each folder is renamed first, so no
 * reader finds half of one; what is open stays readable. `comm` as above; rank 0 removes. */
RSD_API rsd_err rsd_series_prune(rsd_series *series, rsd_comm *comm, const rsd_prune_opts *opts,
                                 rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
