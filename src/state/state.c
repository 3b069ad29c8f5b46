/* SPDX-License-Identifier: Apache-2.0 */
/* Collects a state. Names and paths are copied; tensor memory is not. */
#include "state/state.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/torch_archive.h"
#include "shape/box.h"

#include <reshard/reshard_folder.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_DEPTH 256       /* more than any sensible nesting */
#define MOST_NAME  (1 << 16) /* bytes of a name: readers limit its length */

rsd_err rsd_state_create(rsd_state **out, rsd_error *err)
{
    rsd_state *state;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the state");
    state = rsi_calloc(1, sizeof(*state));
    if (state)
        state->cache = rsi_calloc(1, sizeof(*state->cache));
    if (!state || !state->cache) {
        rsi_free(state);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
    }
    *out = state;
    return RSD_OK;
}

void rsd_state_free(rsd_state *state)
{
    if (!state)
        return;
    if (state->cache->drop)
        state->cache->drop(atomic_load(&state->cache->kept));
    if (state->cache->drop_stage)
        state->cache->drop_stage(atomic_load(&state->cache->stage));
    rsi_free(state->cache);
    for (size_t i = 0; i < state->ntensors; i++)
        rsd_layout_free(state->tensor[i].layout);
    rsi_free(state->tensor);
    rsi_free(state->value);
    rsi_free(state->want);
    rsi_free(state->object);
    rsi_free(state->stack);
    rsi_map_release(&state->names);
    rsi_arena_release(&state->mem);
    rsi_free(state);
}

rsd_err rsi_state_name(rsd_state *state, const char *name, const char **out, rsd_error *err)
{
    size_t len = strlen(name);
    char  *copy;

    if (len > MOST_NAME)
        return rsi_fail(err, RSD_E_INVALID, "a name of %zu bytes, the limit is %d", len, MOST_NAME);
    if (!rsi_is_utf8(name, len))
        return rsi_fail(err, RSD_E_INVALID, "the name \"%s\" is not UTF-8", name);
    copy = rsi_arena_text(&state->mem, name, len);
    if (!copy)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
    *out = copy;
    return RSD_OK;
}

/* Siblings are pushed one after the other, so a repeated key is stored only once. */
static rsd_err push(rsd_state *state, rsd_path_part part, rsd_error *err)
{
    const char *last = state->depth < state->reached ? state->stack[state->depth].key : NULL;
    rsd_err     rc = RSD_OK;

    if (state->depth >= MOST_DEPTH)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "nesting of more than %d is not supported",
                        MOST_DEPTH);
    if (part.key && last && strcmp(part.key, last) == 0)
        part.key = last;
    else if (part.key)
        rc = rsi_state_name(state, part.key, &part.key, err);
    if (!rc && !rsi_grow(&state->stack, state->depth, &state->stack_cap, sizeof(state->stack[0])))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    if (rc)
        return rc;
    state->stack[state->depth++] = part;
    if (state->reached < state->depth)
        state->reached = state->depth;
    return RSD_OK;
}

rsd_err rsd_state_push(rsd_state *state, const char *key, rsd_error *err)
{
    if (!state || !key)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: state or key");
    return push(state, (rsd_path_part){ .key = key }, err);
}

rsd_err rsd_state_push_index(rsd_state *state, int64_t index, rsd_error *err)
{
    if (!state || index < 0)
        return rsi_fail(err, RSD_E_INVALID, "a list has no index %" PRId64, index);
    return push(state, (rsd_path_part){ .index = index }, err);
}

rsd_err rsd_state_push_number(rsd_state *state, int64_t key, rsd_error *err)
{
    char text[24];

    if (!state)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: state");
    snprintf(text, sizeof(text), "%" PRId64, key);
    return push(state, (rsd_path_part){ .key = text, .index = key, .number = true }, err);
}

rsd_err rsi_state_push_part(rsd_state *state, const rsd_path_part *part, rsd_error *err)
{
    return push(state, *part, err);
}

rsd_err rsd_state_pop(rsd_state *state, rsd_error *err)
{
    if (!state || state->depth == 0)
        return rsi_fail(err, RSD_E_INVALID, "nothing to pop: nothing was pushed");
    state->depth--;
    return RSD_OK;
}

