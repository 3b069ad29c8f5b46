/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text, the way Python prints them, and as JSON. Walks with its own stack; value.c limits
 * how deep values may nest. Objects of unknown classes are printed with what their pickle says
 * plainly (value_parts.c), within a budget: printed, shared parts may take exponential space. */
#include "base/text.h"
#include "format/value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_RUN = 1 << 20,    /* bytes printed at once */
    MOST_LEVELS = 8,       /* objects printed inside each other with their parts */
    MOST_TEXT = 16 << 20,  /* bytes printed after which no object is printed with its parts */
    MOST_PARTS = 32 << 20, /* bytes of opcodes looked into, of which every object costs some: */
    PARTS_COST = 4 << 10
};

/* A container being printed. */
typedef struct frame {
    const rsd_value *v;
    size_t           i;      /* next item */
    bool             object; /* JSON: a dict whose keys are all text */
} frame;

/* How one of the two forms is written. */
typedef struct style {
    void (*scalar)(rsi_text *out, const rsd_value *v);
    void (*open)(rsi_text *out, frame *f);
    void (*between)(rsi_text *out, const frame *f); /* before item i */
    void (*close)(rsi_text *out, const frame *f);
    bool json;
} style;

typedef struct printing {
    const style *form;
    rsi_text     out;
    size_t       left; /* of MOST_PARTS */
    int          level;
} printing;

/* ---- Shared parts ---- */

/* The fewest digits that read back the same, always recognizable as a float. Starting below 15
 * digits matters only for the tiniest numbers: %g drops trailing zeros by itself. */
