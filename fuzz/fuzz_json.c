/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the JSON reader: what it accepts is written in all styles, and reading that must give the
 * same tokens. */
#include "base/mem.h"
#include "format/json.h"
#include "format/json_write.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

static void copy_token(rsi_json_out *out, const rsi_json_token *token)
{
    switch (token->kind) {
    case RSI_JSON_OBJECT:
    case RSI_JSON_ARRAY:
        rsi_json_open(out, token->kind == RSI_JSON_OBJECT ? '{' : '[');
        break;
    case RSI_JSON_OBJECT_END:
    case RSI_JSON_ARRAY_END:
        rsi_json_close(out, token->kind == RSI_JSON_OBJECT_END ? '}' : ']');
        break;
    case RSI_JSON_KEY:
        rsi_json_key(out, token->text, token->len);
        break;
    case RSI_JSON_STRING:
        rsi_json_string(out, token->text, token->len);
        break;
    case RSI_JSON_INTEGER:
        if (token->negative && token->number > 0)
            rsi_json_i64(out, (int64_t)(0 - token->number));
        else
            rsi_json_u64(out, token->number);
        break;
    default: /* words and numbers that we don't write */
        rsi_json_u64(out, 0);
        break;
    }
}

static bool same(const rsi_json_token *a, const rsi_json_token *b)
{
    if (a->kind == RSI_JSON_NUMBER || a->kind == RSI_JSON_TRUE || a->kind == RSI_JSON_FALSE ||
        a->kind == RSI_JSON_NULL)
        return b->kind == RSI_JSON_INTEGER;
    if (a->kind != b->kind)
        return false;
    if (a->kind == RSI_JSON_INTEGER)
        return a->number == b->number && (a->negative == b->negative || a->number == 0);
    if (a->kind == RSI_JSON_KEY || a->kind == RSI_JSON_STRING)
        return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
    return true;
}

static void compare(const char *text, size_t len, const rsi_json_out *out)
{
    rsi_arena      mem = { 0 };
    rsi_json       first, second;
    rsi_json_token a, b;

    rsi_json_begin(&first, text, len, 0, &mem);
    rsi_json_begin(&second, out->buf, out->len, 0, &mem);
    do {
        require(rsi_json_next(&first, &a, NULL) == RSD_OK);
        require(rsi_json_next(&second, &b, NULL) == RSD_OK);
        require(same(&a, &b));
    } while (a.kind != RSI_JSON_END);
    rsi_arena_release(&mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char    *text = (const char *)data;
    rsi_arena      mem = { 0 };
    rsi_json       json;
    rsi_json_token token;
    rsd_error      err = { 0 };
    rsd_err        rc;

    for (int style = RSI_JSON_COMPACT; style <= RSI_JSON_INDENTED; style++) {
        rsi_json_out out = { .style = (rsi_json_style)style, .ascii = style != RSI_JSON_COMPACT };

        rsi_mem_fail_at(0, 0);
        rsi_json_begin(&json, text, size, 0, &mem);
        do {
            rc = rsi_json_next(&json, &token, &err);
            if (!rc && token.kind != RSI_JSON_END)
                copy_token(&out, &token);
        } while (!rc && token.kind != RSI_JSON_END);
        require(rc == RSD_OK || (rc == RSD_E_FORMAT && err.msg[0] != '\0'));
        require(mem.used <= 16 * size + (1 << 20));
        require(rsi_json_out_end(&out, NULL) == RSD_OK);
        if (!rc)
            compare(text, size, &out);
        rsi_json_out_release(&out);
        rsi_arena_release(&mem);
        if (rc)
            break;
    }
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}
