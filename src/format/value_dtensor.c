/* SPDX-License-Identifier: Apache-2.0 */
/* DTensors inside a pickle: the part that the saving rank holds, the shape of the whole, the mesh
 * and the rank's place in it, the placements. ShardedTensors: the parts and their offsets. Versions
 * of torch pickle the mesh differently, but all keep its shape and the rank's coordinates; modules
 * were renamed, so classes are matched by their last name. Anything not understood leaves the
 * object opaque. */
#include "base/checked.h"
#include "format/value_core.h"

static bool is_kind(const rsi_pickle *p, rsi_pv v, rsi_pickle_kind kind)
{
    return rsi_pickle_kind_of(p, v) == kind;
}

/* The value of a str key in a dict; false if missing. Of duplicates the last counts, as in
 * Python. */
static bool get(const rsi_pickle *p, rsi_pv dict, const char *key, rsi_pv *out)
{
    rsi_pickle_iter it = rsi_pickle_each(p, dict);
    rsi_pv          k, v;
    bool            found = false;

    if (!is_kind(p, dict, RSI_PICKLE_DICT))
        return false;
    while (rsi_pickle_next(p, &it, &k) && rsi_pickle_next(p, &it, &v))
        if (is_kind(p, k, RSI_PICKLE_STR) && strcmp(rsi_pickle_text(p, k), key) == 0) {
            *out = v;
            found = true;
        }
    return found;
}

/* An attribute of an object: its state is a dict, or (dict or None, dict) if it has slots. */
static bool attribute(const rsi_pickle *p, rsi_pv object, const char *key, rsi_pv *out)
{
    rsi_pv state = rsi_pickle_object_of(p, object).state, half[2];

    if (is_kind(p, state, RSI_PICKLE_TUPLE) && rsi_pickle_items(p, state, half, 2) == 2)
        return get(p, half[1], key, out) || get(p, half[0], key, out);
    return get(p, state, key, out);
}

static const char *class_name(const rsi_pickle *p, rsi_pv object)
{
    const char *module, *name;

    rsi_pickle_class_of(p, rsi_pickle_object_of(p, object).callee, &module, &name);
    return name;
}

/* The integers of a tuple or list; -1 if it is neither, or too long. */
static int numbers(const rsi_pickle *p, rsi_pv v, int64_t *out)
{
    rsi_pickle_iter it = rsi_pickle_each(p, v);
    rsi_pv          item;
    int             n = rsi_pickle_ints(p, v, out, RSD_MAX_NDIM);

    if (n >= 0 || !is_kind(p, v, RSI_PICKLE_LIST))
        return n <= RSD_MAX_NDIM ? n : -1;
    for (n = 0; rsi_pickle_next(p, &it, &item); n++)
        if (n == RSD_MAX_NDIM || !rsi_pickle_int(p, item, &out[n]))
            return -1;
    return n;
}

static bool product(const rsi_pickle *p, rsi_pv v, int64_t *out)
{
    int64_t size[RSD_MAX_NDIM];
    int     n = numbers(p, v, size);

    if (rsi_pickle_int(p, v, out))
        return true;
    return n >= 0 && rsi_product(n, size, 1, out);
}

/* From torch 2.13 on each axis has its own layout; before, all share one, in which a flattened axis
 * is a tuple. */
static bool read_layout(const rsi_pickle *p, rsi_pv layout, rsi_dtensor *out)
{
    rsi_pickle_iter it;
    rsi_pv          axes, axis, shape;
    const bool      each = attribute(p, layout, "axes", &axes);

    if (!each && !attribute(p, layout, "shape", &axes))
        return false;
    out->mesh_ndim = numbers(p, axes, out->mesh);
    if (out->mesh_ndim >= 0)
        return true;
    it = rsi_pickle_each(p, axes);
    for (out->mesh_ndim = 0; rsi_pickle_next(p, &it, &axis); out->mesh_ndim++) {
        shape = axis;
        if (out->mesh_ndim == RSD_MAX_NDIM || (each && !attribute(p, axis, "shape", &shape)) ||
            !product(p, shape, &out->mesh[out->mesh_ndim]))
            return false;
    }
    return true;
}

