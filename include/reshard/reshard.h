/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.h - save, load, convert and reshard sharded tensors.
 *
 * The sections follow the data:
 *
 *     mesh + placements -> layout -> state -> comm / store -> tensor bytes
 *
 * A layout says which rank owns which box of a tensor. A function communicates or touches files
 * only if its comment says so. More headers: reshard_live.h (plans, moving tensors between ranks,
 * the stash), reshard_folder.h (saving inside a folder with other files), reshard_recipe.h (tensors
 * made from others), reshard_plugin.h (custom comms, stores, transforms), reshard_mpi.h (MPI).
 *
 * Rules that hold for every function:
 *  result     Returns rsd_err; RSD_OK is 0, so `if (rc)` reads "it failed".
 *  outputs    Written only on success; they follow the inputs. `rsd_error *err` is always last and
 *             may be NULL.
 *  ownership  A function with an `rsd_x **out` creates an object; rsd_x_free, or rsd_x_close if it
 *             was opened, destroys it and accepts NULL. Other pointers are borrowed and live as
 *             long as their origin. A layout keeps its mesh alive, a plan its layouts.
 *  ranks      [collective] every rank of the comm calls it, in the same order, and gets the same
 *             code; err->rank names the first rank that failed. [local] never communicates.
 *             An invalid argument on one rank fails all. Path and options must agree on all ranks,
 *             except threads, max_memory, callbacks, results and what a function exempts. If they
 *             differ, or ranks call different functions, all get RSD_E_MISMATCH, which names the
 *             option and the first rank that differs from rank 0; the comm stays usable. A rank
 *             that passes no comm can't tell the others: they wait for it until the timeout.
 *  options    A struct that begins with `size` may grow; the caller sets the size, and 0 is
 *             RSD_E_INVALID. Options: fields missing from an older, smaller struct get their
 *             defaults; RSD_E_INVALID if fields unknown to the library are not zero; NULL means
 *             all defaults. Results: filled as far as both sides know the fields. Other structs
 *             never change.
 *  threads    mesh, layout, rules and plan may be shared by threads; the last user frees them.
 *  text       Functions that write text fill `buf` like snprintf: at most `cap` bytes including the
 *             final NUL; they return the full length. */
#ifndef RESHARD_H
#define RESHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RSD_API __attribute__((visibility("default")))
#else
#define RSD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RSD_VERSION_MAJOR  0
#define RSD_VERSION_MINOR  2
#define RSD_VERSION_PATCH  0
#define RSD_VERSION_NUMBER (RSD_VERSION_MAJOR * 10000 + RSD_VERSION_MINOR * 100 + RSD_VERSION_PATCH)

/* "0.2.0": the library at run time; the macros describe the header at compile time. */
RSD_API const char *rsd_version(void);
/* RSD_VERSION_NUMBER of the library at run time. */
RSD_API int rsd_version_number(void);

/* ---- errors: grouped by remedy ---- */

typedef enum rsd_err {
    RSD_OK = 0,

    RSD_E_INVALID = 1,     /* fix the call: an argument is invalid               */
    RSD_E_MISMATCH = 2,    /* fix the call: two arguments don't belong together  */
    RSD_E_UNSUPPORTED = 3, /* fix the call: it makes sense, but not here         */

    RSD_E_NOTFOUND = 10, /* fix the data: it is missing                          */
    RSD_E_EXISTS = 11,   /* fix the data: it exists already                      */
    RSD_E_FORMAT = 12,   /* fix the data: it breaks its format's rules           */
    RSD_E_CORRUPT = 13,  /* fix the data: its checksum is wrong                  */

    RSD_E_NOMEM = 20, /* the machine */
    RSD_E_IO = 21,
    RSD_E_COMM = 22,
    RSD_E_CANCELED = 23,
    RSD_E_TIMEOUT = 24,

    RSD_E_BUG = 30 /* report it */
} rsd_err;

/* A plain value: copy it, keep it, send it to another rank. */
typedef struct rsd_error {
    int32_t code;      /* rsd_err */
    int32_t sys_errno; /* 0: no system call failed */
    int32_t rank;      /* first rank that failed; -1: not a collective */
    int32_t nfailed;   /* how many ranks failed; 0: not a collective */
    char    msg[496];  /* one line of UTF-8, no final period, no control or direction characters */
} rsd_error;

/* "RSD_E_INVALID"; "unknown error" for any other number. */
RSD_API const char *rsd_err_name(rsd_err code);

/* ---- dtype ---- */

/* clang-format off */
typedef enum rsd_dtype { /* values never change */
    RSD_BOOL = 1, RSD_U8 = 2, RSD_I8 = 3, RSD_U16 = 4, RSD_I16 = 5, RSD_U32 = 6, RSD_I32 = 7,
    RSD_U64 = 8, RSD_I64 = 9, RSD_F16 = 16, RSD_BF16 = 17, RSD_F32 = 18, RSD_F64 = 19,
    RSD_C32 = 24, RSD_C64 = 25, RSD_C128 = 26, RSD_F8_E4M3FN = 32, RSD_F8_E5M2 = 33,
    RSD_F8_E4M3FNUZ = 34, RSD_F8_E5M2FNUZ = 35, RSD_F8_E8M0FNU = 36,
    RSD_F4_E2M1FN_X2 = 40 /* one element is a byte with two values, as in torch; safetensors' F4
                             counts values */
} rsd_dtype;
/* clang-format on */

/* Bits of one element, 8 to 128; 0 if `dtype` is not one of the above. */
RSD_API int rsd_dtype_bits(rsd_dtype dtype);
/* Bytes of one element, 1 to 16; 0 if `dtype` is not one of the above. */
RSD_API size_t rsd_dtype_size(rsd_dtype dtype);
/* torch's name, "bfloat16"; NULL if unknown. */
RSD_API const char *rsd_dtype_name(rsd_dtype dtype);
/* safetensors' name, "BF16"; NULL if unknown or if safetensors can't hold it (complex32,
 * complex128). */
RSD_API const char *rsd_dtype_safetensors_name(rsd_dtype dtype);
/* Accepts "bfloat16", "torch.bfloat16", safetensors' "BF16" and the short "bf16". [local] */
RSD_API rsd_err rsd_dtype_parse(const char *name, rsd_dtype *out, rsd_error *err);
/* Casts n packed elements as loading and converting do; `dst` and `src` must not overlap.
 * RSD_E_UNSUPPORTED if there is no such cast; n = 0 only checks that. */
RSD_API rsd_err rsd_dtype_cast(rsd_dtype to, void *dst, rsd_dtype from, const void *src, size_t n,
                               rsd_error *err);

/* ---- box: a rectangular part of a tensor ---- */

#define RSD_MAX_NDIM 8

typedef struct rsd_box {
    int32_t ndim; /* 0: a scalar, which has one element */
    int64_t off[RSD_MAX_NDIM];
    int64_t len[RSD_MAX_NDIM];
} rsd_box;

