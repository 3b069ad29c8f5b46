/* SPDX-License-Identifier: Apache-2.0 */
/* The image of a torch.save file: the state as nested dicts and lists in data.pkl, with one storage
 * per tensor. image_universal.c makes several such files. */
#include "base/checked.h"
#include "base/mem.h"
#include "write/image.h"
#include "state/nest.h"
#include "shape/box.h"

#include <string.h>

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

/* A dense view of a storage. Its bytes pointer identifies the tensor: see own_tensor. */
rsd_err rsi_image_tensor_value(const rsi_state_tensor *tensor, rsd_values *owner,
                               const rsd_value **out, rsd_error *err)
{
    rsd_value_tensor v = { .dtype = tensor->dtype, .ndim = tensor->ndim, .bytes = tensor };
    int64_t          step = 1;

    v.storage_bytes = tensor->views.elem_bytes;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        v.shape[d] = tensor->shape[d];
        v.stride[d] = step;
        step *= rsi_max(1, tensor->shape[d]);
        v.storage_bytes *= tensor->shape[d];
    }
    return rsd_value_create_tensor(owner, &v, out, err);
}

static rsd_err state_value(const rsd_state *state, rsd_values *owner, const rsd_value **out,
                           rsd_error *err)
{
    size_t    n = state->ntensors + state->nvalues;
    rsi_leaf *leaf = rsi_calloc(n, sizeof(leaf[0]));
    rsd_err   rc = leaf ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < state->ntensors && !rc; i++) {
        leaf[i] = (rsi_leaf){ .spot = &state->tensor[i].spot };
        rc = rsi_image_tensor_value(&state->tensor[i], owner, &leaf[i].value, err);
    }
    for (size_t i = 0; i < state->nvalues && !rc; i++)
        leaf[state->ntensors + i] =
            (rsi_leaf){ .spot = &state->value[i].spot, .value = state->value[i].value };
    if (!rc)
        rc = rsi_nest(leaf, n, 0, owner, out, err);
    rsi_free(leaf);
    return rc;
}

/* The tensor of the state that a value represents; NULL: a tensor that came inside a value. */
static const rsi_state_tensor *own_tensor(const rsd_state *state, const rsd_value_tensor *t)
{
    uintptr_t at = (uintptr_t)t->bytes, first = (uintptr_t)state->tensor;

    return at >= first && at < first + state->ntensors * sizeof(state->tensor[0]) ? t->bytes : NULL;
}

/* The storage of a whole tensor. */
static rsd_err tensor_part(rsi_image *image, const rsd_state *state, size_t tensor,
                           rsi_out_part *out, rsd_error *err)
{
    const rsi_state_tensor *t = &state->tensor[tensor];
    rsd_box                 box = rsi_tensor_whole(t);

    *out = (rsi_out_part){ .kind = RSI_PART_DATA,
                           .tensor = tensor,
                           .len = (uint64_t)(rsd_box_count(&box) * t->views.elem_bytes),
                           .box = rsi_image_box(image, &box) };
    return out->box ? RSD_OK : no_memory(err);
}

/* The parts of the storages in pickle order, for rsi_free: boxes of the state's tensors, and the
 * storages inside values. */
static rsd_err make_storages(rsi_image *image, const rsd_state *state, const rsi_storages *from,
                             rsi_out_part **out, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *out = rsi_calloc(from->n, sizeof((*out)[0]));
    if (!*out)
        return no_memory(err);
    for (size_t i = 0; i < from->n && !rc; i++) {
        const rsd_value_tensor *t = from->tensor[i];
        const rsi_state_tensor *own = own_tensor(state, t);
        rsi_storages            one = { .tensor = &from->tensor[i], .n = 1 };
        rsi_out_part           *part = &(*out)[i], *brought;

        if (!own) {
            rc = rsi_image_storages(image, &one, &brought, err);
            *part = rc ? *part : *brought;
            continue;
        }
        rc = tensor_part(image, state, (size_t)(own - state->tensor), part, err);
    }
    return rc;
}

/* The pickle stays with the image, uncopied: it is large if there are many tensors. */
static rsd_err keep_pickle(rsi_image *image, const rsd_value *root, rsi_bytes *out,
                           rsi_storages *storages, rsd_error *err)
{
    rsd_err rc;

    if (!rsi_grow(&image->pickle, image->npickles, &image->pickle_cap, sizeof(image->pickle[0])))
        return no_memory(err);
    rc = rsi_value_to_pickle(root, out, storages, err);
    image->pickle[image->npickles++] = out->at;
    return rc;
}

