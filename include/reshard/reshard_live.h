/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_live.h - tensors that move between ranks without a checkpoint: plans, live reshard, the
 * stash. The rules at the top of reshard.h hold here too. */
#ifndef RESHARD_LIVE_H
#define RESHARD_LIVE_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- more about boxes, layouts, checkpoints and comms ---- */

/* One dimension of what two boxes share, in the coordinates of each: what a reader narrows on both
 * sides. */
typedef struct rsd_overlap {
    int32_t dim;
    int64_t saved_off;  /* where it starts, counted from the saved box's own start */
    int64_t wanted_off; /* where it starts, counted from the wanted box's own start */
    int64_t len;
} rsd_overlap;
/* Fills out[0 .. ndim-1] and returns true when the boxes share an element. Two scalars always do.
 */
RSD_API bool rsd_box_overlap(const rsd_box *saved, const rsd_box *wanted, rsd_overlap *out);
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

/* True if the two describe the same tensor and give the same boxes to the same ranks in the same
 * way. */
RSD_API bool rsd_layout_equal(const rsd_layout *a, const rsd_layout *b);
/* Where the elements of a chunk lie in its file, for programs that read it themselves. Looks into
 * the file. RSD_E_UNSUPPORTED if they are transformed, of the other byte order, conjugated or
 * negated. */
RSD_API rsd_err rsd_ckpt_extent(rsd_ckpt *ckpt, size_t t, size_t i, uint64_t *offset,
                                int64_t *stride, rsd_error *err);
/* The layout that a tensor is stored in; the owner of a box is the number of its chunk. */
RSD_API rsd_err rsd_ckpt_layout(const rsd_ckpt *ckpt, size_t t, rsd_layout **out, rsd_error *err);

/* Ranks of `comm` as a comm of their own, in the order they are listed. Every rank of `comm` calls
 * it with the list that contains it; ranks of one list must give the same one. n == 0: the rank is
 * in none and gets NULL. [collective] */
RSD_API rsd_err rsd_comm_split(rsd_comm *comm, int32_t n, const int32_t *ranks, rsd_comm **out,
                               rsd_error *err);
/* Memory that the other ranks of this machine can copy from and to directly, where possible;
 * page-aligned. `bytes` may differ from rank to rank. [collective] */
RSD_API rsd_err rsd_comm_alloc(rsd_comm *comm, size_t bytes, void **out, rsd_error *err);
/* NULL on every rank or on none. [collective] */
RSD_API void rsd_comm_dealloc(rsd_comm *comm, void *data);

/* ---- plan: what moves where; from layouts alone ---- */

typedef struct rsd_plan rsd_plan;

typedef struct rsd_move {
    size_t     tensor;   /* which pair of layouts */
    int32_t    from, to; /* ranks; equal: a copy within this rank */
    int64_t    from_box; /* which box of rank `from` it lies in, as rsd_layout_boxes counts them, */
    int64_t    to_box;   /* and of rank `to`; -1 for a peer's, which the peer's own plan has */
    rsd_box    box;      /* in the whole tensor's coordinates */
    rsd_reduce reduce;   /* 0: a copy; else one of several contributions to be combined */
    int64_t    share; /* the target is Partial(sum) on so many ranks: store value / share; or 1 */
} rsd_move;

