/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON, into memory or through a callback. The first failure is kept and all later calls do
 * nothing, so only rsi_json_out_end has to be asked. Commas, colons and indentation come by
 * themselves; that keys and ends are where they belong is the caller's part. */
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
    bool           ascii; /* all that is not plain ASCII as \uXXXX, as Python writes */
    /* NULL: everything stays in buf. Otherwise called with parts of the text, in order. */
    rsd_err (*put)(void *arg, const void *bytes, size_t len, rsd_error *err);
    void *arg;

    char     *buf; /* owned; what has not been put yet */
    size_t    len, cap;
    int       depth;
    bool      some, after_key; /* the open container has a value; a key waits for its value */
    rsd_err   rc;
    rsd_error err;
} rsi_json_out; /* set the first four, zero the rest */

void rsi_json_open(rsi_json_out *out, char bracket);  /* '{' or '[' */
void rsi_json_close(rsi_json_out *out, char bracket); /* '}' or ']' */
/* Text that is not UTF-8 is an error (RSD_E_INVALID): JSON can't hold it. */
void rsi_json_key(rsi_json_out *out, const char *text, size_t len);
void rsi_json_string(rsi_json_out *out, const char *text, size_t len);
void rsi_json_u64(rsi_json_out *out, uint64_t value);
void rsi_json_i64(rsi_json_out *out, int64_t value);
void rsi_json_word(rsi_json_out *out, const char *word); /* "true", "false", "null" */
/* Bytes as they are, behind the value: padding, a final new line. */
void rsi_json_raw(rsi_json_out *out, const char *bytes, size_t len);

/* The first failure, if any; with a callback the rest is put. */
rsd_err rsi_json_out_end(rsi_json_out *out, rsd_error *err);
void    rsi_json_out_release(rsi_json_out *out);

#endif
