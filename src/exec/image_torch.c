/* SPDX-License-Identifier: Apache-2.0 */
/* The image of a torch.save file: the state as nested dicts and lists in data.pkl, one storage for
 * each tensor. */
#include "base/checked.h"
#include "base/mem.h"
#include "exec/image.h"
#include "shape/box.h"

#include <stdlib.h>
#include <string.h>

/* One thing of the state with its path. */
typedef struct leaf {
    const rsi_spot  *spot;
    const rsd_value *value;
} leaf;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

/* The value of a tensor: a dense view of a storage. What it has as its bytes says whose it is:
 * own_tensor. */
static rsd_err tensor_value(const rsi_state_tensor *tensor, rsd_values *owner,
                            const rsd_value **out, rsd_error *err)
{
    rsd_value_tensor v = { .dtype = tensor->dtype, .ndim = tensor->ndim, .bytes = tensor };
    int64_t          step = 1;

    v.storage_bytes = tensor->elem_bytes;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        v.shape[d] = tensor->shape[d];
        v.stride[d] = step;
        step *= rsi_max(1, tensor->shape[d]);
        v.storage_bytes *= tensor->shape[d];
    }
    return rsd_value_create_tensor(owner, &v, out, err);
}

static int by_path(const void *a, const void *b)
{
    const leaf *x = a, *y = b;
    size_t      n = x->spot->nparts < y->spot->nparts ? x->spot->nparts : y->spot->nparts;

    for (size_t i = 0; i < n; i++) {
        const rsd_path_part *p = &x->spot->part[i], *q = &y->spot->part[i];
        int                  order;

        if (!p->key != !q->key)
            return p->key ? 1 : -1;
        if (p->key && !(p->number && q->number))
            order = strcmp(p->key, q->key);
        else
            order = (p->index > q->index) - (p->index < q->index);
        if (order)
            return order;
    }
    return (x->spot->nparts > y->spot->nparts) - (x->spot->nparts < y->spot->nparts);
}

typedef struct nesting {
    leaf       *leaf; /* sorted by path: what lies in one container stands together */
    size_t      n;
    rsd_values *owner;
} nesting;

static bool same_part(const rsd_path_part *p, const rsd_path_part *q)
{
    if (!p->key || !q->key)
        return !p->key && !q->key && p->index == q->index;
    return strcmp(p->key, q->key) == 0;
}

static rsd_err make_key(rsd_values *owner, const rsd_path_part *part, const rsd_value **out,
                        rsd_error *err)
{
    if (part->number)
        return rsd_value_create_int(owner, part->index, out, err);
    return rsd_value_create_bytes(owner, RSD_VALUE_STR, part->key, strlen(part->key), out, err);
}

/* The container of leaves [lo, hi), which agree in their first `depth` parts. */
static rsd_err nest(const nesting *all, size_t lo, size_t hi, size_t depth, const rsd_value **out,
                    rsd_error *err)
{
    bool              list = !all->leaf[lo].spot->part[depth].key;
    size_t            count = 0;
    const rsd_value **item = rsi_calloc(2 * (hi - lo), sizeof(item[0]));
    rsd_err           rc = item ? RSD_OK : no_memory(err);

    for (size_t i = lo, end; i < hi && !rc; i = end) {
        const rsi_spot      *spot = all->leaf[i].spot;
        const rsd_path_part *part = &spot->part[depth];

        for (end = i + 1; end < hi && same_part(&all->leaf[end].spot->part[depth], part);)
            end++;
        if (!part->key != list)
            rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" lies in a dict and in a list", spot->name);
        else if (spot->nparts == depth + 1 && end > i + 1)
            rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" is a value and has others in it", spot->name);
        else if (list && part->index != (int64_t)count)
            rc = rsi_fail(err, RSD_E_INVALID, "the list of \"%s\" has no place %zu", spot->name,
                          count);
        if (!rc && !list)
            rc = make_key(all->owner, part, &item[2 * count], err);
        if (!rc && spot->nparts == depth + 1)
            item[list ? count : 2 * count + 1] = all->leaf[i].value;
        else if (!rc)
            rc = nest(all, i, end, depth + 1, &item[list ? count : 2 * count + 1], err);
        count++;
    }
    if (!rc)
        rc = rsd_value_create_list(all->owner, list ? RSD_VALUE_LIST : RSD_VALUE_DICT, count, item,
                                   out, err);
    rsi_free(item);
    return rc;
}

