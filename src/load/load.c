/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, step by step; after each step the ranks agree, so that they fail together:
 *
 *   open   rank 0 reads the metadata and sends them to all (open_together.c)
 *   find   every wanted tensor and value is found and compared, before any data are read
 *   once   data that several ranks of a machine want are read by one of them and passed on
 *          (wanted_by_several.c, read_once.c)
 *   read   each rank fills its other views itself (fetch_all.c)
 *
 * If the checkpoint is replaced before it is fully open, all ranks start over. */
#include "load/load.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "state/inner.h"
#include "load/read_once.h"
#include "read/made_read.h"
#include "read/check_sums.h"
#include "read/object_bytes.h"
#include "state/stateful.h"
#include "load/open_together.h"
#include "format/open.h"
#include "plan/cast.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Numbers that no object has. INNER: a dict or list that is not numbered itself, only its
 * contents. */
#define NOT_THERE SIZE_MAX
#define INNER     (SIZE_MAX - 1)

typedef struct loading {
    rsd_ckpt            *ckpt;
    rsd_state           *state;    /* NULL: `below` says what is wanted */
    rsd_state           *expanded; /* with stateful objects: becomes `state`; else NULL */
    const rsi_below     *below;
    const rsd_load_opts *opts;
    rsi_made            *made; /* what the recipe makes; NULL: there is none */
    rsi_want            *want; /* [n] */
    size_t               n, cap;
    size_t              *object; /* [state->nwants] number in the checkpoint; NOT_THERE, INNER */
    const char          *missed; /* first name that the checkpoint lacks; NULL: none, or allowed */
    const char          *missed_what;
    size_t               nmissed;
    rsi_arena            mem;
} loading;

/* ---- entries of a state ---- */

static rsd_err check_tensor(const rsi_state_tensor *want, const rsd_tensor_info *have, bool cast,
                            rsd_error *err)
{
    if (have->dtype != want->dtype && !cast)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "tensor \"%s\" is %s in the checkpoint, but %s was requested",
                        want->spot.name, rsd_dtype_name(have->dtype), rsd_dtype_name(want->dtype));
    if (have->dtype != want->dtype && rsi_cast_check(want->dtype, have->dtype, err))
        return rsi_while(err, RSD_E_UNSUPPORTED, "tensor \"%s\"", want->spot.name);
    if (have->ndim != want->ndim)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "tensor \"%s\" has %" PRId32 " dimensions in the checkpoint, %" PRId32
                        " were requested",
                        want->spot.name, have->ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++)
        if (have->shape[d] != want->shape[d])
            return rsi_fail(err, RSD_E_MISMATCH,
                            "dimension %d of tensor \"%s\" has the size %" PRId64
                            " in the checkpoint, %" PRId64 " was requested",
                            d, want->spot.name, have->shape[d], want->shape[d]);
    return RSD_OK;
}

/* The name in the checkpoint of an entry of the state. */
static rsd_err full_name(loading *l, const char *name, const char **out, rsd_error *err)
{
    const char *prefix = l->opts->prefix ? l->opts->prefix : "";
    size_t      len = strlen(prefix) + strlen(name) + 1;
    char       *full;

    *out = name;
    if (!*prefix)
        return RSD_OK;
    full = rsi_arena_array(&l->mem, len, 1);
    if (!full)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
    snprintf(full, len, "%s%s", prefix, name);
    *out = full;
    return RSD_OK;
}

/* A name may be missing because one of its bytes is damaged; a checksum file reveals that. */
static rsd_err prove_names(const loading *l, rsd_error *err)
{
    bool on;

    return rsi_check_begin(l->ckpt, l->opts->verify, &on, err);
}

/* Reports all of them, so that a caller need not find them one by one. */
static rsd_err not_there(loading *l, const char *what, const char *name, rsd_error *err)
{
    rsd_err rc = prove_names(l, err);

    if (rc)
        return rc;
    if (l->opts->on_missing)
        l->opts->on_missing(l->opts->arg, name);
    if (!l->opts->allow_partial && l->nmissed++ == 0) {
        l->missed = name;
        l->missed_what = what;
    }
    return RSD_OK;
}

