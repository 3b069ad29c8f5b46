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
    char           **parameter; /* [nparameters] the names in "zero", sorted */
    size_t           nparameters;
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

/* Parameters that may be without weights. */
static size_t most_lost(const universal *u)
{
    size_t n = u->nparameters;

    for (size_t g = 0; u->shapes && g < rsd_value_count(u->shapes); g++)
        n += rsd_value_count(rsd_value_item(u->shapes, g));
    return n;
}

/* Refuses a parameter whose weights are missing; with salvage, its name is kept. */
static rsd_err miss(universal *u, const char *parameter, rsd_error *err)
{
    rsd_ckpt *ckpt = u->ckpt;
    char     *name = rsi_arena_text(&ckpt->mem, parameter, strlen(parameter));
    char     *folder = join(u, "zero", parameter);
    char     *path = folder ? join(u, folder, "fp32.pt") : NULL;
    uint32_t  number = 0;
    rsd_err   rc;

    if (!ckpt->lost)
        ckpt->lost = rsi_arena_array(&ckpt->mem, most_lost(u), sizeof(ckpt->lost[0]));
    if (!name || !path || !ckpt->lost)
        return rsi_torch_no_memory(err);
    rc = rsi_files_add(&ckpt->files, path, true, &number, err);
    if (!rc && !ckpt->files.file[number]->missing)
        rc =
            rsi_fail(err, RSD_E_FORMAT, "file \"%s\" lies where its folder does not list it", path);
    if (!rc)
        ckpt->lost[ckpt->nlost++] = name;
    return rc;
}

static rsd_err read_parameter(universal *u, const char *parameter, rsd_error *err)
{
    char   *folder = join(u, "zero", parameter);
    char  **files = NULL;
    size_t  n = 0;
    bool    step = u->step, state = false, weights = false;
    rsd_err rc = folder ? list(u, folder, &files, &n, err) : rsi_torch_no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        step = step && strcmp(files[i], "step.pt") != 0;
        weights = weights || strcmp(files[i], "fp32.pt") == 0;
        state = state || strcmp(files[i], "fp32.pt") != 0;
        if (rsi_text_ends(files[i], ".pt"))
            rc = read_file(u, parameter, folder, files[i], err);
    }
    if (!rc && step && state)
        rc = add_step(u, parameter, err);
    if (!rc && !weights)
        rc = miss(u, parameter, err);
    rsi_free(files);
    return rc ? rsi_while(err, rc, "parameter \"%s\"", parameter) : RSD_OK;
}

/* ---- the folder ---- */

/* Parameters that the model file lists; those of a training that froze them have no folder. */
static rsd_err check_listed(universal *u, rsd_error *err)
{
    const rsd_value *frozen =
        u->shapes ? rsd_value_get(u->t->file[0].root, "frozen_param_shapes") : NULL;
    rsd_err rc = RSD_OK;

    for (size_t g = 0; u->shapes && g < rsd_value_count(u->shapes) && !rc; g++) {
        const rsd_value *group = rsd_value_item(u->shapes, g);

        for (size_t i = 0; i < rsd_value_count(group) && !rc; i++) {
            const char *name = rsd_value_bytes(rsd_value_key(group, i), NULL);

            if (!name || rsd_value_get(frozen, name) ||
                bsearch(&name, u->parameter, u->nparameters, sizeof(name), by_name))
                continue;
            rc = miss(u, name, err);
            if (rc)
                rsi_while(err, rc, "parameter \"%s\", which \"%s\" lists", name,
                          u->t->file[0].source.name);
        }
    }
    return rc;
}

static rsd_err take_model(universal *u, const rsd_value *root, rsd_error *err)
{
    const char *version = rsi_zero_version(root);
    char        text[80];

    u->shapes = rsd_value_get(root, "param_shapes");
    if (!version)
        return RSD_OK;
    snprintf(text, sizeof(text), "DeepSpeed %.32s's universal form", version);
    u->ckpt->kind = rsi_arena_text(&u->ckpt->mem, text, strlen(text));
    return u->ckpt->kind ? RSD_OK : rsi_torch_no_memory(err);
}

/* Buffers, shapes and DeepSpeed's version, from the first model file present. */
static rsd_err read_model(universal *u, rsd_error *err)
{
    char  **names;
    size_t  n;
    rsd_err rc = rsi_files_list(&u->ckpt->files, &names, &n, err);

    for (size_t i = 0; i < n && !rc; i++)
        if (rsi_text_ends(names[i], "_model_states.pt") && !rsi_zero_is_expert(names[i])) {
            rc = rsi_torch_add_file(u->ckpt, names[i], err);
            if (!rc)
                rc = take_model(u, u->t->file[0].root, err);
            break;
        }
    return rc;
}

/* The optimizer's values; one of stage 3 has the step among them. */
static rsd_err read_optimizer(universal *u, rsd_error *err)
{
    static const char file[] = "optimizer_state.pt";
    const rsd_value  *v;
    char             *path = join(u, "zero", file);
    bool              there = false;
    rsd_err           rc = path ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < u->nparameters; i++)
        there = there || strcmp(u->parameter[i], file) == 0;
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
    bool      model;
    rsd_err   rc = rsi_torch_begin(ckpt, &u.t, err);

    ckpt->kind = "DeepSpeed's universal form";
    if (!rc)
        rc = list(&u, "zero", &u.parameter, &u.nparameters, err);
    if (!rc)
        rc = read_model(&u, err);
    model = !rc && u.t->nfiles;
    if (!rc)
        rc = read_optimizer(&u, err);
    for (size_t i = 0; i < u.nparameters && !rc; i++)
        if (!rsi_text_ends(u.parameter[i], ".pt")) /* files beside the folders */
            rc = read_parameter(&u, u.parameter[i], err);
    rc = rc ? rc : check_listed(&u, err);
    rsi_free(u.parameter);
    if (model)
        rc = rc ? rc : rsi_zero_add_shared(u.t, u.t->file[0].root, err);
    if (model)
        rc = rc ? rc : add_buffers(&u, err);
    if (model)
        rc = rc ? rc : rsi_zero_add_model(u.t, 0, err);
    return rc ? rc : rsi_torch_end(ckpt, err);
}
