/* SPDX-License-Identifier: Apache-2.0 */
/* Classes and calls of a pickle. Nothing is called: a call becomes an object that names the callee.
 * Objects of classes that the caller folds are replaced as soon as they are complete, and their
 * cells are reused. */
#include "format/pickle_core.h"

class_ref rsi_pickle_class_ref(const rsi_pickle *p, rsi_pv class)
{
    class_ref ref = { .module = PV_GONE, .name = PV_GONE, .place = NO_CLASS };

    if (pv_tag(class) == TAG_CLASS)
        memcpy(&ref, p->shared.text + p->shared.entry[pv_payload(class)].off, sizeof(ref));
    return ref;
}

/* ---- Ignored attributes ---- */

/* Limits on the nesting of objects of growing classes, and on their attributes. */
enum { MAX_LEVELS = 8, MAX_ATTRIBUTES = 64 };

/* The class of the object at a place in the stack if it grows, else NULL. */
static const rsi_pickle_class *growing(const rsi_pickle *p, size_t place)
{
    const rsi_pickle_class *class;
    rsi_pv v = p->stack.at[place];

    if (pv_tag(v) != TAG_OBJECT)
        return NULL;
    class = listed_class(p, p->cell.at[pv_payload(v) + OBJECT_CALLEE]);
    return class && class->fold & RSI_PICKLE_GROWS ? class : NULL;
}

static bool is_interned(const rsi_pickle *p, rsi_pv key)
{
    return pv_payload(key) < p->shared_base;
}

/* An empty list or dict may be one whose only item is being read. */
static bool is_complete(const rsi_pickle *p, rsi_pv v)
{
    return (pv_tag(v) != TAG_DICT && pv_tag(v) != TAG_LIST) || p->cell.at[pv_payload(v)] != 0;
}

/* For an object's state, whose parts so far are [first, end) of the stack: true if the part being
 * read is one that the caller ignores. Attributes alternate between keys and values. */
static bool is_unknown_part(const rsi_pickle *p, size_t first, size_t end)
{
    const rsi_pickle_class *class = first > 0 ? growing(p, first - 1) : NULL;
    size_t slots = first > 2 && p->stack.at[first - 2] == PV_NONE; /* (None, attributes) */
    rsi_pv key = PV_GONE;

    if (class)
        return class->fold >> 8 && end - first >= class->fold >> 8;
    if (first < 2 || pv_tag(p->stack.at[first - 1]) != TAG_DICT || !growing(p, first - 2 - slots))
        return false;
    for (size_t i = first; i < end && i < first + 2 * MAX_ATTRIBUTES; i += 2) {
        rsi_pv next = p->stack.at[i];

        if (pv_tag(next) != TAG_STR ||
            (i > first && !is_interned(p, next) && !is_complete(p, p->stack.at[i - 1])))
            break;
        key = next;
    }
    return key != PV_GONE && !is_interned(p, key);
}

/* Each mark starts the parts of some container; the outermost comes first. */
static bool is_where_nobody_looks(const rsi_pickle *p)
{
    for (size_t i = 0; i < p->mark.n && i < MAX_LEVELS; i++) {
        size_t first = i + 1 < p->mark.n ? p->mark.at[i + 1] : p->fence;
        size_t end = i + 2 < p->mark.n   ? p->mark.at[i + 2]
                     : i + 1 < p->mark.n ? p->fence
                                         : p->stack.n;

        if (is_unknown_part(p, first, end))
            return true;
    }
    return false;
}

/* ---- Classes and calls ---- */

static bool is_distributed(const rsi_pickle *p, rsi_pv module)
{
    static const char top[] = "torch.distributed.";

    return strncmp(rsi_pickle_text(p, module), top, sizeof(top) - 1) == 0;
}

/* Kept in the intern table, not in cells: a class is first named inside an object that folds, and
 * then used from there on. */
rsd_err rsi_pickle_class_make(rsi_pickle *p, rsi_pv module, rsi_pv name, rsi_pv *out)
{
    class_ref ref = { .module = module, .name = name, .place = NO_CLASS };
    uint32_t  entry;
    rsd_err   rc;

    for (uint32_t i = 0; i < p->options.nclasses && ref.place == NO_CLASS; i++)
        if (p->class_name[2 * i] == module && p->class_name[2 * i + 1] == name)
            ref.place = i;
    for (uint32_t i = 0; i < p->options.nclasses && ref.place == NO_CLASS; i++)
        if (p->class_name[2 * i + 1] == name && p->options.classes[i].fold & RSI_PICKLE_MOVES &&
            is_distributed(p, module))
            ref.place = i;
    rc = rsi_pickle_share(p, SHARED_CLASS, &ref, sizeof(ref), &entry);
    if (rc)
        return rc;
    *out = pv(TAG_CLASS, entry);
    if (ref.place == NO_CLASS && !p->named.seen && !is_where_nobody_looks(p)) {
        p->named.class = *out;
        p->named.at = op_at(p);
        p->named.seen = true;
    }
    return RSD_OK;
}