static void float_text(rsi_text *out, double x)
{
    char buf[40];

    for (int digits = fabs(x) < 1e-300 ? 1 : 15; digits <= 17; digits++) {
        snprintf(buf, sizeof(buf), "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    for (char *c = buf; *c; c++)
        if (*c == ',')
            *c = '.'; /* decimal comma of some locales */
    rsi_text_add(out, "%s%s", buf, strpbrk(buf, ".eni") ? "" : ".0");
}

/* The letter after the backslash for characters that have one in both forms; 0: none. */
static char escape(unsigned char c)
{
    switch (c) {
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    case '\\':
        return '\\';
    default:
        return 0;
    }
}

/* Bytes from the start that need no escape. */
static size_t plain_run(const char *text, size_t len, char quote)
{
    size_t   at = 0, n;
    uint32_t code;

    while (at < len && at < MOST_RUN) {
        if (text[at] >= 0x20 && text[at] < 0x7f && text[at] != quote && text[at] != '\\') {
            at++;
            continue;
        }
        n = rsi_utf8(text + at, len - at, &code);
        if (n == 0 || code == (uint32_t)quote || code == '\\' || rsi_is_hidden(code))
            break;
        at += n;
    }
    return at;
}

/* Writes the escape for the character that ended a plain run; returns the character's bytes. */
static size_t put_escape(rsi_text *out, const char *text, size_t len, char quote, bool json)
{
    uint32_t code = 0, half = rsi_surrogate(text, len);
    size_t   n = rsi_utf8(text, len, &code);
    char     letter = code < 0x80 ? escape((unsigned char)code) : 0;

    if (half)
        rsi_text_add(out, "\\u%04x", half);
    else if (n == 0)
        rsi_text_add(out, json ? "\\ufffd" : "\\x%02x", (unsigned char)text[0]);
    else if (letter || code == (uint32_t)quote)
        rsi_text_add(out, "\\%c", letter ? letter : quote);
    else if (code > 0xffff && json)
        rsi_text_add(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
    else if (code > 0xffff)
        rsi_text_add(out, "\\U%08x", code);
    else
        rsi_text_add(out, json || code > 0xff ? "\\u%04x" : "\\x%02x", code);
    return half ? 3 : n ? n : 1;
}

/* Text that can stand between such quotes. */
static void escaped(rsi_text *out, const char *text, size_t len, char quote, bool json)
{
    for (size_t i = 0; i < len;) {
        size_t n = plain_run(text + i, len - i, quote);

        if (n)
            rsi_text_add(out, "%.*s", (int)n, text + i);
        else
            n = put_escape(out, text + i, len - i, quote, json);
        i += n;
    }
}

static void quoted(rsi_text *out, const char *text, size_t len, char quote, bool json)
{
    rsi_text_add(out, "%c", quote);
    escaped(out, text, len, quote, json);
    rsi_text_add(out, "%c", quote);
}

static void shape_text(rsi_text *out, const rsd_value_tensor *t)
{
    rsi_text_add(out, "[");
    for (int d = 0; d < t->ndim; d++)
        rsi_text_add(out, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    rsi_text_add(out, "]");
}

/* ---- Python ---- */

static char python_quote(const char *text, size_t len)
{
    return memchr(text, '\'', len) && !memchr(text, '"', len) ? '"' : '\'';
}

static void python_bytes(rsi_text *out, const char *bytes, size_t len)
{
    char quote = python_quote(bytes, len);

    rsi_text_add(out, "b%c", quote);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c == (unsigned char)quote || escape(c))
            rsi_text_add(out, "\\%c", escape(c) ? escape(c) : quote);
        else
            rsi_text_add(out, c < 0x20 || c > 0x7e ? "\\x%02x" : "%c", c);
    }
    rsi_text_add(out, "%c", quote);
}

static void python_scalar(rsi_text *out, const rsd_value *v)
{
    switch ((rsd_value_type)v->kind) {
    case RSD_VALUE_NONE:
        rsi_text_add(out, "None");
        break;
    case RSD_VALUE_BOOL:
        rsi_text_add(out, v->as.i ? "True" : "False");
        break;
    case RSD_VALUE_INT:
        rsi_text_add(out, "%lld", (long long)v->as.i);
        break;
    case RSD_VALUE_FLOAT:
        float_text(out, v->as.f);
        break;
    case RSD_VALUE_BIGINT:
        rsi_text_add(out, "%s", v->as.bytes);
        break;
    case RSD_VALUE_STR:
        quoted(out, v->as.bytes, v->n, python_quote(v->as.bytes, v->n), false);
        break;
    case RSD_VALUE_BYTES:
        python_bytes(out, v->as.bytes, v->n);
        break;
    case RSD_VALUE_DTYPE:
        rsi_text_add(out, "torch.%s", rsd_dtype_name((rsd_dtype)v->as.i));
        break;
    case RSD_VALUE_DEVICE:
        rsi_text_add(out, "device(");
        quoted(out, v->as.bytes, v->n, '\'', false);
        rsi_text_add(out, ")");
        break;
    case RSD_VALUE_TENSOR:
        rsi_text_add(out, "tensor(dtype=%s, shape=", rsd_dtype_name(v->as.tensor->dtype));
        shape_text(out, v->as.tensor);
        rsi_text_add(out, ")");
        break;
    default:
        rsi_text_add(out, "<");
        escaped(out, v->as.bytes, v->n, '"', false);
        rsi_text_add(out, ">");
    }
}

static void python_open(rsi_text *out, frame *f)
{
    const rsd_value *v = f->v;

    if (v->kind == RSD_VALUE_SET && v->n == 0)
        rsi_text_add(out, "set(");
    else
        rsi_text_add(out, v->kind == RSD_VALUE_LIST ? "[" : v->kind == RSD_VALUE_TUPLE ? "(" : "{");
}

static void python_between(rsi_text *out, const frame *f)
{
    if (f->v->kind == RSD_VALUE_DICT && f->i % 2)
        rsi_text_add(out, ": ");
    else if (f->i)
        rsi_text_add(out, ", ");
}

static void python_close(rsi_text *out, const frame *f)
{
    const rsd_value *v = f->v;

    if (v->kind == RSD_VALUE_TUPLE)
        rsi_text_add(out, v->n == 1 ? ",)" : ")");
    else if (v->kind == RSD_VALUE_SET && v->n == 0)
        rsi_text_add(out, ")");
    else
        rsi_text_add(out, v->kind == RSD_VALUE_LIST ? "]" : "}");
}

/* "key=", with quotes if it is no Python name. */
static void python_field(rsi_text *out, const rsd_value *key)
{
    const char *text = key->as.bytes;
    bool        plain = key->n > 0;

    for (size_t i = 0; i < key->n; i++)
        plain = plain && (isalnum((unsigned char)text[i]) || text[i] == '_');
    if (plain)
        rsi_text_add(out, "%s=", text);
    else
        quoted(out, text, key->n, python_quote(text, key->n), false);
    rsi_text_add(out, plain ? "" : "=");
}

/* ---- JSON ---- */

static void json_named(rsi_text *out, const char *key, const char *text, size_t len)
{
    rsi_text_add(out, "{\"%s\": ", key);
    quoted(out, text, len, '"', true);
    rsi_text_add(out, "}");
}

static void json_float(rsi_text *out, double x)
{
    const char *name = isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";

    if (isfinite(x))
        float_text(out, x);
    else
        json_named(out, "$float", name, strlen(name));
}

static void json_scalar(rsi_text *out, const rsd_value *v)
{
    const char *dtype;

    switch ((rsd_value_type)v->kind) {
    case RSD_VALUE_NONE:
        rsi_text_add(out, "null");
        break;
    case RSD_VALUE_BOOL:
        rsi_text_add(out, v->as.i ? "true" : "false");
        break;
    case RSD_VALUE_FLOAT:
        json_float(out, v->as.f);
        break;
    case RSD_VALUE_STR:
        quoted(out, v->as.bytes, v->n, '"', true);
        break;
    case RSD_VALUE_BYTES:
        rsi_text_add(out, "{\"$bytes\": \"");
        for (size_t i = 0; i < v->n; i++)
            rsi_text_add(out, "%02x", (unsigned char)v->as.bytes[i]);
        rsi_text_add(out, "\"}");
        break;
    case RSD_VALUE_DTYPE:
        dtype = rsd_dtype_name((rsd_dtype)v->as.i);
        json_named(out, "$dtype", dtype, strlen(dtype));
        break;
    case RSD_VALUE_DEVICE:
    case RSD_VALUE_OPAQUE:
        json_named(out, v->kind == RSD_VALUE_DEVICE ? "$device" : "$opaque", v->as.bytes, v->n);
        break;
    case RSD_VALUE_TENSOR:
        rsi_text_add(out, "{\"$tensor\": {\"dtype\": \"%s\", \"shape\": ",
                     rsd_dtype_name(v->as.tensor->dtype));
        shape_text(out, v->as.tensor);
        rsi_text_add(out, "}}");
        break;
    default: /* integers are the same in both */
        python_scalar(out, v);
    }
}

static void json_open(rsi_text *out, frame *f)
{
    const rsd_value *v = f->v;

    f->object = v->kind == RSD_VALUE_DICT;
    for (size_t i = 0; i < v->n && f->object; i++)
        f->object = v->as.item[2 * i]->kind == RSD_VALUE_STR;
    if (v->kind == RSD_VALUE_SET)
        rsi_text_add(out, "{\"$set\": [");
    else if (v->kind == RSD_VALUE_DICT)
        rsi_text_add(out, f->object ? "{" : "{\"$dict\": [");
    else
        rsi_text_add(out, "[");
}

static void json_between(rsi_text *out, const frame *f)
{
    bool pairs = f->v->kind == RSD_VALUE_DICT && !f->object;

    if (f->object && f->i % 2)
        rsi_text_add(out, ": ");
    else if (pairs && f->i % 2 == 0)
        rsi_text_add(out, f->i ? "], [" : "[");
    else if (f->i)
        rsi_text_add(out, ", ");
}

static void json_close(rsi_text *out, const frame *f)
{
    if (f->object)
        rsi_text_add(out, "}");
    else if (f->v->kind == RSD_VALUE_DICT)
        rsi_text_add(out, "]]}"); /* an empty dict is an object */
    else
        rsi_text_add(out, f->v->kind == RSD_VALUE_SET ? "]}" : "]");
}

/* ---- Both ---- */

static void print(printing *p, const rsd_value *v);

/* "name(key=value, ..)", "name(argument, ..)"; {"$opaque": "name", "fields": {..}}, or "args". */
static void print_parts(printing *p, const rsd_value *v, const rsd_value *parts)
{
    const bool   fields = rsd_value_type_of(parts) == RSD_VALUE_DICT;
    const size_t n = rsd_value_count(parts);

    if (p->form->json) {
        rsi_text_add(&p->out, "{\"$opaque\": ");
        quoted(&p->out, v->as.bytes, v->n, '"', true);
        rsi_text_add(&p->out, fields ? ", \"fields\": " : ", \"args\": ");
        print(p, parts);
        rsi_text_add(&p->out, "}");
        return;
    }
    escaped(&p->out, v->as.bytes, v->n, '"', false);
    rsi_text_add(&p->out, "(");
    for (size_t i = 0; i < n; i++) {
        rsi_text_add(&p->out, i ? ", " : "");
        if (fields)
            python_field(&p->out, rsd_value_key(parts, i));
        print(p, rsd_value_item(parts, i));
    }
    rsi_text_add(&p->out, ")");
}

static void print_opaque(printing *p, const rsd_value *v)
{
    const size_t     cost = PARTS_COST + rsi_value_opaque(v)->pickle_bytes;
    rsd_values      *owner = NULL;
    const rsd_value *parts = NULL;

    if (p->level < MOST_LEVELS && p->out.len < MOST_TEXT && cost <= p->left &&
        rsd_values_create(&owner, NULL) == RSD_OK) {
        p->left -= cost;
        parts = rsi_value_parts(v, owner);
    }
    p->level++;
    if (parts)
        print_parts(p, v, parts);
    else
        p->form->scalar(&p->out, v);
    p->level--;
    rsd_values_free(owner);
}

static void print(printing *p, const rsd_value *v)
{
    const style *form = p->form;
    frame        stack[RSD_VALUE_MAX_DEPTH];
    int          depth = 0;

    while (v || depth) {
        frame *f = depth ? &stack[depth - 1] : NULL;

        if (v && v->kind >= RSD_VALUE_LIST && v->kind <= RSD_VALUE_DICT) {
            f = &stack[depth++];
            *f = (frame){ .v = v };
            form->open(&p->out, f);
            v = NULL;
        } else if (v) {
            if (v->kind == RSD_VALUE_OPAQUE)
                print_opaque(p, v);
            else
                form->scalar(&p->out, v);
            v = NULL;
        } else if (f->i < (f->v->kind == RSD_VALUE_DICT ? 2 * (size_t)f->v->n : f->v->n)) {
            form->between(&p->out, f);
            v = f->v->as.item[f->i++];
        } else {
            form->close(&p->out, f);
            depth--;
        }
    }
}

static size_t print_all(const style *form, const rsd_value *v, char *buf, size_t cap)
{
    printing p = { .form = form, .out = rsi_text_begin(buf, cap), .left = MOST_PARTS };

    print(&p, v);
    return p.out.len;
}

size_t rsd_value_text(const rsd_value *v, char *buf, size_t cap)
{
    static const style python = { python_scalar, python_open, python_between, python_close, false };

    return print_all(&python, v, buf, cap);
}

size_t rsd_value_json(const rsd_value *v, char *buf, size_t cap)
{
    static const style json = { json_scalar, json_open, json_between, json_close, true };

    return print_all(&json, v, buf, cap);
}
