/* SPDX-License-Identifier: Apache-2.0 */
/* Opens DeepSpeed ZeRO checkpoints: the fp32 weights and the optimizer's state as flat vectors over
 * the ranks. In stages 1 and 2 the vectors of all ranks form one vector for each group of
 * parameters; in stage 3 each parameter is cut into equal parts, the last one padded. Buffers,
 * frozen and shared parameters are in the model files. Parameters keep their names, the optimizer's
 * state is below "optim.state.<parameter>"; zero_rest.c adds the rest. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/torch_core.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND = 128 }; /* bytes of the text that says what it is */

typedef struct zero {
    rsd_ckpt         *ckpt;
    rsi_torch        *t;
    size_t            ranks;
    uint32_t         *optim;  /* [ranks] files with optimizer states */
    uint32_t         *model;  /* [ranks] model files; all the same before stage 3 */
    const rsd_value **state;  /* [ranks] the optimizer_state_dict */
    int               stage;  /* 3, or 1 for both other stages */
    const char       *groups; /* key of the flat vectors */
    bool              apart;  /* experts, which ranks divide: only in their own files */
} zero;

/* A kind of flat vector that every rank has: the weights, or a key of the optimizer's state. */
typedef struct flat {
    const char *key; /* NULL: the weights */
} flat;

/* ---- names ---- */

/* The same; NULL ends the parts. */
static rsd_err name_entry(zero *z, const char *const *part, rsi_torch_entry *out, rsd_error *err)
{
    size_t n = 0;

    while (part[n])
        n++;
    return rsi_torch_name(z->t, part, n, out, err);
}

static rsd_err shape_of(const rsd_value *size, const rsd_value_tensor *like, rsi_torch_whole *out,
                        int64_t *elems, rsd_error *err)
{
    const size_t n = rsd_value_count(size);

    *out = (rsi_torch_whole){ .dtype = like->dtype, .ndim = (int32_t)n };
    if (rsd_value_type_of(size) != RSD_VALUE_TUPLE || n > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_FORMAT, "its shape is not a list of at most %d numbers",
                        RSD_MAX_NDIM);
    for (size_t i = 0; i < n; i++)
        out->shape[i] = rsd_value_int(rsd_value_item(size, i));
    return rsi_shape_check(out->dtype, out->ndim, out->shape, elems, err) ? RSD_E_FORMAT : RSD_OK;
}

/* ---- flat vectors ---- */

/* The optimizer's state for group g: in a dict by number, or in a list. */
static const rsd_value *group_state(const zero *z, size_t rank, size_t g)
{
    const rsd_value *base = rsd_value_get(z->state[rank], z->stage == 3 ? "optimizer_state_dict"
                                                                        : "base_optimizer_state");
    const rsd_value *state = base ? rsd_value_get(base, "state") : NULL;

    if (base && rsd_value_type_of(base) == RSD_VALUE_LIST)
        return g < rsd_value_count(base) ? rsd_value_item(base, g) : NULL;
    for (size_t i = 0; state && i < rsd_value_count(state); i++) {
        const rsd_value *key = rsd_value_key(state, i);

        if (rsd_value_type_of(key) == RSD_VALUE_INT && rsd_value_int(key) == (int64_t)g)
            return rsd_value_item(state, i);
    }
    return NULL;
}

static size_t group_count(const zero *z, size_t rank)
{
    return rsd_value_count(rsd_value_get(z->state[rank], z->groups));
}

/* Dense, so that its storage bounds its length. */
static bool is_vector(const rsd_value_tensor *t)
{
    return t->ndim == 1 && (t->stride[0] == 1 || t->shape[0] < 2);
}

/* Vector g of a rank; NULL if missing or not one-dimensional. */
static const rsd_value_tensor *vector(const zero *z, const flat *f, size_t rank, size_t g)
{
    const rsd_value        *v = rsd_value_get(z->state[rank], z->groups);
    const rsd_value_tensor *t;

    v = v && g < rsd_value_count(v) ? rsd_value_item(v, g) : NULL;
    if (f->key) {
        v = group_state(z, rank, g);
        v = v ? rsd_value_get(v, f->key) : NULL;
    }
    t = v ? rsd_value_tensor_of(v) : NULL;
    return t && is_vector(t) ? t : NULL;
}

