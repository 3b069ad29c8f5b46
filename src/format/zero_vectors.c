/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a DeepSpeed checkpoint in flat vectors, the fp32 weights and the optimizer's
 * state alike. In stages 1 and 2 the vectors of all ranks form one vector for each group of
 * parameters; in stage 3 each parameter is cut into equal parts, the last one padded. A vector
 * holds a slice of the parameter if tensor-parallel ranks cut it (zero_cut.c), or some of the
 * experts. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/zero_core.h"
#include "shape/box.h"

#include <string.h>

/* A kind of flat vector that every rank has: the weights, or a key of the optimizer's state. */
typedef struct flat {
    const char *key; /* NULL: the weights */
} flat;

/* The ranks whose vectors hold a slice. */
typedef struct team {
    const size_t *rank; /* [n] in the order of their parts */
    size_t        n;
} team;

/* A slice of a parameter and its place in the vectors of a team. */
typedef struct slice {
    const char  *name;
    team         team;
    rsi_zero_cut cut;
    size_t       group;
    int64_t      at, elems;
} slice;

/* ---- flat vectors ---- */

/* The optimizer's state for group g: in a dict by number, or in a list. */
static const rsd_value *group_state(const rsi_zero *z, size_t rank, size_t g)
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

static size_t group_count(const rsi_zero *z, size_t rank)
{
    return rsd_value_count(rsd_value_get(z->state[rank], z->groups));
}

/* Vector g of a rank; NULL if missing or not one-dimensional. */
static const rsd_value_tensor *vector(const rsi_zero *z, const flat *f, size_t rank, size_t g)
{
    const rsd_value        *v = rsd_value_get(z->state[rank], z->groups);
    const rsd_value_tensor *t;

    v = v && g < rsd_value_count(v) ? rsd_value_item(v, g) : NULL;
    if (f->key) {
        v = group_state(z, rank, g);
        v = v ? rsd_value_get(v, f->key) : NULL;
    }
    t = v ? rsd_value_tensor_of(v) : NULL;
    return t && rsi_zero_is_vector(t) ? t : NULL;
}

/* ---- slices ---- */

/* Adds elements [from, from + n) of the rank's vectors, taken as one; they start at element `at` of
 * the slice. */
static rsd_err add_from_rank(const rsi_zero_target *to, const flat *f, size_t rank, int64_t from,
                             int64_t at, int64_t n, rsd_error *err)
{
    const rsi_zero *z = to->z;
    rsd_err         rc = RSD_OK;

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
        rc = rsi_zero_add_range(to, at, at + here, z->optim[rank], v, from, err);
        at += here;
        n -= here;
        from = 0;
    }
    return rc;
}

/* Stage 3: each rank has a part of each parameter, at the same place in its vectors. */
static rsd_err add_parts(const rsi_zero_target *to, const flat *f, const slice *s, rsd_error *err)
{
    const int64_t part = rsi_ceil_div(s->elems, (int64_t)s->team.n);
    rsd_err       rc = RSD_OK;

    for (size_t r = 0; r < s->team.n && !rc; r++) {
        const int64_t first = (int64_t)r * part, end = rsi_min(first + part, s->elems);

        if (first < end)
            rc = add_from_rank(to, f, s->team.rank[r], s->at, first, end - first, err);
    }
    return rc;
}

/* Stages 1 and 2: the vectors of all ranks form one, in which the parameter starts at s->at. */
static rsd_err add_ranges(const rsi_zero_target *to, const flat *f, const slice *s, rsd_error *err)
{
    int64_t begin = 0, done = 0;
    rsd_err rc = RSD_OK;

    for (size_t r = 0; r < s->team.n && done < s->elems && !rc; r++) {
        const size_t            rank = s->team.rank[r];
        const rsd_value_tensor *v = vector(to->z, f, rank, s->group);
        int64_t                 here;

        if (!v)
            return rsi_fail(err, RSD_E_FORMAT, "rank %zu has no vector %zu", rank, s->group);
        if (s->at + done < begin + v->shape[0]) {
            here = rsi_min(begin + v->shape[0] - s->at - done, s->elems - done);
            rc = rsi_zero_add_range(to, done, done + here, to->z->optim[rank], v,
                                    s->at + done - begin, err);
            done += here;
        }
        begin += v->shape[0];
    }
    if (!rc && done < s->elems)
        rc = rsi_fail(err, RSD_E_FORMAT, "the vectors %zu of all ranks are too short", s->group);
    return rc;
}