/* The name of a tensor that ends in ".NAME": the caller may have forgotten a prefix. Or NULL. */
static const char *find_prefixed(const rsd_ckpt *ckpt, const char *name)
{
    const size_t len = strlen(name);

    for (size_t t = 0; t < ckpt->ntensors; t++) {
        rsd_tensor_info info;
        size_t          full;

        ckpt->ops->tensor(ckpt, t, &info);
        full = strlen(info.name);
        if (full > len + 1 && info.name[full - len - 1] == '.' &&
            strcmp(info.name + full - len, name) == 0)
            return info.name;
    }
    return NULL;
}

static rsd_err check_missed(const loading *l, rsd_error *err)
{
    char        more[48] = "";
    const char *full;

    if (l->nmissed == 0)
        return RSD_OK;
    full = l->made ? NULL : find_prefixed(l->ckpt, l->missed);
    if (l->nmissed > 1)
        snprintf(more, sizeof(more), ", and lacks %zu more", l->nmissed - 1);
    return rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no %s \"%s\"%s%s%s%s", l->missed_what,
                    l->missed, full ? " (it has \"" : "", full ? full : "", full ? "\")" : "",
                    more);
}

static rsd_err add_want(loading *l, size_t t, rsd_dtype dtype, const rsd_view *view, rsd_error *err)
{
    if (rsd_box_count(&view->box) == 0)
        return RSD_OK;
    if (!view->data && !view->put)
        return rsi_fail(err, RSD_E_INVALID, "neither memory nor a put given to read into");
    if (!rsi_grow(&l->want, l->n, &l->cap, sizeof(l->want[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu views", l->n + 1);
    l->want[l->n++] = (rsi_want){ .t = t, .dtype = dtype, .view = view };
    return RSD_OK;
}

/* A tensor by its name: one of the checkpoint, or one that the recipe makes. */
static bool find_named(const loading *l, const char *name, size_t *t, rsd_tensor_info *info)
{
    uint64_t number;

    if (l->made) {
        if (!rsi_map_get(&l->made->names, name, strlen(name), &number))
            return false;
        *t = (size_t)number;
        rsi_made_info(l->made, *t, info);
        return true;
    }
    if (!l->ckpt->ops->find(l->ckpt, name, t))
        return false;
    l->ckpt->ops->tensor(l->ckpt, *t, info);
    return true;
}

static rsd_err find_tensor(loading *l, const rsi_state_tensor *want, rsd_error *err)
{
    rsd_tensor_info info;
    const char     *name;
    size_t          t;
    rsd_err         rc = full_name(l, want->spot.name, &name, err);

    if (rc)
        return rc;
    if (!find_named(l, name, &t, &info))
        return not_there(l, "tensor", name, err);
    rc = check_tensor(want, &info, l->opts->cast, err);
    for (size_t v = 0; v < want->views.n && !rc; v++) {
        rc = add_want(l, t, want->dtype, &want->views.view[v], err);
        if (rc)
            rsi_while(err, rc, "tensor \"%s\": view %zu", name, v);
    }
    return rc;
}

static rsd_err index_objects(const loading *l, rsi_map *names, rsd_error *err)
{
    for (size_t i = 0; i < l->ckpt->nobjects; i++) {
        uint64_t    value = i;
        const char *name;
        rsd_err     rc = l->ckpt->ops->object(l->ckpt, i, &name, NULL, NULL, err);

        if (rc)
            return rc;
        if (!rsi_map_add(names, name, strlen(name), &value, NULL))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu objects",
                            l->ckpt->nobjects);
    }
    return RSD_OK;
}

static rsd_err find_objects(loading *l, rsd_error *err)
{
    const rsd_state *state = l->state;
    rsi_map          names = { 0 };
    rsd_err          rc;

    if (state->nwants == 0)
        return RSD_OK;
    l->object = rsi_arena_array(&l->mem, state->nwants, sizeof(l->object[0]));
    if (!l->object)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu values", state->nwants);
    rc = index_objects(l, &names, err);
    for (size_t i = 0; i < state->nwants && !rc; i++) {
        const char *name;
        uint64_t    found = NOT_THERE;

        rc = full_name(l, state->want[i].spot.name, &name, err);
        if (!rc && !rsi_map_get(&names, name, strlen(name), &found)) {
            rc = rsi_inner_value(l->ckpt, name, NULL, NULL, err);
            if (!rc)
                found = INNER;
            else if (rc == RSD_E_NOTFOUND)
                rc = not_there(l, "value", name, err);
        }
        l->object[i] = (size_t)found;
    }
    rsi_map_release(&names);
    return rc;
}

static rsd_err find_state(loading *l, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < l->state->ntensors && !rc; i++)
        rc = find_tensor(l, &l->state->tensor[i], err);
    if (!rc)
        rc = find_objects(l, err);
    return rc ? rc : check_missed(l, err);
}

/* ---- tensors below names ---- */

/* "model" and "model.w" are below "model"; "model2" is not. */
static bool is_below(const char *name, const char *top)
{
    size_t n = strlen(top);

    return n == 0 || (strncmp(name, top, n) == 0 && (name[n] == '\0' || name[n] == '.'));
}

static rsd_err ask_for(loading *l, size_t t, const rsd_tensor_info *info, rsd_error *err)
{
    rsd_view *view = rsi_arena_array(&l->mem, 1, sizeof(*view));
    bool      packed = true;
    rsd_err   rc;

    if (!view)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a view");
    view->box.ndim = info->ndim;
    memcpy(view->box.len, info->shape, sizeof(view->box.len));
    rc = l->below->alloc(l->below->arg, info, view);
    rsi_beat();
    if (rc)
        return rsi_fail(err, rc, "the caller's alloc failed: %s", rsd_err_name(rc));
    if (!view->data && !view->put)
        return RSD_OK;
    rc = rsi_box_check(&view->box, info->ndim, info->shape, err);
    if (rc)
        return rc;
    for (int d = 0; d < info->ndim; d++)
        packed = packed && view->stride[d] == 0;
    if (packed)
        rsi_strides(info->ndim, view->box.len, (int64_t)rsd_dtype_size(info->dtype), view->stride);
    return add_want(l, t, info->dtype, view, err);
}

/* The expected names are unknown here, so one rank always checks them against the checksums. */
static rsd_err find_below(loading *l, bool leads, rsd_error *err)
{
    const rsi_below *b = l->below;
    bool            *met = rsi_arena_array(&l->mem, b->n, sizeof(met[0])); /* [b->n] */
    rsd_err          rc = leads ? prove_names(l, err) : RSD_OK;

    if (!rc && !met)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu names", b->n);
    for (size_t t = 0; t < (l->made ? l->made->n : l->ckpt->ntensors) && !rc; t++) {
        rsd_tensor_info info;
        bool            wanted = b->n == 0;

        if (l->made)
            rsi_made_info(l->made, t, &info);
        else
            l->ckpt->ops->tensor(l->ckpt, t, &info);
        info.size = sizeof(info);
        for (size_t i = 0; i < b->n; i++)
            if (is_below(info.name, b->name[i]))
                met[i] = wanted = true;
        rc = wanted ? ask_for(l, t, &info, err) : RSD_OK;
        if (rc)
            rsi_while(err, rc, "tensor \"%s\"", info.name);
    }
    for (size_t i = 0; i < b->n && !rc; i++)
        if (!met[i])
            rc = not_there(l, "tensor below", b->name[i], err);
    return rc ? rc : check_missed(l, err);
}

/* ---- reading ---- */

/* True if a value needs no class of Python's to be what was saved. */
static bool is_plain(const rsd_value *value)
{
    switch (rsd_value_type_of(value)) {
    case RSD_VALUE_DICT: /* or one of its subclasses */
    case RSD_VALUE_TENSOR:
    case RSD_VALUE_OPAQUE:
        return false;
    default:
        for (size_t i = 0; i < rsd_value_count(value); i++)
            if (!is_plain(rsd_value_item(value, i)))
                return false;
        return true;
    }
}

static rsd_err put_bytes(const loading *l, const rsi_state_want *w, size_t i, rsd_error *err)
{
    unsigned char *bytes = NULL;
    size_t         len = 0;
    rsd_err        rc = rsi_object_bytes(l->ckpt, i, l->opts->verify, &bytes, &len, err);

    if (rc)
        return rc;
    rc = w->put(w->arg, bytes, len);
    if (rc)
        rsi_fail(err, rc, "the caller's put failed: %s", rsd_err_name(rc));
    rsi_free(bytes);
    return rc;
}

static rsd_err read_objects(loading *l, rsd_error *err)
{
    for (size_t i = 0; l->state && i < l->state->nwants; i++) {
        const rsi_state_want *w = &l->state->want[i];
        const rsd_value      *value;
        const char           *name;
        rsd_err               rc;

        if (l->object[i] == NOT_THERE)
            continue;
        rc = full_name(l, w->spot.name, &name, err);
        if (!rc && l->object[i] == INNER)
            rc = rsi_inner_value(l->ckpt, name, w->owner, &value, err);
        else if (!rc)
            rc = l->ckpt->ops->object(l->ckpt, l->object[i], &name, w->owner, &value, err);
        if (!rc && w->put && l->object[i] != INNER && l->ckpt->format == RSD_FORMAT_DCP &&
            !is_plain(value))
            rc = put_bytes(l, w, l->object[i], err);
        if (rc)
            return rsi_while(err, rc, "value \"%s\"", w->spot.name);
        *w->value = value;
    }
    return RSD_OK;
}

static rsd_err read_all(loading *l, rsd_comm *comm, rsd_error *err)
{
    rsd_read_opts read = { .size = sizeof(read),
                           .verify = l->opts->verify,
                           .threads = l->opts->threads,
                           .max_memory = l->opts->max_memory };
    rsd_choice    once = l->made || read.verify == RSD_ALWAYS ? RSD_NEVER : l->opts->cooperate;
    bool          go;
    rsd_err       rc = rsi_read_once(comm, l->ckpt, l->want, &l->n, once, &read, &go, err);

    if (go && !rc)
        rc = l->made ? rsi_made_fetch_all(l->made, l->ckpt, l->want, l->n, &read, err)
                     : rsi_fetch_all(l->ckpt, l->want, l->n, &read, err);
    if (go && !rc)
        rc = read_objects(l, err);
    rc = rsi_reads_ended(l->ckpt, rc, err);
    if (go && !rc)
        rc = rsi_stateful_restored(l->expanded, err);
    return comm ? rsi_agree(comm, rc, err) : rc;
}

/* One try. *again: in, the checkpoint was replaced before this try; out, since it began; the same
 * on all ranks. */
static rsd_err run_once(loading *l, const char *path, rsd_comm *comm, bool *again, rsd_error *err)
{
    rsi_together together;
    bool         leads = !comm || comm->alone || comm->rank == 0;
    rsd_err      rc = rsi_together_open(comm, l->opts->store, path, *again, &together, err);

    *again = false;
    if (rc) {
        *again = rsi_together_replaced(comm, &together, rc);
        rsi_together_close(&together);
        return rc;
    }
    l->ckpt = together.ckpt;
    rc = l->state ? rsi_stateful_expand(l->state, true, &l->expanded, err) : RSD_OK;
    l->state = l->expanded ? l->expanded : l->state;
    if (!rc)
        rc = rsi_made_of(l->opts->recipe, l->ckpt, NULL, NULL, &l->made, err);
    if (!rc)
        rc = l->state ? find_state(l, err) : find_below(l, leads, err);
    if (comm)
        rc = rsi_agree(comm, rc, err); /* no memory is touched unless all ranks will be filled */
    if (!rc)
        rc = read_all(l, comm, err);
    *again = rsi_is_gone(rc) && rsi_together_replaced(comm, &together, rc);
    rsi_free(l->want);
    rsi_made_drop(l->made);
    rsi_arena_release(&l->mem);
    rsi_together_close(&together);
    rsd_state_free(l->expanded);
    return rc;
}

static rsd_err run(const loading *l, const char *path, rsd_comm *comm, rsd_error *err)
{
    bool again = false;

    for (int i = 0; i < RSI_OPEN_TRIES; i++) {
        loading try = *l;
        rsd_err rc = run_once(&try, path, comm, &again, err);

        if (!again)
            return rc;
    }
    return rsi_gave_up(path, err);
}

rsd_err rsi_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err)
{
    loading l = { .state = state, .opts = opts };

    return run(&l, path, comm, err);
}

rsd_err rsi_load_below(const char *path, rsd_comm *comm, const rsi_below *below,
                       const rsd_load_opts *opts, rsd_error *err)
{
    loading l = { .below = below, .opts = opts };

    return run(&l, path, comm, err);
}