static rsd_err state_value(const rsd_state *state, rsd_values *owner, const rsd_value **out,
                           rsd_error *err)
{
    nesting all = { .n = state->ntensors + state->nvalues, .owner = owner };
    rsd_err rc = RSD_OK;

    if (all.n == 0)
        return rsd_value_create_list(owner, RSD_VALUE_DICT, 0, NULL, out, err);
    all.leaf = rsi_calloc(all.n, sizeof(all.leaf[0]));
    if (!all.leaf)
        return no_memory(err);
    for (size_t i = 0; i < state->ntensors && !rc; i++) {
        all.leaf[i] = (leaf){ .spot = &state->tensor[i].spot };
        rc = tensor_value(&state->tensor[i], owner, &all.leaf[i].value, err);
    }
    for (size_t i = 0; i < state->nvalues && !rc; i++)
        all.leaf[state->ntensors + i] =
            (leaf){ .spot = &state->value[i].spot, .value = state->value[i].value };
    if (!rc) {
        qsort(all.leaf, all.n, sizeof(all.leaf[0]), by_path);
        rc = nest(&all, 0, all.n, 0, out, err);
    }
    rsi_free(all.leaf);
    return rc;
}

/* The tensor of the state that a value stands for; NULL: one that came with a value. */
static const rsi_state_tensor *own_tensor(const rsd_state *state, const rsd_value_tensor *t)
{
    uintptr_t at = (uintptr_t)t->bytes, first = (uintptr_t)state->tensor;

    return at >= first && at < first + state->ntensors * sizeof(state->tensor[0]) ? t->bytes : NULL;
}

/* The parts of the storages in the order of the pickle: boxes of the state's tensors, and what
 * values bring along. */
static rsd_err make_storages(rsi_image *image, const rsd_state *state, const rsi_storages *from,
                             rsi_out_part **out, rsd_error *err)
{
    rsd_box *box = rsi_arena_array(&image->mem, from->n, sizeof(box[0]));
    rsd_err  rc = RSD_OK;

    *out = rsi_arena_array(&image->mem, from->n, sizeof((*out)[0]));
    if (!*out || !box)
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
        box[i].ndim = own->ndim;
        memcpy(box[i].len, own->shape, sizeof(box[i].len));
        *part = (rsi_out_part){ .kind = RSI_PART_DATA,
                                .tensor = (size_t)(own - state->tensor),
                                .len = (uint64_t)t->storage_bytes,
                                .box = &box[i] };
    }
    return rc;
}

rsd_err rsi_image_torch(rsi_image *image, const rsd_state *state, rsd_error *err)
{
    rsi_bytes        pickle = { 0 };
    rsi_storages     storages = { 0 };
    rsd_values      *owner;
    const rsd_value *root;
    rsi_out_part    *part;
    void            *kept;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = state_value(state, owner, &root, err);
    if (!rc)
        rc = rsi_value_to_pickle(root, &pickle, &storages, err);
    if (!rc)
        rc = make_storages(image, state, &storages, &part, err);
    if (!rc)
        rc = rsi_image_file(image, NULL, 0, err);
    if (!rc) {
        kept = rsi_arena_text(&image->mem, (const char *)pickle.at, pickle.len);
        rc = kept ? rsi_image_archive(image, NULL, kept, pickle.len, storages.n, part, err)
                  : no_memory(err);
    }
    rsi_free(pickle.at);
    rsi_free(storages.tensor);
    rsd_values_free(owner);
    return rc;
}
