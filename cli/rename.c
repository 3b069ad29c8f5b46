/* SPDX-License-Identifier: Apache-2.0 */
/* Renaming by 's/RE/TO/': POSIX extended regular expressions, as in sed -E. */
#include "rename.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 10 };

#define FORM "expected s/RE/TO/"

/* The text up to the next `end` not escaped by a backslash; "\end" becomes `end`. Moves *at past
 * it. NULL: there is none, or no memory. */
static char *cut(const char **at, char end)
{
    const char *from = *at;
    char       *out = malloc(strlen(from) + 1), *to = out;

    while (out && *from && *from != end) {
        if (from[0] == '\\' && from[1] == end)
            from++;
        else if (from[0] == '\\' && from[1])
            *to++ = *from++;
        *to++ = *from++;
    }
    if (!out || !*from) {
        free(out);
        return NULL;
    }
    *to = '\0';
    *at = from + 1;
    return out;
}

static const char *compile(renaming *r, const char *pattern)
{
    static char why[256];
    int         rc = regcomp(&r->re, pattern, REG_EXTENDED);

    r->made = rc == 0;
    if (r->made)
        return NULL;
    regerror(rc, &r->re, why, sizeof(why));
    return why;
}

const char *rename_parse(renaming *r, const char *text)
{
    const char *why = FORM;
    char       *pattern;

    *r = (renaming){ 0 };
    if (text[0] != 's' || !text[1] || text[1] == '\\')
        return FORM;
    text += 2;
    pattern = cut(&text, text[-1]);
    if (pattern)
        r->to = cut(&text, text[-1]);
    if (r->to && (*text == '\0' || strcmp(text, "g") == 0)) {
        r->all = *text == 'g';
        why = compile(r, pattern);
    } else if (r->to) {
        why = "only the flag g is allowed after it";
    }
    free(pattern);
    if (why)
        rename_free(r);
    return why;
}

void rename_free(renaming *r)
{
    if (r->made)
        regfree(&r->re);
    free(r->to);
    *r = (renaming){ 0 };
}

/* A growing text; `failed` once memory ran out. */
typedef struct growing {
    char  *at;
    size_t len, cap;
    bool   failed;
} growing;

static void add(growing *g, const char *text, size_t len)
{
    if (g->len + len + 1 > g->cap) {
        size_t cap = 2 * (g->len + len + 1);
        char  *at = realloc(g->at, cap);

        g->failed = g->failed || !at;
        g->at = at ? at : g->at;
        g->cap = at ? cap : g->cap;
    }
    if (g->failed)
        return;
    memcpy(g->at + g->len, text, len);
    g->len += len;
    g->at[g->len] = '\0';
}

/* Adds the replacement of a match. */
static void add_match(growing *g, const char *to, const char *name, const regmatch_t *m)
{
    for (; *to; to++) {
        int group = *to == '&' ? 0 : -1;

        if (*to == '\\' && to[1]) {
            to++;
            group = *to >= '0' && *to <= '9' ? *to - '0' : -1;
        }
        if (group < 0)
            add(g, to, 1);
        else if (m[group].rm_so >= 0)
            add(g, name + m[group].rm_so, (size_t)(m[group].rm_eo - m[group].rm_so));
    }
}

static void apply(const renaming *r, const char *name, growing *g)
{
    regmatch_t m[GROUPS];
    bool       behind = false; /* a match ended here: an empty one does not count */
    int        flags = 0;

    g->len = 0;
    add(g, "", 0);
    while (regexec(&r->re, name, GROUPS, m, flags) == 0) {
        size_t end = (size_t)m[0].rm_eo;
        bool   empty = m[0].rm_so == m[0].rm_eo, counts = !empty || end > 0 || !behind;

        add(g, name, (size_t)m[0].rm_so);
        if (counts)
            add_match(g, r->to, name, m);
        name += end;
        if ((counts && !r->all) || (empty && !*name))
            break;
        if (empty) /* continue after the next letter */
            add(g, name++, 1);
        behind = !empty;
        flags = REG_NOTBOL;
    }
    add(g, name, strlen(name));
}

const char *rename_apply(const renaming *r, size_t n, const char *name, char **buf, size_t *cap)
{
    growing now = { .at = *buf, .cap = *cap }, next = { 0 };

    add(&now, name, strlen(name));
    for (size_t i = 0; i < n; i++) {
        growing spare = now;

        apply(&r[i], now.at ? now.at : "", &next);
        now = next;
        next = spare;
        now.failed = now.failed || next.failed;
    }
    free(next.at);
    *buf = now.at;
    *cap = now.cap;
    return now.failed ? NULL : now.at;
}
