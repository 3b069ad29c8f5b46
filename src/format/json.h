/* SPDX-License-Identifier: Apache-2.0 */
/* A strict JSON reader that returns one token after another (RFC 8259, nothing more): no tree, no
 * recursion, and no memory of its own except for strings with escapes. The caller decides which
 * keys may repeat or be unknown; the writer is json_write.h. Next: st_header.h. */
#ifndef RSI_JSON_H
#define RSI_JSON_H

#include "base/arena.h"
#include "base/error.h"
#include "format/names.h"

#include <string.h>

#define RSI_JSON_DEPTH 128 /* maximum nesting of objects and arrays */

typedef enum rsi_json_kind {
    RSI_JSON_END = 0, /* after the single value of the text */
    RSI_JSON_OBJECT,
    RSI_JSON_OBJECT_END,
    RSI_JSON_ARRAY,
    RSI_JSON_ARRAY_END,
    RSI_JSON_KEY, /* the next token is its value */
    RSI_JSON_STRING,
    RSI_JSON_INTEGER, /* -2^63 .. 2^64-1, without '.' or exponent */
    RSI_JSON_NUMBER,  /* any other number: given by text and len only */
    RSI_JSON_TRUE,
    RSI_JSON_FALSE,
    RSI_JSON_NULL
} rsi_json_kind;

typedef struct rsi_json_token {
    rsi_json_kind kind;
    bool escaped; /* key, string: text is in the arena and ends in NUL; else it is in the input and
                     ends in '"' */
    bool        negative; /* integer: has a minus sign, even "-0" */
    size_t      at;       /* its offset in the text */
    const char *text;     /* key, string: valid UTF-8, may contain NULs; numbers: as written */
    size_t      len;
    uint64_t    number; /* integer: absolute value */
} rsi_json_token;

typedef struct rsi_json {
    const char *text;
    size_t      len, at;
    uint64_t    base; /* added to byte offsets in messages: where the text starts in its file */
    rsi_arena  *mem;
    uint64_t is_object[RSI_JSON_DEPTH / 64]; /* bit d: the container at depth d + 1 is an object */
    int      depth;
    int      state;
} rsi_json;

/* `text` and `mem` outlive the reader and its tokens. */
void rsi_json_begin(rsi_json *json, const char *text, size_t len, uint64_t base, rsi_arena *mem);

/* The next token. RSD_E_FORMAT names line and byte, what was expected and what was found; do not
 * continue after it. */
rsd_err rsi_json_next(rsi_json *json, rsi_json_token *out, rsd_error *err);
/* The same, but the token must be of this kind, described by `what` ("an array of integers"). */
rsd_err rsi_json_want(rsi_json *json, rsi_json_kind kind, const char *what, rsi_json_token *out,
                      rsd_error *err);
/* The next key or element of the open container, for a loop; false at its end, and when *rc is or
 * becomes a failure. */
bool rsi_json_each(rsi_json *json, rsi_json_token *out, rsd_err *rc, rsd_error *err);
/* Skips the rest of the value that `first` began; does nothing for a string or a number. */
rsd_err rsi_json_skip(rsi_json *json, const rsi_json_token *first, rsd_error *err);

/* RSD_E_FORMAT "line 1, byte 9: expected <what>, found <the token>". */
rsd_err rsi_json_expected(const rsi_json *json, const rsi_json_token *found, const char *what,
                          rsd_error *err);

/* Inline, so that the length of a literal is a constant. */
static inline bool rsi_json_is(const rsi_json_token *token, const char *text)
{
    return token->len == strlen(text) && memcmp(token->text, text, token->len) == 0;
}

/* The text of a key or string, valid as long as the input, which must be writable: a NUL replaces
 * the closing quote, which the reader has passed. */
const char *rsi_json_keep(const rsi_json *json, const rsi_json_token *token);
/* The same as a name; RSD_E_FORMAT if it contains a NUL. */
rsd_err rsi_json_name(const rsi_json *json, const rsi_json_token *token, rsi_name *out,
                      rsd_error *err);

/* How many bytes of a name to show with "%.*s": at most 120, only whole characters. */
int rsi_json_shown(const char *text, size_t len);

#endif
