/* SPDX-License-Identifier: Apache-2.0 */
/* A strict JSON reader that hands out one token after the other (RFC 8259, nothing more): no tree,
 * no recursion, and no memory of its own but for strings that have escapes. What keys may repeat or
 * be unknown is the caller's to say; the writer is json_write.h. Next: st_header.h. */
#ifndef RSI_JSON_H
#define RSI_JSON_H

#include "base/arena.h"
#include "base/error.h"
#include "format/names.h"

#include <string.h>

#define RSI_JSON_DEPTH 128 /* objects and arrays that may be open at once */

typedef enum rsi_json_kind {
    RSI_JSON_END = 0, /* behind the one value that the text holds */
    RSI_JSON_OBJECT,
    RSI_JSON_OBJECT_END,
    RSI_JSON_ARRAY,
    RSI_JSON_ARRAY_END,
    RSI_JSON_KEY, /* the value's token comes next */
    RSI_JSON_STRING,
    RSI_JSON_INTEGER, /* -2^63 .. 2^64-1, without '.' and exponent */
    RSI_JSON_NUMBER,  /* any other number: text and len are all there is of it */
    RSI_JSON_TRUE,
    RSI_JSON_FALSE,
    RSI_JSON_NULL
} rsi_json_kind;

typedef struct rsi_json_token {
    rsi_json_kind kind;
    bool escaped; /* key, string: text is in the arena with a NUL behind it; else in the input, a
                     '"' behind it */
    bool        negative; /* integer: has a minus sign, also "-0" */
    size_t      at;       /* where it starts, counted from the start of the text */
    const char *text;     /* key, string: valid UTF-8, can hold NULs; numbers: as written */
    size_t      len;
    uint64_t    number; /* integer: without its sign */
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

/* The next token. RSD_E_FORMAT names line and byte, what was expected and what was found; don't go
 * on after it. */
rsd_err rsi_json_next(rsi_json *json, rsi_json_token *out, rsd_error *err);
/* The same, and it must be of this kind, which is called `what` ("an array of integers"). */
rsd_err rsi_json_want(rsi_json *json, rsi_json_kind kind, const char *what, rsi_json_token *out,
                      rsd_error *err);
/* The next key or element of what is open, for a loop; false at its end, and when *rc is or becomes
 * a failure. */
bool rsi_json_each(rsi_json *json, rsi_json_token *out, rsd_err *rc, rsd_error *err);
/* Passes over the rest of the value that `first` began; nothing to do for a string or a number. */
rsd_err rsi_json_skip(rsi_json *json, const rsi_json_token *first, rsd_error *err);

/* RSD_E_FORMAT "line 1, byte 9: expected <what>, found <the token>". */
rsd_err rsi_json_expected(const rsi_json *json, const rsi_json_token *found, const char *what,
                          rsd_error *err);

/* Inline, so that the length of a literal costs nothing. */
static inline bool rsi_json_is(const rsi_json_token *token, const char *text)
{
    return token->len == strlen(text) && memcmp(token->text, text, token->len) == 0;
}

/* The text of a key or string for as long as the input lives, which must be writable: a NUL goes
 * over the closing quote, which the reader has passed. */
const char *rsi_json_keep(const rsi_json *json, const rsi_json_token *token);
/* The same as a name; RSD_E_FORMAT if it has a NUL in it. */
rsd_err rsi_json_name(const rsi_json *json, const rsi_json_token *token, rsi_name *out,
                      rsd_error *err);

/* How many bytes of a name to show with "%.*s": at most 120, no half characters. */
int rsi_json_shown(const char *text, size_t len);

#endif
