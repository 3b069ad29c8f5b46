/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of DeepSpeed that are not trained: in the model files of stages 2 and 3 they are
 * listed with their shapes, in those of stage 1 they stand among all others. Pipeline stages leave
 * a file for each layer instead, with its buffers too: tensor "w" of layer 3 is "3.w". A layer
 * whose parameters are tied to another's has them under the name "tied_modules..", and its file has
 * a copy. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/zero_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The tensor of a frozen parameter in a rank's model file. */
static const rsd_value *fragment_of(const rsi_zero *z, size_t rank, const char *name)
{
    const rsd_value *all = rsd_value_get(z->t->file[z->model[rank]].root, "frozen_param_fragments");
    const rsd_value *v = all ? rsd_value_get(all, name) : NULL;

    return v && rsd_value_tensor_of(v) ? v : NULL;
}

/* Those of stage 3 are cut like the others, but each has a separate tensor. */
static rsd_err add_fragments(rsi_zero *z, size_t base, const char *name, const rsi_zero_cut *cut,
                             rsd_error *err)
{
    const char *const part[] = { name, NULL };
    rsi_torch_entry   e = { .file = z->model[base] };
    rsi_zero_target   to = { .z = z, .cut = cut, .e = &e };
    int64_t           elems = 0, done = 0;
    rsd_err           rc = rsi_zero_name(z, part, &e, err);

    rsi_product(cut->ndim, cut->slice, 1, &elems);
    for (size_t r = base; r < base + z->ranks && !rc && (r == base || done < elems); r++) {
        const rsd_value        *v = fragment_of(z, r, name);
        const rsd_value_tensor *t = v ? rsd_value_tensor_of(v) : NULL;
        int64_t                 here;

        if (!t)
            return rsi_fail(err, RSD_E_FORMAT, "frozen parameter \"%s\" is not in file %zu", name,
                            r);
        e.file = z->model[r];
        rc = rsi_zero_like(cut, t, &to.like, err);
        if (!rc && !rsi_zero_is_vector(t))
            return rsi_zero_add_slice(&to, z->model[r], v, err);
        here = rc ? 0 : rsi_min(t->shape[0], elems - done);
        if (!rc)
            rc = rsi_zero_add_range(&to, done, done + here, z->model[r], t, 0, err);
        done += here;
    }
    return rc;
}

static const rsd_value *frozen_shapes(const rsi_zero *z, size_t rank, size_t g)
{
    (void)g;
    return rsd_value_get(z->t->file[z->model[rank]].root, "frozen_param_shapes");
}

rsd_err rsi_zero_add_frozen(rsi_zero *z, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t m = 0; m < z->pipes * z->slices && !rc; m++) {
        const size_t     base = m * z->ranks;
        const rsd_value *shapes = frozen_shapes(z, base, 0);

        for (size_t i = 0; shapes && i < rsd_value_count(shapes) && !rc; i++) {
            const char  *name = rsd_value_bytes(rsd_value_key(shapes, i), NULL);
            rsi_zero_cut cut;

            rc = name ? rsi_zero_cut_of(z, base, frozen_shapes, 0, name, &cut, err)
                      : rsi_fail(err, RSD_E_FORMAT, "a parameter's name is not text");
            if (!rc)
                rc = add_fragments(z, base, name, &cut, err);
        }
    }
    return rc;
}

/* ---- not listed ---- */

/* The files of all slices that have the same parameters under the same keys. */
typedef struct modules {
    rsi_zero       *z;
    const uint32_t *file; /* of slice i: file[i * each] */
    size_t          each;
    bool            layer; /* the file itself is the dict, otherwise its "module" is */
} modules;

static const rsd_value *module_of(const modules *m, size_t slice)
{
    const rsd_value *root = m->z->t->file[m->file[slice * m->each]].root;

    return m->layer ? root : rsd_value_get(root, "module");
}

static const rsd_value *tensor_of(const modules *m, size_t slice, const char *key)
{
    const rsd_value *module = module_of(m, slice);
    const rsd_value *v = module ? rsd_value_get(module, key) : NULL;

    return v && rsd_value_tensor_of(v) ? v : NULL;
}