/* Elements in the box. */
RSD_API int64_t rsd_box_count(const rsd_box *box);
/* True if the two share an element; *out (may be NULL) becomes the shared box. */
RSD_API bool rsd_box_intersect(const rsd_box *a, const rsd_box *b, rsd_box *out);

/* "[0:4, 8:16]", "[]" for a scalar. */
RSD_API size_t rsd_box_text(const rsd_box *box, char *buf, size_t cap);

/* ---- mesh: an n-d grid of ranks ---- */

typedef struct rsd_mesh rsd_mesh;

/* `shape` has ndim sizes of at least 1, `axis` as many distinct names (NULL: "0", "1", ...).
 * `ranks` gives the rank at each position, in row-major order, each rank once (NULL: 0, 1, 2 ...,
 * which takes no memory). ndim 0 is one rank. [local] */
RSD_API rsd_err rsd_mesh_create(int ndim, const int64_t *shape, const char *const *axis,
                                const int32_t *ranks, rsd_mesh **out, rsd_error *err);
/* The sub-mesh of the ranks at `index` of `axis`; it has the other axes. [local] */
RSD_API rsd_err rsd_mesh_slice(const rsd_mesh *mesh, const char *axis, int64_t index,
                               rsd_mesh **out, rsd_error *err);
RSD_API void    rsd_mesh_free(rsd_mesh *mesh);

RSD_API int         rsd_mesh_ndim(const rsd_mesh *mesh);
RSD_API int64_t     rsd_mesh_size(const rsd_mesh *mesh, int axis); /* axis -1: all ranks */
RSD_API const char *rsd_mesh_axis(const rsd_mesh *mesh, int axis);
/* The rank at a coordinate; `coord` has ndim entries, each within its axis. */
RSD_API int32_t rsd_mesh_rank(const rsd_mesh *mesh, const int64_t *coord);
/* The coordinate of a rank; false if it is not in the mesh. `coord` may be NULL. */
RSD_API bool rsd_mesh_coord(const rsd_mesh *mesh, int32_t rank, int64_t *coord);

/* ---- placement, layout: which rank owns which box ---- */

typedef enum rsd_place_kind {
    RSD_REPLICATE = 1,
    RSD_SHARD,
    RSD_STRIDED,
    RSD_PARTIAL
} rsd_place_kind;
typedef enum rsd_reduce { RSD_SUM = 1, RSD_AVG, RSD_MIN, RSD_MAX, RSD_PRODUCT } rsd_reduce;

/* What one mesh axis does to a tensor. Unused fields are ignored. */
typedef struct rsd_placement {
    rsd_place_kind kind;
    int32_t        dim;    /* shard, strided: tensor dimension; negative counts from the last */
    int64_t        split;  /* strided: split factor, at least 1 */
    rsd_reduce     reduce; /* partial */
} rsd_placement;

/* Immutable: a formula for meshes (no memory for ranks), a table otherwise. */
typedef struct rsd_layout rsd_layout;

/* One placement for each mesh axis, applied in axis order by torch.chunk's rules: splitting n over
 * k gives each rank in turn ceil(n/k), so the last ones may get less or nothing. Several axes may
 * shard one dimension. strided(dim, f) first cuts into f chunks and then shards each of them over
 * the axis, as FSDP2 with tensor parallelism does. [local] */
RSD_API rsd_err rsd_layout_create(const rsd_mesh *mesh, const rsd_placement *place, rsd_dtype dtype,
                                  int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err);
/* ChunkShardingSpec: rank ranks[i] gets chunk i of dimension `dim` (negative as above). [local] */
RSD_API rsd_err rsd_layout_create_chunked(int32_t dim, size_t n, const int32_t *ranks,
                                          rsd_dtype dtype, int ndim, const int64_t *shape,
                                          rsd_layout **out, rsd_error *err);
/* EnumerableShardingSpec and anything else: box i belongs to rank owner[i]; a rank may own several.
 * The boxes must tile the tensor; equal boxes on different ranks are replicas. Empty boxes are
 * ignored. [local] */
RSD_API rsd_err rsd_layout_create_boxes(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                        const int32_t *owner, const rsd_box *box, rsd_layout **out,
                                        rsd_error *err);
/* Ranges of the flattened tensor (ZeRO, FSDP1): rank owner[i] holds count[i] elements starting at
 * start[i], contiguous in memory. The ranges must tile the tensor; equal ranges on different ranks
 * are replicas. A range becomes at most 2 * ndim - 1 boxes. [local] */
RSD_API rsd_err rsd_layout_create_ranges(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                         const int32_t *owner, const int64_t *start,
                                         const int64_t *count, rsd_layout **out, rsd_error *err);
/* One rank's boxes, without a mesh, need not cover the tensor: a target to load into. [local] */
RSD_API rsd_err rsd_layout_create_part(rsd_dtype dtype, int ndim, const int64_t *shape,
                                       int32_t rank, size_t n, const rsd_box *box, rsd_layout **out,
                                       rsd_error *err);
RSD_API void    rsd_layout_free(rsd_layout *layout);

RSD_API rsd_dtype rsd_layout_dtype(const rsd_layout *layout);
/* Returns the number of dimensions; `shape`, if not NULL, gets that many sizes. */
RSD_API int rsd_layout_shape(const rsd_layout *layout, int64_t *shape);
/* One more than the highest rank in the mesh or, for a table, that holds a box. */
RSD_API int32_t rsd_layout_world(const rsd_layout *layout);
/* Returns how many boxes `rank` holds and fills in the first `cap`: for a mesh in row-major order,
 * otherwise as given. None for a rank with an empty shard or outside the mesh. */
RSD_API size_t rsd_layout_boxes(const rsd_layout *layout, int32_t rank, rsd_box *out, size_t cap);

/* Bytes that `rank` needs for its part in the usual memory layout (see rsd_layout_views). */
RSD_API int64_t rsd_layout_bytes(const rsd_layout *layout, int32_t rank);
/* A mesh layout as rules that rsd_rules_parse reads back ("mesh dp=2 tp=4; * shard(0)@dp"); any
 * other layout as a description. */
RSD_API size_t rsd_layout_text(const rsd_layout *layout, char *buf, size_t cap);

/* ---- rules: layouts as text ---- */

/* A mesh line, then one rule for each kind of tensor; the first that matches a name wins. ';' or a
 * new line ends each, '#' starts a comment.
 *
 *     mesh dp=2 tp=4                  # or: mesh pp=2 tp=4 ranks=7,6,5,4,3,2,1,0
 *     *.wq.weight   shard(0)@tp
 *     *.w1.weight   strided(0,4)@dp shard(0)@tp
 *     *.head.*      shard(0)@tp on dp=0
 *     *norm*        replicate
 *     *             shard(0)@dp
 *
 * Placements: replicate, shard(DIM)@AXIS, strided(DIM,SPLIT)@AXIS,
 * partial(sum|avg|min|max|product)@AXIS. They apply in the order of the mesh's axes,
 * however they are written; an axis that is not named replicates. `on AXIS=I` picks a sub-mesh,
 * other ranks hold nothing. Patterns are shell-style globs; `*` also matches dots. */
