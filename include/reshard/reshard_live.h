/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_live.h - moving tensors between ranks without a checkpoint: plans, live resharding, the
 * stash. The rules at the top of reshard.h apply here too. */
#ifndef RESHARD_LIVE_H
#define RESHARD_LIVE_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- more about boxes, layouts, checkpoints and comms ---- */

/* One dimension of the intersection of two boxes, in the coordinates of each: what a reader narrows
 * on both sides. */
typedef struct rsd_overlap {
    int32_t dim;
    int64_t saved_off;  /* start, relative to the saved box's start */
    int64_t wanted_off; /* start, relative to the wanted box's start */
    int64_t len;
} rsd_overlap;
/* If the boxes share an element, fills out[0 .. ndim-1] and returns true. Two scalars always do. */
RSD_API bool rsd_box_overlap(const rsd_box *saved, const rsd_box *wanted, rsd_overlap *out);
/* Where box i of a rank lies in its memory in the usual memory layout: on a mesh one dense
 * row-major tensor of the local shape (as in torch), otherwise the boxes packed one after the
 * other. */
typedef struct rsd_local {
    rsd_box box;
    int64_t offset;               /* bytes from the start of the rank's memory */
    int64_t stride[RSD_MAX_NDIM]; /* bytes */
} rsd_local;
RSD_API rsd_err rsd_layout_local(const rsd_layout *layout, int32_t rank, size_t i, rsd_local *out,
                                 rsd_error *err);

/* True if both describe the same tensor and give the same boxes to the same ranks in the same
 * way. */
RSD_API bool rsd_layout_equal(const rsd_layout *a, const rsd_layout *b);
/* Where the elements of a chunk lie in its file, for programs that read it themselves. Reads the
 * file. RSD_E_UNSUPPORTED if they are not stored as they are: transformed, in the other byte order,
 * or to be conjugated or negated. */
RSD_API rsd_err rsd_ckpt_extent(rsd_ckpt *ckpt, size_t t, size_t i, uint64_t *offset,
                                int64_t *stride, rsd_error *err);
/* The layout that a tensor is stored in; a box's owner is the number of its chunk. */
RSD_API rsd_err rsd_ckpt_layout(const rsd_ckpt *ckpt, size_t t, rsd_layout **out, rsd_error *err);

/* Makes a comm of some ranks of `comm`, in the order listed. Every rank of `comm` calls it with the
 * list that contains it; the ranks in a list must all pass the same list. n == 0: the rank is in
 * none and gets NULL. [collective] */
RSD_API rsd_err rsd_comm_split(rsd_comm *comm, int32_t n, const int32_t *ranks, rsd_comm **out,
                               rsd_error *err);
/* Page-aligned memory that, where possible, other ranks on this machine can copy from and to
 * directly. `bytes` may differ from rank to rank. [collective] */
RSD_API rsd_err rsd_comm_alloc(rsd_comm *comm, size_t bytes, void **out, rsd_error *err);
/* `data` is NULL on every rank or on none. [collective] */
RSD_API void rsd_comm_dealloc(rsd_comm *comm, void *data);

/* ---- plan: what moves where, computed from layouts alone ---- */

typedef struct rsd_plan rsd_plan;

typedef struct rsd_move {
    size_t     tensor;   /* which pair of layouts */
    int32_t    from, to; /* ranks; equal: a copy within this rank */
    int64_t    from_box; /* which box of rank `from` holds it, as numbered by rsd_layout_boxes, */
    int64_t    to_box;   /* and of rank `to`; -1 for a peer's, which only the peer's plan has */
    rsd_box    box;      /* in the whole tensor's coordinates */
    rsd_reduce reduce;   /* 0: a copy; otherwise one of several contributions to combine */
    int64_t    share;    /* Partial(sum) target: its number of ranks, store value / share; else 1 */
} rsd_move;

typedef struct rsd_plan_stats {
    size_t  size; /* sizeof(rsd_plan_stats) */
    int64_t tensors, moves;
    int64_t bytes_local, bytes_sent, bytes_recv;
    int64_t messages;   /* one to each rank it sends to, one from each it receives from */
    int32_t peers;      /* other ranks that it sends to or receives from */
    size_t  plan_bytes; /* memory that the plan itself takes */
} rsd_plan_stats;

/* What `rank` sends, receives and copies to change n tensors from layouts src[i] to dst[i]. The
 * meshes, the number of ranks and the ranks may all differ. If several ranks hold the bytes, a rank
 * takes its own first, otherwise those of a rank that all compute alike without communicating: each
 * element reaches each of its new owners exactly once or, from a Partial layout, once from each
 * contributor. A Partial target takes equal Partial placements unchanged, or plain values: sum
 * (floating types only) divides them among the ranks, avg, min and max repeat them, product is
 * refused. A rank that is in no layout gets an empty plan. [local] */
