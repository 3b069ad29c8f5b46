/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what a pickle says about an object of an unknown class as opcodes again, so that a copy
 * can hold the object without anyone running it: the same classes, arguments, states and items.
 * Parts that occur several times stay one part. Objects with storages have no such form: their
 * bytes lie outside the pickle. Next: value_pickle.c, which writes them between other values. */
#include "base/map.h"
#include "base/mem.h"
#include "format/tensor_pickle.h"
#include "format/value_core.h"

enum { MOST_LEVELS = 64 };

/* A container or object that was begun. */
typedef struct met {
    rsi_pv   v;
    uint32_t memo; /* its place + 1; 0: it is not complete, so nothing can refer to it yet */
} met;

typedef struct writer {
    const rsi_pickle *p;
    rsi_bytes        *out;
    size_t            most; /* bytes */
    rsi_map           places;
    rsi_arena         mem; /* of the met ones */
    uint32_t          nmemo;
    int               level;
    bool              failed; /* too large, or without such a form */
} writer;

/* ---- bytes ---- */

static void put(writer *w, const void *bytes, size_t len)
{
    w->failed = w->failed || w->out->len + len > w->most || !rsi_bytes_add(w->out, bytes, len);
}

static void put_byte(writer *w, int byte)
{
    unsigned char b = (unsigned char)byte;

    put(w, &b, 1);
}

/* An opcode with a number of 4 bytes. */
static void put_code(writer *w, int code, uint64_t number)
{
    unsigned char le[5] = { (unsigned char)code };

    for (int i = 0; i < 4; i++)
        le[i + 1] = (unsigned char)(number >> 8 * i);
    w->failed = w->failed || number > UINT32_MAX;
    put(w, le, sizeof(le));
}

/* ---- scalars ---- */

static void put_int(writer *w, int64_t x)
{
    unsigned char code[RSI_PICKLE_INT_MAX];

    put(w, code, rsi_pickle_put_int(code, x));
}

static void put_float(writer *w, double x)
{
    unsigned char be[9] = { 'G' };
    uint64_t      bits;

    memcpy(&bits, &x, sizeof(bits));
    for (int i = 0; i < 8; i++)
        be[i + 1] = (unsigned char)(bits >> 8 * (7 - i));
    put(w, be, sizeof(be));
}

static void put_ints(writer *w, rsi_pv v)
{
    int64_t x[32];
    int     n = rsi_pickle_ints(w->p, v, x, 32);

    put_byte(w, '(');
    for (int i = 0; i < n; i++)
        put_int(w, x[i]);
    put_byte(w, 't');
}

static void put_class(writer *w, rsi_pv v)
{
    const char *module, *name;

    rsi_pickle_class_of(w->p, v, &module, &name);
    w->failed = w->failed || strchr(module, '\n') || strchr(name, '\n');
    put_byte(w, 'c');
    put(w, module, strlen(module));
    put_byte(w, '\n');
    put(w, name, strlen(name));
    put_byte(w, '\n');
}

static void put_scalar(writer *w, rsi_pv v)
{
    size_t      len = 0;
    const char *bytes = rsi_pickle_bytes(w->p, v, &len);
    int64_t     x = 0;

    switch (rsi_pickle_kind_of(w->p, v)) {
    case RSI_PICKLE_NONE:
        put_byte(w, 'N');
        break;
    case RSI_PICKLE_FALSE:
        put_byte(w, 0x89);
        break;
    case RSI_PICKLE_TRUE:
        put_byte(w, 0x88);
        break;
    case RSI_PICKLE_INT:
        rsi_pickle_int(w->p, v, &x);
        put_int(w, x);
        break;
    case RSI_PICKLE_FLOAT:
        put_float(w, rsi_pickle_float(w->p, v));
        break;
    case RSI_PICKLE_INTS:
        put_ints(w, v);
        break;
    case RSI_PICKLE_CLASS:
        put_class(w, v);
        break;
    case RSI_PICKLE_BIGINT:
        put_code(w, 0x8b, len);
        put(w, bytes, len);
        break;
    case RSI_PICKLE_STR:
    case RSI_PICKLE_BYTES:
        put_code(w, rsi_pickle_kind_of(w->p, v) == RSI_PICKLE_STR ? 'X' : 'B', len);
        put(w, bytes, len);
        break;
    default: /* a storage */
        w->failed = true;
    }
}