static bool is_buffer(const rsi_zero *z, const char *name)
{
    for (size_t p = 0; p < z->pipes; p++) {
        const rsd_value *root = z->t->file[z->model[p * z->slices * z->ranks]].root;
        const rsd_value *all = rsd_value_get(root, "buffer_names");
        const size_t n = all && rsd_value_type_of(all) == RSD_VALUE_LIST ? rsd_value_count(all) : 0;

        for (size_t i = 0; i < n; i++) {
            const char *buffer = rsd_value_bytes(rsd_value_item(all, i), NULL);

            if (buffer && strcmp(buffer, name) == 0)
                return true;
        }
    }
    return false;
}

/* One that no vectors and no list have, from the files of all slices. */
static rsd_err add_untrained(const modules *m, const char *key, const char *name, rsd_error *err)
{
    rsi_zero *z = m->z;
    rsd_box  *shape = rsi_calloc(z->slices, sizeof(shape[0]));
    rsd_err   rc = shape ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < z->slices && !rc; i++) {
        const rsd_value *v = tensor_of(m, i, key);

        if (!v) {
            rc = rsi_fail(err, RSD_E_FORMAT, "it is not in the model files of all slices");
            break;
        }
        shape[i].ndim = rsd_value_tensor_of(v)->ndim;
        memcpy(shape[i].len, rsd_value_tensor_of(v)->shape, sizeof(shape[i].len));
    }
    for (size_t i = 0; i < z->slices && !rc; i++) {
        const rsd_value *v = tensor_of(m, i, key);
        rsi_torch_entry  e = { .file = m->file[i * m->each] };
        rsi_zero_cut     cut;
        rsi_zero_target  to = { .z = z, .cut = &cut, .e = &e };

        rc = rsi_zero_cut_make(z->info, name, i, z->slices, shape, &z->ckpt->mem, &cut, err);
        rc = rc ? rc : rsi_torch_name(z->t, &name, 1, &e, err);
        rc = rc ? rc : rsi_zero_like(&cut, rsd_value_tensor_of(v), &to.like, err);
        rc = rc ? rc : rsi_zero_add_slice(&to, e.file, v, err);
    }
    rsi_free(shape);
    return rc ? rsi_while(err, rc, "parameter \"%s\"", name) : RSD_OK;
}

static bool is_taken(const rsi_zero *z, const char *name)
{
    uint64_t number;

    return rsi_map_get(&z->t->names, name, strlen(name), &number);
}

rsd_err rsi_zero_add_untrained(rsi_zero *z, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t p = 0; z->slices > 1 && p < z->pipes && !rc; p++) {
        const modules    m = { z, z->model + p * z->slices * z->ranks, z->ranks, false };
        const rsd_value *module = module_of(&m, 0);

        for (size_t i = 0; module && i < rsd_value_count(module) && !rc; i++) {
            const rsd_value *key = rsd_value_key(module, i);
            const char      *name = key ? rsd_value_bytes(key, NULL) : NULL;

            if (name && rsd_value_tensor_of(rsd_value_item(module, i)) && !is_taken(z, name) &&
                !is_buffer(z, name))
                rc = add_untrained(&m, name, name, err);
        }
    }
    return rc;
}

/* ---- layers ---- */

/* Adds a tensor that all slices have alike. */
static rsd_err add_alike(const modules *m, const char *key, const char *name, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < m->z->slices && !rc; i++) {
        rsi_torch_entry e = { .value = tensor_of(m, i, key), .file = m->file[i * m->each] };

        rc = e.value ? rsi_torch_name(m->z->t, &name, 1, &e, err)
                     : rsi_fail(err, RSD_E_FORMAT,
                                "buffer \"%s\" is not in the files of all slices", name);
        rc = rc ? rc : rsi_torch_add_once(m->z->t, &e, err);
    }
    return rc;
}

