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

bool rsi_path_is(const char *name, const rsd_path_part *part, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char        number[24];
        const char *text = part[i].key;
        size_t      len;

        if (i && *name++ != '.')
            return false;
        if (!text) {
            snprintf(number, sizeof(number), "%" PRId64, part[i].index);
            text = number;
        }
        len = strlen(text);
        if (strncmp(name, text, len) != 0)
            return false;
        name += len;
    }
    return *name == '\0';
}