typedef struct rsd_rules rsd_rules;

/* Errors give the line and column, what was found and what was expected. [local] */
RSD_API rsd_err rsd_rules_parse(const char *text, rsd_rules **out, rsd_error *err);
/* The layout that the rules give a tensor; RSD_E_NOTFOUND if no rule matches. A tensor without
 * dimensions is replicated even if its rule shards it. [local] */
RSD_API rsd_err rsd_rules_layout(const rsd_rules *rules, const char *name, rsd_dtype dtype,
                                 int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err);
/* Bytes that `rank` needs for its part of that tensor in the usual memory layout. [local] */
RSD_API rsd_err rsd_rules_bytes(const rsd_rules *rules, const char *name, rsd_dtype dtype, int ndim,
                                const int64_t *shape, int32_t rank, int64_t *out, rsd_error *err);
RSD_API const rsd_mesh *rsd_rules_mesh(const rsd_rules *rules);
/* The rules in canonical form, one per line; parsing the text gives equal rules. */
RSD_API size_t rsd_rules_text(const rsd_rules *rules, char *buf, size_t cap);
RSD_API void   rsd_rules_free(rsd_rules *rules);

/* ---- comm: messages between ranks ---- */

/* One rank's end of a group of ranks 0 .. size-1. One thread at a time may use it, on MPI only the
 * one that initialised MPI. reshard_mpi.h has rsd_comm_create_mpi, reshard_live.h
 * rsd_comm_split. */
typedef struct rsd_comm rsd_comm;

/* This process alone: the only rank if of_size is 1, otherwise rank `as_rank` of of_size with the
 * others absent, so that a tool can show what that rank would load. Collectives agree at once;
 * operations that need another rank's bytes fail with RSD_E_UNSUPPORTED. [local] */
RSD_API rsd_err rsd_comm_create_self(int32_t as_rank, int32_t of_size, rsd_comm **out,
                                     rsd_error *err);
/* n ranks in this process: out[r] is for the thread that is rank r, which also frees it. Waiting
 * on a freed rank fails at once with RSD_E_COMM. [local] */
RSD_API rsd_err rsd_comm_create_threads(int32_t n, rsd_comm **out, rsd_error *err);
/* Starts the threads too: runs fn(arg, comm) as each of n ranks and returns when all have ended. A
 * comm is freed when its fn returns. The result is that of the rank that failed first in time. */
RSD_API rsd_err rsd_comm_run_threads(int32_t n,
                                     rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err),
                                     void *arg, rsd_error *err);
/* The ranks that mpirun or srun started this program as, or this process alone without a launcher.
 * Loads libreshard_mpi_openmpi.so or libreshard_mpi_mpich.so, whichever matches the launcher
 * (RESHARD_MPI=openmpi, mpich or none overrides it), initialises MPI, and finalises it when the
 * comm is freed. Once per program. With RESHARD_MEET: see docs/machines.md. [collective] */
RSD_API rsd_err rsd_comm_create_launched(rsd_comm **out, rsd_error *err);

/* First free the comms split from it and give back the memory of rsd_comm_alloc. On MPI:
 * [collective], unless the comm is broken. If the library initialised MPI, freeing the last comm
 * waits for all ranks before it finalises MPI, at most for the comm's timeout; after that it breaks
 * the comm and returns without finalising MPI. */
RSD_API void rsd_comm_free(rsd_comm *comm);

RSD_API int32_t rsd_comm_rank(const rsd_comm *comm);
RSD_API int32_t rsd_comm_size(const rsd_comm *comm);

/* How long a rank may be silent while others wait for it: 300,000 ms by default, at least 1. After
 * that every rank gets RSD_E_TIMEOUT, which names the missing ranks as far as they are known. Work
 * is not silence: within a call, ranks send heartbeats between blocks, so a save may take any time.
 * Silence means one block that takes longer than the timeout (a callback, a write, a sync) or a
 * rank that is in no call with this comm. `ms` must agree on all ranks. [local] */
RSD_API rsd_err rsd_comm_set_timeout(rsd_comm *comm, int64_t ms, rsd_error *err);

/* Wakes every waiting rank with RSD_E_COMM and `why`. Any rank may call it, any time between other
 * calls. Like a timeout it breaks the comm and all comms split from the same original one: from
 * then on every call except rsd_comm_free fails. Messages number ranks as in the original comm. */
RSD_API void rsd_comm_abort(rsd_comm *comm, const char *why);

/* The ranks that failed in the last collective that ended in agreement, in rising order; its
 * err->rank and err->msg are those of the first. Fills at most `cap` and returns their number; only
 * the first 1024 are kept, err->nfailed counts all. [local] */
RSD_API size_t rsd_comm_failures(const rsd_comm *comm, rsd_error *out, size_t cap);

/* ---- store: bytes under names ---- */

/* Files in folders, and trees of them that are published whole or not at all. A name is relative to
 * the store's root: components separated by single '/', none of them empty, "." or ".."; no control
 * characters. May be shared by threads. */
typedef struct rsd_store rsd_store;

/* "/path", "path" or "file:/path": files below that folder, which must exist. "mem:": a new, empty
 * store in memory. "null:": accepts everything and keeps nothing, for measurements. If the process
 * runs out of descriptors for local files (EMFILE), its soft RLIMIT_NOFILE is raised to the hard
 * limit for good. [local] */
RSD_API rsd_err rsd_store_open(const char *url, rsd_store **out, rsd_error *err);
/* Close every file, queue and tree first. */
RSD_API void rsd_store_close(rsd_store *store);

/* ---- values: plain Python objects ---- */

/* clang-format off */
typedef enum rsd_value_type { /* values never change */
    RSD_VALUE_NONE = 1, RSD_VALUE_BOOL = 2, RSD_VALUE_INT = 3, /* fits 64 bits */
    RSD_VALUE_BIGINT = 4,                     /* rsd_value_bytes: decimal digits */
    RSD_VALUE_FLOAT = 5, RSD_VALUE_STR = 6,   /* UTF-8 */
    RSD_VALUE_BYTES = 7, RSD_VALUE_LIST = 8, RSD_VALUE_TUPLE = 9, /* torch.Size too */
    RSD_VALUE_SET = 10, RSD_VALUE_DICT = 11,  /* keys may be any values, in their order */
    RSD_VALUE_DTYPE = 12,                     /* torch.bfloat16 */
    RSD_VALUE_DEVICE = 13,                    /* rsd_value_bytes: "cuda:0" */
    RSD_VALUE_TENSOR = 14,
    RSD_VALUE_OPAQUE = 15 /* anything else; rsd_value_bytes: its class, "module.name" */
} rsd_value_type;
/* clang-format on */

