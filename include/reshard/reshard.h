/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.h - save, load, convert and reshard sharded tensors.
 *
 * Walk it top to bottom; it follows the data:
 *
 *     mesh + placements -> layout -> plan -> comm / store -> tensor bytes
 *
 * A layout says which rank owns which box of a tensor. A plan says what has to move to get from one
 * layout to another; it is made from the two layouts alone, on every rank for itself. Nothing in
 * this header talks to another rank or touches a file unless it says so.
 *
 * Rules that hold for every function:
 *  result     Returns rsd_err; RSD_OK is 0, so `if (rc)` reads "it failed".
 *  outputs    Written only on success, after the inputs; `rsd_error *err` is always last and may
 *             be NULL.
 *  ownership  _create and _parse give an object; the one matching _free takes it back and accepts
 *             NULL. Every other pointer is borrowed and lives as long as what it came from.
 *             A layout keeps its mesh and a plan its layouts, so those may be freed after use.
 *  ranks      [collective] every rank of the comm calls it in the same order and gets the same
 *             code; err->rank names the first rank that failed. [local] never communicates.
 *  threads    mesh, layout, rules and plan may be shared by threads; the last user frees them.
 *  text       Functions that write text fill `buf` like snprintf: at most `cap` bytes with the
 *             final NUL, and they return the length that the whole text has.
 */
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

#define RSD_VERSION_MAJOR 0
#define RSD_VERSION_MINOR 1
#define RSD_VERSION_PATCH 0

/* "0.1.0": of the library that is running, where the macros tell the header that was compiled. */
RSD_API const char *rsd_version(void);

/* ---- Errors: grouped by who can act ---- */

typedef enum rsd_err {
    RSD_OK = 0,

    RSD_E_INVALID = 1,     /* fix the call: an argument makes no sense           */
    RSD_E_MISMATCH = 2,    /* fix the call: two arguments don't belong together  */
    RSD_E_UNSUPPORTED = 3, /* fix the call: it makes sense, but not here         */

    RSD_E_NOTFOUND = 10, /* fix the data: it is not there                        */
    RSD_E_EXISTS = 11,   /* fix the data: it is there already                    */
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
    int32_t sys_errno; /* 0 if no system call was to blame */
    int32_t rank;      /* first rank that failed; -1: not a collective */
    int32_t nfailed;   /* how many ranks failed; 0: not a collective */
    char    msg[496];  /* one line, no final dot, no control characters */
} rsd_error;

/* "RSD_E_INVALID"; "unknown error" for a number that is no code. */
RSD_API const char *rsd_err_name(rsd_err code);

/* ---- dtype ---- */

typedef enum rsd_dtype { /* values are fixed for ever */
                         RSD_BOOL = 1,
                         RSD_U8 = 2,
                         RSD_I8 = 3,
                         RSD_U16 = 4,
                         RSD_I16 = 5,
                         RSD_U32 = 6,
                         RSD_I32 = 7,
                         RSD_U64 = 8,
                         RSD_I64 = 9,
                         RSD_F16 = 16,
                         RSD_BF16 = 17,
                         RSD_F32 = 18,
                         RSD_F64 = 19,
                         RSD_C32 = 24,
                         RSD_C64 = 25,
                         RSD_C128 = 26,
                         RSD_F8_E4M3FN = 32,
                         RSD_F8_E5M2 = 33,
                         RSD_F8_E4M3FNUZ = 34,
                         RSD_F8_E5M2FNUZ = 35,
                         RSD_F8_E8M0FNU = 36,
                         RSD_F4_E2M1FN_X2 = 40 /* one element is a byte with two values, as torch
                                                  counts; safetensors' F4 counts values */
} rsd_dtype;

/* Bits of one element, 8 to 128; 0 if `dtype` is not one of the above. */
RSD_API int rsd_dtype_bits(rsd_dtype dtype);
/* Bytes of one element, 1 to 16; 0 if `dtype` is not one of the above. */
RSD_API size_t rsd_dtype_size(rsd_dtype dtype);
/* torch's name, "bfloat16"; NULL if unknown. */
RSD_API const char *rsd_dtype_name(rsd_dtype dtype);
/* safetensors' name, "BF16"; NULL if unknown or if safetensors can't hold it (complex32,
 * complex128). */