/* Elements [from, to) of a tensor lie in a vector from `offset` on. */
static rsd_err add_range(zero *z, const rsi_torch_entry *e, const rsi_torch_whole *like,
                         int64_t from, int64_t to, uint32_t file, const rsd_value_tensor *of,
                         int64_t offset, rsd_error *err)
{
    rsi_torch_piece piece = { .of = of, .file = file, .flat = true };
    rsd_err         rc = RSD_OK;

    while (from < to && !rc) {
        int64_t n = rsi_range_box(like->ndim, like->shape, from, to, &piece.box);

        piece.offset = offset * of->stride[0];
        rc = rsi_torch_add_piece(z->t, e, like, &piece, err);
        from += n;
        offset += n;
    }
    return rc;
}

/* Adds elements [from, from + n) of the rank's vectors, taken as one; they start at element `at` of
 * the tensor. */
static rsd_err add_from_rank(zero *z, const flat *f, const rsi_torch_entry *e,
                             const rsi_torch_whole *like, size_t rank, int64_t from, int64_t at,
                             int64_t n, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t g = 0; n > 0 && !rc; g++) {
        const rsd_value_tensor *v = vector(z, f, rank, g);
        int64_t                 here;

        if (g >= group_count(z, rank) || !v)
            return rsi_fail(err, RSD_E_FORMAT, "the vectors of rank %zu are too short", rank);
        if (from >= v->shape[0]) {
            from -= v->shape[0];
            continue;
        }
        here = rsi_min(v->shape[0] - from, n);
        rc = add_range(z, e, like, at, at + here, z->optim[rank], v, from, err);
        at += here;
        n -= here;
        from = 0;
    }
    return rc;
}

/* Stage 3: rank r has elements [r * part, (r + 1) * part) of each parameter, at the same place in
 * its vectors. */
static rsd_err add_parts(zero *z, const flat *f, const rsi_torch_entry *e,
                         const rsi_torch_whole *like, int64_t elems, int64_t at, rsd_error *err)
{
    const int64_t part = (elems + (int64_t)z->ranks - 1) / (int64_t)z->ranks;
    rsd_err       rc = RSD_OK;

    for (size_t r = 0; r < z->ranks && !rc; r++) {
        const int64_t first = (int64_t)r * part, end = rsi_min(first + part, elems);

        if (first < end)
            rc = add_from_rank(z, f, e, like, r, at, first, end - first, err);
    }
    return rc;
}

/* Stages 1 and 2: the vectors g of all ranks form one, in which the parameter starts at `at`. */
static rsd_err add_slices(zero *z, const flat *f, const rsi_torch_entry *e,
                          const rsi_torch_whole *like, int64_t elems, size_t g, int64_t at,
                          rsd_error *err)
{
    int64_t begin = 0, done = 0;
    rsd_err rc = RSD_OK;

    for (size_t r = 0; r < z->ranks && done < elems && !rc; r++) {
        const rsd_value_tensor *v = vector(z, f, r, g);
        int64_t                 here;

        if (!v)
            return rsi_fail(err, RSD_E_FORMAT, "rank %zu has no vector %zu", r, g);
        if (at + done < begin + v->shape[0]) {
            here = rsi_min(begin + v->shape[0] - at - done, elems - done);
            rc = add_range(z, e, like, done, done + here, z->optim[r], v, at + done - begin, err);
            done += here;
        }
        begin += v->shape[0];
    }
    if (!rc && done < elems)
        rc = rsi_fail(err, RSD_E_FORMAT, "the vectors %zu of all ranks are too short", g);
    return rc;
}

/* ---- parameters ---- */

