/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a `.metadata` file besides tensors and rows: planner_data (how names nest),
 * storage_meta, the version, the lists of transforms, and Megatron-Core's true shapes. Called at
 * the end of dcp_meta_link.c. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/dcp_meta_core.h"
#include "format/path.h"

static rsi_pickle_kind kind_of(const dcp_reading *r, rsi_pv v)
{
    return v == NO_VALUE ? RSI_PICKLE_NONE : rsi_pickle_kind_of(r->p, v);
}

/* ---- Transforms ---- */

static rsd_err add_transforms(const dcp_reading *r, rsi_dcp_meta *meta, rsd_error *err)
{
    const uint32_t *end = r->steps_end.at;
    const rsi_pv   *step = r->step.at;
    size_t          first = 0;
    rsd_err         rc = RSD_OK;

    meta->transforms = rsi_arena_array(&meta->mem, r->steps_end.n, sizeof(meta->transforms[0]));
    if (!meta->transforms)
        return rsi_dcp_no_memory(err);
    for (size_t i = 0; i < r->steps_end.n; first = end[i++]) {
        size_t       n = end[i] - first;
        const char **name = rsi_arena_array(&meta->mem, n, sizeof(name[0]));

        if (!name)
            return rsi_dcp_no_memory(err);
        for (size_t k = 0; k < n && !rc; k++)
            rc = rsi_dcp_text(r, step[first + k], meta, &name[k], err);
        if (rc)
            return rc;
        meta->transforms[meta->ntransforms++] = (rsi_dcp_transforms){ .n = n, .name = name };
    }
    return RSD_OK;
}

/* ---- planner_data ---- */

/* The parts, joined by dots, must give the name. */
static bool joins_to(const rsi_dcp_path *path)
{
    const char *left = path->name;

    for (size_t i = 0; i < path->nparts && left; i++)
        left = rsi_path_step(left, i, path->part[i].key, path->part[i].index);
    return left && *left == '\0';
}

static rsd_err set_parts(const dcp_reading *r, rsi_pv v, rsi_dcp_part *part, size_t n,
                         rsi_dcp_meta *meta, rsd_error *err)
{
    rsi_pickle_iter it = rsi_pickle_each(r->p, v);
    rsi_pv          item;
    rsd_err         rc = RSD_OK;

    for (size_t i = 0; i < n && !rc && rsi_pickle_next(r->p, &it, &item); i++)
        if (!rsi_pickle_int(r->p, item, &part[i].index))
            rc = rsi_dcp_text(r, item, meta, &part[i].key, err);
    return rc;
}

/* The path of one name: a tuple of text and integers. */
static rsd_err set_path(const dcp_reading *r, rsi_pv v, rsi_dcp_path *path, rsi_dcp_meta *meta,
                        rsd_error *err)
{
    rsi_pickle_kind kind = kind_of(r, v);
    int64_t         ints[32];
    size_t          n;
    rsi_dcp_part   *part;
    rsd_err         rc;

    if (kind == RSI_PICKLE_INTS)
        n = (size_t)rsi_pickle_ints(r->p, v, ints, 32);
    else if (kind == RSI_PICKLE_TUPLE || kind == RSI_PICKLE_LIST)
        n = rsi_pickle_count(r->p, v);
    else
        return rsi_fail(err, RSD_E_FORMAT, "planner_data of \"%s\" is not a path", path->name);
    /* When joined, a dot follows each part but the last: a longer path can't be this name's. */
    if (n > strlen(path->name) + 1)
        return rsi_fail(err, RSD_E_FORMAT, "planner_data of \"%s\" does not join to that name",
                        path->name);
    part = rsi_arena_array(&meta->mem, n, sizeof(part[0]));
    if (!part)
        return rsi_dcp_no_memory(err);
    for (size_t i = 0; i < n && kind == RSI_PICKLE_INTS; i++)
        part[i].index = ints[i];
    rc = set_parts(r, v, part, n, meta, err);
    if (rc)
        return rsi_while(err, rc, "planner_data of \"%s\"", path->name);
    path->part = part;
    path->nparts = n;
    if (!joins_to(path))
        return rsi_fail(err, RSD_E_FORMAT, "planner_data of \"%s\" does not join to that name",
                        path->name);
    return RSD_OK;
}

