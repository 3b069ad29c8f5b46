/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader: a state for what may come next, one bit for each open container, and a loop over
 * strings that handles eight bytes at a time. Written by hand because libraries build trees (947 MB
 * for a million tensors) or lose integers above 2^53. json_write.c writes. Next: st_read.c. */
#include "format/json.h"
#include "base/text.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

enum {
    VALUE,          /* a value */
    VALUE_OR_CLOSE, /* the first value of an array, or its end */
    KEY,            /* a key, after a comma */
    KEY_OR_CLOSE,   /* the first key of an object, or its end */
    AFTER           /* a comma or the end of the open container */
};

#define SHOWN 120 /* bytes of a name in a message */

void rsi_json_begin(rsi_json *json, const char *text, size_t len, uint64_t base, rsi_arena *mem)
{
    *json = (rsi_json){ .text = text, .len = len, .base = base, .mem = mem, .state = VALUE };
}

int rsi_json_shown(const char *text, size_t len)
{
    size_t n = len < SHOWN ? len : SHOWN;

    if (n < len)
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    return (int)n;
}

/* ---- messages ---- */

static size_t line_of(const rsi_json *json, size_t at)
{
    size_t line = 1;

    for (size_t i = 0; i < at; i++)
        line += json->text[i] == '\n';
    return line;
}

static rsd_err fail_at(const rsi_json *json, size_t at, const char *what, const char *found,
                       rsd_error *err)
{
    if (!err)
        return RSD_E_FORMAT;
    return rsi_fail(err, RSD_E_FORMAT, "line %zu, byte %" PRIu64 ": expected %s, found %s",
                    line_of(json, at), json->base + at, what, found);
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '+' || c == '.';
}

/* Reports that no token starts at `at`. */
static rsd_err unexpected(const rsi_json *json, size_t at, const char *what, rsd_error *err)
{
    unsigned char c;
    rsi_text      text;
    char          found[64];
    size_t        n = 0;

    if (at >= json->len)
        return fail_at(json, at, what, "the end of the text", err);
    c = (unsigned char)json->text[at];
    while (n < 24 && at + n < json->len && is_word(json->text[at + n]))
        n++;
    text = rsi_text_begin(found, sizeof(found));
    if (n > 0 || (c > 0x20 && c < 0x7f))
        rsi_text_add(&text, c == '"' ? "'%.*s'" : "\"%.*s\"", n ? (int)n : 1, json->text + at);
    else
        rsi_text_add(&text, "the byte 0x%02x", c);
    return fail_at(json, at, what, found, err);
}

rsd_err rsi_json_expected(const rsi_json *json, const rsi_json_token *found, const char *what,
                          rsd_error *err)
{
    static const char *const names[] = {
        "the end of the text",
        "an object",
        "the end of the object",
        "an array",
        "the end of the array",
        "the key",
        "the string",
        "the number",
        "the number",
        "true",
        "false",
        "null",
    };
    char     words[SHOWN + 32];
    rsi_text text = rsi_text_begin(words, sizeof(words));

    rsi_text_add(&text, "%s", names[found->kind]);
    if (found->kind == RSI_JSON_KEY || found->kind == RSI_JSON_STRING)
        rsi_text_add(&text, " \"%.*s\"", rsi_json_shown(found->text, found->len), found->text);
    if (found->kind == RSI_JSON_INTEGER || found->kind == RSI_JSON_NUMBER)
        rsi_text_add(&text, " %.*s", rsi_json_shown(found->text, found->len), found->text);
    return fail_at(json, found->at, what, words, err);
}

/* ---- strings ---- */

static size_t put_utf8(char *out, uint32_t code)
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(n == 1 ? code : (0xf00u >> n & 0xf0) | code);
    return n;
}

/* The first byte from `at` on that is not plain: a quote, a backslash, a control character, the
 * start of a multi-byte UTF-8 character, or the end. */
static size_t plain_end(const rsi_json *json, size_t at)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t       word, quote, slash, hit;
    unsigned char  c;

    while (json->len - at >= 8) {
        memcpy(&word, json->text + at, 8);
        word = le64toh(word);
        quote = word ^ (ones * '"');
        slash = word ^ (ones * '\\');
        /* Each term is exact up to the first byte that it marks, and only the first matters. */
        hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
              ((word - ones * 0x20) & ~word) | word;
        hit &= tops;
        if (hit)
            return at + (size_t)__builtin_ctzll(hit) / 8;
        at += 8;
    }
    for (; at < json->len; at++) {
        c = (unsigned char)json->text[at];
        if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80)
            break;
    }
    return at;
}