/* ---- parameters ---- */

static rsd_err add_flat(rsi_zero *z, const flat *f, const slice *s, rsd_error *err)
{
    const char *const       weight[] = { s->name, NULL };
    const char *const       state[] = { "optim", "state", s->name, f->key, NULL };
    const size_t            first = s->team.rank[0];
    const rsd_value_tensor *of = vector(z, f, first, z->stage == 3 ? 0 : s->group);
    rsi_torch_entry         e = { .file = z->optim[first] };
    rsi_zero_target         to = { .z = z, .cut = &s->cut, .e = &e };
    rsi_torch_piece         none = { .of = of, .file = z->optim[first], .flat = true };
    rsd_err                 rc;

    if (!of)
        return rsi_fail(err, RSD_E_FORMAT, "rank %zu has no vector %zu", first, s->group);
    rc = rsi_zero_name(z, f->key ? state : weight, &e, err);
    if (!rc)
        rc = rsi_zero_like(&s->cut, of, &to.like, err);
    if (!rc && s->elems == 0) { /* an empty tensor still needs one piece */
        int64_t all = 0;

        rsi_product(to.like.ndim, to.like.shape, 1, &all);
        none.box.ndim = to.like.ndim;
        memcpy(none.box.len, to.like.shape, sizeof(none.box.len));
        return all ? RSD_OK : rsi_torch_add_piece(z->t, &e, &to.like, &none, err);
    }
    if (!rc)
        rc = z->stage == 3 ? add_parts(&to, f, s, err) : add_ranges(&to, f, s, err);
    return rc;
}

/* The optimizer's state for one parameter of the group: vectors like the weights, and the rest (the
 * step) unchanged. */
static rsd_err add_states(rsi_zero *z, const slice *s, rsd_error *err)
{
    const size_t     first = s->team.rank[0];
    const rsd_value *state = group_state(z, first, z->stage == 3 ? 0 : s->group);
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; state && i < rsd_value_count(state) && !rc; i++) {
        const rsd_value  *key = rsd_value_key(state, i), *v = rsd_value_item(state, i);
        const flat        f = { .key = rsd_value_bytes(key, NULL) };
        const char *const part[] = { "optim", "state", s->name, f.key, NULL };
        rsi_torch_entry   e = { .value = v, .file = z->optim[first] };

        if (!f.key || rsd_value_type_of(v) == RSD_VALUE_OPAQUE)
            continue;
        if (rsd_value_tensor_of(v) && rsi_zero_is_vector(rsd_value_tensor_of(v))) {
            rc = add_flat(z, &f, s, err);
            continue;
        }
        rc = rsi_zero_name(z, part, &e, err);
        if (!rc) /* all slices have it */
            rc = z->pipes * z->slices > 1 || s->cut.block ? rsi_torch_add_once(z->t, &e, err)
                                                          : rsi_torch_add(z->t, &e, err);
    }
    return rc;
}

/* Number of padding elements after a parameter. */
static int64_t padding_of(const rsi_zero *z, size_t rank, size_t g, size_t i)
{
    const rsd_value *list = rsd_value_get(z->state[rank], "param_alignment_paddings");

    list = list && g < rsd_value_count(list) ? rsd_value_item(list, g) : NULL;
    return list && i < rsd_value_count(list) ? rsd_value_int(rsd_value_item(list, i)) : 0;
}