static rsd_err add_flat(zero *z, const flat *f, const char *name, const rsd_value *size, size_t g,
                        int64_t at, rsd_error *err)
{
    const char *const       weight[] = { name, NULL };
    const char *const       state[] = { "optim", "state", name, f->key, NULL };
    const rsd_value_tensor *like_of = vector(z, f, 0, z->stage == 3 ? 0 : g);
    rsi_torch_entry         e = { .file = z->optim[0] };
    rsi_torch_whole         like;
    rsi_torch_piece         none = { .of = like_of, .file = z->optim[0], .flat = true };
    int64_t                 elems = 0;
    rsd_err                 rc;

    if (!like_of)
        return rsi_fail(err, RSD_E_FORMAT, "rank 0 has no vector %zu", g);
    rc = name_entry(z, f->key ? state : weight, &e, err);
    if (!rc)
        rc = shape_of(size, like_of, &like, &elems, err);
    if (!rc && elems == 0) { /* an empty tensor still needs one piece */
        none.box.ndim = like.ndim;
        memcpy(none.box.len, like.shape, sizeof(none.box.len));
        return rsi_torch_add_piece(z->t, &e, &like, &none, err);
    }
    if (!rc)
        rc = z->stage == 3 ? add_parts(z, f, &e, &like, elems, at, err)
                           : add_slices(z, f, &e, &like, elems, g, at, err);
    return rc;
}

/* The optimizer's state for one parameter of the group: vectors like the weights, and the rest (the
 * step) unchanged. */
static rsd_err add_states(zero *z, const char *name, const rsd_value *size, size_t g, int64_t at,
                          rsd_error *err)
{
    const rsd_value *state = group_state(z, 0, z->stage == 3 ? 0 : g);
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; state && i < rsd_value_count(state) && !rc; i++) {
        const rsd_value  *key = rsd_value_key(state, i), *v = rsd_value_item(state, i);
        const flat        f = { .key = rsd_value_bytes(key, NULL) };
        const char *const part[] = { "optim", "state", name, f.key, NULL };
        rsi_torch_entry   e = { .value = v, .file = z->optim[0] };

        if (!f.key || rsd_value_type_of(v) == RSD_VALUE_OPAQUE)
            continue;
        if (rsd_value_tensor_of(v) && is_vector(rsd_value_tensor_of(v))) {
            rc = add_flat(z, &f, name, size, g, at, err);
            continue;
        }
        rc = name_entry(z, part, &e, err);
        if (!rc)
            rc = rsi_torch_add(z->t, &e, err);
    }
    return rc;
}

/* Number of padding elements after a parameter. */
static int64_t padding_of(const zero *z, size_t g, size_t i)
{
    const rsd_value *list = rsd_value_get(z->state[0], "param_alignment_paddings");

    list = list && g < rsd_value_count(list) ? rsd_value_item(list, g) : NULL;
    return list && i < rsd_value_count(list) ? rsd_value_int(rsd_value_item(list, i)) : 0;
}

/* Moves *at past a parameter in a rank's vectors, or in the joined one. */
static rsd_err advance(const zero *z, const rsd_value *size, int64_t padding, int64_t *at,
                       rsd_error *err)
{
    const rsd_value_tensor any = { .dtype = RSD_F32 };
    rsi_torch_whole        like;
    int64_t                elems = 0;
    rsd_err                rc = shape_of(size, &any, &like, &elems, err);

    if (!rc && z->stage == 3)
        elems = (elems + (int64_t)z->ranks - 1) / (int64_t)z->ranks;
    if (!rc && (padding < 0 || !rsi_add(elems, padding, &elems) || !rsi_add(*at, elems, at)))
        rc = rsi_fail(err, RSD_E_FORMAT, "more elements than can be counted");
    return rc;
}

/* Into how many parts group g is cut; experts that ranks divide have fewer than there are ranks. */
static int64_t parts_of(const zero *z, size_t g)
{
    const rsd_value *count = rsd_value_get(z->state[0], "partition_count");

    if (rsd_value_type_of(count) != RSD_VALUE_LIST || g >= rsd_value_count(count))
        return (int64_t)z->ranks;
    return rsd_value_int(rsd_value_item(count, g));
}

static rsd_err add_parameters(zero *z, const rsd_value *shapes, rsd_error *err)
{
    const flat weights = { 0 };
    int64_t    at = 0;
    rsd_err    rc = RSD_OK;

    for (size_t g = 0; g < rsd_value_count(shapes); g++) {
        const rsd_value *group = rsd_value_item(shapes, g);

        if (z->stage != 3)
            at = 0;
        if (parts_of(z, g) != (int64_t)z->ranks) {
            z->apart = true;
            continue;
        }
        for (size_t i = 0; rsd_value_type_of(group) == RSD_VALUE_DICT && i < rsd_value_count(group);
             i++) {
            const char      *name = rsd_value_bytes(rsd_value_key(group, i), NULL);
            const rsd_value *size = rsd_value_item(group, i);

            if (!name)
                return rsi_fail(err, RSD_E_FORMAT, "a parameter's name is not text");
            rc = add_flat(z, &weights, name, size, g, at, err);
            if (!rc)
                rc = add_states(z, name, size, g, at, err);
            if (!rc)
                rc = advance(z, size, padding_of(z, g, i), &at, err);
            if (rc)
                return rsi_while(err, rc, "parameter \"%s\"", name);
        }
    }
    return RSD_OK;
}