/* Immutable; belongs to the rsd_values it was made in. */
typedef struct rsd_value rsd_value;
/* Owns values. Only one thread at a time may create values in it. */
typedef struct rsd_values rsd_values;

/* A tensor inside an object: a strided view of a storage. */
typedef struct rsd_value_tensor {
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     stride[RSD_MAX_NDIM]; /* elements */
    int64_t     offset;               /* elements from the storage's start */
    int64_t     storage_bytes;        /* the view lies within it */
    const char *storage;              /* its name in the archive, "0"; NULL: only `bytes` */
    const char *location;             /* "cpu", "cuda:0"; may be NULL */
    const void *bytes;                /* the storage's contents; NULL: not read */
    bool        requires_grad;
    bool        conj, neg; /* the elements are the conjugates or negatives of the stored ones */
} rsd_value_tensor;

#define RSD_VALUE_MAX_DEPTH 512 /* levels of nested containers */

RSD_API rsd_err rsd_values_create(rsd_values **out, rsd_error *err);
RSD_API void    rsd_values_free(rsd_values *owner);

/* Text, bytes and tensor descriptions are copied; a tensor's `bytes` are not, and its view must lie
 * within `storage_bytes`. [local] */
RSD_API rsd_err rsd_value_create_none(rsd_values *owner, const rsd_value **out, rsd_error *err);
RSD_API rsd_err rsd_value_create_bool(rsd_values *owner, bool x, const rsd_value **out,
                                      rsd_error *err);
RSD_API rsd_err rsd_value_create_int(rsd_values *owner, int64_t x, const rsd_value **out,
                                     rsd_error *err);
RSD_API rsd_err rsd_value_create_float(rsd_values *owner, double x, const rsd_value **out,
                                       rsd_error *err);
RSD_API rsd_err rsd_value_create_dtype(rsd_values *owner, rsd_dtype x, const rsd_value **out,
                                       rsd_error *err);
RSD_API rsd_err rsd_value_create_tensor(rsd_values *owner, const rsd_value_tensor *tensor,
                                        const rsd_value **out, rsd_error *err);
/* Makes a BIGINT, STR, BYTES, DEVICE or OPAQUE. RSD_E_INVALID if no reader would accept it: text
 * that is not UTF-8 (lone surrogates pass, as in Python), a BIGINT that is not decimal digits or
 * exceeds 255 bytes, a DEVICE not of the form "cuda:0", more than 512 MiB. */
RSD_API rsd_err rsd_value_create_bytes(rsd_values *owner, rsd_value_type type, const void *bytes,
                                       size_t len, const rsd_value **out, rsd_error *err);
/* Makes a LIST, TUPLE, SET or DICT. For a dict, `item` holds n pairs: keys and values in turn. The
 * items must have the same owner; RSD_E_UNSUPPORTED if they nest deeper than the limit. As in
 * Python, a list, set or dict can't be a key or in a set: RSD_E_INVALID. */
RSD_API rsd_err rsd_value_create_list(rsd_values *owner, rsd_value_type type, size_t n,
                                      const rsd_value *const *item, const rsd_value **out,
                                      rsd_error *err);

RSD_API rsd_value_type rsd_value_type_of(const rsd_value *v);
/* These return 0, false or NULL if the value has another type. */
RSD_API bool    rsd_value_bool(const rsd_value *v);
RSD_API int64_t rsd_value_int(const rsd_value *v);   /* also of a bool */
RSD_API double  rsd_value_float(const rsd_value *v); /* also of an int */
/* Of BIGINT, STR, BYTES, DEVICE and OPAQUE, NUL-terminated; `len` may be NULL. */
RSD_API const char             *rsd_value_bytes(const rsd_value *v, size_t *len);
RSD_API rsd_dtype               rsd_value_dtype(const rsd_value *v);
RSD_API const rsd_value_tensor *rsd_value_tensor_of(const rsd_value *v);
/* Number of items of a list, tuple or set, of pairs of a dict. */
RSD_API size_t           rsd_value_count(const rsd_value *v);
RSD_API const rsd_value *rsd_value_item(const rsd_value *v, size_t i); /* of a dict: the value */
RSD_API const rsd_value *rsd_value_key(const rsd_value *v, size_t i);
/* The value of a dict under a str key; NULL if there is none. */
RSD_API const rsd_value *rsd_value_get(const rsd_value *dict, const char *key);
/* As Python prints it: "{'step': 100, 'lr': [0.1, 0.2]}". An opaque object whose pickle says
 * plainly what is in it is "module.name(field=1)" or "module.name(argument)", numpy's elements
 * included; others, those with tensors and those of more than 256 KiB are "<module.name>". */
RSD_API size_t rsd_value_text(const rsd_value *v, char *buf, size_t cap);
/* As JSON. Tuples become lists. What JSON lacks becomes an object with one key: {"$bytes": "00ff"},
 * {"$set": [..]}, {"$float": "nan"}, {"$dtype": ".."}, {"$device": ".."}, {"$opaque": ".."},
 * {"$tensor": {"dtype": "..", "shape": [..]}}; a dict with keys other than str {"$dict": [[key,
 * value], ..]}. Beside "$opaque" there are "fields" or "args" if its text would have them. */
RSD_API size_t rsd_value_json(const rsd_value *v, char *buf, size_t cap);

/* ---- checkpoint: its contents, and reading any part of it ---- */

typedef enum rsd_format {
    RSD_FORMAT_AUTO = 0,
    RSD_FORMAT_DCP = 1,           /* PyTorch's distributed checkpoint: a folder */
    RSD_FORMAT_SAFETENSORS = 2,   /* one file, or a folder of them */
    RSD_FORMAT_TORCH = 3,         /* torch.save: one file; a folder of them can be read */
    RSD_FORMAT_RANKS = 4,         /* torch.save on every rank, with DTensors: a folder; read only */
    RSD_FORMAT_ZERO = 5,          /* DeepSpeed's ZeRO: a folder; written in its universal form */
    RSD_FORMAT_SHARDED_STATE = 6, /* vLLM's files of ranks: written by rsd_convert alone */
    RSD_FORMAT_MEGATRON = 7       /* DCP with Megatron-Core's own files: by rsd_convert alone */
} rsd_format;

/* A choice that is usually best left to the library. */
typedef enum rsd_choice { RSD_DEFAULT = 0, RSD_ALWAYS = 1, RSD_NEVER = 2 } rsd_choice;

/* One box of a tensor in memory: a pointer and byte strides, or callbacks (devices, sockets). */
typedef struct rsd_view {
    rsd_box box;
    void   *data; /* the first element, at any address; NULL: get and put are used */
    int64_t stride[RSD_MAX_NDIM]; /* bytes, may be negative; all zero: packed, row-major */
    /* Copy bytes [off, off + len) of the box as if it were packed. May be called from several
     * threads, in any order. The caller of the library gets the code that they return. */
    rsd_err (*get)(void *arg, uint64_t off, void *host, size_t len);
    rsd_err (*put)(void *arg, uint64_t off, const void *host, size_t len);
    void *arg;
} rsd_view;

