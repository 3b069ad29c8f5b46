/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of DeepSpeed that are not trained: in the model files of stages 2 and 3 they are
 * listed with their shapes, in those of stage 1 they stand among all others. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/zero_core.h"

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

/* ---- stage 1 ---- */

/* The shape of a parameter in the model file of a slice; false: it has none. */
static bool module_shape(const rsi_zero *z, size_t rank, const char *name, rsd_box *out)
{
    const rsd_value *module = rsd_value_get(z->t->file[z->model[rank]].root, "module");
    const rsd_value *v = module ? rsd_value_get(module, name) : NULL;

    if (!v || !rsd_value_tensor_of(v))
        return false;
    out->ndim = rsd_value_tensor_of(v)->ndim;
    memcpy(out->len, rsd_value_tensor_of(v)->shape, sizeof(out->len));
    return true;
}

static bool is_buffer(const rsi_zero *z, size_t rank, const char *name)
{
    const rsd_value *all = rsd_value_get(z->t->file[z->model[rank]].root, "buffer_names");

    for (size_t i = 0; all && rsd_value_type_of(all) == RSD_VALUE_LIST && i < rsd_value_count(all);
         i++) {
        const char *buffer = rsd_value_bytes(rsd_value_item(all, i), NULL);

        if (buffer && strcmp(buffer, name) == 0)
            return true;
    }
    return false;
}

/* One that no vectors and no list have, from the model files of all slices. */
static rsd_err add_untrained(rsi_zero *z, size_t base, const char *name, rsd_box *shape,
                             rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < z->slices; i++)
        if (!module_shape(z, base + i * z->ranks, name, &shape[i]))
            return rsi_fail(err, RSD_E_FORMAT,
                            "parameter \"%s\" is not in the model files of all slices", name);
    for (size_t i = 0; i < z->slices && !rc; i++) {
        const size_t     rank = base + i * z->ranks;
        const rsd_value *module = rsd_value_get(z->t->file[z->model[rank]].root, "module");
        const rsd_value *v = rsd_value_get(module, name);
        rsi_torch_entry  e = { .file = z->model[rank] };
        rsi_zero_cut     cut;
        rsi_zero_target  to = { .z = z, .cut = &cut, .e = &e };

        rc = rsi_zero_cut_make(z->info, name, i, z->slices, shape, &z->ckpt->mem, &cut, err);
        rc = rc ? rc : rsi_torch_name(z->t, &name, 1, &e, err);
        rc = rc ? rc : rsi_zero_like(&cut, rsd_value_tensor_of(v), &to.like, err);
        rc = rc ? rc : rsi_zero_add_slice(&to, z->model[rank], v, err);
    }
    return rc ? rsi_while(err, rc, "parameter \"%s\"", name) : RSD_OK;
}

rsd_err rsi_zero_add_untrained(rsi_zero *z, rsd_error *err)
{
    rsd_box *shape = rsi_calloc(z->slices, sizeof(shape[0]));
    rsd_err  rc = shape ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t p = 0; z->slices > 1 && p < z->pipes && !rc; p++) {
        const size_t     base = p * z->slices * z->ranks;
        const rsd_value *module = rsd_value_get(z->t->file[z->model[base]].root, "module");

        for (size_t i = 0; module && i < rsd_value_count(module) && !rc; i++) {
            const rsd_value *key = rsd_value_key(module, i);
            const char      *name = key ? rsd_value_bytes(key, NULL) : NULL;
            uint64_t         number;

            if (name && rsd_value_tensor_of(rsd_value_item(module, i)) &&
                !rsi_map_get(&z->t->names, name, strlen(name), &number) &&
                !is_buffer(z, base, name))
                rc = add_untrained(z, base, name, shape, err);
        }
    }
    rsi_free(shape);
    return rc;
}
