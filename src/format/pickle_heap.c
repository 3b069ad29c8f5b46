/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pickle reader: growing arrays under one limit, the table of text kept once, cells,
 * and the window on the input. Written by hand because a hostile pickle must not cost more than 16
 * bytes of memory per byte. The opcodes are in pickle_op.c. */
#include "base/map.h"
#include "base/text.h"
#include "format/pickle_core.h"

#include <stdarg.h>

enum { FIRST_CAP = 64 };

rsd_err rsi_pickle_fail(const rsi_pickle *p, rsd_err code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    rsi_vfail(p->err, code, fmt, args);
    va_end(args);
    return rsi_while(p->err, code, "byte %" PRIu64, rsi_pickle_place(p));
}

rsd_err rsi_pickle_reserve(rsi_pickle *p, void **array, size_t *cap, size_t need, size_t size)
{
    size_t want = *cap + *cap / 2 + FIRST_CAP, room;
    void  *more;

    if (want < need)
        want = need;
    room = p->memory < p->limit ? (p->limit - p->memory) / size : 0;
    if (want - *cap > room)
        want = *cap + room;
    if (want < need)
        return rsi_pickle_fail(p, RSD_E_FORMAT,
                               "the values of this pickle take more than %zu bytes of "
                               "memory, which is the limit for %" PRIu64 " bytes",
                               p->limit, p->source ? p->source->size : 0);
    more = rsi_realloc(*array, want, size);
    if (!more)
        return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the values of a pickle");
    p->memory += (want - *cap) * size;
    *array = more;
    *cap = want;
    return RSD_OK;
}

rsd_err rsi_pickle_more_words(rsi_pickle *p, words *w, size_t need)
{
    void   *array = w->at;
    rsd_err rc = rsi_pickle_reserve(p, &array, &w->cap, need, sizeof(w->at[0]));

    w->at = array;
    return rc;
}

rsd_err rsi_pickle_more_stack(rsi_pickle *p)
{
    rsd_err rc;

    if (p->stack.n >= p->options.max_stack)
        return rsi_pickle_fail(p, RSD_E_FORMAT, "more than %zu values on the stack",
                               p->options.max_stack);
    rc = p->stack.n < p->stack.cap ? RSD_OK : rsi_pickle_more_words(p, &p->stack, p->stack.n + 1);
    p->room = p->stack.cap < p->options.max_stack ? p->stack.cap : p->options.max_stack;
    return rc;
}

/* ---- Text that is kept once ---- */

/* Puts all entries into the slots, which are all free. */
static void fill_slots(intern *t)
{
    for (uint32_t e = 0; e < t->n; e++) {
        size_t i = t->entry[e].hash & (t->nslots - 1);

        while (t->slot[i])
            i = (i + 1) & (t->nslots - 1);
        t->slot[i] = e + 1;
    }
}

static rsd_err more_slots(rsi_pickle *p, intern *t)
{
    size_t    n = t->nslots ? 2 * t->nslots : 256;
    uint32_t *slot;

    if (p->memory > p->limit || (n - t->nslots) * sizeof(slot[0]) > p->limit - p->memory)
        return rsi_pickle_fail(
            p, RSD_E_FORMAT,
            "the names of this pickle take more memory than the limit of %zu bytes", p->limit);
    slot = rsi_calloc(n, sizeof(slot[0]));
    if (!slot)
        return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the names of a pickle");
    rsi_free(t->slot);
    p->memory += (n - t->nslots) * sizeof(slot[0]);
    t->slot = slot;
    t->nslots = n;
    fill_slots(t);
    return RSD_OK;
}

static rsd_err add_shared(rsi_pickle *p, uint32_t len_kind, uint32_t hash, const void *bytes,
                          size_t len)
{
    intern *t = &p->shared;
    void   *array = t->entry;
    rsd_err rc = RSD_OK;

    if ((len_kind & 3) == SHARED_STR && !rsi_is_utf8(bytes, len))
        return rsi_pickle_fail(p, RSD_E_FORMAT, "a str of %zu bytes is not UTF-8", len);
    if (t->n == PAYLOAD_MAX || len + 1 > UINT32_MAX - t->text_n)
        return rsi_pickle_fail(p, RSD_E_UNSUPPORTED, "too much text in a pickle");
    if (t->n == t->cap)
        rc = rsi_pickle_reserve(p, &array, &t->cap, t->n + 1, sizeof(t->entry[0]));
    t->entry = array;
    array = t->text;
    if (!rc && t->text_cap - t->text_n < len + 1)
        rc = rsi_pickle_reserve(p, &array, &t->text_cap, t->text_n + len + 1, 1);
    t->text = array;
    if (rc)
        return rc;
    t->entry[t->n++] = (shared){ .off = (uint32_t)t->text_n, .len_kind = len_kind, .hash = hash };
    memcpy(t->text + t->text_n, bytes, len);
    t->text[t->text_n + len] = '\0';
    t->text_n += len + 1;
    return RSD_OK;
}