/* The views of a rank that keeps its part at `data` in the usual memory layout: on a mesh one dense
 * row-major tensor of the local shape (as in torch), otherwise its boxes packed one after the
 * other. Fills at most `cap` and returns their number, which may be larger: check it, as
 * rsd_state_add does. [local] */
RSD_API size_t rsd_layout_views(const rsd_layout *layout, int32_t rank, void *data, rsd_view *out,
                                size_t cap);

typedef struct rsd_ckpt rsd_ckpt;

typedef struct rsd_tensor_info {
    size_t      size; /* sizeof(rsd_tensor_info) */
    const char *name;
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     bytes;         /* of all elements */
    size_t      chunks;        /* boxes that it is stored as; they tile it */
    bool        requires_grad; /* DCP: as its metadata say. Layout and memory format are always
                                  strided and contiguous */
} rsd_tensor_info;

typedef struct rsd_chunk {
    size_t             size; /* sizeof(rsd_chunk) */
    rsd_box            box;
    const char        *file;           /* its name below the checkpoint's path */
    uint64_t           offset, length; /* stored bytes of the chunk, headers included */
    size_t             ntransforms;
    const char *const *transforms; /* in the order applied; the last is undone first */
} rsd_chunk;

/* One step on the path to a tensor or object through nested dicts and lists. */
typedef struct rsd_path_part {
    const char *key; /* of a dict; NULL: a list index */
    int64_t     index;
    bool        number; /* the dict's key is the number `index`, and `key` is its text */
    /* The dict's key if it is neither text nor such a number, and `key` is its text; else NULL.
     * Lives as long as the checkpoint. */
    const rsd_value *other;
} rsd_path_part;

/* Progress in bytes; returning nonzero cancels. Any thread may call it, one at a time. */
typedef int (*rsd_progress)(void *arg, int64_t done, int64_t total);

typedef struct rsd_read_opts {
    size_t size; /* sizeof(rsd_read_opts) */
    /* Which checksums are compared: the checksum file's, a hash for each row of at most 4 MiB, and
     * torch's CRC32 of each record. DEFAULT: those of rows and records that are read whole anyway.
     * ALWAYS: those of every row and record touched, which is then read whole; an unusable checksum
     * file is an error. NEVER: none. Unless NEVER, the metadata are compared with the checksum file
     * too, before the first byte is read. */
    rsd_choice   verify;
    int32_t      threads;     /* 0: one per available processor */
    size_t       max_memory;  /* bytes of buffers; 0: at most 64 MiB */
    bool         quick;       /* rsd_ckpt_verify: reads no data */
    rsd_progress on_progress; /* rsd_ckpt_verify, unless quick */
    void        *arg;
} rsd_read_opts;

/* Detects the format from the files, reads the metadata and checks their consistency: every chunk
 * lies inside its tensor and its file, chunks tile their tensors, no file is missing. Nothing in a
 * pickle is executed. `store` NULL: local files. An open checkpoint stays the same, whatever is
 * published under its name later, except that files may be gone if it has more of them than this
 * process may keep open (half of RLIMIT_NOFILE). RSD_E_MISMATCH in that case, if a file was
 * modified in place, or if the checkpoint is replaced five times while it is being opened. */
RSD_API rsd_err rsd_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err);
RSD_API void    rsd_ckpt_close(rsd_ckpt *ckpt);

typedef struct rsd_open_opts {
    size_t size; /* sizeof(rsd_open_opts) */
    /* Missing or short data files are no error: the rest can be listed and read; rsd_ckpt_health
     * reports what can't. The metadata (the end of a torch.save file) must be intact. */
    bool salvage;
    /* Of a DCP checkpoint whose ranks did not communicate (`__<rank>.metadata`): only what rank
     * `rank` wrote. Its chunks need not tile their tensors; reading leaves memory for elements that
     * are in none of them unchanged. */
    bool    alone;
    int32_t rank;
} rsd_open_opts;
RSD_API rsd_err rsd_ckpt_open_with(rsd_store *store, const char *path, const rsd_open_opts *opts,
                                   rsd_ckpt **out, rsd_error *err);

typedef enum rsd_health {
    RSD_WHOLE = 0, /* as far as is known */
    RSD_DAMAGED,   /* some of its bytes are missing or changed */
    RSD_GONE       /* none are left */
} rsd_health;
/* Health of tensor t. Opening finds what is missing, rsd_ckpt_verify what has changed. */
RSD_API rsd_health rsd_ckpt_health(const rsd_ckpt *ckpt, size_t t);
RSD_API rsd_health rsd_ckpt_object_health(const rsd_ckpt *ckpt, size_t i);
/* The i-th attribute of the metadata that reading skips because this version does not know it, such
 * as "Metadata.all_local_plans"; NULL after the last. Nothing of it is built or called. */
RSD_API const char *rsd_ckpt_skipped(const rsd_ckpt *ckpt, size_t i);
/* The i-th thing that opening found and that is no damage, such as an object of which every rank
 * saved its own: the name of a tensor or an object, which may be left out, and a line about it.
 * False after the last. */
RSD_API bool rsd_ckpt_note(const rsd_ckpt *ckpt, size_t i, const char **name, const char **why);
/* The i-th tensor whose file is missing, known only by its name from an index, a model file or its
 * folder; NULL after the last. These are not among the checkpoint's tensors. */
RSD_API const char *rsd_ckpt_lost(const rsd_ckpt *ckpt, size_t i);

RSD_API rsd_format rsd_ckpt_format(const rsd_ckpt *ckpt);
/* Describes the variant of the format, what wrote it, and which other checkpoints of its folder
 * were left out; "" for the usual one. */
RSD_API const char *rsd_ckpt_kind(const rsd_ckpt *ckpt);
RSD_API size_t      rsd_ckpt_tensors(const rsd_ckpt *ckpt);
/* Tensor t < rsd_ckpt_tensors, in the order of the format. */
RSD_API rsd_err rsd_ckpt_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out,
                                rsd_error *err);
/* RSD_E_NOTFOUND if there is no such tensor. */
RSD_API rsd_err rsd_ckpt_find(const rsd_ckpt *ckpt, const char *name, size_t *out, rsd_error *err);
/* Chunk i of tensor t. */
RSD_API rsd_err rsd_ckpt_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out,
                               rsd_error *err);
/* Fills into->box, any part of tensor t, reading only what it needs. Any thread may call it. */
RSD_API rsd_err rsd_ckpt_read(rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                              const rsd_read_opts *opts, rsd_error *err);

/* Everything that is not a tensor: numbers, text, nested lists and dicts. */
RSD_API size_t rsd_ckpt_objects(const rsd_ckpt *ckpt);
/* The name of object i and, if `owner` is not NULL, its value, created in `owner`. An object of an
 * unknown class is opaque: its class is named, and nothing is executed. */
