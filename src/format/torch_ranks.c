/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a folder in which every rank saved its state, with DTensors or ShardedTensors, using
 * torch.save: names like
 * model_world_size_4_rank_0.pt, which rank_families.c finds. What is pickled, not the names,
 * tells how a tensor is cut and which part a file has. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/detect.h"
#include "format/ranks.h"
#include "shape/box.h"
#include "shape/layout.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- a DTensor ---- */

static rsd_err layout_of(const rsi_dtensor *d, rsd_layout **out, rsd_error *err)
{
    const rsd_value_tensor *local = rsd_value_tensor_of(d->local);
    rsd_mesh               *mesh;
    rsd_err                 rc = rsd_mesh_create(d->mesh_ndim, d->mesh, NULL, NULL, &mesh, err);

    if (rc)
        return rc;
    rc = rsd_layout_create(mesh, d->place, local->dtype, d->ndim, d->shape, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

/* Where the box lies in the local tensor, which may have any strides. */
static rsd_err place_piece(const rsd_value_tensor *local, const rsd_local *at, rsi_torch_piece *out,
                           rsd_error *err)
{
    const int64_t elem = (int64_t)rsd_dtype_size(local->dtype);
    int64_t       dense[RSD_MAX_NDIM], rest = at->offset;

    rsi_strides(local->ndim, local->shape, elem, dense);
    out->box = at->box;
    out->of = local;
    out->offset = 0;
    for (int d = 0; d < local->ndim; d++) {
        if (at->stride[d] != dense[d] || dense[d] == 0 ||
            rest / dense[d] + at->box.len[d] > local->shape[d])
            return rsi_fail(err, RSD_E_FORMAT, "its part is not what its placements say");
        out->offset += rest / dense[d] * local->stride[d];
        rest %= dense[d];
    }
    return RSD_OK;
}

/* An empty tensor too needs one piece. */
static rsd_err add_empty(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                         const rsd_value_tensor *local, rsd_error *err)
{
    rsi_torch_piece piece = { .file = e->file, .of = local, .box.ndim = like->ndim };

    memcpy(piece.box.len, like->shape, sizeof(piece.box.len));
    return rsi_torch_add_piece(t, e, like, &piece, err);
}

static bool is_empty(int ndim, const int64_t *shape)
{
    int64_t count = 1;

    return rsi_product(ndim, shape, 1, &count) && count == 0;
}

/* The parts of a ShardedTensor. */
static rsd_err add_shards(rsi_torch *t, const rsi_torch_entry *e, const rsi_dtensor *d,
                          const rsi_torch_whole *like, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < d->nshards && !rc; i++) {
        const rsi_shard *s = &d->shard[i];
        rsi_torch_piece  piece = { .file = e->file, .of = rsd_value_tensor_of(s->local) };

        piece.box.ndim = d->ndim;
        memcpy(piece.box.off, s->off, sizeof(piece.box.off));
        memcpy(piece.box.len, piece.of->shape, sizeof(piece.box.len));
        if (is_empty(d->ndim, d->shape))
            return add_empty(t, e, like, piece.of, err);
        rc = rsi_box_check(&piece.box, d->ndim, d->shape, err);
        if (!rc && !is_empty(d->ndim, piece.box.len))
            rc = rsi_torch_add_piece(t, e, like, &piece, err);
    }
    return rc;
}

static rsd_err add_boxes(rsi_torch *t, const rsi_torch_entry *e, const rsi_dtensor *d,
                         const rsi_torch_whole *like, const rsd_layout *layout, rsd_error *err)
{
    const rsd_value_tensor *local = rsd_value_tensor_of(d->local);
    const int32_t           rank = (int32_t)d->rank;
    const size_t            n = rsd_layout_boxes(layout, rank, NULL, 0);
    rsi_torch_piece         piece = { .file = e->file, .of = local };
    int64_t                 bytes = 0;
    rsd_err                 rc = RSD_OK;

    rsi_product(local->ndim, local->shape, (int64_t)rsd_dtype_size(local->dtype), &bytes);
    if (bytes != rsd_layout_bytes(layout, rank))
        return rsi_fail(err, RSD_E_FORMAT, "its part is not what its placements say");
    if (is_empty(d->ndim, d->shape))
        return add_empty(t, e, like, local, err);
    for (size_t i = 0; i < n && !rc; i++) {
        rsd_local at;

        rc = rsd_layout_local(layout, rank, i, &at, err);
        if (!rc)
            rc = place_piece(local, &at, &piece, err);
        if (!rc)
            rc = rsi_torch_add_piece(t, e, like, &piece, err);
    }
    return rc;
}

typedef struct taking {
    rsi_torch *t;
    int64_t    ranks, most; /* of the largest mesh: in this family, in all */
    bool      *seen;        /* [nseen] ranks of this mesh */
    size_t     nseen;
    bool       listed; /* ShardedTensors were found */
} taking;

/* A family may have tensors on parts of the mesh too: the largest one counts. */
static void note_rank(taking *k, const rsi_dtensor *d)
{
    k->listed = k->listed || d->listed;
    if (d->ranks > k->ranks) {
        k->ranks = d->ranks;
        memset(k->seen, 0, k->nseen * sizeof(k->seen[0]));
    }
    if (d->ranks == k->ranks && !d->outside && d->rank < (int64_t)k->nseen)
        k->seen[d->rank] = true;
}

static rsd_err add_part(rsi_torch *t, const rsi_torch_entry *e, const rsi_dtensor *d,
                        rsd_error *err)
{
    rsi_torch_whole like = { .dtype = d->dtype, .ndim = d->ndim };
    rsd_layout     *layout = NULL;
    rsd_err         rc;

    memcpy(like.shape, d->shape, sizeof(like.shape));
    rc = rsi_torch_add_whole(t, e, &like, err);
    if (rc || d->outside)
        return rc;
    if (d->listed)
        return add_shards(t, e, d, &like, err);
    rc = layout_of(d, &layout, err);
    if (!rc)
        rc = add_boxes(t, e, d, &like, layout, err);
    rsd_layout_free(layout);
    return rc;
}

static rsd_err take(void *arg, const rsi_torch_entry *e, rsd_error *err)
{
    taking            *k = arg;
    const rsi_opaque  *opaque = rsi_value_opaque(e->value);
    const rsi_dtensor *d = opaque ? opaque->dtensor : NULL;
    rsd_err            rc;

    if (opaque && rsi_text_ends(e->name, "flat_param"))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "\"%s\" is a flat shard of FSDP1, which has neither names nor shapes of "
                        "parameters: save again with SHARDED_STATE_DICT or FULL_STATE_DICT",
                        e->name);
    if (opaque && !d && rsi_text_ends(opaque->name, ".DTensor"))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "tensor \"%s\" is a DTensor whose mesh or placements are not understood; "
                        "Partial ones can't be put together",
                        e->name);
    if (opaque && !d && rsi_text_ends(opaque->name, ".ShardedTensor"))
        return rsi_fail(
            err, RSD_E_UNSUPPORTED,
            "tensor \"%s\" is a ShardedTensor whose parts are not understood: save DTensors "
            "instead, by giving FSDP a device_mesh",
            e->name);
    if (!d)
        return rsi_torch_add_once(k->t, e, err);
    note_rank(k, d);
    rc = add_part(k->t, e, d, err);
    return rc ? rsi_while(err, rc == RSD_E_INVALID ? RSD_E_FORMAT : rc, "tensor \"%s\"", e->name)
              : RSD_OK;
}