/* ---- contents of the model files ---- */

/* Frozen parameters of stage 3 are cut like the others, but each has a separate tensor. */
static rsd_err add_fragments(zero *z, const char *name, const rsd_value *size, rsd_error *err)
{
    const char *const part[] = { name, NULL };
    rsi_torch_entry   e = { .file = z->model[0] };
    rsi_torch_whole   like;
    int64_t           elems = 0, done = 0;
    rsd_err           rc = name_entry(z, part, &e, err);

    for (size_t r = 0; r < z->ranks && !rc && (r == 0 || done < elems); r++) {
        const rsd_value *all =
            rsd_value_get(z->t->file[z->model[r]].root, "frozen_param_fragments");
        const rsd_value        *v = all ? rsd_value_get(all, name) : NULL;
        const rsd_value_tensor *t = v ? rsd_value_tensor_of(v) : NULL;
        int64_t                 here;

        if (!t)
            return rsi_fail(err, RSD_E_FORMAT, "frozen parameter \"%s\" is not in file %zu", name,
                            r);
        if (r == 0)
            rc = shape_of(size, t, &like, &elems, err);
        if (!rc && !is_vector(t)) { /* before stage 3 it is not cut */
            e.value = v;
            return rsi_torch_add(z->t, &e, err);
        }
        here = rc ? 0 : rsi_min(t->shape[0], elems - done);
        if (!rc)
            rc = add_range(z, &e, &like, done, done + here, z->model[r], t, 0, err);
        done += here;
    }
    return rc;
}

static rsd_err add_frozen(zero *z, const rsd_value *root, rsd_error *err)
{
    const rsd_value *shapes = rsd_value_get(root, "frozen_param_shapes");
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; shapes && i < rsd_value_count(shapes) && !rc; i++) {
        const char *name = rsd_value_bytes(rsd_value_key(shapes, i), NULL);

        rc = name ? add_fragments(z, name, rsd_value_item(shapes, i), err)
                  : rsi_fail(err, RSD_E_FORMAT, "a parameter's name is not text");
    }
    return rc;
}

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

static rsd_err refuse_parallel(char *const *names, size_t n, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const bool states = rsi_text_ends(names[i], "_states.pt");

        if (states && number_behind(names[i], "mp_rank_") > 0)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "file \"%s\": ZeRO with model parallelism; how its parts join only the "
                            "model knows: convert it with DeepSpeed's ds_to_universal",
                            names[i]);
    }
    return RSD_OK;
}

/* Opens the file of one rank, or of all; *out is its number. */
static rsd_err open_one(zero *z, char *const *names, size_t n, bool optim, int64_t rank,
                        uint32_t *out, rsd_error *err)
{
    const char *end = optim ? "_optim_states.pt" : "_model_states.pt";

    for (size_t i = 0; i < n; i++)
        if (rsi_text_ends(names[i], end) && !rsi_zero_is_expert(names[i]) &&
            number_behind(names[i], "zero_pp_rank_") == rank) {
            *out = (uint32_t)z->t->nfiles;
            return rsi_torch_add_file(z->ckpt, names[i], err);
        }
    if (rank < 0)
        return rsi_fail(err, RSD_E_NOTFOUND, "no file \"..%s\" is in it", end);
    return rsi_fail(err, RSD_E_NOTFOUND, "no file \"..%s\" of rank %" PRId64, end, rank);
}

