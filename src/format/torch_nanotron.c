/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the folder optimizer/ of a nanotron checkpoint: a torch.save file for each pipeline and,
 * with ZeRO, data-parallel rank. These divide the flat vectors of each parameter in order; the fp32
 * weights among the gradient accumulator's values have the shapes. st_nanotron.c reads the model.
 */
#include "base/checked.h"
#include "base/text.h"
#include "format/zero_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "optimizer_config.json"
#define FIRST  "optimizer_pp-"
#define WEIGHT "gradient_accumulator"

enum { MOST_RANKS = 1 << 20, KIND = 96 };

/* Ranks of all kinds, and how many the names say there are. */
typedef struct grid {
    int64_t pipes, ranks; /* data-parallel: 1 without ZeRO */
    size_t  found;
} grid;

static bool is_part(const char *name)
{
    return strncmp(name, FIRST, strlen(FIRST)) == 0 && rsi_text_ends(name, ".pt");
}

bool rsi_nanotron_is_optimizer(char *const *names, size_t n)
{
    bool config = false, part = false;

    for (size_t i = 0; i < n; i++) {
        config = config || strcmp(names[i], CONFIG) == 0;
        part = part || is_part(names[i]);
    }
    return config && part;
}

/* "_dp-1-of-2": 1 and 2; 0 and 1 if the name has none; false: no numbers. */
static bool place_of(const char *name, const char *key, int64_t *rank, int64_t *count)
{
    const char *at = strstr(name, key);
    char       *end;

    *rank = 0;
    *count = 1;
    if (!at)
        return true;
    *rank = strtoll(at + strlen(key), &end, 10);
    if (strncmp(end, "-of-", 4) != 0)
        return false;
    *count = strtoll(end + 4, NULL, 10);
    return *rank >= 0 && *rank < *count && *count <= MOST_RANKS;
}

static rsd_err count_ranks(char *const *names, size_t n, grid *out, rsd_error *err)
{
    *out = (grid){ .pipes = 1, .ranks = 1 };
    for (size_t i = 0; i < n; i++) {
        int64_t rank, pipes, ranks, slices, owners;

        if (!is_part(names[i]))
            continue;
        if (!place_of(names[i], "_pp-", &rank, &pipes) ||
            !place_of(names[i], "_dp-", &rank, &ranks) ||
            !place_of(names[i], "_tp-", &rank, &slices) ||
            !place_of(names[i], "_exp-", &rank, &owners))
            return rsi_fail(err, RSD_E_FORMAT, "file \"%s\": its name has no ranks", names[i]);
        if (slices > 1 || owners > 1)
            return rsi_fail(
                err, RSD_E_UNSUPPORTED,
                "nanotron's optimizer state on %" PRId64 " tensor-parallel and %" PRId64
                " expert-parallel ranks is not read: only the files of the folder \"model\" say "
                "which slices of a parameter each of them has",
                slices, owners);
        out->pipes = rsi_max(out->pipes, pipes);
        out->ranks = rsi_max(out->ranks, ranks);
        out->found++;
    }
    if ((int64_t)out->found != out->pipes * out->ranks)
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "%zu files of %" PRId64 " pipeline times %" PRId64
                        " data-parallel ranks are in it",
                        out->found, out->pipes, out->ranks);
    return RSD_OK;
}

static rsd_err open_rank(rsi_zero *z, char *const *names, size_t n, int64_t pipe, int64_t rank,
                         rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int64_t p, r, count;

        if (is_part(names[i]) && place_of(names[i], "_pp-", &p, &count) &&
            place_of(names[i], "_dp-", &r, &count) && p == pipe && r == rank)
            return rsi_torch_add_file(z->ckpt, names[i], err);
    }
    return rsi_fail(err, RSD_E_NOTFOUND,
                    "it has no file of pipeline rank %" PRId64 " and data-parallel rank %" PRId64,
                    pipe, rank);
}

/* ---- values ---- */