typedef struct rsd_plan_stats {
    size_t  size; /* sizeof(rsd_plan_stats) */
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
RSD_API rsd_err rsd_plan_of_rank(const rsd_plan *plan, int32_t rank, rsd_plan **out,
                                 rsd_error *err);
RSD_API rsd_err rsd_plan_stats_get(const rsd_plan *plan, rsd_plan_stats *out, rsd_error *err);
/* Visits every move: copies within the rank first; then, peer by peer in rising order, what is sent
 * to it and what is received from it. Within each, by tensor, then by the box's offset, first
 * dimension first: the same order on both ends. Stops at the first visit that does not return
 * RSD_OK and returns that. */
RSD_API rsd_err rsd_plan_each(const rsd_plan *plan,
                              rsd_err (*visit)(void *arg, const rsd_move *move), void *arg,
                              rsd_error *err);
/* The plan in words: totals, then a line for each of the first peers. */
RSD_API size_t rsd_plan_text(const rsd_plan *plan, char *buf, size_t cap);
RSD_API void   rsd_plan_free(rsd_plan *plan);

/* ---- live: tensors between ranks ---- */

/* The memory of one tensor on this rank. */
typedef struct rsd_views {
    size_t          n;
    const rsd_view *view; /* [n] */
} rsd_views;
/* What one rank did. For copies, bytes_recv + bytes_reached of all ranks is the least that has to
 * cross: what each gets less what it has already. */
typedef struct rsd_reshard_stats {
    size_t  size;                   /* sizeof(rsd_reshard_stats) */
    int64_t bytes_local;            /* copied from own memory */
    int64_t bytes_sent, bytes_recv; /* in messages */
    int64_t bytes_reached;          /* copied from other ranks' memory */
    int64_t messages;               /* sent */
    int64_t extra_bytes;            /* most memory in use besides the tensors' */
} rsd_reshard_stats;

typedef struct rsd_reshard_opts {
    size_t size;               /* sizeof(rsd_reshard_opts) */
    size_t max_memory;         /* bytes of extra memory; 0: 16 MiB; at least 64 KiB are used. The
                              least of all ranks counts */
    rsd_choice         direct; /* NEVER: only messages, also where memory can be reached */
    const char *const *name;   /* of the tensors, for messages; NULL: numbers */
    rsd_reshard_stats *stats;  /* filled when it has finished; NULL: not wanted */
} rsd_reshard_opts;

/* Runs a plan: tensor t, laid out as the plan's source says and lying in src[t], is copied to
 * dst[t], laid out as the target says. Each rank runs its own plan for the same layouts, which must
 * agree; ranks of the layouts are ranks of `comm`. The views of each tensor are the boxes that this
 * rank holds of it, or cut in another way but with the same elements; source and target don't
 * overlap. All is compared and checked before a byte moves: another layout, shape or dtype on
 * another rank is one error on all, which names tensor and rank, and so is a view that is missing.
 * Options may differ. Contributions are combined in the order of their places in the mesh: 8-bit
 * and 16-bit floats as float, integers modulo their width; averages of integers are cut off towards
 * zero; of booleans the sum is "or", the product "and". If one rank fails, all do, and the contents
 * of the targets are undefined. `opts` may be NULL. [collective] */
RSD_API rsd_err rsd_reshard(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                            const rsd_views *dst, const rsd_reshard_opts *opts, rsd_error *err);
/* The same in two steps, so that other work can be done between: begin compares and checks, the
 * rest happens in rsd_op_test and rsd_op_wait. Plan, comm and memory stay until it has finished,
 * the arrays need not. [collective] */
RSD_API rsd_err rsd_reshard_begin(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                                  const rsd_views *dst, const rsd_reshard_opts *opts, rsd_op **out,
                                  rsd_error *err);

/* One shard of a tensor. */
typedef struct rsd_shard {
    int32_t rank;
    rsd_box box;
} rsd_shard;
/* The metadata of a ChunkShardingSpec as PyTorch's build_reshard_metadata makes it: one shard for
 * each of the n ranks, empty ones too (they start where the ones before end), in rising order of
 * the ranks. `out` has room for n. [local] */
RSD_API rsd_err rsd_chunk_shards(int32_t dim, size_t n, const int32_t *ranks, int ndim,
                                 const int64_t *shape, rsd_shard *out, rsd_error *err);

/* A permutation of the target's ranks with which the fewest bytes move: the rank that has most of a
 * part keeps it. relabel[r], for r < nranks, is the rank that should take what dst[i] gives to rank
 * r; ranks that are in no target stay. *saved (may be NULL) becomes the bytes that need not move
 * because of it. Takes nranks * nranks * 8 bytes of memory and time with the third power. [local]
 */
RSD_API rsd_err rsd_plan_relabel(size_t n, const rsd_layout *const *src,
                                 const rsd_layout *const *dst, int32_t nranks, int32_t *relabel,
                                 int64_t *saved, rsd_error *err);

/* ---- stash: activations kept sharded between forward and backward ---- */

/* Ranks of a tensor-parallel group hold equal inputs, so between forward and backward each keeps
 * only its chunk of them, and the whole is put together again before it is needed. A stash is one
 * rank's end of that, with the comm's rule for threads. All its memory is taken when it is made:
 * save, prefetch and take allocate nothing. */
typedef struct rsd_stash rsd_stash;

#define RSD_NO_DIM (-1)

typedef struct rsd_stash_opts {
    size_t  size;   /* sizeof(rsd_stash_opts) */
    int32_t dim;    /* that tensors are cut along, by torch.chunk's rules; RSD_NO_DIM, or any
                       negative one: tensors stay whole and no rank waits for another */
    size_t budget;  /* bytes that what is kept may take on a rank. A tensor counts with its largest
                       chunk on every rank, so that all refuse the same one */
    size_t handles; /* tensors that may be kept at the same time */
} rsd_stash_opts;

/* A tensor in a stash: a plain value, copied at will, good until it is taken. */
typedef struct rsd_stashed {
    rsd_stash *stash;  /* NULL: kept whole, outside of any; only for the thread that saved it */
    uint64_t   number; /* 1 for the first that was saved, then 2 ...: the same on all ranks */
    size_t     slot;
} rsd_stashed;

typedef struct rsd_stash_stats {
    size_t  size;        /* sizeof(rsd_stash_stats) */
    int64_t tensors;     /* kept now */
    int64_t bytes_saved; /* of all tensors that were ever saved, whole */
    int64_t bytes_held;  /* of what this rank keeps now, */
    int64_t bytes_peak;  /* and kept at most */
    int64_t wait_ns;     /* time spent only waiting for other ranks */
} rsd_stash_stats;

/* A stash for the ranks of `comm`, usually those along one axis of a mesh (rsd_comm_split). Options
 * must agree. `comm` may be NULL with RSD_NO_DIM. [collective] */
RSD_API rsd_err rsd_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_stash **out,
                                 rsd_error *err);
