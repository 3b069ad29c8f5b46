/* SPDX-License-Identifier: Apache-2.0 */
/* The image of DeepSpeed's universal form, from which a training resumes on any number of ranks:
 *
 *   zero/<parameter>/fp32.pt     {"cat_dim": 0, "param": its weights}
 *   zero/<parameter>/<key>.pt    the same with "optim.state.<parameter>.<key>"; a step is bare;
 *                                experts of AutoEP also say that they are, and how many
 *   zero/optimizer_state.pt      the other values below "optim"
 *   *mp_rank_00_model_states.pt  the remaining values: one file for stages 1 and 2, one for stage 3
 *   latest_universal             the name of the folder with all that: "."
 *
 * zero_universal.c reads it. */
#include "base/mem.h"
#include "state/nest.h"
#include "write/image.h"

#include <stdio.h>
#include <string.h>

static const char optim[] = "optim.", optim_state[] = "optim.state.";
static const char own[] = "deepspeed.", model[] = "model.";

typedef struct leaves {
    rsi_leaf *at; /* for rsi_free */
    size_t    n, cap;
} leaves;

/* Parameters "<prefix>.w1", whose rows are the experts of a layer. */
typedef struct expert_layer {
    const char *prefix;
    size_t      len; /* of the prefix */
    int64_t     count;
} expert_layer;

typedef struct universal {
    rsi_image       *image;
    const rsd_state *state;
    rsd_values      *owner;
    rsi_map          trained, named; /* parameters with an optimizer's state; with weights */
    leaves           optim, rest;    /* values of the two kinds of common files */
    const rsd_value *step;           /* of the first parameter that has one */
    expert_layer    *layer;          /* [nlayers]; for rsi_free */
    size_t           nlayers, layers_cap;
} universal;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

/* ---- values ---- */

static rsd_err text_value(universal *u, const char *text, const rsd_value **out, rsd_error *err)
{
    return rsd_value_create_bytes(u->owner, RSD_VALUE_STR, text, strlen(text), out, err);
}

/* Adds a pair to a dict, unless it has the key. */
static rsd_err put(universal *u, const char *key, const rsd_value *value, const rsd_value **dict,
                   rsd_error *err)
{
    const size_t      n = rsd_value_count(*dict);
    const rsd_value **item;
    rsd_err           rc;

    if (rsd_value_get(*dict, key))
        return RSD_OK;
    item = rsi_calloc(2 * n + 2, sizeof(item[0]));
    if (!item)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        item[2 * i] = rsd_value_key(*dict, i);
        item[2 * i + 1] = rsd_value_item(*dict, i);
    }
    item[2 * n + 1] = value;
    rc = text_value(u, key, &item[2 * n], err);
    if (!rc)
        rc = rsd_value_create_list(u->owner, RSD_VALUE_DICT, n + 1, item, dict, err);
    rsi_free(item);
    return rc;
}

static rsd_err put_int(universal *u, const char *key, int64_t x, const rsd_value **dict,
                       rsd_error *err)
{
    const rsd_value *v;
    rsd_err          rc = rsd_value_create_int(u->owner, x, &v, err);

    return rc ? rc : put(u, key, v, dict, err);
}

static rsd_err empty_dict(universal *u, const rsd_value **out, rsd_error *err)
{
    return rsd_value_create_list(u->owner, RSD_VALUE_DICT, 0, NULL, out, err);
}

/* ---- experts ---- */

/* The value "deepspeed.ds_autoep_layers.<layer>.<key>"; NULL: none. `layer` ends with a dot. */
static const rsd_value *layer_value(const universal *u, const char *layer, size_t len,
                                    const char *key)
{
    for (size_t i = 0; i < u->state->nvalues; i++) {
        const char *name = u->state->value[i].spot.name;

        if (strncmp(name, layer, len) == 0 && strcmp(name + len, key) == 0)
            return u->state->value[i].value;
    }
    return NULL;
}

/* Finds the layers whose experts AutoEP divides, which a ZeRO checkpoint lists. */
static rsd_err find_layers(universal *u, rsd_error *err)
{
    static const char all[] = "deepspeed.ds_autoep_layers.", key[] = "expert_key_prefix";

    for (size_t i = 0; i < u->state->nvalues; i++) {
        const char      *name = u->state->value[i].spot.name, *dot;
        const rsd_value *count;
        expert_layer     found;

        if (strncmp(name, all, sizeof(all) - 1) != 0)
            continue;
        dot = strchr(name + sizeof(all) - 1, '.');
        if (!dot || strcmp(dot + 1, key) != 0)
            continue;
        found.prefix = rsd_value_bytes(u->state->value[i].value, NULL);
        count = layer_value(u, name, (size_t)(dot + 1 - name), "num_experts");
        if (!found.prefix || !count || rsd_value_type_of(count) != RSD_VALUE_INT)
            continue;
        found.len = strlen(found.prefix);
        found.count = rsd_value_int(count);
        if (!rsi_grow(&u->layer, u->nlayers, &u->layers_cap, sizeof(u->layer[0])))
            return no_memory(err);
        u->layer[u->nlayers++] = found;
    }
    return RSD_OK;
}