RSD_API const char *rsd_dtype_safetensors_name(rsd_dtype dtype);
/* From any of its names: torch's ("bfloat16", "torch.bfloat16"), safetensors' ("BF16"), short
 * ("bf16"). [local] */
RSD_API rsd_err rsd_dtype_parse(const char *name, rsd_dtype *out, rsd_error *err);

/* ---- box: a rectangular part of a tensor ---- */

#define RSD_MAX_NDIM 8

typedef struct rsd_box {
    int32_t ndim; /* 0: a scalar, which has one element */
    int64_t off[RSD_MAX_NDIM];
    int64_t len[RSD_MAX_NDIM];
} rsd_box;

/* Elements in the box. */
RSD_API int64_t rsd_box_count(const rsd_box *box);
/* True, and *out set if it is not NULL, when the two share at least one element. */
RSD_API bool rsd_box_intersect(const rsd_box *a, const rsd_box *b, rsd_box *out);

/* One dimension of what two boxes share, in the coordinates of each: what a reader narrows on both
 * sides. */
typedef struct rsd_overlap {
    int32_t dim;
    int64_t saved_off;  /* where it starts, counted from the saved box' own start */
    int64_t wanted_off; /* where it starts, counted from the wanted box' own start */
    int64_t len;
} rsd_overlap;
/* Fills out[0 .. ndim-1] and returns true when the boxes share an element. Two scalars always do.
 */
RSD_API bool rsd_box_overlap(const rsd_box *saved, const rsd_box *wanted, rsd_overlap *out);
/* "[0:4, 8:16]", "[]" for a scalar. */
RSD_API size_t rsd_box_text(const rsd_box *box, char *buf, size_t cap);

/* ---- mesh: an n-d grid of ranks ---- */

typedef struct rsd_mesh rsd_mesh;

/* `shape` has ndim sizes of at least 1, `axis` as many different names (NULL: "0", "1", ...).
 * `ranks` are given in row-major order, each once, in any order (NULL: 0, 1, 2 ..., which takes no
 * memory). ndim 0 is one rank. [local] */
RSD_API rsd_err rsd_mesh_create(int ndim, const int64_t *shape, const char *const *axis,
                                const int32_t *ranks, rsd_mesh **out, rsd_error *err);
/* The sub-mesh of all ranks whose coordinate on `axis` is `index`; it has the other axes. [local]
 */
RSD_API rsd_err rsd_mesh_slice(const rsd_mesh *mesh, const char *axis, int64_t index,
                               rsd_mesh **out, rsd_error *err);
RSD_API void    rsd_mesh_free(rsd_mesh *mesh);

RSD_API int         rsd_mesh_ndim(const rsd_mesh *mesh);
RSD_API int64_t     rsd_mesh_size(const rsd_mesh *mesh, int axis); /* axis -1: all ranks */
RSD_API const char *rsd_mesh_axis(const rsd_mesh *mesh, int axis);
/* The rank at a place; `coord` has ndim entries, each within its axis. */
RSD_API int32_t rsd_mesh_rank(const rsd_mesh *mesh, const int64_t *coord);
/* The place of a rank; false if it is not in the mesh. `coord` may be NULL. */
RSD_API bool rsd_mesh_coord(const rsd_mesh *mesh, int32_t rank, int64_t *coord);

/* ---- placement, layout: who owns what ---- */

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

/* One placement for each mesh axis, applied in axis order by torch.chunk's rules: n on k gives
 * ceil(n/k) to each rank from the first on, so the last ones may get less or nothing. Several axes
 * may shard one dimension. strided(dim, f) cuts into f chunks first and then each of them over the
 * axis, as FSDP2 with tensor parallelism does. [local] */
RSD_API rsd_err rsd_layout_create(const rsd_mesh *mesh, const rsd_placement *place, rsd_dtype dtype,
                                  int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err);
/* ChunkShardingSpec: the rank at place i of `ranks` gets chunk i of dimension `dim`, which may be
 * negative as above. [local] */
