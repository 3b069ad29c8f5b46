/* SPDX-License-Identifier: Apache-2.0 */
/* Opens DeepSpeed's universal form: zero/<parameter>/fp32.pt holds the weights, the other files of
 * that folder the optimizer's state. A file is a dict with the tensor under "param", or just the
 * tensor, flat if it came from stage 3; its shape is then in a model file. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/torch_core.h"
#include "shape/box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct universal {
    rsd_ckpt        *ckpt;
    rsi_torch       *t;
    const rsd_value *shapes; /* list of dicts; NULL: unknown */
    const rsd_value *step;   /* of parameters that have none of their own; NULL: none */
    uint32_t         common; /* the file that has it */
    char           **name;   /* [n] of the folder being listed */
    size_t           n, cap;
} universal;

static rsd_err note_name(void *arg, const rsd_entry *entry, rsd_error *err)
{
    universal *u = arg;
    char      *name = rsi_arena_text(&u->ckpt->mem, entry->name, strlen(entry->name));

    if (!name || !rsi_grow(&u->name, u->n, &u->cap, sizeof(u->name[0])))
        return rsi_torch_no_memory(err);
    u->name[u->n++] = name;
    return RSD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a folder below the checkpoint, sorted; the caller frees *out. */
static rsd_err list(universal *u, const char *below, char ***out, size_t *n, rsd_error *err)
{
    char   *full = rsi_files_name_beside(&u->ckpt->files, below);
    rsd_err rc = full ? rsi_store_list(u->ckpt->files.store, full, note_name, u, err)
                      : rsi_torch_no_memory(err);

    rsi_free(full);
    if (!rc)
        qsort(u->name, u->n, sizeof(u->name[0]), by_name);
    *out = u->name;
    *n = u->n;
    u->name = NULL;
    u->n = u->cap = 0;
    return rc;
}

/* "a/b" in the checkpoint's memory. */
static char *join(universal *u, const char *a, const char *b)
{
    const size_t len = strlen(a) + strlen(b) + 2;
    char        *text = rsi_arena_array(&u->ckpt->mem, len, 1);

    if (text)
        snprintf(text, len, "%s/%s", a, b);
    return text;
}

/* ---- one file ---- */

/* The shape of a flat tensor; false if no matching shape is known. */
static bool shape_of(const universal *u, const char *name, const rsd_value_tensor *t,
                     rsi_torch_whole *out)
{
    int64_t elems = 0;

    for (size_t g = 0; u->shapes && g < rsd_value_count(u->shapes); g++) {
        const rsd_value *size = rsd_value_get(rsd_value_item(u->shapes, g), name);
        const size_t     n = size ? rsd_value_count(size) : 0;

        if (!size || n > RSD_MAX_NDIM)
            continue;
        *out = (rsi_torch_whole){ .dtype = t->dtype, .ndim = (int32_t)n };
        for (size_t d = 0; d < n; d++)
            out->shape[d] = rsd_value_int(rsd_value_item(size, d));
        return rsi_shape_check(t->dtype, out->ndim, out->shape, &elems, NULL) == RSD_OK &&
               elems == t->shape[0];
    }
    return false;
}

static rsd_err add_value(universal *u, rsi_torch_entry *e, const char *parameter, rsd_error *err)
{
    const rsd_value        *param = rsd_value_get(e->value, "param");
    const rsd_value_tensor *t;
    rsi_torch_whole         like;
    rsi_torch_piece         piece = { .file = e->file, .flat = true };

    if (param)
        e->value = param;
    t = rsd_value_tensor_of(e->value);
    if (!t || t->ndim != 1 || t->stride[0] != 1 || !shape_of(u, parameter, t, &like))
        return rsi_torch_add(u->t, e, err);
    piece.of = t;
    piece.box.ndim = like.ndim;
    memcpy(piece.box.len, like.shape, sizeof(piece.box.len));
    return rsi_torch_add_piece(u->t, e, &like, &piece, err);
}

static rsd_err read_file(universal *u, const char *parameter, const char *folder, const char *file,
                         rsd_error *err)
{
    char           *path = join(u, folder, file);
    char           *key = rsi_arena_text(&u->ckpt->mem, file, strlen(file) - strlen(".pt"));
    const char     *part[] = { "optim", "state", parameter, key };
    const bool      weights = key && strcmp(key, "fp32") == 0;
    rsi_torch_entry e = { 0 };
    rsd_err         rc;

    if (!path || !key)
        return rsi_torch_no_memory(err);
    rc = rsi_torch_add_file(u->ckpt, path, err);
    if (rc)
        return rc;
    e.file = (uint32_t)u->t->nfiles - 1;
    e.value = u->t->file[e.file].root;
    rc = weights ? rsi_torch_name(u->t, &parameter, 1, &e, err)
                 : rsi_torch_name(u->t, part, 4, &e, err);
    return rc ? rc : add_value(u, &e, parameter, err);
}

/* The step that all parameters have. */
static rsd_err add_step(universal *u, const char *parameter, rsd_error *err)
{
    const char     *part[] = { "optim", "state", parameter, "step" };
    rsi_torch_entry e = { .value = u->step, .file = u->common };
    rsd_err         rc = rsi_torch_name(u->t, part, 4, &e, err);

    return rc ? rc : rsi_torch_add(u->t, &e, err);
}

static rsd_err read_parameter(universal *u, const char *parameter, rsd_error *err)
{
    char   *folder = join(u, "zero", parameter);
    char  **files = NULL;
    size_t  n = 0;
    bool    step = u->step, state = false;
    rsd_err rc = folder ? list(u, folder, &files, &n, err) : rsi_torch_no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        step = step && strcmp(files[i], "step.pt") != 0;
        state = state || strcmp(files[i], "fp32.pt") != 0;
        if (rsi_text_ends(files[i], ".pt"))
            rc = read_file(u, parameter, folder, files[i], err);
    }
    if (!rc && step && state)
        rc = add_step(u, parameter, err);
    rsi_free(files);
    return rc ? rsi_while(err, rc, "parameter \"%s\"", parameter) : RSD_OK;
}