static bool read_mesh(const rsi_pickle *p, rsi_pv mesh, rsi_dtensor *out)
{
    rsd_value_tensor ranks = { 0 };
    rsi_pv           v;
    bool             known = false;

    if (attribute(p, mesh, "_layout", &v)) {
        if (!read_layout(p, v, out))
            return false;
    } else {
        if (!attribute(p, mesh, "mesh", &v) ||
            rsi_value_tensor_decode(p, v, &ranks, &known, NULL) || !known)
            return false;
        out->mesh_ndim = ranks.ndim;
        memcpy(out->mesh, ranks.shape, sizeof(out->mesh));
    }
    if (!attribute(p, mesh, "_coordinate_on_dim", &v))
        return false;
    out->outside = is_kind(p, v, RSI_PICKLE_NONE);
    if (!out->outside && numbers(p, v, out->coord) != out->mesh_ndim)
        return false;
    out->ranks = 1;
    for (int i = 0; i < out->mesh_ndim; i++) {
        if (out->mesh[i] < 1 || out->coord[i] < 0 || out->coord[i] >= out->mesh[i])
            return false;
        if (!rsi_mul(out->ranks, out->mesh[i], &out->ranks))
            out->ranks = out->rank = INT64_MAX; /* more than a layout may have */
        else
            out->rank = out->rank * out->mesh[i] + out->coord[i];
    }
    return true;
}

static bool read_placement(const rsi_pickle *p, rsi_pv v, rsd_placement *out)
{
    const char *name = class_name(p, v);
    int64_t     dim;
    rsi_pv      part;

    if (strcmp(name, "Replicate") == 0) {
        out->kind = RSD_REPLICATE;
        return true;
    }
    out->kind = strcmp(name, "_StridedShard") == 0 ? RSD_STRIDED : RSD_SHARD;
    if ((out->kind == RSD_SHARD && strcmp(name, "Shard") != 0) || !attribute(p, v, "dim", &part) ||
        !rsi_pickle_int(p, part, &dim) || dim < -RSD_MAX_NDIM || dim >= RSD_MAX_NDIM)
        return false;
    out->dim = (int32_t)dim;
    return out->kind == RSD_SHARD || (attribute(p, v, "split_factor", &part) &&
                                      rsi_pickle_int(p, part, &out->split) && out->split >= 1);
}

/* ((dimension, (axes)), ..): placements only express the order from left to right. */
static bool is_usual_order(const rsi_pickle *p, rsi_pv order)
{
    rsi_pickle_iter it = rsi_pickle_each(p, order);
    rsi_pv          entry, part[2];
    int64_t         axis[RSD_MAX_NDIM];

    while (rsi_pickle_next(p, &it, &entry)) {
        rsi_pv args =
            is_kind(p, entry, RSI_PICKLE_OBJECT) ? rsi_pickle_object_of(p, entry).args : entry;
        int n = rsi_pickle_items(p, args, part, 2) == 2 ? numbers(p, part[1], axis) : -1;

        if (n < 0)
            return false;
        for (int i = 1; i < n; i++)
            if (axis[i] < axis[i - 1])
                return false;
    }
    return true;
}

static bool read_spec(const rsi_pickle *p, rsi_pv spec, rsi_dtensor *out)
{
    rsi_pv mesh, places, order, place[RSD_MAX_NDIM];
    bool   strided = false;

    if (!attribute(p, spec, "mesh", &mesh) || !read_mesh(p, mesh, out) ||
        !attribute(p, spec, "placements", &places) ||
        rsi_pickle_items(p, places, place, RSD_MAX_NDIM) != (size_t)out->mesh_ndim)
        return false;
    for (int i = 0; i < out->mesh_ndim; i++) {
        if (!read_placement(p, place[i], &out->place[i]))
            return false;
        strided = strided || out->place[i].kind == RSD_STRIDED;
    }
    return strided || !attribute(p, spec, "shard_order", &order) || is_usual_order(p, order);
}

/* The call of _rebuild_from_type_v2, which may be inside a Parameter. */
static rsi_pv rebuilding(const rsi_pickle *p, rsi_pv v)
{
    rsi_pickle_object call = rsi_pickle_object_of(p, v);
    rsi_pv            arg[1] = { 0 };

    if (call.id == RSI_VALUE_CLASS_PARAMETER && rsi_pickle_items(p, call.args, arg, 1) >= 1)
        call = rsi_pickle_object_of(p, arg[0]);
    return call.id == RSI_VALUE_CLASS_FROM_TYPE ? call.args : rsi_pickle_none();
}

/* (local_tensor and spec) */
static rsd_err read_dtensor(const rsi_pickle *p, rsi_pv state, rsd_values *owner, rsi_dtensor *out,
                            bool *known, rsd_error *err)
{
    rsd_value_tensor local;
    rsi_pv           pair[2], spec, part;
    bool             is_tensor = false;
    rsd_err          rc;

    if (is_kind(p, state, RSI_PICKLE_TUPLE) && rsi_pickle_items(p, state, pair, 2) == 2)
        state = pair[1];
    if (!get(p, state, "_local_tensor", &part) || !get(p, state, "_spec", &spec) ||
        !read_spec(p, spec, out))
        return RSD_OK;
    rc = rsi_value_tensor_decode(p, part, &local, &is_tensor, err);
    if (rc || !is_tensor || local.ndim != out->ndim)
        return rc;
    *known = true;
    out->dtype = local.dtype;
    return rsd_value_create_tensor(owner, &local, &out->local, err);
}