RSD_API rsd_err rsd_ckpt_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                                const rsd_value **value, rsd_error *err);
/* One entry of safetensors' __metadata__. */
typedef struct rsd_meta {
    size_t      size;        /* sizeof(rsd_meta) */
    const char *key, *value; /* the value may contain NULs */
    size_t      value_len;
    bool        differs; /* another file of the checkpoint has another value; this is the first */
} rsd_meta;
/* Entries of all files, each key once, without those on how tensors are cut; 0: other formats. */
RSD_API size_t  rsd_ckpt_metas(const rsd_ckpt *ckpt);
RSD_API rsd_err rsd_ckpt_meta(const rsd_ckpt *ckpt, size_t i, rsd_meta *out, rsd_error *err);
/* The path to a name in the original's nesting: returns its length and fills the first `cap` steps.
 * 0: the format keeps none. */
RSD_API size_t rsd_ckpt_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out,
                             size_t cap);

/* Checks everything: each item against the metadata, every CRC32 that torch wrote and, if a
 * checksum file exists, that it is intact, that it lists every file of the checkpoint, and that
 * every listed file is present and unchanged. opts->quick: only the checksum file itself, presence
 * and sizes of files, and the metadata. `damage` is called for each finding, with one line that
 * names the file, tensor and place; the result is RSD_OK even then. *count (may be NULL) becomes
 * the number of findings. */
RSD_API rsd_err rsd_ckpt_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                                void (*damage)(void *arg, const rsd_error *what), void *arg,
                                size_t *count, rsd_error *err);
/* True if the checkpoint has a checksum file. Without one, safetensors data have no checksums. */
RSD_API bool rsd_ckpt_has_checksums(const rsd_ckpt *ckpt);

typedef struct rsd_checksum_opts {
    size_t       size;       /* sizeof(rsd_checksum_opts) */
    bool         overwrite;  /* replace an existing checksum file; otherwise that is RSD_E_EXISTS */
    int32_t      threads;    /* 0: one per available processor */
    size_t       max_memory; /* bytes of buffers; 0: at most 64 MiB */
    rsd_progress on_progress;
    void        *arg;
} rsd_checksum_opts;

/* Writes a checksum file for a checkpoint made elsewhere: ".reshard-sums" in a folder, or
 * "<name>.reshard-sums" beside a single file; other programs ignore it. The checkpoint is first
 * opened, and so checked; it is not changed. The checksum file appears whole or not at all, durable
 * on return. RSD_E_UNSUPPORTED if the library was built without xxHash. */
RSD_API rsd_err rsd_ckpt_add_checksums(rsd_store *store, const char *path,
                                       const rsd_checksum_opts *opts, rsd_error *err);

/* ---- state: named tensors and values, as this process holds them ---- */

typedef struct rsd_state rsd_state;

RSD_API rsd_err rsd_state_create(rsd_state **out, rsd_error *err);
RSD_API void    rsd_state_free(rsd_state *state);

/* Nesting, which the checkpoint keeps: what is added between push and pop goes into a dict under
 * `key`, or into a list at `index`. Names are the keys joined by dots. A number as key, as in the
 * state of torch's optimizers, stays a number in torch.save files; DCP stores its text. Keys and
 * names are UTF-8 of at most 64 KiB; anything else is RSD_E_INVALID. */
RSD_API rsd_err rsd_state_push(rsd_state *state, const char *key, rsd_error *err);
RSD_API rsd_err rsd_state_push_number(rsd_state *state, int64_t key, rsd_error *err);
RSD_API rsd_err rsd_state_push_index(rsd_state *state, int64_t index, rsd_error *err);
RSD_API rsd_err rsd_state_pop(rsd_state *state, rsd_error *err);

/* Adds a tensor. `layout` says which rank owns which part; NULL: only the views matter, as for a
 * part to load into. `views` are the boxes in this process: those of its rank or, if it stands for
 * all ranks, boxes that cover the tensor, cut in any way. A save refuses views that miss a part; a
 * load fills only the views that it is given. The memory stays the caller's and is accessed
 * whenever the state is used. `name` NULL: the tensor takes the name of the last push. A
 * duplicate name is RSD_E_EXISTS. */
RSD_API rsd_err rsd_state_tensor(rsd_state *state, const char *name, const rsd_layout *layout,
                                 rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                 const rsd_view *views, rsd_error *err);
/* The common case in one call: the rules see the full name (all keys joined by dots), and `data`
 * holds this rank's part in the usual layout, rsd_rules_bytes bytes (NULL if 0). [local] */
RSD_API rsd_err rsd_state_add(rsd_state *state, const char *name, const rsd_rules *rules,
                              int32_t rank, rsd_dtype dtype, int ndim, const int64_t *shape,
                              void *data, rsd_error *err);
/* Adds a value, which must live as long as the state. RSD_E_INVALID if keys of dicts in it become
 * the same name when joined by dots: 0 and "0", or "a.b" beside a dict "a" with a "b". */
RSD_API rsd_err rsd_state_value(rsd_state *state, const char *name, const rsd_value *value,
                                rsd_error *err);

/* Replaces a value; `name` is the full name, all keys joined by dots. A state can be saved
 * repeatedly: each save takes the tensors' present contents; values change only by this call. */
RSD_API rsd_err rsd_state_set_value(rsd_state *state, const char *name, const rsd_value *value,
                                    rsd_error *err);

/* Requests a value: rsd_load creates it in `owner` and sets *value, both of which must live until
 * then. A dict or list is found whether the checkpoint stores it whole or by its items
 * (RSD_E_UNSUPPORTED if a DCP checkpoint stores tensors in it separately). Saving ignores it. */
RSD_API rsd_err rsd_state_want(rsd_state *state, const char *name, rsd_values *owner,
                               const rsd_value **value, rsd_error *err);

/* An object that supplies its own group of tensors and values: a model, an optimizer, a loader with
 * its position. It is asked each time the state is saved or loaded. */
typedef struct rsd_stateful {
    size_t size; /* sizeof(rsd_stateful) */
    /* Adds the object's contents to `state` with the functions above; names are below its prefix.
     * To save (`loading` false): tensors and values, which must stay until rsd_save or
     * rsd_save_begin returns. To load: tensors to fill and values to request. It may add further
     * objects. The caller of the library gets the code that it returns; *err may get one line. */
    rsd_err (*produce)(void *arg, rsd_state *state, bool loading, rsd_error *err);
    /* Called when all it requested is filled, after the objects that it added. NULL: not needed. */
    rsd_err (*restored)(void *arg, rsd_error *err);
    void *arg;
} rsd_stateful;
/* Adds an object, with `prefix` below what was pushed; NULL: no prefix. The table is copied. */
RSD_API rsd_err rsd_state_stateful(rsd_state *state, const char *prefix, const rsd_stateful *object,
                                   rsd_error *err);

/* ---- save ---- */