/* ---- the folder ---- */

bool rsi_torch_is_name(const char *name)
{
    static const char *const ends[] = { ".pt", ".pth", ".bin", ".ckpt" };

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (rsi_text_ends(name, ends[i]))
            return true;
    return false;
}

/* The lowest rank without a file: every pickled tensor tells how many ranks there are, and which of
 * them saved it. -1: none. */
static int64_t missing_rank(const taking *k, size_t nfiles)
{
    size_t rank = 0;

    while (rank < nfiles && k->seen[rank])
        rank++;
    return (int64_t)rank < k->ranks ? (int64_t)rank : -1;
}

/* Names the missing file in front of what it leaves incomplete; not if a file has its name. */
static rsd_err blame_missing(const rsi_rank_family *f, const taking *k, rsd_err rc, rsd_error *err)
{
    const rsi_rank_file *first = &f->file[0];
    const int64_t        rank = missing_rank(k, f->n);
    bool                 exists = false;

    for (size_t i = 0; i < f->n; i++)
        exists = exists || (int64_t)f->file[i].rank == rank;
    if (rank < 0)
        return rc;
    if (exists)
        return rsi_while(err, rc, "no file has the part of rank %" PRId64 " of %" PRId64, rank,
                         k->ranks);
    return rsi_while(err, rc, "file \"%.*s%0*" PRId64 "%s\" of rank %" PRId64 " is missing",
                     (int)first->first, first->name, (int)first->digits, rank,
                     first->name + first->first + first->digits, rank);
}