/* Into how many parts group g is cut; experts that ranks divide have fewer than there are ranks. */
static int64_t parts_of(const rsi_zero *z, size_t rank, size_t g)
{
    const rsd_value *count = rsd_value_get(z->state[rank], "partition_count");
    const rsd_value *groups = rsd_value_get(z->state[rank], "ds_zero_partition_groups");

    if (groups && g < rsd_value_count(groups)) {
        const rsd_value *own = rsd_value_get(rsd_value_item(groups, g), "partition_count");

        return own ? rsd_value_int(own) : (int64_t)z->ranks;
    }
    if (rsd_value_type_of(count) != RSD_VALUE_LIST || g >= rsd_value_count(count))
        return (int64_t)z->ranks;
    return rsd_value_int(rsd_value_item(count, g));
}

/* Moves *at past a parameter in a rank's vectors, or in the joined one. */
static rsd_err advance(const rsi_zero *z, int64_t elems, int64_t parts, int64_t padding,
                       int64_t *at, rsd_error *err)
{
    if (z->stage == 3)
        elems = rsi_ceil_div(elems, parts);
    if (padding < 0 || !rsi_add(elems, padding, &elems) || !rsi_add(*at, elems, at))
        return rsi_fail(err, RSD_E_FORMAT, "more elements than can be counted");
    return RSD_OK;
}

/* Group g of a model file: {name: shape}. */
static const rsd_value *group_shapes(const rsi_zero *z, size_t rank, size_t g)
{
    const rsd_value *all = rsd_value_get(z->t->file[z->model[rank]].root, "param_shapes");

    return all && g < rsd_value_count(all) ? rsd_value_item(all, g) : NULL;
}

/* ---- groups ---- */

/* How a slice lies in the vectors of a group, and the name of its parameter; *out is NULL for
 * experts of which that is not known. `owner` is that of the experts. */
static rsd_err find_slice(rsi_zero *z, slice *s, const rsd_value *shapes, size_t i, bool experts,
                          size_t owner, rsd_error *err)
{
    const char      *name = rsd_value_bytes(rsd_value_key(shapes, i), NULL);
    const size_t     first = s->team.rank[0];
    const rsd_value *layer = experts && name ? rsi_zero_layer(z, first, name) : NULL;
    rsd_box          box = { 0 };
    rsd_err          rc;

    if (!name)
        return rsi_fail(err, RSD_E_FORMAT, "a parameter's name is not text");
    s->name = name;
    rc = rsi_zero_shape(rsd_value_item(shapes, i), &box.ndim, box.len, &s->elems, err);
    if (rc)
        return rc;
    if (layer)
        return rsi_zero_cut_experts(layer, name, owner, &box, &z->ckpt->mem, &s->cut, err);
    if (!experts)
        return rsi_zero_cut_of(z, first, group_shapes, s->group, name, &s->cut, err);
    s->cut = (rsi_zero_cut){ .ndim = box.ndim };
    memcpy(s->cut.slice, box.len, sizeof(box.len));
    memcpy(s->cut.shape, box.len, sizeof(box.len));
    return rsi_zero_name_expert(z, shapes, name, owner, &s->name, err);
}

/* True if an earlier pipeline stage has the parameter: they share it. */
static bool is_shared(const rsi_zero *z, const slice *s)
{
    const size_t each = z->slices * z->ranks, first = s->team.rank[0];

    for (size_t r = first % each; r < first; r += each)
        for (size_t g = 0; group_shapes(z, r, g); g++)
            if (rsd_value_get(group_shapes(z, r, g), s->name))
                return true;
    return false;
}