typedef struct rsd_save_opts {
    size_t     size;   /* sizeof(rsd_save_opts) */
    rsd_store *store;  /* NULL: `path` is a local path */
    rsd_format format; /* AUTO: by the path's suffix: ".safetensors", ".pt", ".pth" or ".bin" means
                          one file of that kind, anything else a DCP folder */
    bool overwrite;    /* replace a checkpoint of that name; otherwise RSD_E_EXISTS. Folders replace
                          folders, files replace files. A folder must be empty or hold only files
                          of a checkpoint and files that its checksum file lists. Links, devices,
                          FIFOs and sockets are never replaced: RSD_E_EXISTS, checked before
                          anything is written and again at the end */
    bool        distributed; /* safetensors: one file per rank, with its parts */
    rsd_choice  sync;        /* NEVER: return before the bytes are safe from a power cut */
    uint64_t    shard_size;  /* safetensors: maximum bytes per file; 0: one file */
    const char *transform; /* DCP: "stream.zstd", "stream.zstd:9" or a registered one; NULL: none */
    int32_t     threads;   /* 0: one per available processor */
    rsd_progress on_progress;
    void        *arg;
    size_t       max_memory; /* bytes of buffers per rank; 0: 64 MiB; at least 8 MiB are used */
    rsd_choice   checksum;   /* hashes of all bytes, checked by loads and verifies (see
                                rsd_ckpt_add_checksums). DEFAULT: if xxHash is built in; ALWAYS:
                                RSD_E_UNSUPPORTED without it */
    bool uneven_keys; /* ranks may hold different tensors and values; of each rank's layout only its
                         own boxes count */
    bool check_equal; /* compare replicas first; if they differ, nothing is saved */
} rsd_save_opts;

/* A layout of which each rank knows only its own boxes; `n` may be 0. Together they must tile the
 * tensor; equal boxes on different ranks are replicas. dtype and shape must agree. [collective] */
RSD_API rsd_err rsd_layout_create_local(rsd_comm *comm, rsd_dtype dtype, int ndim,
                                        const int64_t *shape, size_t n, const rsd_box *box,
                                        rsd_layout **out, rsd_error *err);

/* Writes a state as a checkpoint: all of it or nothing, durable on return. The same state and
 * options give the same bytes. A dtype that the format can't hold is refused by name before
 * anything is written.
 *
 * `comm` NULL: [local], this process stands for all ranks. Each tensor's views cover it, and its
 * layout says which rank's file each box goes to. Otherwise [collective]: every rank passes a state
 * with the same names, dtypes, shapes and layouts, in the same order, and views of its own boxes;
 * the error names a rank that differs (unless `uneven_keys`). Values may differ between ranks (host
 * names, random states, loader positions): rank 0's is saved or, with `uneven_keys`, that of the
 * lowest rank that has the name. For DCP and distributed safetensors each rank writes its own
 * files. A safetensors or torch.save file, and those of `shard_size`, are written by all ranks
 * together: each gathers its share from the owners, in bounded memory (at least 32 MiB). Rank 0
 * publishes when all are done; if one fails, all do, and the previous checkpoint is untouched. */
RSD_API rsd_err rsd_save(const char *path, rsd_comm *comm, rsd_state *state,
                         const rsd_save_opts *opts, rsd_error *err);

/* ---- operations in progress: async saves ---- */

/* An operation in progress. It advances inside test and wait, on the calling thread; a save also
 * writes between these calls. */
typedef struct rsd_op rsd_op;
typedef enum rsd_phase {
    RSD_STAGED = 1, /* the caller may change the memory again */
    RSD_DURABLE = 2 /* complete: a save is published; for a reshard the same as STAGED */
} rsd_phase;

/* *done becomes true if `phase` has been reached; the result is then the operation's. Does not wait
 * for other ranks. A save is published inside test or wait on rank 0, once all ranks have written
 * their files and reported so inside their own test or wait. */
RSD_API rsd_err rsd_op_test(rsd_op *op, rsd_phase phase, bool *done, rsd_error *err);
/* Waits until `phase` is reached. `phase` and the order of operations must agree. [collective] */
RSD_API rsd_err rsd_op_wait(rsd_op *op, rsd_phase phase, rsd_error *err);
/* Asks it to end early: it ends with RSD_E_CANCELED on every rank, or completes normally if past
 * the point of no return. The caller must still wait for it. [local] */
RSD_API void rsd_op_cancel(rsd_op *op);
/* An unfinished operation is aborted, and with it the comm if it has more than one rank. */
RSD_API void rsd_op_free(rsd_op *op);

/* How the tensors' bytes are preserved while they are being written. */
typedef enum rsd_stage_way {
    RSD_STAGE_COPY = 1, /* copied, by several threads, into memory that the state keeps for the next
                           save */
    RSD_STAGE_FORK = 2  /* a forked process writes, and the system copies only the pages that change
                           meanwhile. Needs one rank per process (not the threads comm), a store
                           that other processes see, tensors in private memory, and files that
                           belong to one rank each (not those that ranks write together) */
} rsd_stage_way;

/* rsd_save in two steps: when begin returns, RSD_STAGED has been reached and the caller may change
 * its tensors and values; RSD_DURABLE is reached inside rsd_op_test and rsd_op_wait. The checkpoint
 * holds what the memory held at the call. In between, a thread or child process of the library
 * writes and syncs this rank's files; it never uses the comm. Test and wait report later errors, on
 * every rank. A comm and a state have one save in progress at a time: begin waits for the previous
 * one, which still reports its own result. Comm, state and opts->store must outlive the save. With
 * RSD_STAGE_FORK opts->on_progress is not called. A process that ends early leaves nothing under
 * the name, only a temporary tree that the next save removes. `path`, `how` and options must agree
 * as in rsd_save. [collective] */
RSD_API rsd_err rsd_save_begin(const char *path, rsd_comm *comm, rsd_state *state,
                               rsd_stage_way how, const rsd_save_opts *opts, rsd_op **out,
                               rsd_error *err);
/* Frees the memory that RSD_STAGE_COPY left with the state, as freeing the state does. [local] */
RSD_API void rsd_state_unstage(rsd_state *state);

/* ---- load ---- */

typedef struct rsd_recipe rsd_recipe; /* reshard_recipe.h */

typedef struct rsd_load_opts {
    size_t     size;          /* sizeof(rsd_load_opts) */
    rsd_store *store;         /* NULL: `path` is a local path */
    rsd_choice verify;        /* see rsd_read_opts */
    bool       allow_partial; /* tensors missing from the checkpoint are left unchanged */
    int32_t    threads;       /* 0: one per available processor */
    size_t     max_memory;    /* bytes of buffers; 0: at most 64 MiB */
    /* Called for each tensor and value missing from the checkpoint, error or not. */
    void (*on_missing)(void *arg, const char *name);
    void *arg;
    bool  cast; /* cast elements of another dtype (docs/loading.md); otherwise RSD_E_MISMATCH */
    const char *prefix; /* prefix of the checkpoint's names that the state's lack: "model." */
    /* One rank reads what several want and passes it on. DEFAULT: for tensors of which the ranks
     * together want at least 1.25 times the size and, if memory can be shared, those that would be
     * read in short runs. ALWAYS: for all tensors that several ranks want parts of. NEVER, or
     * verify ALWAYS, on one rank means NEVER on all of its machine. */
    rsd_choice        cooperate;
    const rsd_recipe *recipe; /* reshard_recipe.h; names are those of its targets. NULL: none */
} rsd_load_opts;

