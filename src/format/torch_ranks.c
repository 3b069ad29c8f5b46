/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a folder in which every rank saved its state, with DTensors, using torch.save: names like
 * model_world_size_4_rank_0.pt. Files whose names differ only in the last number are a family;
 * model_, optim_ and extra_state_ families may lie side by side. The pickled DTensors, not the
 * names, tell how a tensor is cut and which part a file has. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/detect.h"
#include "format/torch_core.h"
#include "shape/box.h"
#include "shape/layout.h"

#include <reshard/reshard_live.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A file of the folder. */
typedef struct rank_file {
    const char *name;
    size_t      first, digits; /* of the number in the name */
    uint64_t    rank;          /* that number: only decides which replica is loaded */
} rank_file;

/* ---- families ---- */

/* False: the name has no number. */
static bool find_number(const char *name, rank_file *out)
{
    size_t end = strlen(name);

    while (end > 0 && !isdigit((unsigned char)name[end - 1]))
        end--;
    out->name = name;
    out->first = end;
    while (out->first > 0 && isdigit((unsigned char)name[out->first - 1]))
        out->first--;
    out->digits = end - out->first;
    out->rank = out->digits && out->digits < 19 ? strtoull(name + out->first, NULL, 10) : 0;
    return out->digits > 0;
}

/* By the name without its number, then by the rank. */
static int family_order(const rank_file *a, const rank_file *b)
{
    const size_t both = a->first < b->first ? a->first : b->first;
    int          order = strncmp(a->name, b->name, both);

    if (!order && a->first != b->first)
        order = a->first < b->first ? -1 : 1;
    return order ? order : strcmp(a->name + a->first + a->digits, b->name + b->first + b->digits);
}