/* Marks a tensor with a row for each expert, so that DeepSpeed gives each rank its own. */
static rsd_err mark_experts(universal *u, const char *parameter, size_t len, const rsd_value *v,
                            const rsd_value **root, rsd_error *err)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(v);

    for (size_t i = 0; t && t->ndim > 0 && i < u->nlayers; i++) {
        const expert_layer *l = &u->layer[i];
        const rsd_value    *yes;
        rsd_err             rc;

        if (len <= l->len || memcmp(parameter, l->prefix, l->len) != 0 ||
            parameter[l->len] != '.' || t->shape[0] != l->count)
            continue;
        rc = rsd_value_create_bool(u->owner, true, &yes, err);
        rc = rc ? rc : put(u, "is_expert_param", yes, root, err);
        return rc ? rc : put_int(u, "ep_num_experts", l->count, root, err);
    }
    return RSD_OK;
}

/* ---- files of parameters ---- */

/* The last part of "optim.state.<parameter>.<key>", with the parameter's length; else NULL. */
static const char *state_key(const char *name, size_t *len)
{
    const char *at = name + sizeof(optim_state) - 1, *dot;

    if (strncmp(name, optim_state, sizeof(optim_state) - 1) != 0)
        return NULL;
    dot = strrchr(at, '.');
    *len = dot ? (size_t)(dot - at) : 0;
    return *len ? dot + 1 : NULL;
}

static bool is_folder_name(const char *name, size_t len)
{
    return !memchr(name, '/', len) && !(len == 1 && name[0] == '.') &&
           !(len == 2 && memcmp(name, "..", 2) == 0);
}

static rsd_err add_file(universal *u, const char *parameter, size_t len, const char *key,
                        const rsd_value *v, rsd_error *err)
{
    const size_t     size = len + strlen(key) + sizeof("zero//.pt");
    char            *name = rsi_arena_array(&u->image->mem, size, 1);
    const rsd_value *root = v;
    rsd_err          rc = name ? RSD_OK : no_memory(err);

    if (!rc && (!is_folder_name(parameter, len) || strchr(key, '/')))
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "\"%.*s\" can't be the name of a folder", (int)len,
                      parameter);
    if (!rc && strcmp(key, "step") != 0) {
        rc = empty_dict(u, &root, err);
        rc = rc ? rc : put_int(u, "cat_dim", 0, &root, err);
        rc = rc ? rc : put(u, "param", v, &root, err);
        rc = rc ? rc : mark_experts(u, parameter, len, v, &root, err);
    }
    if (rc)
        return rc;
    snprintf(name, size, "zero/%.*s/%s.pt", (int)len, parameter, key);
    return rsi_image_torch_file(u->image, u->state, name, root, NULL, err);
}

/* A tensor that is no optimizer's state. Below "model", as trainers nest it, it is a parameter if
 * the optimizer knows it without that. */
static rsd_err add_weights(universal *u, const char *name, const rsd_value *v, rsd_error *err)
{
    const size_t skip = sizeof(model) - 1, len = strlen(name);
    uint64_t     number = 0;
    bool         was = false;

    if (len > skip && memcmp(name, model, skip) == 0 &&
        rsi_map_get(&u->trained, name + skip, len - skip, &number))
        name += skip;
    if (!rsi_map_add(&u->named, name, strlen(name), &number, &was))
        return no_memory(err);
    if (was)
        return rsi_fail(err, RSD_E_INVALID, "two tensors are named \"%s\"", name);
    return add_file(u, name, strlen(name), "fp32", v, err);
}

/* ---- everything in its file ---- */