static rsd_err read_family(rsd_ckpt *ckpt, const rsi_rank_family *f, bool alone, taking *k,
                           rsd_error *err)
{
    const size_t first = k->t->tensors.n;
    rsd_err      rc;

    k->ranks = 0;
    k->nseen = f->n;
    k->seen = rsi_arena_array(&ckpt->mem, f->n, sizeof(k->seen[0]));
    if (!k->seen)
        return rsi_torch_no_memory(err);
    for (size_t i = 0; i < f->n; i++) {
        rc = rsi_torch_add_file(ckpt, f->file[i].name, err);
        if (rc)
            return rc;
        rc = rsi_torch_flatten(k->t, (uint32_t)k->t->nfiles - 1,
                               alone || !*f->label ? NULL : f->label, take, k, err);
        if (rc)
            return rsi_while(err, rc, "file \"%s\"", f->file[i].name);
    }
    if (k->ranks > k->most)
        k->most = k->ranks;
    rc = rsi_torch_check_pieces(k->t, first, err);
    return rc ? blame_missing(f, k, rc, err) : RSD_OK;
}

static rsd_err refuse(rsd_ckpt *ckpt, size_t n, rsd_error *err)
{
    char below[RSI_BELOW_SIZE];

    rsi_detect_below(&ckpt->files, below);
    return rsi_fail(
        err, RSD_E_FORMAT,
        "no checkpoint found in it: neither \".metadata\" nor a \".safetensors\" file, and "
        "its torch.save files (%zu with a number) hold no DTensors: open one of them%s",
        n, below);
}

rsd_err rsi_ranks_open(rsd_ckpt *ckpt, rsd_error *err)
{
    taking           k = { 0 };
    rsi_rank_family *all = NULL;
    size_t           n = 0, found = 0, files = 0, nnames;
    char            *kind = rsi_arena_array(&ckpt->mem, 64, 1);
    char           **names;
    rsd_err          rc = rsi_files_list(&ckpt->files, &names, &nnames, err);

    if (!rc && rsi_nanotron_is_optimizer(names, nnames))
        return rsi_nanotron_open_optimizer(ckpt, names, nnames, err);
    rc = rc ? rc : rsi_rank_families(ckpt, &all, &n, &found, err);
    if (!rc && n == 0)
        return refuse(ckpt, found, err);
    if (!rc)
        rc = kind ? rsi_torch_begin(ckpt, &k.t, err) : rsi_torch_no_memory(err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        files = all[i].n > files ? all[i].n : files;
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_family(ckpt, &all[i], n == 1, &k, err);
    k.most = k.most > (int64_t)files ? k.most : (int64_t)files;
    snprintf(kind, 64, "torch.save of %s on %" PRId64 " rank%s",
             k.listed ? "ShardedTensors" : "DTensors", k.most, k.most == 1 ? "" : "s");
    ckpt->kind = kind;
    if (!rc)
        rc = rsi_ranks_settle(ckpt, k.t, err);
    if (!rc)
        rc = rsi_torch_end(ckpt, err);
    return rc ? rsi_while(err, rc, "%zu rank files", files) : RSD_OK;
}
