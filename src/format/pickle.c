/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees the pickle reader, and holds the functions that look at values. pickle_op.c
 * does the reading. */
#include "format/pickle_core.h"

#define DEFAULT_INPUT  ((uint64_t)1 << 30)
#define DEFAULT_STACK  ((size_t)1 << 20)
#define DEFAULT_WINDOW ((size_t)256 << 10)
#define DEFAULT_TEXT   ((size_t)16 << 20)
#define FIXED_MEMORY   ((size_t)1 << 20)

/* ---- Reading ---- */

static rsd_err intern_classes(rsi_pickle *p)
{
    for (size_t i = 0; i < p->options.nclasses; i++) {
        p->class_name[2 * i] = rsi_pickle_intern(p, p->options.classes[i].module);
        p->class_name[2 * i + 1] = rsi_pickle_intern(p, p->options.classes[i].name);
        if (p->class_name[2 * i] == PV_GONE || p->class_name[2 * i + 1] == PV_GONE)
            return RSD_E_NOMEM;
    }
    return RSD_OK;
}

rsd_err rsi_pickle_create(const rsi_pickle_options *options, rsi_pickle **out, rsd_error *err)
{
    rsi_pickle *p = rsi_calloc(1, sizeof(*p));
    uint32_t    empty = 0;
    rsd_err     rc;

    if (!p)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a pickle reader");
    p->options = *options;
    p->limit = FIXED_MEMORY;
    if (p->options.max_input == 0)
        p->options.max_input = DEFAULT_INPUT;
    if (p->options.max_input > (uint64_t)1 << OBJECT_AT_BITS)
        p->options.max_input = (uint64_t)1 << OBJECT_AT_BITS;
    if (p->options.max_stack == 0)
        p->options.max_stack = DEFAULT_STACK;
    if (p->options.max_text == 0)
        p->options.max_text = DEFAULT_TEXT;
    if (p->options.window == 0)
        p->options.window = DEFAULT_WINDOW;
    p->class_name = rsi_calloc(options->nclasses, 2 * sizeof(p->class_name[0]));
    rc = p->class_name ? rsi_pickle_share(p, SHARED_INTS, "", 0, &empty) : RSD_E_NOMEM;
    p->shared_base = p->shared.n;
    p->text_base = p->shared.text_n;
    p->empty_tuple = pv(TAG_INTS, empty);
    if (!rc)
        rc = intern_classes(p);
    if (rc) {
        rsi_pickle_free(p);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a pickle reader");
    }
    *out = p;
    return RSD_OK;
}

void rsi_pickle_free(rsi_pickle *p)
{
    if (!p)
        return;
    rsi_free(p->class_name);
    rsi_free(p->cell.at);
    rsi_free(p->stack.at);
    rsi_free(p->memo.at);
    rsi_free(p->mark.at);
    rsi_free(p->window);
    rsi_free(p->shared.entry);
    rsi_free(p->shared.slot);
    rsi_free(p->shared.text);
    rsi_free(p);
}

rsi_pv rsi_pickle_intern(rsi_pickle *p, const char *text)
{
    uint32_t entry;

    p->err = NULL;
    if (rsi_pickle_share(p, SHARED_STR, text, strlen(text), &entry))
        return PV_GONE;
    p->shared_base = p->shared.n;
    p->text_base = p->shared.text_n;
    return pv(TAG_STR, entry);
}

/* Forgets the previous read. */
static rsd_err begin(rsi_pickle *p, const rsi_source *source, rsd_error *err)
{
    uint32_t zero;
    rsd_err  rc;

    p->err = err;
    p->source = source;
    p->size = source->size;
    p->cell.n = p->stack.n = p->memo.n = p->mark.n = 0;
    p->fence = p->nput = p->nopen = p->open_depth = 0;
    p->base = 0;
    p->begin = p->op = p->at = p->end = p->window;
    p->done = p->merged = p->named.seen = p->called.seen = false;
    rsi_pickle_share_reset(p);
    if (source->size > p->options.max_input)
        return rsi_fail(err, RSD_E_FORMAT, "a pickle of %" PRIu64 " bytes, the limit is %" PRIu64,
                        source->size, p->options.max_input);
    p->limit = rsi_pickle_limit(source->size);
    if (p->memory > p->limit / 2) { /* left over from a larger pickle */
        rsi_pickle_trim(p);
        p->limit += p->memory;
    }
    rc = add_cells(p, 1, &zero); /* 0 is not a valid cell */
    if (!rc && !p->stack.at)
        rc = rsi_pickle_more_stack(p); /* so that its top is never NULL */
    return rc;
}

rsd_err rsi_pickle_read(rsi_pickle *p, const rsi_source *source, rsi_pv *root, uint64_t *used,
                        rsd_error *err)
{
    rsd_err rc = begin(p, source, err);

    if (!rc)
        rc = rsi_pickle_run(p);
    if (!rc) {
        *root = p->stack.at[0];
        if (used)
            *used = p->base + (uint64_t)(p->at - p->begin);
    }
    p->err = NULL;
    p->source = NULL;
    return rc;
}

