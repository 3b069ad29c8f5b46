/* SPDX-License-Identifier: Apache-2.0 */
/* Opens DeepSpeed ZeRO checkpoints: finds the files of all ranks and what they are. The fp32
 * weights and the optimizer's state are flat vectors over the ranks (zero_vectors.c), buffers,
 * frozen and shared parameters are in the model files. Parameters keep their names, the optimizer's
 * state is below "optim.state.<parameter>"; zero_rest.c adds the rest. */
#include "base/mem.h"
#include "base/text.h"
#include "format/zero_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND = 200 }; /* bytes of the text that says what it is */

/* ---- the folder ---- */

/* "..zero_pp_rank_3_mp_rank_00_optim_states.pt": the number after `what`; -1: none. */
static int64_t number_behind(const char *name, const char *what)
{
    const char *at = strstr(name, what);
    char       *end;
    long        n;

    if (!at)
        return -1;
    at += strlen(what);
    n = strtol(at, &end, 10);
    return end > at && n >= 0 && n < 1 << 24 ? n : -1;
}

bool rsi_zero_is_name(const char *name)
{
    return rsi_text_ends(name, "_optim_states.pt") && strstr(name, "zero_pp_rank_");
}

bool rsi_zero_is_latest(const char *name)
{
    return strcmp(name, "latest") == 0 || strcmp(name, "latest_universal") == 0;
}

/* Opens the file of one rank, or of all; *out is its number. `slice`: of its model-parallel rank.
 */
static rsd_err open_one(rsi_zero *z, char *const *names, size_t n, bool optim, int64_t slice,
                        int64_t rank, uint32_t *out, rsd_error *err)
{
    const char *end = optim ? "_optim_states.pt" : "_model_states.pt";

    for (size_t i = 0; i < n; i++)
        if (rsi_text_ends(names[i], end) && !rsi_zero_is_expert(names[i]) &&
            number_behind(names[i], "mp_rank_") == slice &&
            number_behind(names[i], "zero_pp_rank_") == rank) {
            *out = (uint32_t)z->t->nfiles;
            return rsi_torch_add_file(z->ckpt, names[i], err);
        }
    if (rank < 0)
        return rsi_fail(err, RSD_E_NOTFOUND, "it has no file \"mp_rank_%02" PRId64 "%s\"", slice,
                        end);
    return rsi_fail(err, RSD_E_NOTFOUND,
                    "it has no file \"..zero_pp_rank_%" PRId64 "_mp_rank_%02" PRId64 "%s\"", rank,
                    slice, end);
}

/* How many pipeline stages and tensor-parallel ranks the files are of. */
static rsd_err count_slices(rsi_zero *z, char *const *names, size_t n, size_t slices,
                            rsd_error *err)
{
    const rsd_value *root = z->t->file[z->model[0]].root;
    const rsd_value *dims = rsd_value_get(root, "checkpoint_parallel_dimensions");
    const rsd_value *pp = dims ? rsd_value_get(dims, "pp_degree") : NULL;
    const rsd_value *tp = dims ? rsd_value_get(dims, "tp_degree") : NULL;
    const char      *first = NULL;
    size_t           layers = 0; /* files of the first layer: one for each tensor-parallel rank */

    for (size_t i = 0; i < n; i++) {
        if (strncmp(names[i], "layer_", 6) != 0 || rsi_zero_is_expert(names[i]))
            continue;
        first = first ? first : names[i];
        layers += strncmp(names[i], first, strcspn(first, "-") + 1) == 0;
    }
    z->slices = tp && rsd_value_int(tp) > 0 ? (size_t)rsd_value_int(tp) : layers ? layers : slices;
    z->pipes = pp && rsd_value_int(pp) > 0 ? (size_t)rsd_value_int(pp) : slices / z->slices;
    if (z->slices > slices || z->pipes > slices || z->slices * z->pipes != slices)
        return rsi_fail(err, RSD_E_FORMAT,
                        "it has files of %zu model-parallel ranks, not of %zu times %zu", slices,
                        z->pipes, z->slices);
    z->info = rsd_value_get(root, "universal_checkpoint_info");
    if (z->slices > 1 && (!z->info || rsd_value_type_of(z->info) != RSD_VALUE_DICT))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "ZeRO with %zu tensor-parallel ranks, and its files don't say how they cut "
                        "parameters (universal_checkpoint_info is missing)",
                        z->slices);
    return RSD_OK;
}