/* Integers were stored just now, so they are read in the same pieces: processors wait for others.
 */
static bool is_same(const char *a, const char *b, size_t len, int kind)
{
    uint64_t x, y;

    if (kind != SHARED_INTS)
        return memcmp(a, b, len) == 0;
    for (size_t i = 0; i < len; i += sizeof(x)) {
        memcpy(&x, a + i, sizeof(x));
        memcpy(&y, b + i, sizeof(y));
        if (x != y)
            return false;
    }
    return true;
}

rsd_err rsi_pickle_share(rsi_pickle *p, int kind, const void *bytes, size_t len, uint32_t *out)
{
    intern  *t = &p->shared;
    uint32_t len_kind = (uint32_t)len << 2 | (uint32_t)kind;
    uint32_t hash = (uint32_t)rsi_hash(bytes, len) + (uint32_t)kind;
    size_t   i;
    rsd_err  rc = RSD_OK;

    if (len > UINT32_MAX >> 2)
        return rsi_pickle_fail(p, RSD_E_UNSUPPORTED, "a text of %zu bytes is too long", len);
    if (t->n >= t->nslots / 3 * 2)
        rc = more_slots(p, t);
    if (rc)
        return rc;
    for (i = hash & (t->nslots - 1); t->slot[i]; i = (i + 1) & (t->nslots - 1)) {
        const shared *e = &t->entry[t->slot[i] - 1];

        if (e->hash == hash && e->len_kind == len_kind &&
            is_same(t->text + e->off, bytes, len, kind)) {
            *out = t->slot[i] - 1;
            return RSD_OK;
        }
    }
    rc = add_shared(p, len_kind, hash, bytes, len);
    if (rc)
        return rc;
    t->slot[i] = (uint32_t)t->n;
    *out = (uint32_t)t->n - 1;
    return RSD_OK;
}

void rsi_pickle_share_reset(rsi_pickle *p)
{
    intern *t = &p->shared;

    if (t->n == p->shared_base)
        return;
    t->n = p->shared_base;
    t->text_n = p->text_base;
    memset(t->slot, 0, t->nslots * sizeof(t->slot[0]));
    fill_slots(t);
}

/* ---- Cells ---- */

rsd_err rsi_pickle_more_cells(rsi_pickle *p, size_t n)
{
    if (n > PAYLOAD_MAX - p->cell.n)
        return rsi_pickle_fail(p, RSD_E_UNSUPPORTED, "too many values in a pickle");
    return rsi_pickle_more_words(p, &p->cell, p->cell.n + n);
}

rsd_err rsi_pickle_extend(rsi_pickle *p, rsi_pv container, const rsi_pv *v, size_t n)
{
    uint32_t head = pv_payload(container), last = p->cell.at[head], at;
    bool     grows = last && last + 2 + p->cell.at[last] == p->cell.n;
    rsd_err  rc;

    if (n == 0)
        return RSD_OK;
    rc = add_cells(p, grows ? n : n + 2, &at);
    if (rc)
        return rc;
    note_change(p, head);
    if (grows) {
        p->cell.at[last] += (uint32_t)n;
    } else {
        p->cell.at[at] = (uint32_t)n;
        p->cell.at[at + 1] = last ? p->cell.at[last + 1] : at;
        if (last)
            p->cell.at[last + 1] = at;
        p->cell.at[head] = at;
        at += 2;
    }
    for (size_t i = 0; i < n; i++) /* most often a few */
        p->cell.at[at + i] = v[i];
    return RSD_OK;
}

/* ---- Input ---- */

rsd_err rsi_pickle_refill(rsi_pickle *p, size_t n)
{
    size_t   shift = (size_t)(p->op - p->begin), taken = (size_t)(p->at - p->op);
    size_t   kept = (size_t)(p->end - p->op), want = p->options.window;
    uint64_t pos = p->base + shift, behind = p->source->size - pos - taken;
    void    *array = p->window;
    rsd_err  rc = RSD_OK;

    if (behind < n)
        return rsi_pickle_fail(
            p, RSD_E_FORMAT, "the opcode needs %zu more bytes, the pickle has %" PRIu64, n, behind);
    if (want < taken + n)
        want = taken + n;
    if (want > taken + behind)
        want = (size_t)(taken + behind);
    if (want > p->window_cap)
        rc = rsi_pickle_reserve(p, &array, &p->window_cap, want, 1);
    if (rc)
        return rc;
    p->window = array;
    memmove(p->window, p->window + shift, kept);
    p->base = pos;
    p->begin = p->op = p->window;
    p->at = p->window + taken;
    p->end = p->window + want;
    return rsi_source_read(p->source, pos + kept, p->window + kept, want - kept, p->err);
}