RSD_API rsd_err rsd_layout_create_chunked(int32_t dim, size_t n, const int32_t *ranks,
                                          rsd_dtype dtype, int ndim, const int64_t *shape,
                                          rsd_layout **out, rsd_error *err);
/* EnumerableShardingSpec and anything else: box i belongs to rank owner[i], several boxes a rank
 * are fine. They must tile the tensor; equal boxes on different ranks are replicas. Empty boxes are
 * left out. [local] */
RSD_API rsd_err rsd_layout_create_boxes(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                        const int32_t *owner, const rsd_box *box, rsd_layout **out,
                                        rsd_error *err);
/* Ranges of the flattened tensor (ZeRO, FSDP1): rank owner[i] holds `count[i]` elements from
 * `start[i]` on, as one piece of memory. They must tile the tensor; equal ranges on different ranks
 * are replicas. A range becomes at most 2 * ndim - 1 boxes. [local] */
RSD_API rsd_err rsd_layout_create_ranges(rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                         const int32_t *owner, const int64_t *start,
                                         const int64_t *count, rsd_layout **out, rsd_error *err);
/* The boxes of one rank, with no mesh and no need to cover the tensor: a target to load into.
 * [local] */
RSD_API rsd_err rsd_layout_create_part(rsd_dtype dtype, int ndim, const int64_t *shape,
                                       int32_t rank, size_t n, const rsd_box *box, rsd_layout **out,
                                       rsd_error *err);
RSD_API void    rsd_layout_free(rsd_layout *layout);

RSD_API rsd_dtype rsd_layout_dtype(const rsd_layout *layout);
/* The number of dimensions; `shape`, if not NULL, gets as many sizes. */
RSD_API int rsd_layout_shape(const rsd_layout *layout, int64_t *shape);
/* One more than the highest rank in the mesh, or that holds a box of the table. */
RSD_API int32_t rsd_layout_world(const rsd_layout *layout);
/* How many boxes `rank` holds, and the first `cap` of them: in row-major order of the mesh formula,
 * or as they were given. None for a rank with an empty shard or outside the mesh. */
RSD_API size_t rsd_layout_boxes(const rsd_layout *layout, int32_t rank, rsd_box *out, size_t cap);

/* Where box i of a rank lies in that rank's memory when it keeps its part the usual way: for a mesh
 * one dense row-major tensor of the local shape (as torch does), otherwise the boxes packed one
 * after the other. */
typedef struct rsd_local {
    rsd_box box;
    int64_t offset;               /* bytes from the start of the rank's memory */
    int64_t stride[RSD_MAX_NDIM]; /* bytes */
} rsd_local;
RSD_API rsd_err rsd_layout_local(const rsd_layout *layout, int32_t rank, size_t i, rsd_local *out,
                                 rsd_error *err);
/* Bytes of a rank's memory. */
RSD_API int64_t rsd_layout_bytes(const rsd_layout *layout, int32_t rank);
/* True if the two describe the same tensor and give the same boxes to the same ranks in the same
 * way. */
RSD_API bool rsd_layout_equal(const rsd_layout *a, const rsd_layout *b);
/* A mesh layout as rules that rsd_rules_parse reads back ("mesh dp=2 tp=4; * shard(0)@dp"); another
 * one in words. */
RSD_API size_t rsd_layout_text(const rsd_layout *layout, char *buf, size_t cap);

/* ---- rules: layouts as text ---- */

/* A mesh line, then one rule for each kind of tensor; the first that matches a name wins. ';' or a
 * new line ends each,
 * '#' starts a comment.
 *
 *     mesh dp=2 tp=4                  # or: mesh pp=2 tp=4 ranks=7,6,5,4,3,2,1,0
 *     *.wq.weight   shard(0)@tp
 *     *.w1.weight   strided(0,4)@dp shard(0)@tp
 *     *.head.*      shard(0)@tp on dp=0
 *     *norm*        replicate
 *     *             shard(0)@dp
 *
 * Placements: replicate, shard(DIM)@AXIS, strided(DIM,SPLIT)@AXIS,
 * partial(sum|avg|min|max|product)@AXIS. They are applied in the order of the mesh' axes whatever
 * the order they are written in; an axis that is not named replicates. `on AXIS=I` picks a
 * sub-mesh, other ranks hold nothing. Patterns are those of the shell, `*` also matches dots. */