static rsd_err make_spot(rsd_state *state, const char *name, rsi_spot *out, rsd_error *err)
{
    size_t         n = state->depth + (name ? 1 : 0), len;
    rsd_path_part *part;
    uint64_t       value = 0;
    const char    *joined;
    char          *text;
    bool           was;
    rsd_err        rc = RSD_OK;

    if (n == 0)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: name");
    part = rsi_arena_array(&state->mem, n, sizeof(part[0]));
    if (!part)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    if (state->depth)
        memcpy(part, state->stack, state->depth * sizeof(part[0]));
    if (name)
        rc = rsi_state_name(state, name, &part[n - 1].key, err);
    if (rc)
        return rc;
    len = rsi_path_join(part, n, NULL, 0);
    if (len > MOST_NAME)
        return rsi_fail(err, RSD_E_INVALID, "a name of %zu bytes, the limit is %d", len, MOST_NAME);
    joined = part[0].key;
    if (n > 1 || !joined) {
        joined = text = rsi_arena_array(&state->mem, len + 1, 1);
        if (!text)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
        rsi_path_join(part, n, text, len + 1);
    }
    if (!rsi_map_add(&state->names, joined, len, &value, &was))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
    if (was)
        return rsi_fail(err, RSD_E_EXISTS, "\"%s\" is in the state twice", joined);
    *out = (rsi_spot){ .name = joined, .part = part, .nparts = n };
    return RSD_OK;
}

rsd_box rsi_tensor_whole(const rsi_state_tensor *tensor)
{
    rsd_box box = { .ndim = tensor->ndim };

    if (box.ndim > 0)
        memcpy(box.len, tensor->shape, (size_t)box.ndim * sizeof(box.len[0]));
    return box;
}

static rsd_err check_layout(const rsd_layout *layout, rsd_dtype dtype, int ndim,
                            const int64_t *shape, rsd_error *err)
{
    if (layout->dtype != dtype)
        return rsi_fail(err, RSD_E_MISMATCH, "the tensor is %s, its layout %s",
                        rsd_dtype_name(dtype), rsd_dtype_name(layout->dtype));
    if (layout->ndim != ndim ||
        (ndim > 0 && memcmp(layout->shape, shape, (size_t)ndim * sizeof(shape[0])) != 0))
        return rsi_fail(err, RSD_E_MISMATCH, "the tensor and its layout have different shapes");
    if (layout->reduce)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "a partial layout can't be saved: reduce it to replicate or shard first");
    return RSD_OK;
}

rsd_err rsi_state_layout(const rsd_state *state, size_t t, rsd_layout **out, rsd_error *err)
{
    const rsi_state_tensor *tensor = &state->tensor[t];
    rsd_layout             *layout = tensor->layout ? rsi_layout_ref(tensor->layout) : NULL;
    rsd_err                 rc = RSD_OK;

    if (state->layout)
        rc = state->layout(state->layout_arg, t, &layout, err);
    if (!rc && layout)
        rc = check_layout(layout, tensor->dtype, tensor->ndim, tensor->shape, err);
    if (rc) {
        rsd_layout_free(layout);
        return rsi_while(err, rc, "tensor \"%s\"", tensor->spot.name);
    }
    *out = layout;
    return RSD_OK;
}

/* Copies the caller's views and fills in their strides. */
static rsd_err keep_views(rsd_state *state, rsi_state_tensor *t, size_t n, const rsd_view *views,
                          rsd_error *err)
{
    rsd_view *view = rsi_arena_array(&state->mem, n, sizeof(view[0]));

    if (!view)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu views", n);
    for (size_t i = 0; i < n; i++) {
        rsd_view *v = &view[i];
        bool      packed = true;
        rsd_err   rc = rsi_box_check(&views[i].box, t->ndim, t->shape, err);

        if (rc)
            return rsi_while(err, rc, "view %zu", i);
        *v = views[i];
        if (!v->data && !v->get && !v->put && rsd_box_count(&v->box) > 0)
            return rsi_fail(err, RSD_E_INVALID, "view %zu has neither memory nor callbacks", i);
        for (int d = 0; d < t->ndim; d++)
            packed = packed && v->stride[d] == 0;
        if (packed)
            rsi_strides(t->ndim, v->box.len, t->views.elem_bytes, v->stride);
    }
    t->views.view = view;
    t->views.n = n;
    return RSD_OK;
}

