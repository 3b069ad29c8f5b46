/* SPDX-License-Identifier: Apache-2.0 */
/* What DeepSpeed's files hold besides flat vectors: buffers, experts, names of shared parameters;
 * below "deepspeed" the values of a model file (steps, schedules, options), below "optim" those of
 * an optimizer file (groups, versions). */
#include "base/mem.h"
#include "base/text.h"
#include "format/torch_core.h"

#include <ctype.h>
#include <string.h>

/* {name: name of the parameter that it shares} */
rsd_err rsi_zero_add_shared(rsi_torch *t, const rsd_value *root, rsd_error *err)
{
    const rsd_value *all = rsd_value_get(root, "shared_params");
    rsd_err          rc = RSD_OK;

    for (size_t i = 0;
         all && rsd_value_type_of(all) == RSD_VALUE_DICT && i < rsd_value_count(all) && !rc; i++)
        rc = rsi_torch_alias(t, rsd_value_bytes(rsd_value_key(all, i), NULL),
                             rsd_value_bytes(rsd_value_item(all, i), NULL), err);
    return rc;
}

/* ---- tensors under their names ---- */

static bool is_taken(const rsi_torch *t, const char *name, size_t len)
{
    uint64_t number;

    return rsi_map_get(&t->names, name, len, &number);
}

rsd_err rsi_zero_add_tensors(rsi_torch *t, uint32_t file, const rsd_value *dict, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; dict && i < rsd_value_count(dict) && !rc; i++) {
        const rsd_value *key = rsd_value_key(dict, i), *v = rsd_value_item(dict, i);
        const char      *name = key ? rsd_value_bytes(key, NULL) : NULL;
        const char      *dot = name ? strrchr(name, '.') : NULL;
        rsi_torch_entry  e = { .value = v, .file = file };

        /* "experts.w1.3" is a row of "experts.w1" */
        if (!name || !rsd_value_tensor_of(v) || is_taken(t, name, strlen(name)) ||
            (dot && isdigit((unsigned char)dot[1]) && is_taken(t, name, (size_t)(dot - name))))
            continue;
        rc = rsi_torch_name(t, &name, 1, &e, err);
        if (!rc)
            rc = rsi_torch_add(t, &e, err);
    }
    return rc;
}

rsd_err rsi_zero_add_buffers(rsi_torch *t, uint32_t file, rsd_error *err)
{
    const rsd_value *dict = rsd_value_get(t->file[file].root, "module");
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; dict && i < rsd_value_count(dict) && !rc; i++) {
        const rsd_value *key = rsd_value_key(dict, i), *v = rsd_value_item(dict, i);
        const char      *name = key ? rsd_value_bytes(key, NULL) : NULL;
        rsi_torch_entry  e = { .value = v, .file = file };
        uint64_t         number;

        if (!name || !rsd_value_tensor_of(v))
            continue;
        if (rsi_map_get(&t->names, name, strlen(name), &number) &&
            (number >= t->tensors.n || t->tensors.at[number].whole))
            continue; /* a parameter, which was added in fp32 */
        rc = rsi_torch_name(t, &name, 1, &e, err);
        if (!rc)
            rc = rsi_torch_add_once(t, &e, err);
    }
    return rc;
}

bool rsi_zero_is_expert(const char *name)
{
    return rsi_text_ends(name, "_model_states.pt") &&
           (strstr(name, "_expert_") || strncmp(name, "expert_", 7) == 0);
}

rsd_err rsi_zero_add_experts(rsd_ckpt *ckpt, rsi_torch *t, char *const *names, size_t n,
                             size_t *count, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        const uint32_t file = (uint32_t)t->nfiles;

        if (!rsi_zero_is_expert(names[i]))
            continue;
        rc = rsi_torch_add_file(ckpt, names[i], err);
        if (!rc)
            rc = rsi_zero_add_tensors(t, file, t->file[file].root, err);
        ++*count;
    }
    return rc;
}

/* ---- values ---- */

rsd_err rsi_zero_add_items(rsi_torch *t, uint32_t file, const rsd_value *dict, const char *below,
                           const char *const *known, rsd_error *err)
{
    rsi_torch_file *f = &t->file[file];
    const size_t n = dict && rsd_value_type_of(dict) == RSD_VALUE_DICT ? rsd_value_count(dict) : 0;
    const rsd_value **item = rsi_arena_array(&f->values->mem, 2 * n, sizeof(item[0]));
    size_t            kept = 0;
    rsd_err           rc;

    if (!item)
        return rsi_torch_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const char *key = rsd_value_bytes(rsd_value_key(dict, i), NULL);
        bool        used = false;

        for (size_t k = 0; key && known[k]; k++)
            used = used || strcmp(key, known[k]) == 0;
        if (used)
            continue;
        item[2 * kept] = rsd_value_key(dict, i);
        item[2 * kept++ + 1] = rsd_value_item(dict, i);
    }
    rc = rsd_value_create_list(f->values, RSD_VALUE_DICT, kept, item, &f->root, err);
    return rc || kept == 0 ? rc : rsi_torch_flatten(t, file, below, rsi_torch_add, t, err);
}

rsd_err rsi_zero_add_model(rsi_torch *t, uint32_t file, rsd_error *err)
{
    static const char *const known[] = { "module",        "param_shapes",
                                         "buffer_names",  "frozen_param_shapes",
                                         "shared_params", "frozen_param_fragments",
                                         "optimizer",     NULL };

    return rsi_zero_add_items(t, file, t->file[file].root, "deepspeed", known, err);
}

rsd_err rsi_zero_add_optim(rsi_torch *t, uint32_t file, const rsd_value *dict, rsd_error *err)
{
    static const char *const known[] = {
        "base_optimizer_state", "optimizer_state_dict", "single_partition_of_fp32_groups",
        "fp32_flat_groups",     "param_slice_mappings", NULL
    };
    static const char *const state[] = { "state", NULL };
    const rsd_value         *base = rsd_value_get(dict, "base_optimizer_state");
    const bool               outside = rsd_value_get(dict, "param_groups");
    rsd_err                  rc = rsi_zero_add_items(t, file, dict, "optim", known, err);

    base = base ? base : rsd_value_get(dict, "optimizer_state_dict");
    if (!rc && !outside)
        rc = rsi_zero_add_items(t, file, base, "optim", state, err);
    return rc;
}