RSD_API rsd_err rsd_plan_create(size_t n, const rsd_layout *const *src,
                                const rsd_layout *const *dst, int32_t rank, rsd_plan **out,
                                rsd_error *err);
/* The reverse plan, from dst to src, for the same rank. [local] */
RSD_API rsd_err rsd_plan_invert(const rsd_plan *plan, rsd_plan **out, rsd_error *err);
/* The same plan as another rank sees it. [local] */
RSD_API rsd_err rsd_plan_of_rank(const rsd_plan *plan, int32_t rank, rsd_plan **out,
                                 rsd_error *err);
RSD_API rsd_err rsd_plan_stats_get(const rsd_plan *plan, rsd_plan_stats *out, rsd_error *err);
/* Visits every move: first the copies within the rank; then, peer by peer in rising order, what is
 * sent to it and what is received from it. Within each, by tensor, then by the box's offset, first
 * dimension first: the same order on both ends. Stops at the first visit that does not return
 * RSD_OK and returns that code. */
RSD_API rsd_err rsd_plan_each(const rsd_plan *plan,
                              rsd_err (*visit)(void *arg, const rsd_move *move), void *arg,
                              rsd_error *err);
/* The plan in words: totals, then one line for each of the first peers. */
RSD_API size_t rsd_plan_text(const rsd_plan *plan, char *buf, size_t cap);
RSD_API void   rsd_plan_free(rsd_plan *plan);

/* ---- live: tensors between ranks ---- */

/* The memory of one tensor on this rank. */
typedef struct rsd_views {
    size_t          n;
    const rsd_view *view; /* [n] */
} rsd_views;
/* What one rank did. For copies, bytes_recv + bytes_reached summed over all ranks is the minimum
 * that must cross: what each rank gets minus what it already has. */
typedef struct rsd_reshard_stats {
    size_t  size;                   /* sizeof(rsd_reshard_stats) */
    int64_t bytes_local;            /* copied from its own memory */
    int64_t bytes_sent, bytes_recv; /* in messages, through shared memory or not */
    int64_t bytes_reached;          /* copied from other ranks' memory */
    int64_t messages;               /* sent */
    int64_t extra_bytes;            /* peak memory besides the tensors */
} rsd_reshard_stats;

typedef struct rsd_reshard_opts {
    size_t size;       /* sizeof(rsd_reshard_opts) */
    size_t max_memory; /* bytes of extra memory; 0: 16 MiB; at least 64 KiB are used. The smallest
                          of all ranks applies */
    rsd_choice         direct; /* NEVER: only messages that the comm carries, no shared memory */
    const char *const *name;   /* the tensors' names, for error messages; NULL: numbers */
    rsd_reshard_stats *stats;  /* filled on completion; may be NULL */
} rsd_reshard_opts;

/* Runs a plan: copies tensor t from src[t], in the plan's source layout, to dst[t], in its target
 * layout. Each rank runs its own plan for the same layouts, which must agree; ranks of the layouts
 * are ranks of `comm`. The views of each tensor are the boxes that this rank holds, or the same
 * elements cut in another way; source and target must not overlap, which is not checked.
 * Layouts, shapes, dtypes and views are compared and checked before a byte moves: one that differs
 * on another rank or is missing is one error on all, which names the tensor and rank. Options may
 * differ. Contributions are combined in the order of their places in the mesh: 8-bit and 16-bit
 * floats as float, integers modulo their width; averages of integers are truncated towards zero;
 * for booleans the sum is "or", the product "and". If one rank fails, all do, and the contents of
 * the targets are undefined. `opts` may be NULL. [collective] */
RSD_API rsd_err rsd_reshard(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                            const rsd_views *dst, const rsd_reshard_opts *opts, rsd_error *err);
/* The same in two steps, so that other work can be done in between: begin compares and checks, the
 * rest happens in rsd_op_test and rsd_op_wait. Plan, comm and memory must stay until it has
 * finished; the arrays need not. [collective] */
RSD_API rsd_err rsd_reshard_begin(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                                  const rsd_views *dst, const rsd_reshard_opts *opts, rsd_op **out,
                                  rsd_error *err);

/* One shard of a tensor. */
typedef struct rsd_shard {
    int32_t rank;
    rsd_box box;
} rsd_shard;
/* The metadata of a ChunkShardingSpec as PyTorch's build_reshard_metadata makes it: one shard for
 * each of the n ranks, in rising order of ranks, including empty ones (which start where the
 * previous one ends). `out` has room for n. [local] */
RSD_API rsd_err rsd_chunk_shards(int32_t dim, size_t n, const int32_t *ranks, int ndim,
                                 const int64_t *shape, rsd_shard *out, rsd_error *err);

