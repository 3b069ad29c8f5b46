/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON, to memory or through a callback. The first failure is kept and all later calls do
 * nothing, so only rsi_json_out_end has to be checked. Commas, colons and indentation are added;
 * the caller must put keys and ends where they belong. */
#ifndef RSI_JSON_WRITE_H
#define RSI_JSON_WRITE_H

#include "base/error.h"

typedef enum rsi_json_style {
    RSI_JSON_COMPACT = 0, /* {"a":[1,2]} */
    RSI_JSON_SPACED,      /* {"a": [1, 2]}, as Python writes */
    RSI_JSON_INDENTED     /* by two spaces, as Python writes */
} rsi_json_style;

typedef struct rsi_json_out {
    rsi_json_style style;
    bool           ascii; /* write anything but plain ASCII as \uXXXX, as Python does */
    /* NULL: everything stays in buf. Otherwise called with parts of the text, in order. */
    rsd_err (*put)(void *arg, const void *bytes, size_t len, rsd_error *err);
    void *arg;

    char     *buf; /* owned; bytes not put yet */
    size_t    len, cap;
    int       depth;
    bool      some, after_key; /* the open container has a value; a key awaits its value */
    rsd_err   rc;
    rsd_error err;
} rsi_json_out; /* set the first four, zero the rest */

void rsi_json_open(rsi_json_out *out, char bracket);  /* '{' or '[' */
void rsi_json_close(rsi_json_out *out, char bracket); /* '}' or ']' */
/* RSD_E_INVALID if the text is not UTF-8: JSON can't hold it. */
void rsi_json_key(rsi_json_out *out, const char *text, size_t len);
void rsi_json_string(rsi_json_out *out, const char *text, size_t len);
void rsi_json_u64(rsi_json_out *out, uint64_t value);
void rsi_json_i64(rsi_json_out *out, int64_t value);
/* Appends bytes unchanged: padding, a final newline. */
void rsi_json_raw(rsi_json_out *out, const char *bytes, size_t len);

/* The first failure, if any; with a callback, puts the remaining bytes. */
rsd_err rsi_json_out_end(rsi_json_out *out, rsd_error *err);
void    rsi_json_out_release(rsi_json_out *out);

#endif
