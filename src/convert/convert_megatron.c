/* SPDX-License-Identifier: Apache-2.0 */
/* What Megatron-Core's torch_dist has in addition to DCP:
 *
 *   common.pt       {"checkpoint_version": 3.0, "iteration": N}
 *   metadata.json   the format of the folder
 *   <layer>._extra_state/shard_<index>_<shape>
 *                   an object for every copy of a layer, [None]: nothing to restore. Transformer
 *                   Engine keeps FP8 scales there, which no other format has; it accepts None
 *   ../latest_checkpointed_iteration.txt
 *                   the number of the last iteration, or "release"; written after the folder */
#include "convert/convert_megatron.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACKER "latest_checkpointed_iteration.txt"

static const char config[] =
    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
    "\"common_backend\": \"torch\", \"common_backend_version\": 1}";

/* The iteration of a folder named "iter_0000012", or 0 of one named "release". */
static rsd_err iteration_of(const char *path, int64_t *iteration, rsd_error *err)
{
    char        name[32] = "";
    const char *end = path + strlen(path), *last;
    size_t      len;

    while (end > path + 1 && end[-1] == '/')
        end--;
    for (last = end; last > path && last[-1] != '/'; last--)
        ;
    len = (size_t)(end - last);
    memcpy(name, last, len < sizeof(name) ? len : 0);
    *iteration = 0;
    if (strcmp(name, "release") == 0)
        return RSD_OK;
    if (len == 12 && strncmp(name, "iter_", 5) == 0 && strspn(name + 5, "0123456789") == 7)
        *iteration = strtoll(name + 5, NULL, 10);
    return *iteration > 0
               ? RSD_OK
               : rsi_fail(err, RSD_E_INVALID,
                          "Megatron-Core looks for a folder named \"release\" or \"iter_0000001\": "
                          "write to \"%.*s/release\"",
                          (int)(end - path), path);
}

rsd_err rsi_convert_form(const rsd_convert_opts *opts, const char *path, rsi_image_spec *spec,
                         int64_t *iteration, rsd_error *err)
{
    spec->distributed = opts->rules && spec->format == RSD_FORMAT_SAFETENSORS;
    spec->rank_states = opts->format == RSD_FORMAT_SHARDED_STATE;
    if (spec->rank_states)
        spec->format = RSD_FORMAT_SAFETENSORS;
    if (opts->format != RSD_FORMAT_MEGATRON)
        return RSD_OK;
    spec->format = RSD_FORMAT_DCP;
    if (opts->transform)
        return rsi_fail(err, RSD_E_INVALID, "Megatron-Core does not read compressed checkpoints");
    return iteration_of(path, iteration, err);
}

/* ---- objects ---- */

/* One object for each index of the first n axes. */
static rsd_err add_extra(rsi_convert_state *cs, const char *layer, size_t len, int n,
                         const int64_t *shape, const rsd_value *value, rsd_error *err)
{
    const int64_t one = 1;
    int64_t       at[RSD_MAX_NDIM] = { 0 };
    char          name[4096];
    int           d = 0;
    rsd_err       rc = RSD_OK;

    shape = n ? shape : &one;
    n = n ? n : 1;
    while (d >= 0 && !rc) {
        uint64_t was;
        int      used = snprintf(name, sizeof(name), "%.*s._extra_state/shard", (int)len, layer);

        for (int k = 0; k < 2 * n && used < (int)sizeof(name); k++)
            used += snprintf(name + used, sizeof(name) - (size_t)used, "%c%" PRId64,
                             k % n ? '.' : '_', k < n ? at[k] : shape[k - n]);
        if (used >= (int)sizeof(name))
            return rsi_fail(err, RSD_E_UNSUPPORTED, "the name \"%.64s...\" is too long", name);
        if (!rsi_map_get(&cs->state->names, name, strlen(name), &was))
            rc = rsd_state_value(cs->state, name, value, err);
        for (d = n - 1; d >= 0 && ++at[d] >= shape[d]; d--)
            at[d] = 0;
    }
    return rc;
}