static rsd_err add_group(rsi_zero *z, slice *s, bool experts, size_t owner, rsd_error *err)
{
    const flat       weights = { 0 };
    const size_t     first = s->team.rank[0];
    const rsd_value *shapes = group_shapes(z, first, s->group);
    rsd_err          rc = RSD_OK;

    for (size_t i = 0;
         rsd_value_type_of(shapes) == RSD_VALUE_DICT && i < rsd_value_count(shapes) && !rc; i++) {
        const char *name = rsd_value_bytes(rsd_value_key(shapes, i), NULL);

        rc = find_slice(z, s, shapes, i, experts, owner, err);
        z->apart = z->apart || (!rc && !s->name);
        if (!rc && s->name && !is_shared(z, s)) {
            rc = add_flat(z, &weights, s, err);
            rc = rc ? rc : add_states(z, s, err);
        }
        if (!rc)
            rc = advance(z, s->elems, (int64_t)s->team.n, padding_of(z, first, s->group, i), &s->at,
                         err);
        if (rc)
            return rsi_while(err, rc, "parameter \"%s\"", name ? name : "?");
    }
    return rc;
}

/* The groups of one slice: those that all its ranks divide, and those of experts. `rank` has room
 * for them. */
static rsd_err add_groups(rsi_zero *z, size_t base, size_t *rank, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    slice   s = { 0 };

    for (size_t r = 0; r < z->ranks; r++)
        rank[r] = base + r;
    for (size_t g = 0; group_shapes(z, base, g) && !rc; g++) {
        const int64_t parts = parts_of(z, base, g);
        const int64_t at = z->stage == 3 ? s.at : 0;

        s = (slice){ .team = { rank, z->ranks }, .group = g, .at = at };
        if (parts == (int64_t)z->ranks) {
            rc = add_group(z, &s, false, 0, err);
            continue;
        }
        if (z->pipes * z->slices > 1)
            return rsi_fail(err, RSD_E_UNSUPPORTED, "experts with model parallelism");
        if (parts <= 0 || (int64_t)z->ranks % parts)
            return rsi_fail(err, RSD_E_FORMAT,
                            "group %zu of parameters is cut into %lld parts, others into %zu", g,
                            (long long)parts, z->ranks);
        for (size_t owner = 0; owner < z->ranks / (size_t)parts && !rc; owner++) {
            size_t       *mine = rank + z->ranks;
            const int64_t end = s.at;

            rc = rsi_zero_expert_team(z, g, (size_t)parts, owner, mine, err);
            s = (slice){ .team = { mine, (size_t)parts }, .group = g, .at = at };
            if (!rc)
                rc = add_group(z, &s, true, owner, err);
            if (!rc && owner > 0 && s.at != end)
                rc = rsi_fail(err, RSD_E_UNSUPPORTED, "its ranks have unequal numbers of experts");
        }
    }
    return rc;
}

/* Refuses parameters of which no rank has an element; experts got other names. */
static rsd_err check_found(const rsi_zero *z, size_t base, rsd_error *err)
{
    for (size_t g = 0; group_shapes(z, base, g); g++) {
        const rsd_value *shapes = group_shapes(z, base, g);

        for (size_t i = 0; rsd_value_type_of(shapes) == RSD_VALUE_DICT &&
                           parts_of(z, base, g) == (int64_t)z->ranks && i < rsd_value_count(shapes);
             i++) {
            const char *name = rsd_value_bytes(rsd_value_key(shapes, i), NULL);
            uint64_t    number;

            if (!rsi_map_get(&z->t->names, name, strlen(name), &number))
                return rsi_fail(err, RSD_E_FORMAT, "parameter \"%s\": no rank has any of it", name);
        }
    }
    return RSD_OK;
}

rsd_err rsi_zero_add_parameters(rsi_zero *z, rsd_error *err)
{
    size_t *rank = rsi_calloc(2 * z->ranks, sizeof(rank[0]));
    rsd_err rc = rank ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < z->pipes * z->slices && !rc; i++)
        rc = add_groups(z, i * z->ranks, rank, err);
    for (size_t i = 0; i < z->pipes * z->slices && !rc; i++)
        rc = check_found(z, i * z->ranks, err);
    rsi_free(rank);
    return rc;
}