static rsd_err open_files(rsi_zero *z, char *const *names, size_t n, rsd_error *err)
{
    size_t  slices = 1, all = 0;
    bool    each = false; /* every rank has a model file */
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n; i++) {
        const int64_t slice = number_behind(names[i], "mp_rank_");

        all += rsi_zero_is_name(names[i]);
        if (rsi_zero_is_expert(names[i]) && slice > 0)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "file \"%s\": experts with model parallelism are not supported",
                            names[i]);
        if (rsi_text_ends(names[i], "_states.pt") && slice >= (int64_t)slices)
            slices = (size_t)slice + 1;
        each = each || (rsi_text_ends(names[i], "_model_states.pt") &&
                        number_behind(names[i], "zero_pp_rank_") >= 0);
    }
    if (all == 0)
        return rsi_fail(err, RSD_E_FORMAT, "it has no file \"..zero_pp_rank_0..optim_states.pt\"");
    if (all % slices)
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "it has %zu files \"..optim_states.pt\" for %zu model-parallel ranks", all,
                        slices);
    z->ranks = all / slices;
    z->optim = rsi_arena_array(&z->ckpt->mem, all, sizeof(z->optim[0]));
    z->model = rsi_arena_array(&z->ckpt->mem, all, sizeof(z->model[0]));
    z->state = rsi_arena_array(&z->ckpt->mem, all, sizeof(z->state[0]));
    if (!z->optim || !z->model || !z->state)
        return rsi_torch_no_memory(err);
    for (size_t r = 0; r < all && !rc; r++) {
        const int64_t slice = (int64_t)(r / z->ranks), rank = (int64_t)(r % z->ranks);

        rc = open_one(z, names, n, true, slice, rank, &z->optim[r], err);
        if (!rc && (each || rank == 0))
            rc = open_one(z, names, n, false, slice, each ? rank : -1, &z->model[r], err);
        else if (!rc)
            z->model[r] = z->model[r - 1];
    }
    return rc ? rc : count_slices(z, names, n, slices, err);
}

/* The largest number in a list, or the number itself. */
static int64_t most_of(const rsd_value *v)
{
    int64_t most = v && rsd_value_type_of(v) == RSD_VALUE_INT ? rsd_value_int(v) : 0;

    for (size_t i = 0; v && rsd_value_type_of(v) != RSD_VALUE_DICT && i < rsd_value_count(v); i++)
        if (rsd_value_int(rsd_value_item(v, i)) > most)
            most = rsd_value_int(rsd_value_item(v, i));
    return most;
}

static rsd_err read_states(rsi_zero *z, rsd_error *err)
{
    for (size_t r = 0; r < z->pipes * z->slices * z->ranks; r++) {
        const rsd_value *root = z->t->file[z->optim[r]].root;
        const rsd_value *state = rsd_value_get(root, "optimizer_state_dict");
        const rsd_value *vectors;

        if (r == 0) /* "zero_stage" is an enum of an unknown class, or missing */
            z->stage = state && rsd_value_get(state, "fp32_flat_groups") ? 3 : 1;
        z->groups = z->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
        vectors = state ? rsd_value_get(state, z->groups) : NULL;
        if (!vectors || rsd_value_type_of(vectors) != RSD_VALUE_LIST)
            return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" has no list \"%s\"",
                            z->t->file[z->optim[r]].source.name, z->groups);
        if (most_of(rsd_value_get(state, "partition_count")) != (int64_t)z->ranks)
            return rsi_fail(err, RSD_E_FORMAT,
                            "file \"%s\" is one of %" PRId64
                            " ranks, but the files of %zu are present",
                            z->t->file[z->optim[r]].source.name,
                            most_of(rsd_value_get(state, "partition_count")), z->ranks);
        z->state[r] = state;
    }
    return RSD_OK;
}

/* Enters the folder that a file such as "latest" names. */
static rsd_err enter_latest(rsd_ckpt *ckpt, const char *file, rsd_error *err)
{
    char     text[256] = "";
    uint32_t number;
    size_t   len;
    rsd_err  rc = rsi_files_add(&ckpt->files, file, true, &number, err);

    if (rc)
        return rc;
    len = ckpt->files.file[number]->size < sizeof(text) - 1 ? (size_t)ckpt->files.file[number]->size
                                                            : sizeof(text) - 1;
    rc = rsi_files_read(&ckpt->files, number, 0, text, len, err);
    text[strcspn(text, "\r\n")] = '\0';
    return rc ? rc : rsi_files_enter(&ckpt->files, text, err);
}