typedef struct rsd_rules rsd_rules;

/* Errors say line and column, what was found and what was expected. [local] */
RSD_API rsd_err rsd_rules_parse(const char *text, rsd_rules **out, rsd_error *err);
/* The layout that the rules give a tensor: RSD_E_NOTFOUND if none matches. A tensor with no
 * dimensions is replicated whatever its rule shards. [local] */
RSD_API rsd_err         rsd_rules_layout(const rsd_rules *rules, const char *name, rsd_dtype dtype,
                                         int ndim, const int64_t *shape, rsd_layout **out, rsd_error *err);
RSD_API const rsd_mesh *rsd_rules_mesh(const rsd_rules *rules);
/* The rules in their usual form, one to a line; parsing that gives equal rules. */
RSD_API size_t rsd_rules_text(const rsd_rules *rules, char *buf, size_t cap);
RSD_API void   rsd_rules_free(rsd_rules *rules);

/* ---- plan: what moves where; from layouts alone ---- */

typedef struct rsd_plan rsd_plan;

typedef struct rsd_move {
    size_t     tensor;   /* which pair of layouts */
    int32_t    from, to; /* ranks; equal: a copy within this rank */
    int64_t    from_box; /* which box of rank `from` it lies in, as rsd_layout_boxes counts them, */
    int64_t    to_box;   /* and of rank `to`; -1 for a peer's, which the peer's own plan tells */
    rsd_box    box;      /* in the whole tensor's coordinates */
    rsd_reduce reduce;   /* 0: a copy; else one of several contributions to be combined */
    int64_t    share; /* the target is Partial(sum) on so many ranks: store value / share; or 1 */
} rsd_move;

typedef struct rsd_plan_stats {
    int64_t tensors, moves;
    int64_t bytes_local, bytes_sent, bytes_recv;
    int64_t messages;   /* one to each rank that is sent to, one from each that is received from */
    int32_t peers;      /* other ranks that it sends to or receives from */
    size_t  plan_bytes; /* memory that the plan itself takes */
} rsd_plan_stats;

/* What `rank` sends, receives and copies so that n tensors laid out as src[i] become laid out as
 * dst[i]. The meshes, the number of ranks and the ranks may all differ. Where several ranks hold
 * the bytes, a rank takes its own first, else one that every rank computes alone: each element
 * reaches each of its new owners exactly once, or, from a Partial layout, once from each
 * contributor. A Partial target takes the same Partial placements as they are, or values: sum
 * (floating types only) shares them out, avg, min and max repeat them, product is refused. A rank
 * that is in no layout has an empty plan. [local] */
RSD_API rsd_err rsd_plan_create(size_t n, const rsd_layout *const *src,
                                const rsd_layout *const *dst, int32_t rank, rsd_plan **out,
                                rsd_error *err);
/* The plan of the way back: from dst to src, for the same rank. [local] */
RSD_API rsd_err rsd_plan_invert(const rsd_plan *plan, rsd_plan **out, rsd_error *err);
/* The same plan as another rank sees it. [local] */
RSD_API rsd_err rsd_plan_view(const rsd_plan *plan, int32_t rank, rsd_plan **out, rsd_error *err);
RSD_API void    rsd_plan_stats_get(const rsd_plan *plan, rsd_plan_stats *out);
/* Visits every move: copies within the rank first; then, peer by peer in rising order, what is sent
 * to it and what is received from it. Within each, by tensor, then by the box' offset, first
 * dimension first: the same order on both ends. Stops at the first visit that does not return
 * RSD_OK and returns that. */
RSD_API rsd_err rsd_plan_each(const rsd_plan *plan,
                              rsd_err (*visit)(void *arg, const rsd_move *move), void *arg,
                              rsd_error *err);
/* The plan in words: totals, then a line for each of the first peers. */
RSD_API size_t rsd_plan_text(const rsd_plan *plan, char *buf, size_t cap);
RSD_API void   rsd_plan_free(rsd_plan *plan);

/* Bytes under names, and plain Python objects: declared where they are made. */
typedef struct rsd_store  rsd_store;
typedef struct rsd_value  rsd_value;
typedef struct rsd_values rsd_values;