rsd_err rsi_image_torch_file(rsi_image *image, const rsd_state *state, const char *name,
                             const rsd_value *root, rsd_values **owner, rsd_error *err)
{
    rsi_bytes     pickle = { 0 };
    rsi_storages  storages = { 0 };
    rsi_out_part *part = NULL;
    rsd_err       rc = keep_pickle(image, root, &pickle, &storages, err);

    if (!rc)
        rc = make_storages(image, state, &storages, &part, err);
    rsi_free(storages.tensor);
    if (owner) {
        rsd_values_free(*owner);
        *owner = NULL;
    }
    if (!rc)
        rc = rsi_image_file(image, name, 0, err);
    if (!rc)
        rc = rsi_image_archive(image, NULL, pickle.at, pickle.len, storages.n, part, err);
    rsi_free(part);
    return rc;
}

rsd_err rsi_image_torch(rsi_image *image, const rsd_state *state, rsd_error *err)
{
    rsd_values      *owner;
    const rsd_value *root;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = state_value(state, owner, &root, err);
    if (!rc)
        rc = rsi_image_torch_file(image, state, NULL, root, &owner, err);
    rsd_values_free(owner);
    return rc;
}

/* ---- another rank's image ---- */

/* The headers before the pickle and for each storage; the bytes of values come last. */
typedef struct told_head {
    uint64_t pickle_len, n;
} told_head;
typedef struct told_storage {
    uint64_t tensor, bytes; /* tensor UINT64_MAX: `bytes` bytes of a value follow */
} told_storage;

rsd_err rsi_image_torch_tell(const rsi_image *image, rsi_bytes *out, rsd_error *err)
{
    const rsi_zip_spec *zip = &image->part[image->item[0].first].zip->spec;
    told_head           head = { zip->pickle_len, 0 };

    for (size_t i = 0; i < image->nparts; i++)
        head.n += image->part[i].kind != RSI_PART_GAP;
    rsi_bytes_add(out, &head, sizeof(head));
    rsi_bytes_add(out, zip->pickle, zip->pickle_len);
    for (size_t i = 0; i < image->nparts; i++) {
        const rsi_out_part *part = &image->part[i];
        bool                own = part->kind == RSI_PART_DATA;
        told_storage        s = { own ? part->tensor : UINT64_MAX, part->len };

        if (part->kind == RSI_PART_GAP)
            continue;
        rsi_bytes_add(out, &s, sizeof(s));
        if (!own)
            rsi_bytes_add(out, part->bytes, (size_t)part->len);
    }
    return out->lost ? no_memory(err) : RSD_OK;
}

rsd_err rsi_image_torch_told(rsi_image *image, const rsd_state *state, const rsi_bytes *told,
                             rsd_error *err)
{
    const char   *kept, *pickle;
    rsi_reader    r;
    told_head     head;
    rsi_out_part *part;
    rsd_err       rc = RSD_OK;

    rsi_image_release(image);
    *image = (rsi_image){ .format = RSD_FORMAT_TORCH, .keep = -1 };
    kept = rsi_arena_text(&image->mem, (const char *)told->at, told->len);
    if (!kept)
        return no_memory(err);
    r = (rsi_reader){ .at = (const void *)kept, .end = (const unsigned char *)kept + told->len };
    rsi_read_copy(&r, &head, sizeof(head));
    pickle = rsi_read_next(&r, (size_t)head.pickle_len);
    part = rsi_arena_array(&image->mem, (size_t)head.n, sizeof(part[0]));
    if (!part)
        return no_memory(err);
    for (size_t i = 0; i < head.n && !r.cut && !rc; i++) {
        told_storage s;

        rsi_read_copy(&r, &s, sizeof(s));
        if (s.tensor < state->ntensors)
            rc = tensor_part(image, state, (size_t)s.tensor, &part[i], err);
        else
            part[i] = (rsi_out_part){ .kind = RSI_PART_BYTES,
                                      .len = s.bytes,
                                      .bytes = rsi_read_next(&r, (size_t)s.bytes) };
    }
    if (r.cut)
        return rsi_fail(err, RSD_E_BUG, "the image of rank 0 is truncated");
    if (!rc)
        rc = rsi_image_file(image, NULL, 0, err);
    return rc ? rc
              : rsi_image_archive(image, NULL, pickle, (size_t)head.pickle_len, (size_t)head.n,
                                  part, err);
}