/* Refuses model files without the shapes of parameters. */
static rsd_err check_shapes(const rsi_zero *z, rsd_error *err)
{
    for (size_t r = 0; r < z->pipes * z->slices * z->ranks; r++) {
        const rsi_torch_file *f = &z->t->file[z->model[r]];
        const rsd_value      *shapes = rsd_value_get(f->root, "param_shapes");

        if (!shapes || rsd_value_type_of(shapes) != RSD_VALUE_LIST)
            return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" has no list \"param_shapes\"",
                            f->source.name);
    }
    return RSD_OK;
}

const char *rsi_zero_version(const rsd_value *root)
{
    static const char digits[] = "0123456789.+-abcdefghijklmnopqrstuvwxyz";
    const rsd_value  *v = rsd_value_get(root, "ds_version");
    const char *text = v && rsd_value_type_of(v) == RSD_VALUE_STR ? rsd_value_bytes(v, NULL) : NULL;

    return text && *text && strspn(text, digits) == strlen(text) ? text : NULL;
}

/* `root`: of the first model file. */
static char *kind_of(const rsi_zero *z, const rsd_value *root)
{
    char       *kind = rsi_arena_array(&z->ckpt->mem, KIND, 1);
    const char *version = rsi_zero_version(root);
    char        slices[64] = "";

    if (!kind)
        return NULL;
    if (z->slices > 1)
        snprintf(slices, sizeof(slices), ", tensor-parallel %zu", z->slices);
    if (z->pipes > 1)
        snprintf(slices + strlen(slices), sizeof(slices) - strlen(slices), ", pipeline stages %zu",
                 z->pipes);
    snprintf(kind, KIND, "DeepSpeed %.32s%sZeRO stage %s on %zu ranks%s%s", version ? version : "",
             version ? " " : "", z->stage == 3 ? "3" : "1 or 2", z->ranks * z->slices * z->pipes,
             slices, z->apart ? ", experts without fp32 weights and optimizer states" : "");
    return kind;
}

static rsd_err read_all(rsi_zero *z, char *const *names, size_t n, rsd_error *err)
{
    const rsd_value *root = z->t->file[z->model[0]].root;
    size_t           experts = 0;
    rsd_err          rc = check_shapes(z, err);

    rc = rc ? rc : rsi_zero_add_parameters(z, err);
    rc = rc ? rc : rsi_zero_add_frozen(z, err);
    rc = rc ? rc : rsi_zero_add_shared(z->t, root, err);
    rc = rc ? rc : rsi_zero_add_untrained(z, err);
    rc = rc ? rc : rsi_zero_add_tensors(z->t, z->model[0], rsd_value_get(root, "module"), err);
    for (size_t r = z->ranks; !rc && r < z->pipes * z->slices * z->ranks; r += z->ranks)
        rc = rsi_zero_add_buffers(z->t, z->model[r], err);
    rc = rc ? rc : rsi_zero_add_layers(z, names, n, err);
    rc = rc ? rc : rsi_zero_add_experts(z->ckpt, z->t, names, n, &experts, err);
    if (!rc && z->apart && experts == 0)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "the files of its experts are missing");
    rc = rc ? rc : rsi_zero_add_optim(z->t, z->optim[0], z->state[0], err);
    rc = rc ? rc : rsi_zero_add_model(z->t, z->model[0], err);
    z->ckpt->kind = kind_of(z, root);
    return rc ? rc : rsi_torch_end(z->ckpt, err);
}

rsd_err rsi_zero_open(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_zero    z = { .ckpt = ckpt };
    char      **names;
    size_t      n;
    const char *latest = NULL;
    bool        here = false;
    rsd_err     rc = rsi_files_list(&ckpt->files, &names, &n, err);

    for (size_t i = 0; !rc && i < n; i++) {
        here = here || rsi_zero_is_name(names[i]) || strcmp(names[i], "zero") == 0;
        if (rsi_zero_is_latest(names[i]) && !latest) /* sorted: "latest" comes first */
            latest = names[i];
    }
    if (!rc && !here) {
        rc = enter_latest(ckpt, latest ? latest : "latest", err);
        rc = rc ? rc : rsi_files_list(&ckpt->files, &names, &n, err);
    }
    for (size_t i = 0; !rc && i < n; i++)
        if (strcmp(names[i], "zero") == 0)
            return rsi_universal_open(ckpt, err);
    rc = rc ? rc : rsi_torch_begin(ckpt, &z.t, err);
    rc = rc ? rc : open_files(&z, names, n, err);
    rc = rc ? rc : read_states(&z, err);
    return rc ? rc : read_all(&z, names, n, err);
}
