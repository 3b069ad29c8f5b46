/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line after the command's name: options before, between and after the operands,
 * "--opt=value", "--opt value", "-q", "-j4", "-j 4", several flags in one ("-qv"); "--" ends the
 * options. Values are checked by kind, so that commands can rely on them; their meaning is up to
 * the commands. */
#include "cli.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const option_spec help_option = { "help", 'h', OPT_FLAG, NULL, "print this text" };

/* ---- values ---- */

bool size_parse(const char *text, uint64_t *out)
{
    static const char  units[] = "KMGT";
    unsigned long long n;
    uint64_t           unit = 1, base = 1024;
    const char        *at;
    char              *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    n = strtoull(text, &end, 10);
    if (errno)
        return false;
    at = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (at) {
        end++;
        base = strcasecmp(end, "b") == 0 ? 1000 : 1024;
        for (const char *u = units; u <= at; u++)
            unit *= base;
        end += strcasecmp(end, "ib") == 0;
    }
    end += strcasecmp(end, "b") == 0;
    if (*end || n > UINT64_MAX / unit)
        return false;
    *out = n * unit;
    return true;
}

static bool count_parse(const char *text, int32_t *out)
{
    char *end;
    long  n;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    n = strtol(text, &end, 10);
    if (errno || *end || n > INT32_MAX)
        return false;
    *out = (int32_t)n;
    return true;
}

static bool real_parse(const char *text, double *out)
{
    char  *end;
    double x;

    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    x = strtod(text, &end);
    if (end == text || *end || !isfinite(x))
        return false;
    *out = x;
    return true;
}

static bool is_choice(const char *choices, const char *value)
{
    size_t len = strlen(value);

    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (len > 0 && strncmp(at, value, len) == 0 && (at[len] == '|' || at[len] == '\0'))
            return true;
    }
    return false;
}

static int check_value(const args *a, const option_spec *spec, const char *value)
{
    uint64_t size;
    int32_t  count;
    double   real;

    switch (spec->kind) {
    case OPT_SIZE:
        if (!size_parse(value, &size))
            return misuse(a, "--%s takes a size such as 64M or 5G, not \"%s\"", spec->name, value);
        break;
    case OPT_COUNT:
        if (!count_parse(value, &count))
            return misuse(a, "--%s takes a whole number, not \"%s\"", spec->name, value);
        break;
    case OPT_REAL:
        if (!real_parse(value, &real))
            return misuse(a, "--%s takes a number from 0 on, not \"%s\"", spec->name, value);
        break;
    case OPT_CHOICE:
        if (!is_choice(spec->value, value))
            return misuse(a, "--%s takes one of %s, not \"%s\"", spec->name, spec->value, value);
        break;
    case OPT_FLAG:
    case OPT_TEXT:
    case OPT_PATH:
    case OPT_NAME:
    case OPT_DTYPE:
        break;
    }
    return EXIT_DONE;
}

/* ---- parsing ---- */