/* ---- the folder ---- */

/* Buffers and shapes, from the first model file present. */
static rsd_err read_model(universal *u, rsd_error *err)
{
    char  **names;
    size_t  n;
    rsd_err rc = rsi_files_list(&u->ckpt->files, &names, &n, err);

    for (size_t i = 0; i < n && !rc; i++)
        if (rsi_text_ends(names[i], "_model_states.pt")) {
            rc = rsi_torch_add_file(u->ckpt, names[i], err);
            u->shapes = rc ? NULL : rsd_value_get(u->t->file[0].root, "param_shapes");
            break;
        }
    return rc;
}

/* The optimizer's values; one of stage 3 has the step among them. */
static rsd_err read_optimizer(universal *u, char *const *name, size_t n, rsd_error *err)
{
    static const char file[] = "optimizer_state.pt";
    const rsd_value  *v;
    char             *path = join(u, "zero", file);
    bool              there = false;
    rsd_err           rc = path ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < n; i++)
        there = there || strcmp(name[i], file) == 0;
    if (rc || !there)
        return rc;
    u->common = (uint32_t)u->t->nfiles;
    rc = rsi_torch_add_file(u->ckpt, path, err);
    if (rc)
        return rc;
    v = rsd_value_get(u->t->file[u->common].root, "optimizer_state_dict");
    v = v ? rsd_value_get(v, "state") : NULL;
    v = v && rsd_value_type_of(v) == RSD_VALUE_DICT && rsd_value_count(v) ? rsd_value_item(v, 0)
                                                                          : NULL;
    u->step = v ? rsd_value_get(v, "step") : NULL;
    return rsi_zero_add_optim(u->t, u->common, u->t->file[u->common].root, err);
}

static rsd_err add_buffers(universal *u, rsd_error *err)
{
    const rsd_value *module = rsd_value_get(u->t->file[0].root, "module");
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; module && i < rsd_value_count(module) && !rc; i++) {
        const char     *name = rsd_value_bytes(rsd_value_key(module, i), NULL);
        rsi_torch_entry e = { .value = rsd_value_item(module, i) };
        uint64_t        number;

        /* parameters of stage 3 are empty there */
        if (!name || !rsd_value_tensor_of(e.value) ||
            !rsd_value_tensor_of(e.value)->storage_bytes ||
            rsi_map_get(&u->t->names, name, strlen(name), &number))
            continue;
        rc = rsi_torch_name(u->t, &name, 1, &e, err);
        if (!rc)
            rc = rsi_torch_add(u->t, &e, err);
    }
    return rc;
}

rsd_err rsi_universal_open(rsd_ckpt *ckpt, rsd_error *err)
{
    universal u = { .ckpt = ckpt };
    char    **parameter = NULL;
    size_t    n = 0;
    bool      model;
    rsd_err   rc = rsi_torch_begin(ckpt, &u.t, err);

    ckpt->kind = "DeepSpeed's universal form";
    if (!rc)
        rc = list(&u, "zero", &parameter, &n, err);
    if (!rc)
        rc = read_model(&u, err);
    model = !rc && u.t->nfiles;
    if (!rc)
        rc = read_optimizer(&u, parameter, n, err);
    for (size_t i = 0; i < n && !rc; i++)
        if (!rsi_text_ends(parameter[i], ".pt")) /* files beside the folders */
            rc = read_parameter(&u, parameter[i], err);
    rsi_free(parameter);
    if (model)
        rc = rc ? rc : rsi_zero_add_shared(u.t, u.t->file[0].root, err);
    if (model)
        rc = rc ? rc : add_buffers(&u, err);
    if (model)
        rc = rc ? rc : rsi_zero_add_model(u.t, 0, err);
    return rc ? rc : rsi_torch_end(ckpt, err);
}