/* Adds what a layer has besides trained parameters. */
static rsd_err add_rest(const modules *m, int64_t layer, rsd_error *err)
{
    const rsd_value *dict = module_of(m, 0);
    rsd_err          rc = RSD_OK;

    if (rsd_value_type_of(dict) != RSD_VALUE_DICT)
        return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" is not a dict of tensors",
                        m->z->t->file[m->file[0]].source.name);
    for (size_t i = 0; i < rsd_value_count(dict) && !rc; i++) {
        const rsd_value *v = rsd_value_key(dict, i);
        const char      *key = v ? rsd_value_bytes(v, NULL) : NULL;
        const size_t     len = key ? strlen(key) + 32 : 0;
        char            *name;

        if (!key || !rsd_value_tensor_of(rsd_value_item(dict, i)))
            continue;
        name = rsi_arena_array(&m->z->ckpt->mem, len, 1);
        if (!name)
            return rsi_torch_no_memory(err);
        snprintf(name, len, "%" PRId64 ".%s", layer, key);
        if (is_taken(m->z, name))
            continue;
        rc = m->z->slices == 1 || is_buffer(m->z, name) ? add_alike(m, key, name, err)
                                                        : add_untrained(m, key, name, err);
    }
    return rc;
}

/* Layer 3 and slice 1 of "layer_03-model_01-model_states.pt", slice 0 of "layer_03-model_states.pt"
 */
static bool layer_of(const char *file, int64_t *layer, int64_t *slice)
{
    char end;

    *slice = 0;
    if (sscanf(file, "layer_%9" SCNd64 "-model_%9" SCNd64 "-model_states.p%c", layer, slice,
               &end) == 3)
        return end == 't' && *layer >= 0 && *slice >= 0;
    *slice = 0;
    return sscanf(file, "layer_%9" SCNd64 "-model_states.p%c", layer, &end) == 2 && end == 't' &&
           *layer >= 0;
}

/* Opens the files of a layer, one for each slice. */
static rsd_err open_layer(rsi_zero *z, char *const *names, size_t n, int64_t layer, uint32_t *file,
                          rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t s = 0; s < z->slices && !rc; s++) {
        int64_t l, slice;
        size_t  i = 0;

        while (i < n && !(layer_of(names[i], &l, &slice) && l == layer && slice == (int64_t)s))
            i++;
        file[s] = (uint32_t)z->t->nfiles;
        rc = i < n ? rsi_torch_add_file(z->ckpt, names[i], err)
                   : rsi_fail(err, RSD_E_NOTFOUND,
                              "it has no file \"layer_%02" PRId64 "-model_%02zu-model_states.pt\"",
                              layer, s);
    }
    return rc;
}

/* Refuses a stage whose buffers are in files that are missing. */
static rsd_err check_buffers(const rsi_zero *z, rsd_error *err)
{
    for (size_t p = 0; p < z->pipes; p++) {
        const rsi_torch_file *f = &z->t->file[z->model[p * z->slices * z->ranks]];
        const rsd_value      *module = rsd_value_get(f->root, "module");
        const rsd_value      *all = rsd_value_get(f->root, "buffer_names");

        if (!module || rsd_value_type_of(module) != RSD_VALUE_NONE || !all ||
            rsd_value_type_of(all) != RSD_VALUE_LIST)
            continue;
        for (size_t i = 0; i < rsd_value_count(all); i++) {
            const char *name = rsd_value_bytes(rsd_value_item(all, i), NULL);

            if (name && !is_taken(z, name))
                return rsi_fail(err, RSD_E_NOTFOUND,
                                "file \"%s\" lists the buffer \"%s\", which no file of a layer has",
                                f->source.name, name);
        }
    }
    return RSD_OK;
}

rsd_err rsi_zero_add_layers(rsi_zero *z, char *const *names, size_t n, rsd_error *err)
{
    uint32_t *file = rsi_calloc(z->slices, sizeof(file[0]));
    rsd_err   rc = file ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        const modules m = { z, file, 1, true };
        int64_t       layer, slice;

        if (!layer_of(names[i], &layer, &slice))
            continue;
        if (slice >= (int64_t)z->slices)
            rc = rsi_fail(err, RSD_E_FORMAT,
                          "file \"%s\": it is of tensor-parallel rank %" PRId64 " of %zu", names[i],
                          slice, z->slices);
        else if (slice == 0)
            rc = open_layer(z, names, n, layer, file, err);
        if (!rc && slice == 0)
            rc = add_rest(&m, layer, err);
    }
    rsi_free(file);
    return rc ? rc : check_buffers(z, err);
}