/* The state of a parameter on a rank, found by the number that it has there; NULL: none. */
static const rsd_value *state_of(const rsi_zero *z, size_t file, const char *name)
{
    const rsd_value *names = rsd_value_get(z->t->file[file].root, "names");
    const rsd_value *state = rsd_value_get(z->t->file[file].root, "state");

    for (size_t i = 0; names && i < rsd_value_count(names); i++) {
        const char      *other = rsd_value_bytes(rsd_value_item(names, i), NULL);
        const rsd_value *key = rsd_value_key(names, i);

        if (!key || !other || strcmp(other, name) != 0)
            continue;
        for (size_t k = 0; state && k < rsd_value_count(state); k++) {
            const rsd_value *number = rsd_value_key(state, k);

            if (number && rsd_value_type_of(number) == RSD_VALUE_INT &&
                rsd_value_int(number) == rsd_value_int(key))
                return rsd_value_item(state, k);
        }
    }
    return NULL;
}

static const rsd_value_tensor *part_of(const rsi_zero *z, size_t file, const char *name,
                                       const char *key)
{
    const rsd_value        *state = state_of(z, file, name);
    const rsd_value        *v = state ? rsd_value_get(state, key) : NULL;
    const rsd_value_tensor *t = v ? rsd_value_tensor_of(v) : NULL;

    return t && rsi_zero_is_vector(t) ? t : NULL;
}

/* The shape of a parameter with `elems` elements; flat if no weights tell it. */
static rsd_err shape_of(const rsi_zero *z, size_t file, const char *name, int64_t elems,
                        rsi_zero_cut *out, rsd_error *err)
{
    const rsd_value        *all = rsd_value_get(z->t->file[file].root, WEIGHT);
    const rsd_value        *v = all ? rsd_value_get(all, name) : NULL;
    const rsd_value_tensor *t = v ? rsd_value_tensor_of(v) : NULL;
    int64_t                 count = -1;

    *out = (rsi_zero_cut){ .ndim = 1, .slice = { elems }, .shape = { elems } };
    if (!t)
        return RSD_OK;
    if (!rsi_product(t->ndim, t->shape, 1, &count) || count != elems)
        return rsi_fail(err, RSD_E_FORMAT,
                        "its state on all ranks has %" PRId64
                        " elements, but its weights have %" PRId64,
                        elems, count);
    out->ndim = t->ndim;
    memcpy(out->slice, t->shape, sizeof(out->slice));
    memcpy(out->shape, t->shape, sizeof(out->shape));
    return RSD_OK;
}

/* Joins what the ranks from file `first` on have of a parameter's state. */
static rsd_err join(rsi_zero *z, size_t first, const char *name, const char *key,
                    const rsi_torch_entry *e, rsd_error *err)
{
    rsi_zero_cut    cut;
    rsi_zero_target to = { .z = z, .cut = &cut, .e = e };
    int64_t         elems = 0, done = 0;
    rsd_err         rc = RSD_OK;

    for (size_t r = 0; r < z->ranks; r++) {
        const rsd_value_tensor *t = part_of(z, first + r, name, key);

        if (t && !rsi_add(elems, t->shape[0], &elems))
            return rsi_fail(err, RSD_E_FORMAT, "more elements than can be counted");
    }
    rc = shape_of(z, first, name, elems, &cut, err);
    for (size_t r = 0; r < z->ranks && !rc; r++) {
        const rsd_value_tensor *t = part_of(z, first + r, name, key);

        if (!t)
            continue;
        rc = rsi_zero_like(&cut, t, &to.like, err);
        if (!rc)
            rc =
                rsi_zero_add_range(&to, done, done + t->shape[0], (uint32_t)(first + r), t, 0, err);
        done += t->shape[0];
    }
    return rc;
}