/* Fills the views of every tensor in the state, whatever layout the checkpoint has, and creates the
 * values that it requests. Name and shape must match, and the dtype unless opts->cast; all are
 * compared before the first byte is read. Rank 0 reads the metadata for all; then each rank reads
 * what its own views need, or its share of what several need. `comm` NULL: [local], for a program
 * without ranks that loads its slice. Otherwise [collective]: if one rank fails, all do. `path` and
 * the kind of store must agree (if ranks see the checkpoint in different places, each opens a store
 * there); states and other options may differ, and some ranks may call rsd_load_below. After a
 * failure the contents of the views are undefined.
 *
 * Another checkpoint may be published under the name meanwhile: all ranks load the old one or all
 * load the new one. If files of the old one are removed before they were opened, all start over
 * with the new one, at most five times, and callbacks may be called again. RSD_E_MISMATCH after
 * that, or if a file was modified in place. */
RSD_API rsd_err rsd_load(const char *path, rsd_comm *comm, rsd_state *state,
                         const rsd_load_opts *opts, rsd_error *err);

/* Says where a tensor goes. *out has the box of the whole tensor: set memory or a put, with a
 * smaller box to load only that part; leave `data` and `put` NULL to skip it. */
typedef rsd_err (*rsd_load_alloc)(void *arg, const rsd_tensor_info *info, rsd_view *out);

/* Loads without a state: every tensor that is one of the n names or below one of them ("model.w" is
 * below "model", "model2" is not), or all if n is 0. `alloc` is called for each, in the order of
 * the checkpoint and before the first byte is read. A name that matches nothing is RSD_E_NOTFOUND
 * unless opts->allow_partial. opts->cast and ->prefix don't apply. Otherwise like rsd_load. */
RSD_API rsd_err rsd_load_below(const char *path, rsd_comm *comm, size_t n, const char *const *names,
                               rsd_load_alloc alloc, void *arg, const rsd_load_opts *opts,
                               rsd_error *err);

/* ---- convert ---- */

/* Tensors to cast to another dtype. */
typedef struct rsd_cast {
    const char *pattern; /* as in rules; NULL: every tensor of f16, bf16, f32 or f64 */
    rsd_dtype   dtype;
} rsd_cast;

/* What a conversion wrote, or would write. */
typedef struct rsd_convert_stats {
    size_t     size; /* sizeof(rsd_convert_stats) */
    rsd_format format;
    int64_t    tensors, objects;
    int64_t    files, bytes; /* of the target, without its checksum file; bytes -1: not known yet */
    int64_t    carried;      /* of these files, those copied along */
    int64_t    reused;       /* of these bytes, those that an interrupted run had written */
} rsd_convert_stats;

typedef struct rsd_convert_opts {
    size_t           size;   /* sizeof(rsd_convert_opts) */
    rsd_store       *store;  /* of the target; NULL: `path` is a local path */
    rsd_format       format; /* of the target; AUTO: as in rsd_save_opts */
    const rsd_rules *rules;  /* DCP, safetensors: which rank's file gets what, by new names. NULL:
                                DCP keeps its chunks, safetensors tensors are whole */
    /* Tensors and objects whose name matches one of `include` (0: all) and none of `exclude`. */
    const char *const *include;
    size_t             ninclude;
    const char *const *exclude;
    size_t             nexclude;
    /* Returns the new name: `name` itself, or text that lives until the next call. */
    const char *(*rename)(void *arg, const char *name);
    const rsd_cast *casts; /* the first match wins; patterns see the new names */
    size_t          ncasts;
    uint64_t        shard_size; /* safetensors: maximum bytes per file; 0: one file */
    const char *transform; /* DCP: "stream.zstd", "stream.zstd:9" or a registered one; NULL: none */
    size_t      max_memory; /* bytes of buffers; 0: 64 MiB */
    int32_t     threads;    /* 0: one per available processor */
    bool        overwrite;  /* as in rsd_save_opts */
    bool        keep;       /* an interrupted run keeps its work in a folder beside the target:
                               "<path>.partial-<16 hex digits>"; local files only */
    bool resume; /* resume such a run, checking its work byte for byte. Starts over if there is none
                    or, reported through `on_left_out`, if source or options differ. Implies
                    `keep` */
    rsd_choice   sync;        /* NEVER: return before the bytes are safe from a power cut */
    rsd_choice   checksum;    /* as in rsd_save_opts */
    rsd_progress on_progress; /* bytes of this process's share */
    /* Called for everything that the target does not get, with the reason, in source order. */
    void (*on_left_out)(void *arg, const char *name, const char *why);
    /* Called on rank 0 with the folder's name when a run that keeps its work ended early. */
    void (*on_kept)(void *arg, const char *partial);
    void      *arg;
    rsd_choice verify;  /* the source's checksums: compared unless NEVER */
    bool       dry_run; /* plan and check everything, write nothing */
    /* Unless NEVER, a conversion from folder to folder also copies other files (a config, a
     * tokenizer, notes) of at most 64 MiB; no folders, and links only if the checkpoint itself is
     * made of links. `on_left_out` gets the rest, and files that only the checksum file lists. A
     * copy gets no permission that the original lacks. */
    rsd_choice carry;
    /* Takes only tensors and objects whose health is RSD_WHOLE; `on_left_out` gets the others. For
     * a checkpoint opened for salvage and verified: its checksums are not compared again. */
    bool               salvage;
    rsd_convert_stats *stats;  /* filled on success; may be NULL */
    const rsd_recipe  *recipe; /* applied after the filters, before `rename`; NULL: none */
} rsd_convert_opts;

/* Writes the contents of a checkpoint as another one, with another format, layout, names or dtypes,
 * in one pass and in bounded memory whatever its size. The target is published as by rsd_save, all
 * or nothing; the same source and options give the same bytes. Nothing is published if the source's
 * files change meanwhile (RSD_E_MISMATCH) or don't match its checksums (RSD_E_CORRUPT). All tensors
 * with a dtype that the target can't hold are named before anything is written.
 *
 * Casts round to nearest even; see rsd_load_opts. If leaving something out would make holes in the
 * original's lists, a torch.save file gets flat names.
 *
 * `comm` NULL: [local]. Otherwise [collective]: every rank has opened the same checkpoint; path and
 * options must agree except max_memory, threads and callbacks (but `rename` must give the same
 * names); the ranks share the writing, whatever the format. */
RSD_API rsd_err rsd_convert(rsd_ckpt *source, const char *path, rsd_comm *comm,
                            const rsd_convert_opts *opts, rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