void rsi_pickle_trim(rsi_pickle *p)
{
    words *const list[] = { &p->stack, &p->memo, &p->mark };

    for (int i = 0; i < 3; i++) {
        rsi_free(list[i]->at);
        p->memory -= list[i]->cap * sizeof(list[i]->at[0]);
        *list[i] = (words){ 0 };
    }
    p->room = 0;
    rsi_free(p->window);
    p->memory -= p->window_cap;
    p->window = NULL;
    p->window_cap = 0;
}

size_t rsi_pickle_memory(const rsi_pickle *p)
{
    return p->memory;
}

uint64_t rsi_pickle_size(const rsi_pickle *p)
{
    return p->size;
}

bool rsi_pickle_is_exact(const rsi_pickle *p)
{
    return !p->merged;
}

static rsi_pickle_unlisted unlisted(const rsi_pickle *p, rsi_pv class, uint64_t at)
{
    class_ref ref = rsi_pickle_class_ref(p, class);

    return (rsi_pickle_unlisted){ .module = rsi_pickle_text(p, ref.module),
                                  .name = rsi_pickle_text(p, ref.name),
                                  .at = at };
}

bool rsi_pickle_calls_unlisted(const rsi_pickle *p, rsi_pickle_unlisted *out)
{
    if (p->called.seen)
        *out = unlisted(p, p->called.class, p->called.at);
    return p->called.seen;
}

bool rsi_pickle_names_unlisted(const rsi_pickle *p, rsi_pickle_unlisted *out)
{
    if (p->named.seen)
        *out = unlisted(p, p->named.class, p->named.at);
    return p->named.seen;
}

/* ---- Values ---- */

rsi_pickle_kind rsi_pickle_kind_of(const rsi_pickle *p, rsi_pv v)
{
    static const rsi_pickle_kind of_const[] = { RSI_PICKLE_NONE, RSI_PICKLE_FALSE, RSI_PICKLE_TRUE,
                                                RSI_PICKLE_GONE };
    static const rsi_pickle_kind of_box[] = { RSI_PICKLE_INT, RSI_PICKLE_FLOAT, RSI_PICKLE_BIGINT,
                                              RSI_PICKLE_PERSID };
    static const rsi_pickle_kind of_tag[] = {
        [TAG_INT] = RSI_PICKLE_INT,       [TAG_STR] = RSI_PICKLE_STR,
        [TAG_BYTES] = RSI_PICKLE_BYTES,   [TAG_INTS] = RSI_PICKLE_INTS,
        [TAG_USER] = RSI_PICKLE_USER,     [TAG_TUPLE] = RSI_PICKLE_TUPLE,
        [TAG_LIST] = RSI_PICKLE_LIST,     [TAG_DICT] = RSI_PICKLE_DICT,
        [TAG_SET] = RSI_PICKLE_SET,       [TAG_CLASS] = RSI_PICKLE_CLASS,
        [TAG_OBJECT] = RSI_PICKLE_OBJECT,
    };

    if (pv_tag(v) == TAG_CONST)
        return of_const[pv_payload(v)];
    return pv_tag(v) == TAG_BOX ? of_box[p->cell.at[pv_payload(v)]] : of_tag[pv_tag(v)];
}

rsi_pv rsi_pickle_none(void)
{
    return PV_NONE;
}

bool rsi_pickle_int(const rsi_pickle *p, rsi_pv v, int64_t *out)
{
    if (pv_tag(v) == TAG_INT) {
        *out = (int64_t)pv_payload(v) - INT_BIAS;
        return true;
    }
    if (pv_tag(v) != TAG_BOX || p->cell.at[pv_payload(v)] != BOX_INT64)
        return false;
    memcpy(out, p->cell.at + pv_payload(v) + 1, sizeof(*out));
    return true;
}

double rsi_pickle_float(const rsi_pickle *p, rsi_pv v)
{
    double x = 0;

    if (rsi_pickle_kind_of(p, v) == RSI_PICKLE_FLOAT)
        memcpy(&x, p->cell.at + pv_payload(v) + 1, sizeof(x));
    return x;
}

const char *rsi_pickle_bytes(const rsi_pickle *p, rsi_pv v, size_t *len)
{
    const shared *e;

    if (rsi_pickle_kind_of(p, v) == RSI_PICKLE_BIGINT)
        v = p->cell.at[pv_payload(v) + 1];
    if (pv_tag(v) != TAG_STR && pv_tag(v) != TAG_BYTES)
        return NULL;
    e = &p->shared.entry[pv_payload(v)];
    *len = e->len_kind >> 2;
    return p->shared.text + e->off;
}

const char *rsi_pickle_text(const rsi_pickle *p, rsi_pv v)
{
    size_t      len;
    const char *text = rsi_pickle_bytes(p, v, &len);

    return text ? text : "?";
}

