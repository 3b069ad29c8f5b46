/* SPDX-License-Identifier: Apache-2.0 */
/* reshard __complete WORD...: prints the completions of the last word, one per line, for the
 * scripts of complete.c: names of tensors and objects, dtypes. Prints nothing where shells know
 * better (files, options) or on any error: messages would disturb a user who presses Tab. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LINES   1000
#define LAST_DTYPE   127
#define LONGEST_NAME 4096

/* The words before the last one. */
typedef struct line {
    const option_spec *awaited; /* the option whose value is the last word */
    const char        *first;   /* operand; NULL: none yet */
    size_t             operands;
} line;

static const option_spec *find_option(const command *cmd, const char *word)
{
    const size_t len = word[1] == '-' ? strcspn(word + 2, "=") : 1;

    for (const option_spec *o = cmd->options; o && o->name; o++) {
        const bool is_long =
            word[1] == '-' && strlen(o->name) == len && memcmp(o->name, word + 2, len) == 0;

        if (is_long || (word[1] != '-' && o->letter && o->letter == word[1] && !word[2]))
            return o;
    }
    return NULL;
}

static line read_line(const command *cmd, int n, const char *const *word)
{
    line l = { 0 };

    for (int i = 0; i < n; i++) {
        const option_spec *o;

        if (l.awaited) {
            l.awaited = NULL;
        } else if (word[i][0] != '-') {
            l.first = l.operands++ ? l.first : word[i];
        } else {
            o = find_option(cmd, word[i]);
            l.awaited = o && o->kind != OPT_FLAG && !strchr(word[i], '=') ? o : NULL;
        }
    }
    return l;
}

/* ---- dtypes ---- */

/* [GLOB=]DTYPE: keeps everything up to the last equals sign. */
static void print_dtypes(const char *before, const char *typed)
{
    const char  *sign = strrchr(typed, '=');
    const char  *start = sign ? sign + 1 : typed;
    const size_t len = strlen(start);

    for (int d = 1; d <= LAST_DTYPE; d++) {
        const char *name = rsd_dtype_name((rsd_dtype)d);

        if (name && strncmp(name, start, len) == 0)
            printf("%s%.*s%s\n", before, (int)(start - typed), typed, name);
    }
}

/* ---- names ---- */

typedef struct found {
    char **name; /* [n] */
    size_t n;
} found;

/* True for a single line without characters that a terminal acts on. */
static bool is_plain(const char *name)
{
    uint32_t code;
    size_t   n;

    for (const char *at = name; *at; at += n) {
        n = utf8_code(at, &code);
        if (n == 0 || is_hidden(code))
            return false;
    }
    return strlen(name) < LONGEST_NAME;
}

static int by_name(const void *a, const void *b)
{
    return name_compare(*(char *const *)a, *(char *const *)b);
}

static void collect(rsd_ckpt *ckpt, const char *typed, found *f)
{
    const size_t tensors = rsd_ckpt_tensors(ckpt), all = tensors + rsd_ckpt_objects(ckpt);
    const size_t len = strlen(typed);

    f->name = calloc(all + 1, sizeof(*f->name));
    for (size_t i = 0; f->name && i < all; i++) {
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_err         rc;

        if (i < tensors)
            rc = rsd_ckpt_tensor(ckpt, i, &info, NULL);
        else
            rc = rsd_ckpt_object(ckpt, i - tensors, &info.name, NULL, NULL, NULL);
        if (rc || strncmp(info.name, typed, len) != 0 || !is_plain(info.name))
            continue;
        f->name[f->n] = strdup(info.name);
        f->n += f->name[f->n] != NULL;
    }
    if (f->n)
        qsort(f->name, f->n, sizeof(*f->name), by_name);
}

/* The length up to and including the next dot after `len` characters, or of the whole name. */
static size_t step(const char *name, size_t len)
{
    const char *dot = strchr(name + len, '.');

    return dot ? (size_t)(dot - name) + 1 : strlen(name);
}

/* Completes one part at a time, like folders; parts with only one continuation are joined. */
static void print_names(const found *f, const char *before, size_t len)
{
    size_t lines = 0;

    while (f->n && f->name[0][len]) {
        const size_t next = step(f->name[0], len);

        if (strncmp(f->name[0], f->name[f->n - 1], next) != 0 || strlen(f->name[f->n - 1]) < next)
            break;
        len = next;
        if (f->name[0][len - 1] != '.')
            break;
    }
    for (size_t i = 0; i < f->n && lines < MOST_LINES; lines++) {
        const size_t next = step(f->name[i], len);
        const char  *name = f->name[i];

        printf("%s%.*s\n", before, (int)next, name);
        while (i < f->n && strncmp(f->name[i], name, next) == 0 &&
               (name[next - 1] == '.' || !f->name[i][next]))
            i++;
    }
}

static void suggest_names(const char *path, const char *before, const char *typed)
{
    rsd_ckpt *ckpt = NULL;
    found     f = { 0 };

    if (!path || rsd_ckpt_open(NULL, path, &ckpt, NULL))
        return;
    collect(ckpt, typed, &f);
    print_names(&f, before, strlen(typed));
    for (size_t i = 0; i < f.n; i++)
        free(f.name[i]);
    free(f.name);
    rsd_ckpt_close(ckpt);
}

/* ---- the words ---- */

int complete_words(int n, const char *const *word)
{
    const command *cmd = n > 1 ? command_find(word[0]) : NULL;
    const char    *last = n > 1 ? word[n - 1] : "", *equals = strchr(last, '=');
    char           before[64] = "";
    line           l;

    if (!cmd)
        return EXIT_DONE;
    l = read_line(cmd, n - 2, word + 1);
    if (!l.awaited && strncmp(last, "--", 2) == 0) { /* --option=value */
        l.awaited = equals ? find_option(cmd, last) : NULL;
        if (!l.awaited || (size_t)(equals - last) + 2 > sizeof(before))
            return EXIT_DONE;
        snprintf(before, sizeof(before), "%.*s", (int)(equals - last) + 1, last);
        last = equals + 1;
    }
    if (l.awaited && l.awaited->kind == OPT_DTYPE)
        print_dtypes(before, last);
    else if (l.awaited && l.awaited->kind == OPT_NAME)
        suggest_names(l.first, before, last);
    else if (!l.awaited && l.operands > 0 && strstr(cmd->operands, "NAME"))
        suggest_names(l.first, before, last);
    return EXIT_DONE;
}
