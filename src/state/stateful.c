/* SPDX-License-Identifier: Apache-2.0 */
/* Asks objects for their contents each time a state is saved or loaded, since these may have
 * changed. The contents go into a temporary copy of the state. */
#include "state/stateful.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/opts.h"

#include <string.h>

enum { MOST_OBJECTS = 1 << 20 }; /* stops objects that add objects endlessly */

rsd_err rsd_state_stateful(rsd_state *state, const char *prefix, const rsd_stateful *object,
                           rsd_error *err)
{
    rsi_state_object o = { 0 };
    rsd_path_part   *part;
    rsd_err          rc = rsi_opts_take(&o.object, sizeof(o.object), object, "rsd_stateful", err);

    if (rc)
        return rc;
    if (!state || !o.object.produce)
        return rsi_fail(err, RSD_E_INVALID,
                        "missing argument: state or an object that produces values");
    o.nparts = state->depth + (prefix ? 1 : 0);
    part = rsi_arena_array(&state->mem, o.nparts + 1, sizeof(part[0]));
    if (part && state->depth)
        memcpy(part, state->stack, state->depth * sizeof(part[0]));
    if (part && prefix)
        rc = rsi_state_name(state, prefix, &part[state->depth].key, err);
    if (rc)
        return rc;
    if (!part || !rsi_grow(&state->object, state->nobjects, &state->object_cap, sizeof(o)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for an object");
    if (!rc && state->nobjects >= MOST_OBJECTS)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "more than %d objects are not supported",
                      (int)MOST_OBJECTS);
    if (rc)
        return rc;
    o.part = part;
    state->object[state->nobjects++] = o;
    state->version++;
    return RSD_OK;
}

/* ---- the copy ---- */

static bool copy_array(void *to, const void *from, size_t n, size_t size)
{
    void *copy = rsi_calloc(n, size);

    if (copy && n)
        memcpy(copy, from, n * size);
    memcpy(to, &copy, sizeof(copy));
    return copy != NULL;
}

static bool add_name(rsd_state *state, const char *name)
{
    uint64_t value = 0;

    return rsi_map_add(&state->names, name, strlen(name), &value, NULL);
}

static rsd_err copy_state(const rsd_state *from, rsd_state *to, rsd_error *err)
{
    bool ok = true;

    ok = copy_array(&to->tensor, from->tensor, from->ntensors, sizeof(to->tensor[0])) && ok;
    ok = copy_array(&to->value, from->value, from->nvalues, sizeof(to->value[0])) && ok;
    ok = copy_array(&to->want, from->want, from->nwants, sizeof(to->want[0])) && ok;
    ok = copy_array(&to->object, from->object, from->nobjects, sizeof(to->object[0])) && ok;
    if (!ok)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
    to->ntensors = to->tensor_cap = from->ntensors;
    to->nvalues = to->value_cap = from->nvalues;
    to->nwants = to->want_cap = from->nwants;
    to->nobjects = to->object_cap = from->nobjects;
    for (size_t i = 0; i < to->ntensors; i++) {
        if (to->tensor[i].layout)
            rsi_layout_ref(to->tensor[i].layout);
        ok = add_name(to, to->tensor[i].spot.name) && ok;
    }
    for (size_t i = 0; i < to->nvalues; i++)
        ok = add_name(to, to->value[i].spot.name) && ok;
    for (size_t i = 0; i < to->nwants; i++)
        ok = add_name(to, to->want[i].spot.name) && ok;
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a state");
}

/* ---- asking ---- */

/* Names that an object adds start with the object's own parts. */
static rsd_err enter(rsd_state *state, const rsi_state_object *o, rsd_error *err)
{
    state->depth = 0;
    for (size_t i = 0; i < o->nparts; i++) {
        if (!rsi_grow(&state->stack, state->depth, &state->stack_cap, sizeof(state->stack[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
        state->stack[state->depth++] = o->part[i];
    }
    return RSD_OK;
}

static rsd_err ask(rsd_state *state, size_t i, bool loading, rsd_error *err)
{
    rsi_state_object o = state->object[i]; /* the array may grow */
    rsd_error        spare = { .rank = -1 };
    rsd_err          rc = enter(state, &o, err);

    err = err ? err : &spare;
    if (rc)
        return rc;
    err->code = RSD_OK;
    rc = o.object.produce(o.object.arg, state, loading, err);
    rsi_beat();
    if (rc && err->code != (int32_t)rc)
        rsi_fail(err, rc, "it failed: %s", rsd_err_name(rc));
    if (!rc && state->depth != o.nparts)
        rc = rsi_fail(err, RSD_E_INVALID, "it pushed and popped unevenly");
    if (!rc)
        return RSD_OK;
    return rsi_while(err, rc, "object %zu, \"%s\"", i,
                     o.nparts && o.part[o.nparts - 1].key ? o.part[o.nparts - 1].key : "");
}

rsd_err rsi_stateful_expand(const rsd_state *state, bool loading, rsd_state **out, rsd_error *err)
{
    rsd_state *all = NULL;
    rsd_err    rc;

    *out = NULL;
    if (state->nobjects == 0)
        return RSD_OK;
    rc = rsd_state_create(&all, err);
    if (!rc)
        rc = copy_state(state, all, err);
    for (size_t i = 0; !rc && i < all->nobjects; i++)
        rc = ask(all, i, loading, err);
    if (rc) {
        rsd_state_free(all);
        return rc;
    }
    *out = all;
    return RSD_OK;
}

rsd_err rsi_stateful_restored(const rsd_state *expanded, rsd_error *err)
{
    rsd_error spare = { .rank = -1 };
    rsd_err   rc = RSD_OK;

    err = err ? err : &spare;
    for (size_t i = expanded ? expanded->nobjects : 0; i > 0 && !rc; i--) {
        const rsi_state_object *o = &expanded->object[i - 1];

        if (!o->object.restored)
            continue;
        err->code = RSD_OK;
        rc = o->object.restored(o->object.arg, err);
        rsi_beat();
        if (rc && err->code != (int32_t)rc)
            rsi_fail(err, rc, "object %zu could not be restored: %s", i - 1, rsd_err_name(rc));
    }
    return rc;
}