rsi_pv rsi_pickle_persid(const rsi_pickle *p, rsi_pv v)
{
    return rsi_pickle_kind_of(p, v) == RSI_PICKLE_PERSID ? p->cell.at[pv_payload(v) + 1] : PV_GONE;
}

int rsi_pickle_ints(const rsi_pickle *p, rsi_pv v, int64_t *out, int cap)
{
    const shared *e;
    int           n;

    if (pv_tag(v) != TAG_INTS)
        return -1;
    e = &p->shared.entry[pv_payload(v)];
    n = (int)((e->len_kind >> 2) / sizeof(*out));
    if (n > 0 && cap > 0)
        memcpy(out, p->shared.text + e->off, (size_t)(n < cap ? n : cap) * sizeof(*out));
    return n;
}

uint32_t rsi_pickle_nshared(const rsi_pickle *p)
{
    return (uint32_t)p->shared.n;
}

int rsi_pickle_class_of(const rsi_pickle *p, rsi_pv v, const char **module, const char **name)
{
    class_ref ref = rsi_pickle_class_ref(p, v);

    *module = rsi_pickle_text(p, ref.module);
    *name = rsi_pickle_text(p, ref.name);
    return ref.place == NO_CLASS ? -1 : p->options.classes[ref.place].id;
}

rsi_pickle_object rsi_pickle_object_of(const rsi_pickle *p, rsi_pv v)
{
    rsi_pickle_object object = {
        .callee = PV_GONE, .args = PV_GONE, .state = PV_GONE, .items = PV_GONE, .id = -1
    };
    const uint32_t *cell = p->cell.at + pv_payload(v);
    const rsi_pickle_class *class;

    if (pv_tag(v) != TAG_OBJECT)
        return object;
    object.callee = cell[OBJECT_CALLEE];
    object.args = cell[OBJECT_ARGS];
    object.state = cell[OBJECT_STATE];
    object.items = cell[OBJECT_ITEMS];
    object.at = object_at(cell);
    object.how = object_how(cell);
    class = listed_class(p, object.callee);
    if (class)
        object.id = class->id;
    return object;
}

rsi_pickle_iter rsi_pickle_each(const rsi_pickle *p, rsi_pv v)
{
    rsi_pickle_iter it = { 0 };
    uint32_t        at = pv_payload(v);

    if (pv_tag(v) == TAG_TUPLE) {
        it.at = at + 1;
        it.left = p->cell.at[at];
    } else if (pv_tag(v) == TAG_LIST || pv_tag(v) == TAG_DICT || pv_tag(v) == TAG_SET) {
        it.last = p->cell.at[at];
        it.next = it.last ? p->cell.at[it.last + 1] : 0;
    }
    return it;
}

bool rsi_pickle_next(const rsi_pickle *p, rsi_pickle_iter *it, rsi_pv *out)
{
    if (it->left == 0) {
        if (it->next == 0)
            return false;
        it->left = p->cell.at[it->next];
        it->at = it->next + 2;
        it->next = it->next == it->last ? 0 : p->cell.at[it->next + 1];
    }
    *out = p->cell.at[it->at++];
    it->left--;
    return true;
}

size_t rsi_pickle_count(const rsi_pickle *p, rsi_pv v)
{
    rsi_pickle_iter it = rsi_pickle_each(p, v);
    size_t          n = it.left;

    for (uint32_t at = it.next; at; at = at == it.last ? 0 : p->cell.at[at + 1])
        n += p->cell.at[at];
    return n;
}

size_t rsi_pickle_items(const rsi_pickle *p, rsi_pv v, rsi_pv *out, size_t cap)
{
    const uint32_t *tuple = pv_tag(v) == TAG_TUPLE ? p->cell.at + pv_payload(v) : NULL;
    rsi_pickle_iter it;

    if (tuple) {
        for (size_t i = 0; i < cap && i < tuple[0]; i++)
            out[i] = tuple[1 + i];
        return tuple[0];
    }
    it = rsi_pickle_each(p, v);
    for (size_t i = 0; i < cap && rsi_pickle_next(p, &it, &out[i]); i++)
        ;
    return rsi_pickle_count(p, v);
}

bool rsi_pickle_lookup(const rsi_pickle *p, rsi_pv dict, int n, const rsi_pv *key, rsi_pv *value,
                       size_t *others)
{
    const uint32_t *cell = p->cell.at;
    uint32_t        last, at;
    int             i = 0;

    *others = 0;
    if (pv_tag(dict) != TAG_DICT)
        return false;
    last = cell[pv_payload(dict)];
    for (at = last; at;) { /* segments have whole pairs; the one after the last is the first */
        const rsi_pv *pair, *end;

        at = cell[at + 1];
        pair = cell + at + 2;
        for (end = pair + cell[at]; pair < end; pair += 2) {
            /* Most often they come in the order of `key`. */
            if (i == n || key[i] != pair[0])
                for (i = 0; i < n && key[i] != pair[0]; i++)
                    ;
            if (i == n)
                ++*others;
            else
                value[i++] = pair[1];
        }
        if (at == last)
            break;
    }
    return true;
}