static rsd_err fill_paths(const dcp_reading *r, rsi_pv dict, bool *seen, rsi_dcp_meta *meta,
                          rsd_error *err)
{
    rsi_pickle_iter it = rsi_pickle_each(r->p, dict);
    rsi_pv          key, v;
    rsd_err         rc = RSD_OK;

    while (!rc && rsi_pickle_next(r->p, &it, &key) && rsi_pickle_next(r->p, &it, &v)) {
        rsi_dcp_path *path = &meta->path[meta->npaths++];

        rc = rsi_dcp_text(r, key, meta, &path->name, err);
        if (rc)
            return rsi_while(err, rc, "planner_data");
        if (seen[rsi_pickle_shared(key)])
            return rsi_fail(err, RSD_E_FORMAT, "planner_data has \"%s\" twice", path->name);
        seen[rsi_pickle_shared(key)] = true;
        rc = set_path(r, v, path, meta, err);
    }
    return rc;
}

static rsd_err add_paths(const dcp_reading *r, rsi_pv dict, rsi_dcp_meta *meta, rsd_error *err)
{
    size_t  n = rsi_pickle_count(r->p, dict) / 2;
    bool   *seen = rsi_calloc(rsi_pickle_nshared(r->p), sizeof(seen[0]));
    rsd_err rc;

    meta->path = rsi_arena_array(&meta->mem, n, sizeof(meta->path[0]));
    meta->has_paths = true;
    rc = meta->path && seen ? fill_paths(r, dict, seen, meta, err) : rsi_dcp_no_memory(err);
    rsi_free(seen);
    return rc;
}

/* ---- storage_meta and version ---- */

/* A str is taken as is; a path object's parts are joined. torch stores either. */
static rsd_err set_id(const dcp_reading *r, rsi_pv v, rsi_dcp_meta *meta, const char **out,
                      rsd_error *err)
{
    rsi_pickle_object object;
    rsi_pickle_iter   it;
    rsi_pv            part;
    char              joined[4096];
    rsi_text          text = rsi_text_begin(joined, sizeof(joined));

    if (kind_of(r, v) == RSI_PICKLE_STR)
        return rsi_dcp_text(r, v, meta, out, err);
    if (kind_of(r, v) != RSI_PICKLE_OBJECT)
        return RSD_OK;
    object = rsi_pickle_object_of(r->p, v);
    if (object.id != CLS_POSIX_PATH && object.id != CLS_WINDOWS_PATH)
        return RSD_OK;
    it = rsi_pickle_each(r->p, object.args);
    while (rsi_pickle_next(r->p, &it, &part)) {
        const char *slash = object.id == CLS_POSIX_PATH ? "/" : "\\";
        bool        ends = text.len == 0 || joined[text.len - 1] == slash[0];

        if (kind_of(r, part) != RSI_PICKLE_STR)
            return rsi_fail(err, RSD_E_FORMAT, "a part of checkpoint_id is not a str");
        rsi_text_add(&text, "%s%s", ends ? "" : slash, rsi_pickle_text(r->p, part));
        if (text.len >= sizeof(joined))
            return rsi_fail(err, RSD_E_FORMAT, "checkpoint_id is longer than %zu bytes",
                            sizeof(joined) - 1);
    }
    *out = rsi_arena_text(&meta->mem, joined, text.len);
    return *out ? RSD_OK : rsi_dcp_no_memory(err);
}

/* ---- mcore_data ---- */

/* {"nd_reformulated_orig_global_shape": (X, Y)}: the tensor was [X, Y] cut into blocks of [x, y]
 * and is stored as [X / x, Y / y, x * y]. */
