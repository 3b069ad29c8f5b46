/* SPDX-License-Identifier: Apache-2.0 */
#include "format/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t rsi_path_join(const rsd_path_part *part, size_t n, char *buf, size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap);

    for (size_t i = 0; i < n; i++) {
        rsi_text_add(&text, i ? "." : "");
        if (part[i].key)
            rsi_text_add(&text, "%s", part[i].key);
        else
            rsi_text_add(&text, "%" PRId64, part[i].index);
    }
    return text.len;
}

const char *rsi_path_step(const char *name, size_t i, const char *key, int64_t index)
{
    char   number[24];
    size_t len;

    if (i && *name++ != '.')
        return NULL;
    if (!key) {
        snprintf(number, sizeof(number), "%" PRId64, index);
        key = number;
    }
    len = strlen(key);
    return strncmp(name, key, len) == 0 ? name + len : NULL;
}

bool rsi_path_is(const char *name, const rsd_path_part *part, size_t n)
{
    for (size_t i = 0; i < n && name; i++)
        name = rsi_path_step(name, i, part[i].key, part[i].index);
    return name && *name == '\0';
}