/* Four hex digits at `at`. */
static bool hex4(const rsi_json *json, size_t at, uint32_t *out)
{
    uint32_t value = 0;

    if (at > json->len || json->len - at < 4)
        return false;
    for (size_t i = 0; i < 4; i++) {
        char c = json->text[at + i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            value = value << 4 | ((uint32_t)(c | 0x20) - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

/* The escape whose backslash is at *at: sets its character and moves *at past it. */
static rsd_err take_escape(const rsi_json *json, size_t *at, uint32_t *code, rsd_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t            start = *at;
    const char       *found;
    uint32_t          high, low = 0;
    char              c = start + 1 < json->len ? json->text[start + 1] : '\0';

    found = c ? strchr(from, c) : NULL;
    if (found) {
        *code = (uint32_t)to[found - from];
        *at = start + 2;
        return RSD_OK;
    }
    if (c != 'u')
        return unexpected(json, start + 1, "one of \"\\/bfnrtu after the backslash", err);
    if (!hex4(json, start + 2, &high))
        return unexpected(json, start + 2, "four hexadecimal digits after \\u", err);
    *at = start + 6;
    if (high < 0xd800 || high > 0xdfff) {
        *code = high;
        return RSD_OK;
    }
    if (high > 0xdbff)
        return fail_at(json, start, "a character", "the second half of a surrogate pair alone",
                       err);
    if (json->len - *at < 2 || json->text[*at] != '\\' || json->text[*at + 1] != 'u' ||
        !hex4(json, *at + 2, &low) || low < 0xdc00 || low > 0xdfff)
        return fail_at(json, start, "a character", "the first half of a surrogate pair alone", err);
    *at += 6;
    *code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    return RSD_OK;
}

/* The raw text has been checked; unescaping never makes it longer. */
static rsd_err unescape(const rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    size_t   at = (size_t)(out->text - json->text), end = at + out->len, n = 0;
    char    *copy = rsi_arena_array(json->mem, out->len + 1, 1);
    uint32_t code = 0;
    rsd_err  rc;

    if (!copy)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a string of %zu bytes", out->len);
    while (at < end) {
        const char *slash = memchr(json->text + at, '\\', end - at);
        size_t      plain = slash ? (size_t)(slash - json->text) - at : end - at;

        memcpy(copy + n, json->text + at, plain);
        n += plain;
        at += plain;
        if (!slash)
            break;
        rc = take_escape(json, &at, &code, err);
        if (rc)
            return rc;
        n += put_utf8(copy + n, code);
    }
    out->text = copy;
    out->len = n;
    out->escaped = true;
    return RSD_OK;
}

/* At the opening quote. */
static rsd_err take_string(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    size_t   start = json->at + 1, at = start, n;
    bool     escapes = false;
    uint32_t code;
    rsd_err  rc = RSD_OK;

    for (at = plain_end(json, at); at < json->len && json->text[at] != '"';
         at = plain_end(json, at)) {
        unsigned char c = (unsigned char)json->text[at];

        if (c == '\\') {
            rc = take_escape(json, &at, &code, err);
            escapes = true;
        } else if (c < 0x20) {
            rc = unexpected(json, at, "control characters in a string to be escaped", err);
        } else {
            n = rsi_utf8(json->text + at, json->len - at, &code);
            rc = n ? RSD_OK : unexpected(json, at, "UTF-8", err);
            at += n;
        }
        if (rc)
            return rc;
    }
    if (at >= json->len)
        return unexpected(json, json->len, "the closing quote of a string", err);
    json->at = at + 1;
    out->text = json->text + start;
    out->len = at - start;
    return escapes ? unescape(json, out, err) : RSD_OK;
}

/* ---- numbers and words ---- */

static size_t digits_end(const rsi_json *json, size_t at)
{
    while (at < json->len && json->text[at] >= '0' && json->text[at] <= '9')
        at++;
    return at;
}

/* A fraction and an exponent, if any. */
static rsd_err take_real(const rsi_json *json, size_t *at, rsd_error *err)
{
    size_t from;

    if (*at < json->len && json->text[*at] == '.') {
        from = *at + 1;
        *at = digits_end(json, from);
        if (*at == from)
            return unexpected(json, from, "a digit after the point", err);
    }
    if (*at < json->len && (json->text[*at] | 0x20) == 'e') {
        from = *at + 1;
        if (from < json->len && (json->text[from] == '+' || json->text[from] == '-'))
            from++;
        *at = digits_end(json, from);
        if (*at == from)
            return unexpected(json, from, "a digit in the exponent", err);
    }
    return RSD_OK;
}

/* False if n digits don't fit into 64 bits; 19 always do. */
static bool digits_value(const char *digit, size_t n, uint64_t *out)
{
    uint64_t value = 0;

    for (size_t i = 0; i < n && i < 19; i++)
        value = value * 10 + (uint64_t)(digit[i] - '0');
    if (n > 20 || (n == 20 && (__builtin_mul_overflow(value, 10u, &value) ||
                               __builtin_add_overflow(value, (uint64_t)(digit[19] - '0'), &value))))
        return false;
    *out = value;
    return true;
}

static rsd_err take_number(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    size_t   first = json->at + (json->text[json->at] == '-');
    size_t   end = digits_end(json, first), whole = end;
    uint64_t value = 0;
    bool     fits;
    rsd_err  rc;

    if (end == first)
        return unexpected(json, first, "a digit", err);
    if (json->text[first] == '0' && end > first + 1)
        return unexpected(json, json->at, "a number without leading zeros", err);
    rc = take_real(json, &end, err);
    if (rc)
        return rc;
    fits = digits_value(json->text + first, whole - first, &value);
    out->negative = first > json->at;
    if (out->negative && value > (uint64_t)INT64_MAX + 1)
        fits = false;
    out->kind = fits && end == whole ? RSI_JSON_INTEGER : RSI_JSON_NUMBER;
    out->number = out->kind == RSI_JSON_INTEGER ? value : 0;
    out->text = json->text + json->at;
    out->len = end - json->at;
    json->at = end;
    return RSD_OK;
}

static rsd_err take_word(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    static const struct {
        const char   *word;
        rsi_json_kind kind;
    } words[] = { { "true", RSI_JSON_TRUE },
                  { "false", RSI_JSON_FALSE },
                  { "null", RSI_JSON_NULL } };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t len = strlen(words[i].word);

        if (json->len - json->at >= len && memcmp(json->text + json->at, words[i].word, len) == 0 &&
            (json->len - json->at == len || !is_word(json->text[json->at + len]))) {
            out->kind = words[i].kind;
            json->at += len;
            return RSD_OK;
        }
    }
    return unexpected(json, json->at,
                      json->state == VALUE_OR_CLOSE ? "a value or \"]\"" : "a value", err);
}

/* ---- structure ---- */

static void skip_space(rsi_json *json)
{
    while (json->at < json->len && (json->text[json->at] == ' ' || json->text[json->at] == '\n' ||
                                    json->text[json->at] == '\r' || json->text[json->at] == '\t'))
        json->at++;
}

static char peek(const rsi_json *json) /* a NUL at the end, which starts no token either */
{
    return json->at < json->len ? json->text[json->at] : '\0';
}

static bool in_object(const rsi_json *json)
{
    int d = json->depth - 1;

    return d >= 0 && (json->is_object[d / 64] >> (d % 64) & 1);
}

static rsd_err open_container(rsi_json *json, bool object, rsi_json_token *out, rsd_error *err)
{
    uint64_t bit = (uint64_t)1 << (json->depth % 64);

    if (json->depth == RSI_JSON_DEPTH)
        return fail_at(json, json->at, "at most 128 nested objects and arrays", "one more", err);
    if (object)
        json->is_object[json->depth / 64] |= bit;
    else
        json->is_object[json->depth / 64] &= ~bit;
    json->depth++;
    json->at++;
    json->state = object ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
    out->kind = object ? RSI_JSON_OBJECT : RSI_JSON_ARRAY;
    return RSD_OK;
}

static rsd_err close_container(rsi_json *json, rsi_json_token *out)
{
    out->kind = in_object(json) ? RSI_JSON_OBJECT_END : RSI_JSON_ARRAY_END;
    json->depth--;
    json->at++;
    json->state = AFTER;
    return RSD_OK;
}

static rsd_err take_value(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    char    c = peek(json);
    rsd_err rc;

    if (c == '{' || c == '[')
        return open_container(json, c == '{', out, err);
    if (c == '"') {
        out->kind = RSI_JSON_STRING;
        rc = take_string(json, out, err);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        rc = take_number(json, out, err);
    } else {
        rc = take_word(json, out, err);
    }
    json->state = AFTER;
    return rc;
}

/* The key and the colon after it. */
static rsd_err take_key(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    rsd_err rc;

    if (peek(json) != '"')
        return unexpected(json, json->at,
                          json->state == KEY ? "a key in quotes" : "a key in quotes or \"}\"", err);
    out->kind = RSI_JSON_KEY;
    rc = take_string(json, out, err);
    if (rc)
        return rc;
    skip_space(json);
    if (peek(json) != ':')
        return unexpected(json, json->at, "\":\" after the key", err);
    json->at++;
    json->state = VALUE;
    return RSD_OK;
}

rsd_err rsi_json_next(rsi_json *json, rsi_json_token *out, rsd_error *err)
{
    char close = in_object(json) ? '}' : ']';

    skip_space(json);
    if (json->state == AFTER && json->depth > 0 && peek(json) == ',') {
        json->at++;
        json->state = in_object(json) ? KEY : VALUE;
        skip_space(json);
    }
    *out = (rsi_json_token){ .kind = RSI_JSON_END, .at = json->at };
    if (json->state == AFTER && json->depth == 0)
        return json->at == json->len ? RSD_OK : unexpected(json, json->at, "nothing more", err);
    if (json->state != VALUE && json->state != KEY && peek(json) == close)
        return close_container(json, out);
    if (json->state == AFTER)
        return unexpected(json, json->at, close == '}' ? "\",\" or \"}\"" : "\",\" or \"]\"", err);
    if (json->state == KEY || json->state == KEY_OR_CLOSE)
        return take_key(json, out, err);
    return take_value(json, out, err);
}

rsd_err rsi_json_want(rsi_json *json, rsi_json_kind kind, const char *what, rsi_json_token *out,
                      rsd_error *err)
{
    rsd_err rc = rsi_json_next(json, out, err);

    if (!rc && out->kind != kind)
        rc = rsi_json_expected(json, out, what, err);
    return rc;
}

bool rsi_json_each(rsi_json *json, rsi_json_token *out, rsd_err *rc, rsd_error *err)
{
    if (!*rc)
        *rc = rsi_json_next(json, out, err);
    return !*rc && out->kind != RSI_JSON_OBJECT_END && out->kind != RSI_JSON_ARRAY_END;
}

const char *rsi_json_keep(const rsi_json *json, const rsi_json_token *token)
{
    if (!token->escaped) /* else it is in the arena and ends in NUL */
        ((char *)(uintptr_t)json->text)[(size_t)(token->text - json->text) + token->len] = '\0';
    return token->text;
}

rsd_err rsi_json_name(const rsi_json *json, const rsi_json_token *token, rsi_name *out,
                      rsd_error *err)
{
    uint64_t at = json->base + token->at;

    if (memchr(token->text, '\0', token->len))
        return rsi_fail(err, RSD_E_FORMAT, "byte %" PRIu64 ": a name contains a NUL", at);
    *out = (rsi_name){ .text = rsi_json_keep(json, token),
                       .len = (uint32_t)token->len,
                       .at = (uint32_t)at };
    return RSD_OK;
}

rsd_err rsi_json_skip(rsi_json *json, const rsi_json_token *first, rsd_error *err)
{
    rsi_json_token token;
    int            depth = json->depth;
    rsd_err        rc = RSD_OK;

    if (first->kind == RSI_JSON_KEY)
        return rsi_fail(err, RSD_E_BUG, "a key is not a value that can be skipped");
    if (first->kind != RSI_JSON_OBJECT && first->kind != RSI_JSON_ARRAY)
        return RSD_OK;
    while (!rc && json->depth >= depth)
        rc = rsi_json_next(json, &token, err);
    return rc;
}