/* Collects a value for a common file, without the first `skip` characters of its path. */
static rsd_err add_leaf(universal *u, leaves *to, const rsi_spot *spot, size_t skip,
                        const rsd_value *v, rsd_error *err)
{
    rsi_spot      *kept = rsi_arena_array(&u->image->mem, 1, sizeof(*kept));
    rsd_path_part *flat = rsi_arena_array(&u->image->mem, 1, sizeof(*flat));
    const bool     below =
        skip && spot->nparts > 1 && spot->part[0].key && strlen(spot->part[0].key) + 1 == skip;

    if (!kept || !flat || !rsi_grow(&to->at, to->n, &to->cap, sizeof(to->at[0])))
        return no_memory(err);
    *kept = *spot;
    kept->name += skip;
    if (below) {
        kept->part++;
        kept->nparts--;
    } else if (skip) {
        flat->key = kept->name;
        kept->part = flat;
        kept->nparts = 1;
    }
    to->at[to->n++] = (rsi_leaf){ .spot = kept, .value = v };
    return RSD_OK;
}

/* What the source says of its model-parallel ranks: parameters are whole here. */
static bool counts_slices(const char *name)
{
    static const char dims[] = "checkpoint_parallel_dimensions.";

    return strcmp(name, "mp_world_size") == 0 || strncmp(name, dims, sizeof(dims) - 1) == 0;
}

static rsd_err take(universal *u, const rsi_spot *spot, const rsd_value *v, bool tensor,
                    rsd_error *err)
{
    size_t      len;
    const char *key = state_key(spot->name, &len);

    if (key) {
        if (!u->step && strcmp(key, "step") == 0)
            u->step = v;
        return add_file(u, spot->name + sizeof(optim_state) - 1, len, key, v, err);
    }
    if (strncmp(spot->name, optim, sizeof(optim) - 1) == 0)
        return add_leaf(u, &u->optim, spot, sizeof(optim) - 1, v, err);
    if (strncmp(spot->name, own, sizeof(own) - 1) == 0) {
        if (counts_slices(spot->name + sizeof(own) - 1)) {
            rsd_err rc = rsd_value_create_int(u->owner, 1, &v, err);

            if (rc)
                return rc;
        }
        return add_leaf(u, &u->rest, spot, sizeof(own) - 1, v, err);
    }
    return tensor ? add_weights(u, spot->name, v, err) : add_leaf(u, &u->rest, spot, 0, v, err);
}

static rsd_err note_trained(universal *u, const char *name, rsd_error *err)
{
    size_t   len;
    uint64_t number = 0;

    if (!state_key(name, &len))
        return RSD_OK;
    return rsi_map_add(&u->trained, name + sizeof(optim_state) - 1, len, &number, NULL)
               ? RSD_OK
               : no_memory(err);
}

/* An optimizer may number parameters instead of naming them. */
static rsd_err check_names(const universal *u, rsd_error *err)
{
    for (size_t i = 0; i < u->state->ntensors; i++) {
        const char *name = u->state->tensor[i].spot.name;
        size_t      len;
        uint64_t    number;

        if (state_key(name, &len) &&
            !rsi_map_get(&u->named, name + sizeof(optim_state) - 1, len, &number))
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "\"%s\": no tensor \"%.*s\" has this optimizer state; the universal "
                            "form goes by names",
                            name, (int)len, name + sizeof(optim_state) - 1);
    }
    return RSD_OK;
}

static rsd_err take_all(universal *u, rsd_error *err)
{
    const rsd_state *s = u->state;
    rsd_err          rc = find_layers(u, err);

    for (size_t i = 0; i < s->ntensors && !rc; i++)
        rc = note_trained(u, s->tensor[i].spot.name, err);
    for (size_t i = 0; i < s->ntensors && !rc; i++) {
        const rsd_value *v;

        rc = rsi_image_tensor_value(&s->tensor[i], u->owner, &v, err);
        if (!rc)
            rc = take(u, &s->tensor[i].spot, v, true, err);
    }
    for (size_t i = 0; i < s->nvalues && !rc; i++)
        rc = take(u, &s->value[i].spot, s->value[i].value, false, err);
    return rc ? rc : check_names(u, err);
}

/* ---- common files ---- */

/* The optimizer's groups: a list, which without any is taken to have one. */
static rsd_err find_groups(universal *u, const rsd_value *root, const rsd_value **out,
                           rsd_error *err)
{
    const rsd_value *one;
    rsd_err          rc;

    *out = rsd_value_get(root, "param_groups");
    if (*out)
        return RSD_OK;
    rc = empty_dict(u, &one, err);
    return rc ? rc : rsd_value_create_list(u->owner, RSD_VALUE_LIST, 1, &one, out, err);
}