rsd_err rsi_megatron_values(rsi_convert_state *cs, rsd_error *err)
{
    static const char core[] = "core_attention";
    const rsd_value  *none, *list = NULL;
    rsd_err           rc = rsd_value_create_none(cs->owner, &none, err);

    if (!rc)
        rc = rsd_value_create_list(cs->owner, RSD_VALUE_LIST, 1, &none, &list, err);
    for (size_t t = 0; t < cs->n && !rc; t++) {
        const rsi_state_tensor *tensor = &cs->state->tensor[t];
        const char             *name = tensor->spot.name, *dot = strrchr(name, '.'), *last = dot;
        char                    other[4096];

        if (!dot || strcmp(dot, ".weight") != 0 || tensor->ndim < 2)
            continue;
        while (last > name && last[-1] != '.')
            last--;
        if (strncmp(last, "linear_", 7) == 0)
            rc = add_extra(cs, name, (size_t)(dot - name), tensor->ndim - 2, tensor->shape, list,
                           err);
        if (rc || strncmp(last, "linear_proj.", 12) != 0 ||
            (size_t)(last - name) + sizeof(core) > sizeof(other))
            continue;
        snprintf(other, sizeof(other), "%.*s%s", (int)(last - name), name, core);
        rc = add_extra(cs, other, strlen(other), tensor->ndim - 2, tensor->shape, list, err);
    }
    return rc;
}

/* ---- files ---- */

static bool has_file(const rsi_image *image, const char *name)
{
    for (size_t i = 0; i < image->nfiles; i++)
        if (strcmp(image->file[i].name, name) == 0)
            return true;
    return false;
}

static rsd_err make_common(rsi_convert_state *cs, int64_t iteration, const rsd_value **out,
                           rsd_error *err)
{
    const rsd_value *item[4];
    rsd_err          rc =
        rsd_value_create_bytes(cs->owner, RSD_VALUE_STR, "checkpoint_version", 18, &item[0], err);

    if (!rc)
        rc = rsd_value_create_float(cs->owner, 3.0, &item[1], err);
    if (!rc)
        rc = rsd_value_create_bytes(cs->owner, RSD_VALUE_STR, "iteration", 9, &item[2], err);
    if (!rc)
        rc = rsd_value_create_int(cs->owner, iteration, &item[3], err);
    return rc ? rc : rsd_value_create_list(cs->owner, RSD_VALUE_DICT, 2, item, out, err);
}

rsd_err rsi_megatron_files(rsi_convert_state *cs, int64_t iteration, rsi_image *image,
                           rsd_error *err)
{
    const rsi_out_part part = { .kind = RSI_PART_BYTES,
                                .bytes = config,
                                .len = sizeof(config) - 1 };
    const rsd_value   *common;
    rsd_err            rc = RSD_OK;

    if (!has_file(image, "common.pt")) {
        rc = make_common(cs, iteration, &common, err);
        if (!rc)
            rc = rsi_image_torch_file(image, cs->state, "common.pt", common, NULL, err);
    }
    if (rc || has_file(image, "metadata.json"))
        return rc;
    rc = rsi_image_file(image, "metadata.json", 0, err);
    if (!rc)
        rc = rsi_image_item(image, NULL, err);
    return rc ? rc : rsi_image_part(image, &part, err);
}

/* ---- the tracker ---- */

rsd_err rsi_megatron_track(const rsi_commit *to, rsd_error *err)
{
    const char *last = rsi_last_part(to->name);
    size_t      head = (size_t)(last - to->name), size = head + sizeof(TRACKER);
    char       *tracker = rsi_calloc(size, 1), text[32] = "release";
    rsi_tree   *tree = NULL;
    rsi_file   *file = NULL;
    rsd_err     rc = tracker ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");

    if (strncmp(last, "iter_", 5) == 0)
        snprintf(text, sizeof(text), "%lld", strtoll(last + 5, NULL, 10));
    if (!rc) {
        snprintf(tracker, size, "%.*s%s", (int)head, to->name, TRACKER);
        rc = rsi_tree_begin(to->store, tracker, RSD_TREE_FILE | RSD_TREE_OVERWRITE, &tree, err);
    }
    if (!rc)
        rc = rsi_file_open(to->store, tree->temp, RSD_OPEN_WRITE, strlen(text), &file, err);
    if (!rc)
        rc = rsi_file_write(file, 0, text, strlen(text), err);
    if (!rc && to->flush.sync)
        rc = rsi_file_sync(file, err);
    rsi_file_close(file, NULL);
    if (!rc) {
        rc = rsi_tree_commit(tree, err);
        tree = rc ? tree : NULL;
    }
    rsi_tree_abort(tree, NULL);
    rsi_free(tracker);
    return rc ? rsi_while(err, rc, "the checkpoint was published, but not \"" TRACKER "\"")
              : RSD_OK;
}