/* One of a ShardedTensor's parts. */
static rsd_err read_shard(const rsi_pickle *p, rsi_pv v, rsd_values *owner, const rsi_dtensor *of,
                          rsi_shard *out, bool *known, rsd_error *err)
{
    rsd_value_tensor local;
    int64_t          len[RSD_MAX_NDIM];
    rsi_pv           part, metadata, offsets, sizes;
    rsd_err          rc;

    *known = false;
    if (!attribute(p, v, "tensor", &part) || !attribute(p, v, "metadata", &metadata) ||
        !attribute(p, metadata, "shard_offsets", &offsets) ||
        !attribute(p, metadata, "shard_sizes", &sizes) ||
        numbers(p, offsets, out->off) != of->ndim || numbers(p, sizes, len) != of->ndim)
        return RSD_OK;
    rc = rsi_value_tensor_decode(p, part, &local, known, err);
    *known = !rc && *known && local.ndim == of->ndim && local.dtype == of->dtype &&
             memcmp(local.shape, len, (size_t)of->ndim * sizeof(len[0])) == 0;
    return *known ? rsd_value_create_tensor(owner, &local, &out->local, err) : rc;
}

/* (local shards, metadata of all, process group, sharding spec, flag) */
static rsd_err read_sharded(const rsi_pickle *p, rsi_pv state, rsd_values *owner, rsi_dtensor *out,
                            bool *known, rsd_error *err)
{
    rsi_pv          part[5], v;
    rsi_pickle_iter it;
    rsd_err         rc = RSD_OK;

    if (rsi_pickle_items(p, state, part, 5) != 5 || !is_kind(p, part[0], RSI_PICKLE_LIST) ||
        !attribute(p, part[2], "local_world_size", &v) || !rsi_pickle_int(p, v, &out->ranks) ||
        !attribute(p, part[2], "local_rank", &v) || !rsi_pickle_int(p, v, &out->rank) ||
        out->rank < 0 || out->rank >= out->ranks)
        return RSD_OK;
    out->listed = true;
    out->nshards = rsi_pickle_count(p, part[0]);
    out->shard = rsi_arena_array(&owner->mem, out->nshards, sizeof(out->shard[0]));
    if (!out->shard)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the parts of a ShardedTensor");
    *known = true;
    it = rsi_pickle_each(p, part[0]);
    for (size_t i = 0; *known && !rc && rsi_pickle_next(p, &it, &v); i++)
        rc = read_shard(p, v, owner, out, &out->shard[i], known, err);
    return rc;
}

static bool read_dtype(const rsi_pickle *p, rsi_pv v, rsd_dtype *out)
{
    const char *module, *name;

    return rsi_pickle_class_of(p, v, &module, &name) == RSI_VALUE_CLASS_TORCH &&
           rsd_dtype_parse(name, out, NULL) == RSD_OK;
}

rsd_err rsi_value_dtensor_decode(const rsi_pickle *p, rsi_pv v, rsd_values *owner, rsi_dtensor *out,
                                 bool *known, rsd_error *err)
{
    rsi_dtensor made = { 0 };
    rsi_pv      arg[4], size[3];
    const char *module, *name;
    bool        found = false;
    rsd_err     rc = RSD_OK;

    *known = false;
    /* (function, class, (class, dtype, size, ..), state or (None, state)) */
    if (rsi_pickle_items(p, rebuilding(p, v), arg, 4) != 4 ||
        rsi_pickle_class_of(p, arg[0], &module, &name) != RSI_VALUE_CLASS_WRAPPER ||
        rsi_pickle_items(p, arg[2], size, 3) < 3)
        return RSD_OK;
    rsi_pickle_class_of(p, arg[1], &module, &name);
    made.ndim = numbers(p, size[2], made.shape);
    if (made.ndim < 0)
        return RSD_OK;
    if (strcmp(name, "DTensor") == 0)
        rc = read_dtensor(p, arg[3], owner, &made, &found, err);
    else if (strcmp(name, "ShardedTensor") == 0 && read_dtype(p, size[1], &made.dtype))
        rc = read_sharded(p, arg[3], owner, &made, &found, err);
    if (!rc && found) {
        *out = made;
        *known = true;
    }
    return rc;
}