/* ---- parts that may recur ---- */

static void put_any(writer *w, rsi_pv v);

/* NULL: it was written before, and is now referred to, or no memory. */
static met *begin(writer *w, rsi_pv v)
{
    met     *m = rsi_arena_array(&w->mem, 1, sizeof(*m));
    uint64_t at = (uintptr_t)m;
    bool     was = false;

    if (m)
        m->v = v;
    w->failed = w->failed || !m || !rsi_map_add(&w->places, &m->v, sizeof(m->v), &at, &was);
    if (w->failed || !was)
        return w->failed ? NULL : m;
    m = (met *)(uintptr_t)at;
    w->failed = m->memo == 0; /* a tuple or a call that contains itself */
    put_code(w, 'j', m->memo - 1);
    return NULL;
}

static void memoize(writer *w, met *m)
{
    m->memo = ++w->nmemo;
    put_code(w, 'r', m->memo - 1);
}

/* `end` adds all of them to the container below the mark. */
static void put_items(writer *w, rsi_pv v, int end)
{
    rsi_pickle_iter it = rsi_pickle_each(w->p, v);
    rsi_pv          item;

    if (rsi_pickle_count(w->p, v) == 0 && end != 't')
        return;
    put_byte(w, '(');
    while (!w->failed && rsi_pickle_next(w->p, &it, &item))
        put_any(w, item);
    put_byte(w, end);
}

static int adds(rsi_pickle_kind kind)
{
    return kind == RSI_PICKLE_LIST ? 'e' : kind == RSI_PICKLE_DICT ? 'u' : 0x90;
}

static void put_container(writer *w, rsi_pv v)
{
    rsi_pickle_kind kind = rsi_pickle_kind_of(w->p, v);
    met            *m = begin(w, v);

    if (!m)
        return;
    if (kind == RSI_PICKLE_TUPLE) {
        put_items(w, v, 't');
        memoize(w, m);
        return;
    }
    put_byte(w, kind == RSI_PICKLE_LIST ? ']' : kind == RSI_PICKLE_DICT ? '}' : 0x8f);
    memoize(w, m);
    put_items(w, v, adds(kind));
}

static void put_object(writer *w, rsi_pv v)
{
    const rsi_pickle_object object = rsi_pickle_object_of(w->p, v);
    rsi_pv                  arg[2];
    met                    *m = begin(w, v);

    if (!m)
        return;
    put_any(w, object.callee);
    if (object.how != RSI_PICKLE_NEWOBJ_EX) {
        put_any(w, object.args);
        put_byte(w, object.how == RSI_PICKLE_NEWOBJ ? 0x81 : 'R');
    } else if (rsi_pickle_items(w->p, object.args, arg, 2) == 2) {
        put_any(w, arg[0]);
        put_any(w, arg[1]);
        put_byte(w, 0x92);
    } else {
        w->failed = true;
    }
    memoize(w, m);
    if (rsi_pickle_kind_of(w->p, object.items) != RSI_PICKLE_GONE)
        put_items(w, object.items, adds(rsi_pickle_kind_of(w->p, object.items)));
    if (rsi_pickle_kind_of(w->p, object.state) != RSI_PICKLE_GONE) {
        put_any(w, object.state);
        put_byte(w, 'b');
    }
}

static void put_any(writer *w, rsi_pv v)
{
    if (w->failed || w->level == MOST_LEVELS) {
        w->failed = true;
        return;
    }
    w->level++;
    switch (rsi_pickle_kind_of(w->p, v)) {
    case RSI_PICKLE_TUPLE:
    case RSI_PICKLE_LIST:
    case RSI_PICKLE_DICT:
    case RSI_PICKLE_SET:
        put_container(w, v);
        break;
    case RSI_PICKLE_OBJECT:
        put_object(w, v);
        break;
    default:
        put_scalar(w, v);
    }
    w->level--;
}

bool rsi_value_foreign(const rsi_pickle *p, rsi_pv v, size_t most, rsi_bytes *out)
{
    writer w = { .p = p, .out = out, .most = most, .failed = !rsi_pickle_is_exact(p) };

    put_any(&w, v);
    rsi_map_release(&w.places);
    rsi_arena_release(&w.mem);
    return !w.failed;
}