rsd_err rsi_pickle_call(rsi_pickle *p, rsi_pickle_how how, rsi_pv callee, rsi_pv args, rsi_pv *out,
                        bool *opens)
{
    const rsi_pickle_class *class = listed_class(p, callee);
    bool     is_class = pv_tag(callee) == TAG_CLASS;
    uint32_t at;
    rsd_err  rc;

    *opens = false;
    if (!is_class && pv_tag(callee) != TAG_OBJECT)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "a call of something that is not a class");
    if (pv_tag(args) != TAG_TUPLE && pv_tag(args) != TAG_INTS)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "a call whose arguments are not a tuple");
    if (is_class && !class && !p->called.seen && !is_where_nobody_looks(p)) {
        p->called.class = callee;
        p->called.at = op_at(p);
        p->called.seen = true;
    }
    if (class && class->fold & RSI_PICKLE_FOLD_CALL) {
        rsi_pickle_object object = { .callee = callee,
                                     .args = args,
                                     .state = PV_GONE,
                                     .items = PV_GONE,
                                     .at = op_at(p),
                                     .how = how,
                                     .id = class->id };

        rc = p->options.fold(p->options.arg, p, &object, out, p->err);
        return rc ? rsi_while(p->err, rc, "byte %" PRIu64, rsi_pickle_place(p)) : RSD_OK;
    }
    rc = add_cells(p, OBJECT_CELLS, &at);
    if (rc)
        return rc;
    p->cell.at[at + OBJECT_CALLEE] = callee;
    p->cell.at[at + OBJECT_ARGS] = args;
    p->cell.at[at + OBJECT_STATE] = PV_GONE;
    p->cell.at[at + OBJECT_ITEMS] = PV_GONE;
    p->cell.at[at + OBJECT_AT] = (uint32_t)op_at(p) | (uint32_t)how << OBJECT_AT_BITS;
    *out = pv(TAG_OBJECT, at);
    *opens = class && class->fold & RSI_PICKLE_FOLD_BUILD;
    return RSD_OK;
}

rsd_err rsi_pickle_open(rsi_pickle *p, rsi_pv object)
{
    if (p->nopen == MAX_OPEN)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "objects nested more than %d deep", MAX_OPEN);
    p->open[p->nopen++] = (open_object){
        .cell = pv_payload(object), .oldest = UINT32_MAX, .depth = p->stack.n, .nmemo = p->memo.n
    };
    p->open_depth = p->stack.n;
    return RSD_OK;
}

void rsi_pickle_close(rsi_pickle *p)
{
    while (p->nopen && p->stack.n < p->open[p->nopen - 1].depth) {
        uint32_t oldest = p->open[--p->nopen].oldest;

        note_change(p, oldest);
    }
    p->open_depth = p->nopen ? p->open[p->nopen - 1].depth : 0;
}

/* Replaces an object by `with`. Unless `keep` is set, everything made since the object began is
 * removed. */
static rsd_err replace(rsi_pickle *p, rsi_pv object, rsi_pv with, bool keep)
{
    open_object *open = &p->open[p->nopen - 1];

    if (pv_tag(with) >= TAG_TUPLE && pv_payload(with) >= open->cell)
        return rsi_pickle_fail(p, RSD_E_BUG, "an object folds to a part of itself");
    for (size_t i = open->nmemo; i < p->memo.n; i++) {
        rsi_pv v = p->memo.at[i];

        if (v == object)
            p->memo.at[i] = with;
        else if (!keep && pv_tag(v) >= TAG_TUPLE && pv_payload(v) >= open->cell)
            p->memo.at[i] = PV_GONE;
    }
    if (!keep)
        p->cell.n = open->cell;
    p->nopen--;
    p->open_depth = p->nopen ? p->open[p->nopen - 1].depth : 0;
    return RSD_OK;
}

rsd_err rsi_pickle_build(rsi_pickle *p, size_t place, rsi_pv state, rsi_pv *out)
{
    rsi_pv             v = p->stack.at[place];
    uint32_t          *cell = p->cell.at + pv_payload(v);
    const open_object *open = p->nopen ? &p->open[p->nopen - 1] : NULL;
    const rsi_pickle_class *class;
    rsi_pickle_object object;
    rsd_err           rc;

    if (pv_tag(v) != TAG_OBJECT || cell[OBJECT_STATE] != PV_GONE)
        return rsi_pickle_fail(p, RSD_E_FORMAT,
                               "a state for something that is not an object or already has one");
    cell[OBJECT_STATE] = state;
    class = listed_class(p, cell[OBJECT_CALLEE]);
    *out = v;
    if (!class || !(class->fold & RSI_PICKLE_FOLD_BUILD)) {
        note_change(p, pv_payload(v));
        return RSD_OK;
    }
    /* Python writes an object and its state together. Only then can nothing else refer to the
     * removed cells. */
    if (!open || open->cell != pv_payload(v) || open->depth != place + 1 ||
        open->oldest < open->cell)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "an object of \"%s\" is used before it is complete",
                               class->name);
    object = (rsi_pickle_object){ .callee = cell[OBJECT_CALLEE],
                                  .args = cell[OBJECT_ARGS],
                                  .state = state,
                                  .items = cell[OBJECT_ITEMS],
                                  .at = object_at(cell),
                                  .how = object_how(cell),
                                  .id = class->id };
    rc = p->options.fold(p->options.arg, p, &object, out, p->err);
    if (rc)
        return rsi_while(p->err, rc, "byte %" PRIu64, rsi_pickle_place(p));
    return replace(p, v, *out, object.keep);
}