/* ---- checkpoint: what is in it, and reading any part of it ---- */

typedef enum rsd_format {
    RSD_FORMAT_AUTO = 0,
    RSD_FORMAT_DCP = 1,         /* PyTorch's distributed checkpoint: a folder */
    RSD_FORMAT_SAFETENSORS = 2, /* one file, or a folder of them */
    RSD_FORMAT_TORCH = 3        /* torch.save: one file */
} rsd_format;

/* A choice that is usually best left to the library. */
typedef enum rsd_choice { RSD_DEFAULT = 0, RSD_ALWAYS = 1, RSD_NEVER = 2 } rsd_choice;

/* Memory for one box of a tensor: pointer and byte strides, or callbacks (device memory, sockets,
 * anything). */
typedef struct rsd_view {
    rsd_box box;
    void   *data;                 /* of the first element; NULL: get and put are used */
    int64_t stride[RSD_MAX_NDIM]; /* bytes; all zero: packed, row-major */
    /* Bytes [off, off + len) of the box as if it were packed. May be called from several threads,
     * in any order; what they return is what the caller of the library gets. */
    rsd_err (*get)(void *arg, uint64_t off, void *host, size_t len);
    rsd_err (*put)(void *arg, uint64_t off, const void *host, size_t len);
    void *arg;
} rsd_view;

typedef struct rsd_ckpt rsd_ckpt;

typedef struct rsd_tensor_info {
    const char *name;
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    int64_t     bytes;  /* of all elements */
    size_t      chunks; /* boxes that it is stored as; they tile it */
} rsd_tensor_info;

typedef struct rsd_chunk {
    rsd_box            box;
    const char        *file;           /* its name below the checkpoint's path */
    uint64_t           offset, length; /* what is stored for the chunk, headers included */
    size_t             ntransforms;
    const char *const *transforms; /* as applied; the last is undone first */
} rsd_chunk;

/* One step of a tensor's or object's way through nested dicts and lists. */
typedef struct rsd_path_part {
    const char *key; /* of a dict; NULL: an index of a list */
    int64_t     index;
} rsd_path_part;

typedef struct rsd_read_opts {
    size_t size; /* sizeof(rsd_read_opts) */
    rsd_choice
            verify;  /* torch's CRC32: when a whole record is read, of all that is touched, never */
    int32_t threads; /* 0: as many as this process may run on */
    size_t  staging; /* bytes of buffers; 0: 64 MiB at most */
} rsd_read_opts;

/* Finds the format from the files, reads the metadata and checks them against each other: every
 * chunk lies inside its tensor and its file, chunks tile their tensors, no file is missing. Nothing
 * in a pickle is run. `store` NULL: local files. */
RSD_API rsd_err rsd_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err);
RSD_API void    rsd_ckpt_close(rsd_ckpt *ckpt);

RSD_API rsd_format rsd_ckpt_format(const rsd_ckpt *ckpt);
RSD_API size_t     rsd_ckpt_tensors(const rsd_ckpt *ckpt);
/* Tensor t < rsd_ckpt_tensors: in the order of the format. */
RSD_API rsd_err rsd_ckpt_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out,
                                rsd_error *err);
/* RSD_E_NOTFOUND if there is no such tensor. */
RSD_API rsd_err rsd_ckpt_find(const rsd_ckpt *ckpt, const char *name, size_t *out, rsd_error *err);
/* Chunk i of tensor t. */
RSD_API rsd_err rsd_ckpt_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out,
                               rsd_error *err);
/* Where the elements of a chunk lie in its file, for programs that read it themselves. Looks into
 * the file. RSD_E_UNSUPPORTED if they don't lie there as they are: transformed, of the other byte
 * order, or to be conjugated or negated. */
RSD_API rsd_err rsd_ckpt_extent(rsd_ckpt *ckpt, size_t t, size_t i, uint64_t *offset,
                                int64_t *stride, rsd_error *err);
/* The layout that a tensor is stored in; the owner of a box is the number of its chunk. */
RSD_API rsd_err rsd_ckpt_layout(const rsd_ckpt *ckpt, size_t t, rsd_layout **out, rsd_error *err);
/* Fills into->box, any part of tensor t, reading only what it needs. Any thread. */
RSD_API rsd_err rsd_ckpt_read(rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                              const rsd_read_opts *opts, rsd_error *err);