/* {"state": {0: {"step": ..}}, "param_groups": ..}: stage 3 has its step here. */
static rsd_err inner_optimizer(universal *u, const rsd_value *groups, const rsd_value **out,
                               rsd_error *err)
{
    const rsd_value *pair[2], *state, *first;
    rsd_err          rc = empty_dict(u, &first, err);

    rc = rc        ? rc
         : u->step ? put(u, "step", u->step, &first, err)
                   : put_int(u, "step", 0, &first, err);
    rc = rc ? rc : rsd_value_create_int(u->owner, 0, &pair[0], err);
    pair[1] = first;
    rc = rc ? rc : rsd_value_create_list(u->owner, RSD_VALUE_DICT, 1, pair, &state, err);
    rc = rc ? rc : empty_dict(u, out, err);
    rc = rc ? rc : put(u, "state", state, out, err);
    return rc ? rc : put(u, "param_groups", groups, out, err);
}

/* DeepSpeed's version: that of the source, or the oldest one that it resumes from. */
static rsd_err find_version(universal *u, const rsd_value **out, rsd_error *err)
{
    for (size_t i = 0; i < u->rest.n; i++)
        if (strcmp(u->rest.at[i].spot->name, "ds_version") == 0) {
            *out = u->rest.at[i].value;
            return RSD_OK;
        }
    return text_value(u, "0.3.17", out, err);
}

static rsd_err add_optimizer(universal *u, rsd_error *err)
{
    const rsd_value *root, *groups, *inner, *version;
    rsd_err          rc = rsi_nest(u->optim.at, u->optim.n, 0, u->owner, &root, err);

    rc = rc ? rc : find_groups(u, root, &groups, err);
    rc = rc ? rc : inner_optimizer(u, groups, &inner, err);
    rc = rc ? rc : find_version(u, &version, err);
    rc = rc ? rc : put(u, "param_groups", groups, &root, err);
    rc = rc ? rc : put(u, "optimizer_state_dict", inner, &root, err);
    rc = rc ? rc : put(u, "ds_version", version, &root, err);
    return rc ? rc
              : rsi_image_torch_file(u->image, u->state, "zero/optimizer_state.pt", root, NULL,
                                     err);
}

/* The keys that DeepSpeed wants; it takes no weights from here. */
static rsd_err add_models(universal *u, rsd_error *err)
{
    const rsd_value *root, *none = NULL, *version, *info;
    rsd_err          rc = rsi_nest(u->rest.at, u->rest.n, 0, u->owner, &root, err);

    rc = rc ? rc : empty_dict(u, &none, err);
    rc = rc ? rc : rsd_value_create_float(u->owner, 0.2, &version, err);
    info = none;
    rc = rc ? rc : put(u, "universal_checkpoint_version", version, &info, err);
    rc = rc ? rc : put(u, "module", none, &root, err);
    rc = rc ? rc : put_int(u, "dp_world_size", 1, &root, err);
    rc = rc ? rc : put_int(u, "mp_world_size", 1, &root, err);
    rc = rc ? rc : put_int(u, "global_steps", 0, &root, err);
    rc = rc ? rc : put_int(u, "skipped_steps", 0, &root, err);
    rc = rc ? rc : put(u, "universal_checkpoint_info", info, &root, err);
    rc = rc ? rc
            : rsi_image_torch_file(u->image, u->state, "mp_rank_00_model_states.pt", root, NULL,
                                   err);
    return rc ? rc
              : rsi_image_torch_file(u->image, u->state,
                                     "zero_pp_rank_0_mp_rank_00_model_states.pt", root, NULL, err);
}

static rsd_err add_latest(universal *u, rsd_error *err)
{
    const rsi_out_part here = { .kind = RSI_PART_BYTES, .bytes = ".", .len = 1 };
    rsd_err            rc = rsi_image_file(u->image, "latest_universal", 0, err);

    rc = rc ? rc : rsi_image_item(u->image, NULL, err);
    return rc ? rc : rsi_image_part(u->image, &here, err);
}

rsd_err rsi_image_universal(rsi_image *image, const rsd_state *state, rsd_error *err)
{
    universal u = { .image = image, .state = state };
    rsd_err   rc = rsd_values_create(&u.owner, err);

    rc = rc ? rc : take_all(&u, err);
    rc = rc ? rc : add_optimizer(&u, err);
    rc = rc ? rc : add_models(&u, err);
    rc = rc ? rc : add_latest(&u, err);
    rsd_values_free(u.owner);
    rsi_map_release(&u.trained);
    rsi_map_release(&u.named);
    rsi_free(u.optim.at);
    rsi_free(u.rest.at);
    rsi_free(u.layer);
    return rc;
}
