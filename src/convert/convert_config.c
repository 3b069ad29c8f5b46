/* SPDX-License-Identifier: Apache-2.0 */
/* Edits one key of a config.json and leaves the rest byte for byte. Engines find out there how a
 * model is quantised. */
#include "convert/convert_config.h"
#include "base/mem.h"

#include <string.h>

static const char key[] = "\"quantization_config\"";

const char *rsi_config_wanted(const rsi_made *made)
{
    const char *wanted = NULL;

    for (size_t t = 0; made && t < made->n; t++) {
        const rsi_made_tensor *m = &made->tensor[t];

        if (m->to == RSI_ITEM_FP8)
            return "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": "
                   "\"fp8\", \"weight_block_size\": [128, 128]}";
        if (m->to == RSI_ITEM_MXFP4)
            return "{\"quant_method\": \"mxfp4\"}";
        if (m->from == RSI_ITEM_FP8 || m->from == RSI_ITEM_MXFP4)
            wanted = "";
    }
    return wanted;
}

/* Behind the string, object, list or other value at `at`. */
static size_t value_end(const char *json, size_t len, size_t at)
{
    int  depth = 0;
    bool text = false;

    for (; at < len; at++) {
        char c = json[at];

        if (text) {
            at += c == '\\';
            text = c != '"';
        } else if (c == '"') {
            text = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (depth > 0 && (c == '}' || c == ']')) {
            depth--;
        } else if (depth == 0 && strchr(",}]:", c)) {
            break;
        }
    }
    return at < len ? at : len;
}

static size_t skip_space(const char *json, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", json[at]))
        at++;
    return at;
}

rsd_err rsi_config_edit(const char *json, size_t len, const char *wanted, rsi_bytes *out,
                        rsd_error *err)
{
    size_t at = skip_space(json, len, 0), end = len, done;
    bool   any = false;

    while (end > 0 && strchr(" \t\r\n", json[end - 1]))
        end--;
    if (at + 1 >= end || json[at] != '{' || json[end - 1] != '}')
        return rsi_fail(err, RSD_E_FORMAT, "it is not a JSON object");
    end--;
    done = ++at;
    rsi_bytes_add(out, json, at);
    while (at < end) { /* one pair at a time, with the comma in front of it */
        size_t first = skip_space(json, end, at);
        size_t colon = value_end(json, end, first), last = value_end(json, end, colon + 1);
        size_t name = colon;

        while (name > first && strchr(" \t\r\n", json[name - 1]))
            name--;
        if (first == end)
            break;
        if (name - first != sizeof(key) - 1 || memcmp(json + first, key, name - first) != 0) {
            if (any)
                rsi_bytes_add(out, ",", 1);
            rsi_bytes_add(out, json + at, last - at);
            any = true;
        }
        done = last;
        at = last + 1;
    }
    if (*wanted) {
        rsi_bytes_add(out, any ? ",\n  " : "\n  ", any ? 4 : 3);
        rsi_bytes_add(out, key, sizeof(key) - 1);
        rsi_bytes_add(out, ": ", 2);
        rsi_bytes_add(out, wanted, strlen(wanted));
        rsi_bytes_add(out, "\n", 1);
    } else if (done < end) {
        rsi_bytes_add(out, json + done, end - done);
    }
    return rsi_bytes_add(out, json + end, len - end)
               ? RSD_OK
               : rsi_fail(err, RSD_E_NOMEM, "no memory for a config");
}