static rsd_err open_files(zero *z, char *const *names, size_t n, rsd_error *err)
{
    bool    each = false; /* every rank has a model file */
    rsd_err rc = refuse_parallel(names, n, err);

    for (size_t i = 0; i < n; i++) {
        z->ranks += rsi_zero_is_name(names[i]);
        each = each || (rsi_text_ends(names[i], "_model_states.pt") &&
                        number_behind(names[i], "zero_pp_rank_") >= 0);
    }
    z->optim = rsi_arena_array(&z->ckpt->mem, z->ranks, sizeof(z->optim[0]));
    z->model = rsi_arena_array(&z->ckpt->mem, z->ranks, sizeof(z->model[0]));
    z->state = rsi_arena_array(&z->ckpt->mem, z->ranks, sizeof(z->state[0]));
    if (!z->optim || !z->model || !z->state)
        return rsi_torch_no_memory(err);
    for (size_t r = 0; r < z->ranks && !rc; r++) {
        rc = open_one(z, names, n, true, (int64_t)r, &z->optim[r], err);
        if (!rc && (each || r == 0))
            rc = open_one(z, names, n, false, each ? (int64_t)r : -1, &z->model[r], err);
        else if (!rc)
            z->model[r] = z->model[0];
    }
    return rc;
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

/* Groups of experts may be cut into fewer parts than there are ranks. */
static rsd_err refuse_uneven(const zero *z, const rsd_value *state, rsd_error *err)
{
    const rsd_value *all = rsd_value_get(state, "ds_zero_partition_groups");

    for (size_t g = 0; all && g < rsd_value_count(all); g++) {
        const rsd_value *count = rsd_value_get(rsd_value_item(all, g), "partition_count");

        if (count && rsd_value_int(count) != (int64_t)z->ranks)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "group %zu of parameters is cut into %" PRId64
                            " parts, others into %zu: experts that ranks divide are not supported",
                            g, rsd_value_int(count), z->ranks);
    }
    return RSD_OK;
}

static rsd_err read_states(zero *z, rsd_error *err)
{
    for (size_t r = 0; r < z->ranks; r++) {
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
                            "file \"%s\" is one of %" PRId64 " ranks, files of %zu are here",
                            z->t->file[z->optim[r]].source.name,
                            most_of(rsd_value_get(state, "partition_count")), z->ranks);
        z->state[r] = state;
    }
    return refuse_uneven(z, z->state[0], err);
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

rsd_err rsi_zero_open(rsd_ckpt *ckpt, rsd_error *err)
{
    zero             z = { .ckpt = ckpt };
    char           **names;
    char            *kind = rsi_arena_array(&ckpt->mem, KIND, 1);
    const rsd_value *root, *shapes;
    size_t           n, experts = 0;
    const char      *latest = NULL;
    bool             here = false;
    rsd_err          rc = rsi_files_list(&ckpt->files, &names, &n, err);

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
    if (!rc)
        rc = kind ? rsi_torch_begin(ckpt, &z.t, err) : rsi_torch_no_memory(err);
    if (!rc)
        rc = open_files(&z, names, n, err);
    if (!rc && z.ranks == 0)
        rc = rsi_fail(err, RSD_E_FORMAT, "no file \"..zero_pp_rank_0..optim_states.pt\" is in it");
    if (!rc)
        rc = read_states(&z, err);
    if (rc)
        return rc;
    root = z.t->file[z.model[0]].root;
    shapes = rsd_value_get(root, "param_shapes");
    if (!shapes || rsd_value_type_of(shapes) != RSD_VALUE_LIST)
        return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" has no list \"param_shapes\"",
                        z.t->file[z.model[0]].source.name);
    rc = add_parameters(&z, shapes, err);
    rc = rc ? rc : add_frozen(&z, root, err);
    rc = rc ? rc : rsi_zero_add_shared(z.t, root, err);
    rc = rc ? rc : rsi_zero_add_tensors(z.t, z.model[0], rsd_value_get(root, "module"), err);
    rc = rc ? rc : rsi_zero_add_experts(ckpt, z.t, names, n, &experts, err);
    if (!rc && z.apart && experts == 0)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "the files of its experts are missing");
    rc = rc ? rc : rsi_zero_add_optim(z.t, z.optim[0], z.state[0], err);
    rc = rc ? rc : rsi_zero_add_model(z.t, z.model[0], err);
    snprintf(kind, KIND, "DeepSpeed ZeRO stage %s on %zu ranks%s", z.stage == 3 ? "3" : "1 or 2",
             z.ranks, z.apart ? ", experts without fp32 weights and optimizer states" : "");
    ckpt->kind = kind;
    return rc ? rc : rsi_torch_end(ckpt, err);
}