/* Call it before the comm is freed and after as many pops as pushes. Tensors still kept are lost.
 * [collective] */
RSD_API void rsd_stash_free(rsd_stash *stash);

/* Keeps this rank's chunk of a contiguous tensor, which the caller may free then. Kept whole: one
 * that is not `replicated` (each rank has its own), or has fewer elements than there are ranks.
 * Tensors and their order must agree on all ranks. RSD_E_NOMEM if it is more than the budget or
 * the number of handles allow. `stash` NULL: the one that was pushed last; without one, the tensor
 * is kept whole in its own memory. May wait for a rank that is still reading what was taken before.
 * [local] */
RSD_API rsd_err rsd_stash_save(rsd_stash *stash, rsd_dtype dtype, int ndim, const int64_t *shape,
                               const void *data, bool replicated, rsd_stashed *out, rsd_error *err);
/* Starts to bring a tensor back into `data`, which is the stash's until take, until a collective
 * call fails, or until the stash is freed. Hardly ever waits; every later call with the stash
 * drives it on. With eight tensors under way it leaves the rest to take. Take reports errors of
 * other ranks. Tensors and order must agree. [collective] */
RSD_API rsd_err rsd_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes,
                                   rsd_error *err);
/* Fills `data` with the whole tensor, bit for bit: chunk r of it is what rank r saved. After a
 * prefetch `data` is the same again, or NULL. The order is free but must agree on all ranks. The
 * tensor then leaves the stash. Ranks that bring different tensors, or one that can't, fail
 * together, and so do all later calls: only rsd_stash_free works on such a stash. [collective] */
RSD_API rsd_err rsd_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);

/* `stash` NULL: what save(NULL, ...) has kept whole for this thread. [local] */
RSD_API rsd_err rsd_stash_stats_get(const rsd_stash *stash, rsd_stash_stats *out, rsd_error *err);

/* Around the forward of a module: what it saves with save(NULL, ...) goes into `stash`. Each thread
 * has a stack of its own, 64 deep. NULL switches it off in between. [local] */
RSD_API rsd_err rsd_stash_push(rsd_stash *stash, rsd_error *err);
/* `stash` is the one on top. [local] */
RSD_API rsd_err rsd_stash_pop(rsd_stash *stash, rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