/* Things that are no tensors: numbers, text, nested lists and dicts. */
RSD_API size_t rsd_ckpt_objects(const rsd_ckpt *ckpt);
/* The name of object i and, if `owner` is not NULL, its value, made in it. An object of a class
 * that we don't know is opaque: its class is named, and nothing is run. */
RSD_API rsd_err rsd_ckpt_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                                const rsd_value **value, rsd_error *err);
/* The way to a name through the nesting of the original: how many steps, and the first `cap` of
 * them. 0: the format keeps none. */
RSD_API size_t rsd_ckpt_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out,
                             size_t cap);

/* Checks everything: that each item is what the metadata say, and every CRC32 that torch wrote.
 * `damage` is called for each thing that is wrong, with one line that names file, tensor and place;
 * the result is RSD_OK also then. *count (may be NULL) becomes the number of them. */
RSD_API rsd_err rsd_ckpt_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                                void (*damage)(void *arg, const rsd_error *what), void *arg,
                                size_t *count, rsd_error *err);

/* ---- state: named tensors and values, as this process holds them ---- */

typedef struct rsd_state rsd_state;

RSD_API rsd_err rsd_state_create(rsd_state **out, rsd_error *err);
RSD_API void    rsd_state_free(rsd_state *state);

/* Nesting, kept in the checkpoint: what is added between push and pop lies in a dict under `key`,
 * or at a place of a list. Names are the keys joined by dots. */
RSD_API rsd_err rsd_state_push(rsd_state *state, const char *key, rsd_error *err);
RSD_API rsd_err rsd_state_push_index(rsd_state *state, int64_t index, rsd_error *err);
RSD_API rsd_err rsd_state_pop(rsd_state *state, rsd_error *err);

/* Adds a tensor. `layout` says which rank owns what of it; NULL: only the views matter, as for a
 * part to load into. `views` is where the boxes are that this process has: those of its rank, or,
 * in a process that stands for all ranks, boxes that cover the tensor, cut in any way. The memory
 * stays the caller's and is used when the state is. `name` NULL: the tensor stands where the last
 * push leads. A name that is there is RSD_E_EXISTS. */
RSD_API rsd_err rsd_state_tensor(rsd_state *state, const char *name, const rsd_layout *layout,
                                 rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                                 const rsd_view *views, rsd_error *err);
/* Adds a value, which must live as long as the state. */
RSD_API rsd_err rsd_state_value(rsd_state *state, const char *name, const rsd_value *value,
                                rsd_error *err);

/* ---- save ---- */

/* Bytes under way; nonzero cancels. May be called by any thread, one at a time. */
typedef int (*rsd_progress)(void *arg, int64_t done, int64_t total);

typedef struct rsd_save_opts {
    size_t     size;        /* sizeof(rsd_save_opts) */
    rsd_store *store;       /* NULL: `path` is a local one */
    rsd_format format;      /* AUTO: by the end of the path: ".safetensors", ".pt", ".pth" or ".bin"
                               is one file of that kind, anything else a DCP folder */
    bool         overwrite; /* replace what has the name; otherwise that is RSD_E_EXISTS */
    bool         distributed; /* safetensors: one file for each rank, with its parts */
    rsd_choice   sync;        /* NEVER: return before the bytes are safe from a power cut */
    uint64_t     shard_size;  /* safetensors: bytes of a file at most; 0: one file */
    const char  *transform;   /* DCP: "stream.zstd" or a registered one; NULL: none */
    int32_t      threads;     /* 0: as many as this process may run on */
    rsd_progress on_progress;
    void        *arg;
} rsd_save_opts;

/* Writes a state as a checkpoint: all of it or nothing, durable on return. This process stands for
 * all ranks: the views of each tensor cover it, and its layout tells which rank's file each box
 * goes to. The same state and options give the same bytes. A dtype that the format can't hold is
 * refused by name before anything is written. [local] */
RSD_API rsd_err rsd_save(const char *path, const rsd_state *state, const rsd_save_opts *opts,
                         rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