/* A permutation of the target's ranks that moves the fewest bytes: the rank that already has most
 * of a part keeps it. relabel[r], for r < nranks, is the rank that should take what dst[i] gives to
 * rank r; ranks that are in no target stay. *saved (may be NULL) becomes the number of bytes that
 * no longer need to move. Takes nranks * nranks * 8 bytes of memory, and time cubic in nranks.
 * [local] */
RSD_API rsd_err rsd_plan_relabel(size_t n, const rsd_layout *const *src,
                                 const rsd_layout *const *dst, int32_t nranks, int32_t *relabel,
                                 int64_t *saved, rsd_error *err);

/* ---- stash: activations kept sharded between forward and backward ---- */

/* The ranks of a tensor-parallel group hold equal inputs, so between forward and backward each
 * keeps only its chunk, and the whole is reassembled before it is needed. A stash is one rank's end
 * of that; the comm's rule for threads applies. All its memory is allocated when it is created:
 * save, prefetch and take allocate nothing. */
typedef struct rsd_stash rsd_stash;

#define RSD_NO_DIM (-1)

typedef struct rsd_stash_opts {
    size_t  size;   /* sizeof(rsd_stash_opts) */
    int32_t dim;    /* dimension along which tensors are cut, by torch.chunk's rules; RSD_NO_DIM, or
                       any negative number: tensors stay whole and no rank waits for another */
    size_t budget;  /* bytes that the kept tensors may take on a rank. On every rank a tensor counts
                       with its largest chunk, so that all refuse the same one */
    size_t handles; /* tensors that may be kept at a time */
} rsd_stash_opts;

/* A tensor in a stash: a plain value, copied freely, valid until it is taken. */
typedef struct rsd_stashed {
    rsd_stash *stash;  /* NULL: kept whole, outside any stash; only for the thread that saved it */
    uint64_t   number; /* 1 for the first one saved, then 2 ...: the same on all ranks */
    size_t     slot;
} rsd_stashed;

typedef struct rsd_stash_stats {
    size_t  size;        /* sizeof(rsd_stash_stats) */
    int64_t tensors;     /* kept now */
    int64_t bytes_saved; /* of all tensors ever saved, whole */
    int64_t bytes_held;  /* that this rank keeps now */
    int64_t bytes_peak;  /* the most it ever kept */
    int64_t wait_ns;     /* time spent only waiting for other ranks */
} rsd_stash_stats;

/* A stash for the ranks of `comm`, usually those along one axis of a mesh (rsd_comm_split). Options
 * must agree. `comm` may be NULL with RSD_NO_DIM. [collective] */
RSD_API rsd_err rsd_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_stash **out,
                                 rsd_error *err);
/* Call it before freeing the comm and after as many pops as pushes. Tensors still kept are lost.
 * [collective] */
RSD_API void rsd_stash_free(rsd_stash *stash);

/* Keeps this rank's chunk of a contiguous tensor, which the caller may then free. A tensor is kept
 * whole if it is not `replicated` (each rank has its own) or has fewer elements than there are
 * ranks. Tensors and their order must agree on all ranks. RSD_E_NOMEM if it exceeds the budget or
 * the number of handles. `stash` NULL: the one pushed last; without one, the tensor is kept whole
 * in memory allocated for it. May wait for a rank that is still reading what was taken before.
 * [local] */
RSD_API rsd_err rsd_stash_save(rsd_stash *stash, rsd_dtype dtype, int ndim, const int64_t *shape,
                               const void *data, bool replicated, rsd_stashed *out, rsd_error *err);
/* Starts to bring a tensor back into `data`, which belongs to the stash until take, until a
 * collective call fails, or until the stash is freed. Rarely waits; every later call with the stash
 * advances it. Beyond eight tensors in progress it leaves the work to take. Take reports errors of
 * other ranks. Tensors and order must agree. [collective] */
RSD_API rsd_err rsd_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes,
                                   rsd_error *err);
/* Fills `data` with the whole tensor, bit for bit: chunk r of it is what rank r saved. After a
 * prefetch `data` must be the same, or NULL. The order is free but must agree on all ranks. The
 * tensor then leaves the stash. If ranks take different tensors, or a rank can't take its own, all
 * fail together, and so do all later calls: only rsd_stash_free works on such a stash.
 * [collective] */
RSD_API rsd_err rsd_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);

/* `stash` NULL: those that save(NULL, ...) keeps whole for this thread. [local] */
RSD_API rsd_err rsd_stash_stats_get(const rsd_stash *stash, rsd_stash_stats *out, rsd_error *err);

/* Around the forward of a module: whatever it saves with save(NULL, ...) goes into `stash`. Each
 * thread has its own stack, 64 deep. NULL turns stashing off until the pop. [local] */
RSD_API rsd_err rsd_stash_push(rsd_stash *stash, rsd_error *err);
/* `stash` must be the one on top. [local] */
RSD_API rsd_err rsd_stash_pop(rsd_stash *stash, rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
