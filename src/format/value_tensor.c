/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors inside a pickle: which storage of the archive, and which part of it. The archive's reader
 * handles the bytes. A view that exceeds its storage is refused here. */
#include "base/checked.h"
#include "format/value_core.h"

/* (storage, offset, size, stride, requires_grad, hooks, dtype or metadata, metadata) */
enum {
    ARG_STORAGE,
    ARG_OFFSET,
    ARG_SIZE,
    ARG_STRIDE,
    ARG_GRAD,
    ARG_HOOKS,
    ARG_NEXT,
    ARG_LAST,
    MAX_ARGS
};

static bool is_kind(const rsi_pickle *p, rsi_pv v, rsi_pickle_kind kind)
{
    return rsi_pickle_kind_of(p, v) == kind;
}

/* ("storage", class, key, location, numel); an untyped storage counts bytes. Legacy files add a
 * view of the storage, which was None in all but the oldest. */
bool rsi_value_storage(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *t)
{
    rsi_pv      part[6] = { 0 }, id = rsi_pickle_persid(p, v);
    const char *module, *name;
    size_t      n = rsi_pickle_items(p, id, part, 6);
    int64_t     numel, size = 1;
    int class;

    if (!is_kind(p, v, RSI_PICKLE_PERSID) || n < 5 || n > 6 ||
        (n == 6 && !is_kind(p, part[5], RSI_PICKLE_NONE)) ||
        strcmp(rsi_pickle_text(p, part[0]), "storage") != 0 ||
        !is_kind(p, part[2], RSI_PICKLE_STR) || !rsi_pickle_int(p, part[4], &numel) || numel < 0)
        return false;
    class = rsi_pickle_class_of(p, part[1], &module, &name);
    if (class > RSI_VALUE_CLASS_STORAGE) {
        t->dtype = (rsd_dtype)(class - RSI_VALUE_CLASS_STORAGE);
        size = (int64_t)rsd_dtype_size(t->dtype);
    } else if (class != RSI_VALUE_CLASS_UNTYPED) {
        return false;
    }
    t->storage = rsi_pickle_text(p, part[2]);
    t->location = is_kind(p, part[3], RSI_PICKLE_STR) ? rsi_pickle_text(p, part[3]) : NULL;
    return rsi_mul(numel, size, &t->storage_bytes);
}

/* {'conj': True}, {'neg': True} */
static bool set_flags(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *t)
{
    rsi_pickle_iter it = rsi_pickle_each(p, v);
    rsi_pv          key, value;

    if (is_kind(p, v, RSI_PICKLE_NONE))
        return true;
    if (!is_kind(p, v, RSI_PICKLE_DICT))
        return false;
    while (rsi_pickle_next(p, &it, &key) && rsi_pickle_next(p, &it, &value)) {
        bool on = is_kind(p, value, RSI_PICKLE_TRUE);

        if (strcmp(rsi_pickle_text(p, key), "conj") == 0)
            t->conj = on;
        else if (strcmp(rsi_pickle_text(p, key), "neg") == 0)
            t->neg = on;
        else
            return false;
    }
    return true;
}

rsd_err rsi_value_tensor_check(const rsd_value_tensor *t, rsd_err code, rsd_error *err)
{
    int64_t last = t->offset, reach, bytes;
    bool    fits = t->offset >= 0, empty = false;

    for (int d = 0; d < t->ndim && fits; d++) {
        fits = t->shape[d] >= 0 && t->stride[d] >= 0;
        empty = empty || t->shape[d] == 0;
        if (fits && t->shape[d] > 0)
            fits = rsi_mul(t->shape[d] - 1, t->stride[d], &reach) && rsi_add(last, reach, &last);
    }
    if (fits && empty)
        return RSD_OK;
    if (!fits || !rsi_add(last, 1, &last) ||
        !rsi_mul(last, (int64_t)rsd_dtype_size(t->dtype), &bytes) || bytes > t->storage_bytes)
        return rsi_fail(err, code,
                        "a tensor reaches beyond the %" PRId64 " bytes of its storage \"%s\"",
                        t->storage_bytes, t->storage ? t->storage : "");
    return RSD_OK;
}

static bool set_dtype(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *t)
{
    const char *module, *name;

    return rsi_pickle_class_of(p, v, &module, &name) == RSI_VALUE_CLASS_TORCH &&
           rsd_dtype_parse(name, &t->dtype, NULL) == RSD_OK;
}

int rsi_value_unwrap(const rsi_pickle *p, rsi_pv v, rsi_pv *args)
{
    enum { LEVELS = 4 }; /* a Parameter of a subclass with attributes has two */
    rsi_pickle_object call = rsi_pickle_object_of(p, v);
    const char       *module, *name;
    rsi_pv            arg[4];

    *args = call.args;
    for (int i = 0; i < LEVELS; i++) {
        size_t n = rsi_pickle_items(p, *args, arg, 4);

        if (call.id == RSI_VALUE_CLASS_PARAMETER && n >= 2) { /* (tensor, requires_grad, ..) */
            call = rsi_pickle_object_of(p, arg[0]);
            *args = call.args;
        } else if (call.id == RSI_VALUE_CLASS_FROM_TYPE &&
                   n == 4) { /* (function, type, args, ..) */
            call.id = rsi_pickle_class_of(p, arg[0], &module, &name);
            if (call.id == RSI_VALUE_CLASS_WRAPPER)
                return call.id; /* its state is needed too */
            *args = arg[2];
        } else {
            return call.id;
        }
    }
    return -1;
}

rsd_err rsi_value_tensor_decode(const rsi_pickle *p, rsi_pv v, rsd_value_tensor *out, bool *known,
                                rsd_error *err)
{
    rsi_pickle_object whole = rsi_pickle_object_of(p, v);
    rsi_pv            args, arg[MAX_ARGS], outer[2] = { 0 };
    int               id = rsi_value_unwrap(p, v, &args);
    size_t            n = rsi_pickle_items(p, args, arg, MAX_ARGS), extra;
    rsd_value_tensor  t = { 0 };
    rsd_err           rc;

    *known = false;
    extra = id == RSI_VALUE_CLASS_TENSOR_V3; /* the dtype */
    if ((id != RSI_VALUE_CLASS_TENSOR_V2 && !extra) || n < ARG_NEXT + extra ||
        n > ARG_NEXT + extra + 1 || !rsi_value_storage(p, arg[ARG_STORAGE], &t) ||
        (extra && !set_dtype(p, arg[ARG_NEXT], &t)) || !rsd_dtype_name(t.dtype) ||
        !rsi_pickle_int(p, arg[ARG_OFFSET], &t.offset) ||
        (n > ARG_NEXT + extra && !set_flags(p, arg[ARG_NEXT + extra], &t)))
        return RSD_OK;
    t.ndim = rsi_pickle_ints(p, arg[ARG_SIZE], t.shape, RSD_MAX_NDIM);
    if (t.ndim < 0 || t.ndim > RSD_MAX_NDIM ||
        rsi_pickle_ints(p, arg[ARG_STRIDE], t.stride, RSD_MAX_NDIM) != t.ndim)
        return RSD_OK;
    if (whole.id == RSI_VALUE_CLASS_PARAMETER)
        rsi_pickle_items(p, whole.args, outer, 2);
    else
        outer[1] = arg[ARG_GRAD];
    t.requires_grad = is_kind(p, outer[1], RSI_PICKLE_TRUE);
    rc = rsi_value_tensor_check(&t, RSD_E_FORMAT, err);
    if (rc)
        return rc;
    *out = t;
    *known = true;
    return RSD_OK;
}