rsd_err rsd_state_tensor(rsd_state *state, const char *name, const rsd_layout *layout,
                         rsd_dtype dtype, int ndim, const int64_t *shape, size_t n,
                         const rsd_view *views, rsd_error *err)
{
    rsi_state_tensor t = { .dtype = dtype, .ndim = ndim };
    int64_t          elems, *kept;
    rsd_err          rc;

    if (!state || (n > 0 && !views))
        return rsi_fail(err, RSD_E_INVALID, "missing argument: state or the %zu views", n);
    rc = rsi_shape_check(dtype, ndim, shape, &elems, err);
    if (!rc) {
        t.views.elem_bytes = (int64_t)rsd_dtype_size(dtype);
        t.shape = kept = rsi_arena_array(&state->mem, (size_t)ndim, sizeof(kept[0]));
        if (!kept)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a shape");
        else if (ndim > 0)
            memcpy(kept, shape, (size_t)ndim * sizeof(shape[0]));
    }
    if (!rc && layout)
        rc = check_layout(layout, dtype, ndim, shape, err);
    if (!rc)
        rc = keep_views(state, &t, n, views, err);
    if (!rc && !rsi_grow(&state->tensor, state->ntensors, &state->tensor_cap, sizeof(t)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
    if (!rc)
        rc = make_spot(state, name, &t.spot, err);
    if (rc)
        return rsi_while(err, rc, "tensor \"%s\"", name ? name : "");
    if (layout)
        t.layout = rsi_layout_ref(layout);
    state->tensor[state->ntensors++] = t;
    state->version++;
    return RSD_OK;
}

/* A torch.save file of this state must be readable: the containers around the value count as
 * nesting too, and dicts inside it are opened by name. */
static rsd_err check_value(size_t nparts, const char *name, const rsd_value *value, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (nparts + value->depth > RSD_VALUE_MAX_DEPTH)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "\"%s\" nests deeper than %d", name,
                        RSD_VALUE_MAX_DEPTH);
    if (value->depth > 0)
        rc = rsi_torch_names_check(value, err);
    if (rc)
        return rsi_while(err, rc == RSD_E_FORMAT ? RSD_E_INVALID : rc, "\"%s\"", name);
    return RSD_OK;
}

rsd_err rsd_state_value(rsd_state *state, const char *name, const rsd_value *value, rsd_error *err)
{
    rsi_state_value v = { .value = value };
    rsd_err         rc = RSD_OK;

    if (!state || !value)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: state or value");
    else if (!rsi_grow(&state->value, state->nvalues, &state->value_cap, sizeof(v)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
    if (!rc)
        rc = check_value(state->depth + 1, name ? name : "", value, err);
    if (!rc)
        rc = make_spot(state, name, &v.spot, err);
    if (rc)
        return rc;
    state->value[state->nvalues++] = v;
    state->version++;
    return RSD_OK;
}

rsd_err rsd_state_set_value(rsd_state *state, const char *name, const rsd_value *value,
                            rsd_error *err)
{
    rsd_err rc;

    if (!state || !name || !value)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: state, name or value");
    for (size_t i = 0; i < state->nvalues; i++) {
        if (strcmp(state->value[i].spot.name, name) != 0)
            continue;
        rc = check_value(state->value[i].spot.nparts, name, value, err);
        if (rc)
            return rc;
        state->value[i].value = value;
        state->version++;
        return RSD_OK;
    }
    return rsi_fail(err, RSD_E_NOTFOUND, "the state has no value \"%s\"", name);
}

rsd_err rsd_state_object(rsd_state *state, const char *name, const rsd_value *value,
                         const void *bytes, size_t len, rsd_error *err)
{
    rsd_err rc;

    if (!bytes || len == 0)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: the object's bytes");
    rc = rsd_state_value(state, name, value, err);
    if (rc)
        return rc;
    state->value[state->nvalues - 1].raw = bytes;
    state->value[state->nvalues - 1].raw_len = len;
    return RSD_OK;
}

rsd_err rsd_state_want(rsd_state *state, const char *name, rsd_values *owner,
                       const rsd_value **value, rsd_error *err)
{
    return rsd_state_want_object(state, name, owner, value, NULL, NULL, err);
}

rsd_err rsd_state_want_object(rsd_state *state, const char *name, rsd_values *owner,
                              const rsd_value **value,
                              rsd_err (*put)(void *arg, const void *bytes, size_t len), void *arg,
                              rsd_error *err)
{
    rsi_state_want w = { .owner = owner, .value = value, .put = put, .arg = arg };
    rsd_err        rc = RSD_OK;

    if (!state || !owner || !value)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: state, owner or output pointer");
    else if (!rsi_grow(&state->want, state->nwants, &state->want_cap, sizeof(w)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
    if (!rc)
        rc = make_spot(state, name, &w.spot, err);
    if (rc)
        return rc;
    state->want[state->nwants++] = w;
    return RSD_OK;
}
