/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of strings. */
#include "base/strings.h"
#include "base/mem.h"

bool rsi_strings_add(rsi_strings *s, const char *text)
{
    char *copy;

    if (!rsi_grow(&s->at, s->n, &s->cap, sizeof(s->at[0])))
        return false;
    copy = rsi_strdup(text);
    if (!copy)
        return false;
    s->at[s->n++] = copy;
    return true;
}

void rsi_strings_release(rsi_strings *s)
{
    for (size_t i = 0; i < s->n; i++)
        rsi_free(s->at[i]);
    rsi_free(s->at);
    *s = (rsi_strings){ 0 };
}