static rsd_err set_true_shape(const dcp_reading *r, rsi_pv entry, rsi_dcp_tensor *t,
                              rsi_dcp_meta *meta, rsd_error *err)
{
    rsi_pv  v = NO_VALUE;
    int64_t shape[RSD_MAX_NDIM], block = 1, *whole;
    int     n;
    bool    fits;

    if (!rsi_dcp_attributes(r, entry, KEY_TRUE_SHAPE, 1, &v) || kind_of(r, v) == RSI_PICKLE_NONE)
        return RSD_OK;
    n = rsi_pickle_ints(r->p, v, shape, RSD_MAX_NDIM);
    if (n == t->ndim && memcmp(shape, t->shape, (size_t)n * sizeof(shape[0])) == 0)
        return RSD_OK; /* not cut */
    fits = n >= 0 && n == t->ndim - 1;
    for (int d = 0; d < n && fits; d++)
        fits = shape[d] > 0 && t->shape[d] > 0 && shape[d] % t->shape[d] == 0 &&
               rsi_mul(block, shape[d] / t->shape[d], &block);
    if (!fits || block != t->shape[n])
        return rsi_fail(err, RSD_E_FORMAT,
                        "mcore_data of \"%s\" gives an impossible original shape", t->name);
    whole = rsi_arena_array(&meta->mem, (size_t)n, sizeof(whole[0]));
    if (!whole)
        return rsi_dcp_no_memory(err);
    memcpy(whole, shape, (size_t)n * sizeof(whole[0]));
    t->whole = whole;
    return RSD_OK;
}

static rsd_err add_true_shapes(const dcp_reading *r, rsi_pv dict, const uint32_t *name,
                               rsi_dcp_meta *meta, rsd_error *err)
{
    rsi_pickle_iter it = rsi_pickle_each(r->p, dict);
    rsi_pv          key, v;
    rsd_err         rc = RSD_OK;

    while (!rc && rsi_pickle_next(r->p, &it, &key) && rsi_pickle_next(r->p, &it, &v)) {
        uint32_t t = kind_of(r, key) == RSI_PICKLE_STR ? name[rsi_pickle_shared(key)] : 0;

        if (t > 0 && t <= meta->ntensors)
            rc = set_true_shape(r, v, &meta->tensor[t - 1], meta, err);
    }
    return rc;
}

/* ---- attributes that are not looked at ---- */

static rsd_err name_skipped(const dcp_reading *r, rsi_dcp_meta *meta, rsd_error *err)
{
    const skipped_record *from = r->skipped.at;

    meta->skipped = rsi_arena_array(&meta->mem, r->skipped.n, sizeof(meta->skipped[0]));
    if (!meta->skipped)
        return rsi_dcp_no_memory(err);
    for (size_t i = 0; i < r->skipped.n; i++) {
        char     joined[128];
        rsi_text text = rsi_text_begin(joined, sizeof(joined));

        rsi_text_add(&text, "%s.%s", from[i].class,
                     from[i].key == NO_VALUE ? "(unnamed)" : rsi_pickle_text(r->p, from[i].key));
        meta->skipped[i] = rsi_arena_text(&meta->mem, joined, strlen(joined));
        if (!meta->skipped[i])
            return rsi_dcp_no_memory(err);
        meta->nskipped++;
    }
    return RSD_OK;
}

rsd_err rsi_dcp_link_extras(const dcp_reading *r, const rsi_pv *attribute, const uint32_t *name,
                            rsi_dcp_meta *meta, rsd_error *err)
{
    rsi_pv  v[2];
    rsd_err rc = add_transforms(r, meta, err);

    /* Planners of other projects may store anything else; torch only uses dicts. */
    if (!rc && kind_of(r, attribute[0]) == RSI_PICKLE_DICT)
        rc = add_paths(r, attribute[0], meta, err);
    if (!rc && kind_of(r, attribute[1]) == RSI_PICKLE_OBJECT &&
        rsi_dcp_attributes(r, rsi_pickle_object_of(r->p, attribute[1]).state, KEY_CHECKPOINT_ID, 2,
                           v)) {
        rc = set_id(r, v[0], meta, &meta->checkpoint_id, err);
        if (!rc)
            rc = set_id(r, v[1], meta, &meta->save_id, err);
    }
    if (!rc && kind_of(r, attribute[2]) == RSI_PICKLE_STR)
        rc = rsi_dcp_text(r, attribute[2], meta, &meta->version, err);
    if (!rc && kind_of(r, attribute[3]) == RSI_PICKLE_DICT)
        rc = add_true_shapes(r, attribute[3], name, meta, err);
    return rc ? rc : name_skipped(r, meta, err);
}