static rsd_err add_state(rsi_zero *z, size_t first, const char *name, rsd_error *err)
{
    const rsd_value *state = state_of(z, first, name);
    rsd_err          rc = state ? RSD_OK : rsi_fail(err, RSD_E_FORMAT, "it has no state");

    for (size_t i = 0; state && i < rsd_value_count(state) && !rc; i++) {
        const rsd_value        *key = rsd_value_key(state, i), *v = rsd_value_item(state, i);
        const char             *text = key ? rsd_value_bytes(key, NULL) : NULL;
        const rsd_value_tensor *t = rsd_value_tensor_of(v);
        const char *const       part[] = { "optim", "state", name, text, NULL };
        rsi_torch_entry         e = { .value = v, .file = (uint32_t)first };

        if (!text)
            continue;
        rc = rsi_zero_name(z, part, &e, err);
        if (!rc)
            rc = z->ranks > 1 && t && rsi_zero_is_vector(t) ? join(z, first, name, text, &e, err)
                                                            : rsi_torch_add_once(z->t, &e, err);
    }
    return rc;
}

/* ---- the folder ---- */

/* The parameters of a pipeline rank; those that an earlier one shares are left to it. */
static rsd_err add_pipe(rsi_zero *z, size_t first, rsd_error *err)
{
    const rsd_value *root = z->t->file[first].root;
    const rsd_value *names = rsd_value_get(root, "names"), *weights = rsd_value_get(root, WEIGHT);
    rsd_err          rc = RSD_OK;

    for (size_t f = first; f < first + z->ranks; f++) {
        const rsd_value *v = rsd_value_get(z->t->file[f].root, "names");

        if (!v || rsd_value_type_of(v) != RSD_VALUE_DICT)
            return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" has no dict \"names\"",
                            z->t->file[f].source.name);
    }
    for (size_t i = 0; i < rsd_value_count(names) && !rc; i++) {
        const char *name = rsd_value_bytes(rsd_value_item(names, i), NULL);
        bool        shared = false;

        for (size_t f = 0; name && f < first; f += z->ranks)
            shared = shared || state_of(z, f, name);
        if (name && !shared)
            rc = add_state(z, first, name, err);
        if (rc)
            rsi_while(err, rc, "parameter \"%s\"", name);
    }
    for (size_t i = 0; weights && rsd_value_type_of(weights) == RSD_VALUE_DICT &&
                       i < rsd_value_count(weights) && !rc;
         i++) {
        const char       *name = rsd_value_bytes(rsd_value_key(weights, i), NULL);
        const char *const part[] = { "optim", WEIGHT, name, NULL };
        rsi_torch_entry   e = { .value = rsd_value_item(weights, i), .file = (uint32_t)first };

        if (!name)
            continue;
        rc = rsi_zero_name(z, part, &e, err);
        if (!rc)
            rc = rsi_torch_add_once(z->t, &e, err);
    }
    return rc;
}

rsd_err rsi_nanotron_open_optimizer(rsd_ckpt *ckpt, char *const *names, size_t n, rsd_error *err)
{
    static const char *const known[] = { "state", "names", WEIGHT, NULL };
    rsi_zero                 z = { .ckpt = ckpt };
    grid                     all;
    char                    *kind = rsi_arena_array(&ckpt->mem, KIND, 1);
    rsd_err                  rc = count_ranks(names, n, &all, err);

    if (!rc)
        rc = kind ? rsi_torch_begin(ckpt, &z.t, err) : rsi_torch_no_memory(err);
    if (rc)
        return rc;
    z.ranks = (size_t)all.ranks;
    z.pipes = (size_t)all.pipes;
    for (int64_t i = 0; i < all.pipes * all.ranks && !rc; i++)
        rc = open_rank(&z, names, n, i / all.ranks, i % all.ranks, err);
    for (size_t p = 0; p < z.pipes && !rc; p++)
        rc = add_pipe(&z, p * z.ranks, err);
    rc = rc ? rc : rsi_zero_add_items(z.t, 0, z.t->file[0].root, "optim", known, err);
    snprintf(kind, KIND, "nanotron's optimizer state on %zu pipeline times %zu data-parallel ranks",
             z.pipes, z.ranks);
    ckpt->kind = kind;
    return rc ? rc : rsi_torch_end(ckpt, err);
}