static int by_family(const void *pa, const void *pb)
{
    const rank_file *a = pa, *b = pb;
    int              order = family_order(a, b);

    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* "model" of "model_world_size_4_rank_0.pt". */
static char *label_of(const rank_file *f, rsi_arena *mem)
{
    static const char *const ends[] = { "world_size", "rank" };
    char                    *label = rsi_arena_text(mem, f->name, f->first);
    size_t                   len;

    for (size_t i = 0; label && i < sizeof(ends) / sizeof(ends[0]); i++) {
        char *at = strstr(label, ends[i]);

        if (at)
            *at = '\0';
    }
    len = label ? strlen(label) : 0;
    while (len > 0 && !isalnum((unsigned char)label[len - 1]))
        label[--len] = '\0';
    return label;
}

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

static int64_t rank_of(const rsi_dtensor *d)
{
    int64_t rank = 0;

    for (int i = 0; i < d->mesh_ndim; i++)
        rank = rank * d->mesh[i] + d->coord[i];
    return rank;
}

static rsd_err add_boxes(rsi_torch *t, const rsi_torch_entry *e, const rsi_dtensor *d,
                         const rsd_layout *layout, rsd_error *err)
{
    const rsd_value_tensor *local = rsd_value_tensor_of(d->local);
    const int32_t           rank = (int32_t)rank_of(d);
    const size_t            n = rsd_layout_boxes(layout, rank, NULL, 0);
    rsi_torch_whole         like = { .dtype = local->dtype, .ndim = d->ndim };
    rsi_torch_piece         piece = { .file = e->file, .of = local };
    int64_t                 bytes = 0, whole = 0;
    rsd_err                 rc = RSD_OK;

    memcpy(like.shape, d->shape, sizeof(like.shape));
    rsi_product(local->ndim, local->shape, (int64_t)rsd_dtype_size(local->dtype), &bytes);
    if (bytes != rsd_layout_bytes(layout, rank))
        return rsi_fail(err, RSD_E_FORMAT, "its part is not what its placements say");
    rsi_product(d->ndim, d->shape, 1, &whole);
    if (whole == 0) { /* an empty tensor still needs one piece */
        piece.box.ndim = d->ndim;
        memcpy(piece.box.len, d->shape, sizeof(piece.box.len));
        return rsi_torch_add_piece(t, e, &like, &piece, err);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        rsd_local at;

        rc = rsd_layout_local(layout, rank, i, &at, err);
        if (!rc)
            rc = place_piece(local, &at, &piece, err);
        if (!rc)
            rc = rsi_torch_add_piece(t, e, &like, &piece, err);
    }
    return rc;
}

typedef struct taking {
    rsi_torch *t;
    bool       sharded; /* a DTensor was found */
} taking;

static rsd_err take(void *arg, const rsi_torch_entry *e, rsd_error *err)
{
    taking            *k = arg;
    const rsi_opaque  *opaque = rsi_value_opaque(e->value);
    const rsi_dtensor *d = opaque ? opaque->dtensor : NULL;
    rsd_layout        *layout = NULL;
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
    if (!d)
        return rsi_torch_add_once(k->t, e, err);
    k->sharded = true;
    if (d->outside)
        return RSD_OK;
    rc = layout_of(d, &layout, err);
    if (rc)
        return rsi_while(err, RSD_E_FORMAT, "tensor \"%s\"", e->name);
    rc = add_boxes(k->t, e, d, layout, err);
    rsd_layout_free(layout);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", e->name) : RSD_OK;
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

/* The largest families are the ranks'; keeps only these, sorted. */
static rsd_err choose(rsd_ckpt *ckpt, rank_file **out, size_t *nout, size_t *each, rsd_error *err)
{
    rank_file *at;
    char     **names;
    size_t     n, found = 0, kept = 0;
    rsd_err    rc = rsi_files_list(&ckpt->files, &names, &n, err);

    if (rc)
        return rc;
    *out = at = rsi_arena_array(&ckpt->mem, n, sizeof(at[0]));
    if (!at)
        return rsi_torch_no_memory(err);
    for (size_t i = 0; i < n; i++)
        found += rsi_torch_is_name(names[i]) && find_number(names[i], &at[found]);
    qsort(at, found, sizeof(at[0]), by_family);
    *each = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0, end; i < found; i = end) {
            for (end = i + 1; end < found && family_order(&at[i], &at[end]) == 0; end++)
                ;
            if (pass == 0 && end - i > *each)
                *each = end - i;
            if (pass == 1 && end - i == *each) {
                memmove(at + kept, at + i, *each * sizeof(at[0]));
                kept += *each;
            }
        }
    *nout = kept;
    return RSD_OK;
}

static rsd_err read_family(rsd_ckpt *ckpt, const rank_file *at, size_t n, bool alone, taking *k,
                           rsd_error *err)
{
    char   *label = label_of(&at[0], &ckpt->mem);
    rsd_err rc = label ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        rc = rsi_torch_add_file(ckpt, at[i].name, err);
        if (rc)
            return rc;
        rc = rsi_torch_flatten(k->t, (uint32_t)k->t->nfiles - 1, alone || !*label ? NULL : label,
                               take, k, err);
        if (rc)
            rsi_while(err, rc, "file \"%s\"", at[i].name);
    }
    return rc;
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
    taking     k = { 0 };
    rank_file *at = NULL;
    size_t     n = 0, each = 0;
    char      *kind = rsi_arena_array(&ckpt->mem, 64, 1);
    char     **names;
    size_t     nnames;
    rsd_err    rc = rsi_files_list(&ckpt->files, &names, &nnames, err);

    if (!rc && rsi_nanotron_is_optimizer(names, nnames))
        return rsi_nanotron_open_optimizer(ckpt, names, nnames, err);
    rc = rc ? rc : choose(ckpt, &at, &n, &each, err);
    if (!rc)
        rc = kind ? rsi_torch_begin(ckpt, &k.t, err) : rsi_torch_no_memory(err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n && !rc; i += each)
        rc = read_family(ckpt, at + i, each, n == each, &k, err);
    if (!rc && !k.sharded)
        return refuse(ckpt, n, err);
    snprintf(kind, 64, "torch.save of DTensors on %zu ranks", each);
    ckpt->kind = kind;
    if (!rc)
        rc = rsi_torch_end(ckpt, err);
    return rc ? rsi_while(err, rc, "%zu rank files", each) : RSD_OK;
}
