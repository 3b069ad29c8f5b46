/* SPDX-License-Identifier: Apache-2.0 */
/* Matches names against patterns, and suggests the name that was probably meant if none matches. */
#include "patterns.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST    255   /* of a pattern and a name compared letter by letter */
#define MOST_NAMES 20000 /* searched for the nearest one */

static int read_list(const args *a, const char *option, const char ***out, size_t *n)
{
    size_t count = args_count(a, option);

    *out = calloc(count + 1, sizeof(**out));
    if (!*out)
        return refuse(a, EXIT_COULD_NOT, "no memory for the options");
    for (size_t i = 0; i < count; i++)
        (*out)[i] = args_at(a, option, i);
    *n = count;
    return EXIT_DONE;
}

int patterns_read(const args *a, patterns *p)
{
    size_t n = 0;
    int    code = read_list(a, "include", &p->include, &p->ninclude);

    if (!code)
        code = read_list(a, "exclude", &p->exclude, &p->nexclude);
    if (!code)
        code = read_list(a, "rename", &p->rename, &n);
    if (code)
        return code;
    p->renaming = calloc(n + 1, sizeof(p->renaming[0]));
    if (!p->renaming)
        return refuse(a, EXIT_COULD_NOT, "no memory for the options");
    for (size_t i = 0; i < n; i++) {
        const char *why = rename_parse(&p->renaming[i], p->rename[i]);

        if (why)
            return misuse(a, "--rename \"%s\": %s", p->rename[i], why);
        p->nrenamings++;
    }
    return EXIT_DONE;
}

void patterns_free(patterns *p)
{
    for (size_t i = 0; i < p->nrenamings; i++)
        rename_free(&p->renaming[i]);
    free(p->renaming);
    free(p->include);
    free(p->exclude);
    free(p->rename);
    free(p->name);
    *p = (patterns){ 0 };
}

bool patterns_want(const patterns *p, const char *name)
{
    bool wanted = p->ninclude == 0;

    for (size_t i = 0; i < p->ninclude && !wanted; i++)
        wanted = fnmatch(p->include[i], name, 0) == 0;
    for (size_t i = 0; i < p->nexclude && wanted; i++)
        wanted = fnmatch(p->exclude[i], name, 0) != 0;
    return wanted;
}

const char *patterns_rename(patterns *p, const char *name)
{
    if (p->nrenamings == 0)
        return name;
    return rename_apply(p->renaming, p->nrenamings, name, &p->name, &p->name_cap);
}

bool patterns_names(rsd_ckpt *ckpt, const char ***name, size_t *n)
{
    const size_t    tensors = rsd_ckpt_tensors(ckpt), objects = rsd_ckpt_objects(ckpt);
    const char    **more = realloc(*name, (*n + tensors + objects + 1) * sizeof(more[0]));
    rsd_tensor_info info = { .size = sizeof(info) };

    if (!more)
        return false;
    *name = more;
    for (size_t t = 0; t < tensors; t++)
        if (rsd_ckpt_tensor(ckpt, t, &info, NULL) == RSD_OK)
            more[(*n)++] = info.name;
    for (size_t i = 0; i < objects; i++)
        if (rsd_ckpt_object(ckpt, i, &more[*n], NULL, NULL, NULL) == RSD_OK)
            (*n)++;
    return true;
}

/* ---- suggestions ---- */

/* Letters to insert, remove or change so that the name matches; `*` and `?` are free. */
static size_t distance(const char *glob, const char *name)
{
    size_t       row[LONGEST + 1];
    const size_t lg = strlen(glob), ln = strlen(name);

    if (lg > LONGEST || ln > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= ln; j++)
        row[j] = j;
    for (size_t i = 1; i <= lg; i++) {
        const bool star = glob[i - 1] == '*';
        size_t     diagonal = row[0];

        row[0] += !star;
        for (size_t j = 1; j <= ln; j++) {
            const bool   same = glob[i - 1] == name[j - 1] || glob[i - 1] == '?';
            const size_t change = diagonal + !same, drop = row[j] + !star;
            const size_t take = row[j - 1] + !star;
            size_t       least = change < drop ? change : drop;

            diagonal = row[j];
            row[j] = take < least ? take : least;
        }
    }
    return row[ln];
}

static const char *nearest_name(const char *glob, const char *const *name, size_t n)
{
    const char *best = NULL;
    size_t      letters = 0, least;

    for (const char *at = glob; *at; at++)
        letters += *at != '*' && *at != '?';
    least = (letters + 1) / 3; /* more: a different name */
    for (size_t i = 0; i < n && i < MOST_NAMES && least > 0; i++) {
        size_t d = distance(glob, name[i]);

        if (d <= least && d < letters) {
            best = name[i];
            least = d - (d > 0);
        }
    }
    return best;
}

int patterns_missing(const args *a, rsd_ckpt *ckpt, const char *what, const char *glob)
{
    const char **name = NULL, *near;
    size_t       n = 0;
    int          code;

    near = patterns_names(ckpt, &name, &n) ? nearest_name(glob, name, n) : NULL;
    code = refuse(a, EXIT_NO, "%s in \"%s\" is called \"%s\"%s%s%s", what, a->operand[0], glob,
                  near ? "; the closest name is \"" : "", near ? near : "", near ? "\"" : "");
    free(name);
    return code;
}

static void warn(const args *a, const char *option, const char *pattern, const char *near)
{
    if (!speaks(a))
        return;
    fprintf(stderr, "reshard: warning: --%s \"", option);
    print_safe(stderr, pattern);
    fprintf(stderr, "\" matches nothing");
    if (near) {
        fprintf(stderr, "; the closest name is \"");
        print_safe(stderr, near);
        fprintf(stderr, "\"");
    }
    fprintf(stderr, "\n");
}

void patterns_warn_glob(const args *a, const char *option, const char *glob,
                        const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(glob, name[i], 0) == 0)
            return;
    warn(a, option, glob, nearest_name(glob, name, n));
}

/* "s/^mdoel\.(.*)/x/" as "mdoel.*": close enough to find what was meant. */
static void loosen(const char *text, char *glob, size_t cap)
{
    const char end = text[1];
    size_t     n = 0;

    if (text[2] != '^')
        glob[n++] = '*';
    for (const char *at = text + 2 + (text[2] == '^'); *at && *at != end && n + 2 < cap; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (strchr(".*+?()[]{}|^$", *at)) {
            if (n == 0 || glob[n - 1] != '*')
                glob[n++] = '*';
            continue;
        }
        glob[n++] = *at;
    }
    if (n == 0 || glob[n - 1] != '*')
        glob[n++] = '*';
    glob[n] = '\0';
}

void patterns_warn_exclude(const args *a, const patterns *p, const char *const *name, size_t n)
{
    for (size_t i = 0; i < p->nexclude; i++)
        patterns_warn_glob(a, "exclude", p->exclude[i], name, n);
}

void patterns_warn_rename(const args *a, const patterns *p, const char *const *name, size_t n)
{
    char glob[LONGEST + 1];

    for (size_t r = 0; r < p->nrenamings; r++) {
        bool met = false; /* on names already changed by earlier renamings */

        for (size_t i = 0; i < n && !met; i++) {
            char       *buf = NULL;
            size_t      cap = 0;
            const char *before = rename_apply(p->renaming, r, name[i], &buf, &cap);

            met = !before || regexec(&p->renaming[r].re, before, 0, NULL, 0) == 0;
            free(buf);
        }
        loosen(p->rename[r], glob, sizeof(glob));
        if (!met)
            warn(a, "rename", p->rename[r], nearest_name(glob, name, n));
    }
}
