/* SPDX-License-Identifier: Apache-2.0 */
/* Matches the regular expressions of Python by which DeepSpeed names parameters: characters,
 * classes, ".", "\d" and its likes, "*", "+", "?", "^" and "$". The time is the product of both
 * lengths, whatever the pattern, since the files are not trusted. */
#include "base/mem.h"
#include "format/zero_core.h"

#include <ctype.h>
#include <string.h>

/* One place of a pattern. */
typedef struct atom {
    enum { CHARACTER, ANY, CLASS, BEGIN, END } kind;
    char        c;   /* of a character; of a class outside brackets the letter: "d" of "\d" */
    const char *set; /* [len] inside the brackets; NULL: a class named by `c` */
    size_t      len;
    char        repeat; /* '*', '+', '?'; '\0': once */
} atom;

static bool in_class(char name, unsigned char c)
{
    switch (name) {
    case 'd':
        return isdigit(c);
    case 'D':
        return !isdigit(c);
    case 'w':
        return isalnum(c) || c == '_';
    case 'W':
        return !isalnum(c) && c != '_';
    case 's':
        return isspace(c);
    default: /* 'S' */
        return !isspace(c);
    }
}

static bool is_class(char c)
{
    return c && strchr("dDwWsS", c);
}

static bool in_set(const char *set, size_t len, unsigned char c)
{
    const bool negated = len > 0 && set[0] == '^';
    bool       found = false;

    for (size_t i = negated; i < len; i++) {
        const bool    escaped = set[i] == '\\' && i + 1 < len;
        unsigned char low = (unsigned char)set[escaped ? ++i : i];

        if (escaped && is_class((char)low)) {
            found = found || in_class((char)low, c);
        } else if (i + 2 < len && set[i + 1] == '-') {
            found = found || (c >= low && c <= (unsigned char)set[i + 2]);
            i += 2;
        } else {
            found = found || c == low;
        }
    }
    return found != negated;
}

static bool matches(const atom *a, char c)
{
    if (a->kind == CHARACTER)
        return a->c == c;
    if (a->kind == CLASS)
        return a->set ? in_set(a->set, a->len, (unsigned char)c) : in_class(a->c, (unsigned char)c);
    return c != '\n';
}

/* Reads the atom at *at and moves behind it; false if it is none of the known ones. */
static bool take_atom(const char **at, atom *out)
{
    const char c = *(*at)++;

    *out = (atom){ .kind = CHARACTER, .c = c };
    if (c == '(' || c == ')' || c == '|' || c == '{' || c == '}' || c == '*' || c == '+' ||
        c == '?' || c == ']')
        return false;
    if (c == '^' || c == '$') {
        out->kind = c == '^' ? BEGIN : END;
        return true;
    }
    if (c == '.') {
        out->kind = ANY;
    } else if (c == '\\') {
        out->c = *(*at);
        if (!out->c || (isalnum((unsigned char)out->c) && !is_class(out->c)))
            return false;
        out->kind = is_class(out->c) ? CLASS : CHARACTER;
        ++*at;
    } else if (c == '[') {
        out->kind = CLASS;
        out->set = *at;
        *at += **at == '^';
        *at += **at == ']'; /* stands for itself in front */
        while (**at && **at != ']')
            *at += **at == '\\' && (*at)[1] ? 2 : 1;
        out->len = (size_t)(*at - out->set);
        if (!*(*at)++)
            return false;
    }
    if (**at && strchr("*+?", **at)) {
        out->repeat = *(*at)++;
        *at += **at == '?'; /* lazy: matches the same names */
    }
    return true;
}

/* Moves all ends of what matched so far past the atom; end[i]: the first i characters match. */
static void step(const atom *a, const char *name, size_t n, bool *end)
{
    if (a->kind == BEGIN || a->kind == END) {
        for (size_t i = 0; i <= n; i++)
            end[i] = end[i] && i == (a->kind == BEGIN ? 0 : n);
        return;
    }
    if (a->repeat != '*')
        for (size_t i = n + 1; i-- > 0;) {
            const bool once = i > 0 && end[i - 1] && matches(a, name[i - 1]);

            end[i] = once || (a->repeat == '?' && end[i]);
        }
    if (a->repeat == '*' || a->repeat == '+')
        for (size_t i = 1; i <= n; i++)
            end[i] = end[i] || (end[i - 1] && matches(a, name[i - 1]));
}

rsd_err rsi_zero_match(const char *pattern, const char *name, bool *out, rsd_error *err)
{
    const size_t n = strlen(name);
    bool        *end = rsi_calloc(n + 1, sizeof(end[0]));
    rsd_err      rc = RSD_OK;

    if (!end)
        return rsi_torch_no_memory(err);
    end[0] = true;
    for (const char *at = pattern; *at && !rc;) {
        atom a;

        if (!take_atom(&at, &a))
            rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                          "the pattern \"%.100s\" of its parameters is not understood", pattern);
        else
            step(&a, name, n, end);
    }
    *out = false;
    for (size_t i = 0; i <= n && !rc; i++)
        *out = *out || end[i];
    rsi_free(end);
    return rc;
}