static const option_spec *find_long(const command *cmd, const char *name, size_t len)
{
    for (const option_spec *o = cmd->options; o && o->name; o++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return len == 4 && memcmp(name, "help", 4) == 0 ? &help_option : NULL;
}

static const option_spec *find_short(const command *cmd, char letter)
{
    for (const option_spec *o = cmd->options; o && o->name; o++)
        if (o->letter == letter)
            return o;
    return letter == 'h' ? &help_option : NULL;
}

static int keep(args *a, const option_spec *spec, const char *value)
{
    int rc = spec->kind == OPT_FLAG ? EXIT_DONE : check_value(a, spec, value);

    if (rc)
        return rc;
    if (spec == &help_option)
        a->help = true;
    else
        a->given[a->ngiven++] = (given_option){ spec, value };
    return EXIT_DONE;
}

static int unknown_option(const args *a, const char *name, size_t len)
{
    const char *word[64];
    size_t      n = 0;
    char        wrong[64];
    const char *near;

    snprintf(wrong, sizeof(wrong), "%.*s", (int)(len < 60 ? len : 60), name);
    for (const option_spec *o = a->cmd->options; o && o->name && n < 63; o++)
        word[n++] = o->name;
    word[n] = NULL;
    near = nearest(wrong, word);
    if (near)
        return misuse(a, "%s has no option \"--%s\"; did you mean \"--%s\"?", a->cmd->name, wrong,
                      near);
    return misuse(a, "%s has no option \"--%s\"", a->cmd->name, wrong);
}

/* `next` is the next word of the command line, NULL at its end; it is consumed if it is the
 * value. */
static int take_long(args *a, const char *word, const char *next, bool *took)
{
    const char        *equals = strchr(word, '=');
    const size_t       len = equals ? (size_t)(equals - word) : strlen(word);
    const option_spec *spec = find_long(a->cmd, word, len);

    if (!spec)
        return unknown_option(a, word, len);
    if (spec->kind == OPT_FLAG && equals)
        return misuse(a, "--%s takes no value", spec->name);
    if (spec->kind == OPT_FLAG)
        return keep(a, spec, NULL);
    if (equals)
        return keep(a, spec, equals + 1);
    if (!next)
        return misuse(a, "--%s needs a value: %s", spec->name, spec->value);
    *took = true;
    return keep(a, spec, next);
}

static int take_short(args *a, const char *letters, const char *next, bool *took)
{
    for (const char *at = letters; *at; at++) {
        const option_spec *spec = find_short(a->cmd, *at);
        int                rc;

        if (!spec)
            return misuse(a, "%s has no option \"-%c\"", a->cmd->name, *at);
        if (spec->kind != OPT_FLAG) {
            if (at[1])
                return keep(a, spec, at + 1);
            if (!next)
                return misuse(a, "-%c needs a value: %s", *at, spec->value);
            *took = true;
            return keep(a, spec, next);
        }
        rc = keep(a, spec, NULL);
        if (rc)
            return rc;
    }
    return EXIT_DONE;
}

static int check_operands(const args *a)
{
    const command *cmd = a->cmd;

    if (a->help)
        return EXIT_DONE;
    if (a->noperands < (size_t)cmd->min)
        return misuse(a, "%s needs %s", cmd->name, cmd->operands);
    if (cmd->max >= 0 && a->noperands > (size_t)cmd->max) {
        if (cmd->max == 0)
            return misuse(a, "%s takes no operands, found \"%s\"", cmd->name, a->operand[0]);
        return misuse(a, "%s takes only %s, found \"%s\" too", cmd->name, cmd->operands,
                      a->operand[cmd->max]);
    }
    return EXIT_DONE;
}

int args_parse(args *a, const command *cmd, int argc, const char *const *argv)
{
    bool   options = true;
    size_t given = 1; /* upper bound: "-abc" holds several */

    a->cmd = cmd;
    for (int i = 0; i < argc; i++)
        given += argv[i][0] == '-' ? strlen(argv[i]) : 0;
    a->operand = calloc((size_t)argc + 1, sizeof(*a->operand));
    a->given = calloc(given, sizeof(*a->given));
    if (!a->operand || !a->given)
        return refuse(a, EXIT_COULD_NOT, "no memory for %d arguments", argc);
    for (int i = 0; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        bool        took = false;
        int         rc = EXIT_DONE;

        if (!options || argv[i][0] != '-' || argv[i][1] == '\0')
            a->operand[a->noperands++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            options = false;
        else if (argv[i][1] == '-')
            rc = take_long(a, argv[i] + 2, next, &took);
        else
            rc = take_short(a, argv[i] + 1, next, &took);
        if (rc)
            return rc;
        i += took;
    }
    return check_operands(a);
}

void args_free(args *a)
{
    free(a->operand);
    free(a->given);
    a->operand = NULL;
    a->given = NULL;
}

/* ---- asking ---- */

size_t args_count(const args *a, const char *name)
{
    size_t n = 0;

    assert(find_long(a->cmd, name, strlen(name)));
    for (size_t i = 0; i < a->ngiven; i++)
        n += strcmp(a->given[i].spec->name, name) == 0;
    return n;
}

bool args_has(const args *a, const char *name)
{
    return args_count(a, name) > 0;
}

const char *args_at(const args *a, const char *name, size_t i)
{
    for (size_t g = 0; g < a->ngiven; g++)
        if (strcmp(a->given[g].spec->name, name) == 0 && i-- == 0)
            return a->given[g].value;
    return NULL;
}

const char *args_text(const args *a, const char *name, const char *otherwise)
{
    const size_t n = args_count(a, name);

    return n ? args_at(a, name, n - 1) : otherwise;
}

uint64_t args_size(const args *a, const char *name, uint64_t otherwise)
{
    const char *text = args_text(a, name, NULL);

    if (text)
        size_parse(text, &otherwise);
    return otherwise;
}

int32_t args_number(const args *a, const char *name, int32_t otherwise)
{
    const char *text = args_text(a, name, NULL);

    if (text)
        count_parse(text, &otherwise);
    return otherwise;
}

double args_real(const args *a, const char *name, double otherwise)
{
    const char *text = args_text(a, name, NULL);

    if (text)
        real_parse(text, &otherwise);
    return otherwise;
}
