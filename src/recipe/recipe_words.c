/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the words of a recipe: names with captures, numbers, axes. Every error says where, what was
 * found and what was expected. */
#include "base/checked.h"
#include "base/mem.h"
#include "recipe/recipe_text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rsd_err no_memory(const rsi_recipe_text *p)
{
    return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the recipe");
}

/* ---- characters ---- */

rsi_spotted rsi_text_here(const rsi_recipe_text *p)
{
    return (rsi_spotted){ p->line, (int)(p->at - p->line_start) + 1 };
}

rsd_err rsi_text_wrong(const rsi_recipe_text *p, rsi_spotted at, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    rsi_vfail(p->err, RSD_E_INVALID, fmt, args);
    va_end(args);
    return rsi_while(p->err, RSD_E_INVALID, "line %d, column %d", at.line, at.column);
}

rsd_err rsi_text_expected(const rsi_recipe_text *p, const char *what)
{
    size_t len = strcspn(p->at, " \t\r\n;,[]()");

    if (*p->at == '\0' || *p->at == '\n' || *p->at == ';')
        return rsi_text_wrong(p, rsi_text_here(p), "expected %s, found the end of the %s", what,
                              *p->at == ';' ? "rule" : "line");
    return rsi_text_wrong(p, rsi_text_here(p), "expected %s, found \"%.*s\"", what,
                          (int)rsi_min((int64_t)(len ? len : 1), 64), p->at);
}

void rsi_text_blank(rsi_recipe_text *p)
{
    for (;;) {
        p->at += strspn(p->at, " \t\r");
        if (*p->at == '#')
            p->at += strcspn(p->at, "\n");
        if (*p->at != '\n' || (p->at[1] != ' ' && p->at[1] != '\t'))
            return;
        p->line_start = ++p->at;
        p->line++;
    }
}

bool rsi_text_ended(const rsi_recipe_text *p)
{
    return *p->at == '\0' || *p->at == '\n' || *p->at == ';';
}

static size_t word_len(const char *at)
{
    size_t n = 0;

    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        n++;
    return n;
}

bool rsi_text_word(rsi_recipe_text *p, const char *word)
{
    size_t n = word_len(p->at);

    if (n != strlen(word) || strncmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    rsi_text_blank(p);
    return true;
}

bool rsi_text_sign(rsi_recipe_text *p, const char *sign)
{
    size_t n = strlen(sign);

    if (strncmp(p->at, sign, n) != 0)
        return false;
    p->at += n;
    rsi_text_blank(p);
    return true;
}

rsd_err rsi_text_need(rsi_recipe_text *p, const char *sign)
{
    char what[16];

    if (rsi_text_sign(p, sign))
        return RSD_OK;
    snprintf(what, sizeof(what), "\"%s\"", sign);
    return rsi_text_expected(p, what);
}

/* Copies the next n characters and moves behind them. */
static rsd_err take_text(rsi_recipe_text *p, size_t n, const char **out)
{
    char *text = rsi_arena_text(&p->recipe->mem, p->at, n);

    if (!text)
        return no_memory(p);
    p->at += n;
    rsi_text_blank(p);
    *out = text;
    return RSD_OK;
}

rsd_err rsi_text_identifier(rsi_recipe_text *p, const char *what, const char **out)
{
    static const char *const taken[] = { "and", "or",  "if",   "for", "in",       "where",
                                         "as",  "let", "else", "up",  "required", "drop" };
    size_t                   n = word_len(p->at);

    if (!rsi_is_word(p->at, n))
        return rsi_text_expected(p, what);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (strlen(taken[i]) == n && strncmp(p->at, taken[i], n) == 0)
            return rsi_text_expected(p, what);
    return take_text(p, n, out);
}

/* Digits, with a fraction unless two dots follow, as in a range, and an exponent. */
rsd_err rsi_text_number(rsi_recipe_text *p, double *out)
{
    char   text[64];
    size_t n = strspn(p->at, "0123456789");

    if (n == 0)
        return rsi_text_expected(p, "a number");
    if (p->at[n] == '.' && isdigit((unsigned char)p->at[n + 1]))
        n += 1 + strspn(p->at + n + 1, "0123456789");
    if (p->at[n] == 'e' || p->at[n] == 'E') {
        size_t sign = p->at[n + 1] == '-' || p->at[n + 1] == '+';
        size_t digits = strspn(p->at + n + 1 + sign, "0123456789");

        n += digits ? 1 + sign + digits : 0;
    }
    if (n >= sizeof(text))
        return rsi_text_expected(p, "a shorter number");
    memcpy(text, p->at, n);
    text[n] = '\0';
    *out = strtod(text, NULL);
    p->at += n;
    rsi_text_blank(p);
    return RSD_OK;
}

/* ---- expressions ---- */

static rsd_err new_expr(rsi_recipe_text *p, char op, rsi_spotted at, rsi_expr **out)
{
    rsi_expr *e = rsi_arena_array(&p->recipe->mem, 1, sizeof(*e));

    if (!e)
        return no_memory(p);
    if (++p->terms > RSI_TERMS_MOST) /* long ones are deep trees */
        return rsi_text_expected(p, "a shorter expression");
    e->op = op;
    e->at = at;
    *out = e;
    return RSD_OK;
}

/* "(a)" or "(a, b)" behind a function's name. */
static rsd_err take_arguments(rsi_recipe_text *p, rsi_expr *e)
{
    rsd_err rc = rsi_text_need(p, "(");

    if (!rc && e->op == 'h') {
        rsi_name_text *name = rsi_arena_array(&p->recipe->mem, 1, sizeof(*name));
        rsi_spotted    at = rsi_text_here(p);
        const char    *word = NULL;

        rc = name ? rsi_text_name_word(p, &word) : no_memory(p);
        if (!rc)
            rc = rsi_text_name(p, word, at, 0, name);
        e->has = name;
    } else if (!rc) {
        rc = rsi_text_expr(p, &e->a);
        if (!rc && e->op != 's')
            rc = rsi_text_need(p, ",");
        if (!rc && e->op != 's')
            rc = rsi_text_expr(p, &e->b);
    }
    return rc ? rc : rsi_text_need(p, ")");
}

static rsd_err take_operand(rsi_recipe_text *p, const rsi_expr **out)
{
    rsi_spotted at = rsi_text_here(p);
    rsi_expr   *e = NULL, *zero = NULL;
    rsd_err     rc;

    if (rsi_text_sign(p, "(")) {
        rc = rsi_text_expr(p, out);
        return rc ? rc : rsi_text_need(p, ")");
    }
    rc = new_expr(p, 'n', at, &e);
    if (rc)
        return rc;
    *out = e;
    if (rsi_text_sign(p, "-")) {
        e->op = '-';
        rc = new_expr(p, 'n', at, &zero);
        e->a = zero;
        if (!rc && p->depth >= RSI_RECIPE_DEPTH)
            rc = rsi_text_expected(p, "fewer signs");
        p->depth++;
        rc = rc ? rc : take_operand(p, &e->b);
        p->depth--;
        return rc;
    }
    if (isdigit((unsigned char)*p->at))
        return rsi_text_number(p, &e->value);
    e->op = rsi_text_word(p, "up")     ? 'u'
            : rsi_text_word(p, "min")  ? 'm'
            : rsi_text_word(p, "sqrt") ? 's'
                                       : 'v';
    if (e->op == 'v' && rsi_text_word(p, "has"))
        e->op = 'h';
    return e->op == 'v' ? rsi_text_identifier(p, "a number or its name", &e->name)
                        : take_arguments(p, e);
}

/* The operator that comes next, if it binds as tightly as `level`; 0: none. */
static char take_operator(rsi_recipe_text *p, int level)
{
    static const struct {
        const char *sign;
        char        op;
        int         level;
    } known[] = { { "<=", 'l', 2 }, { ">=", 'g', 2 }, { "==", '=', 2 }, { "!=", '!', 2 },
                  { "<", '<', 2 },  { ">", '>', 2 },  { "+", '+', 3 },  { "-", '-', 3 },
                  { "*", '*', 4 },  { "/", '/', 4 },  { "%", '%', 4 } };

    if (level == 0)
        return rsi_text_word(p, "or") ? '|' : 0;
    if (level == 1)
        return rsi_text_word(p, "and") ? '&' : 0;
    if (strncmp(p->at, "->", 2) == 0 || strncmp(p->at, "<-", 2) == 0)
        return 0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].level == level && rsi_text_sign(p, known[i].sign))
            return known[i].op;
    return 0;
}

static rsd_err take_level(rsi_recipe_text *p, int level, const rsi_expr **out)
{
    rsd_err rc = level == 4 ? take_operand(p, out) : take_level(p, level + 1, out);

    while (!rc) {
        rsi_spotted at = rsi_text_here(p);
        char        op = take_operator(p, level);
        rsi_expr   *e = NULL;

        if (!op)
            return RSD_OK;
        rc = new_expr(p, op, at, &e);
        if (rc)
            return rc;
        e->a = *out;
        rc = level == 4 ? take_operand(p, &e->b) : take_level(p, level + 1, &e->b);
        *out = e;
    }
    return rc;
}

rsd_err rsi_text_expr(rsi_recipe_text *p, const rsi_expr **out)
{
    rsd_err rc;

    if (p->depth >= RSI_RECIPE_DEPTH)
        return rsi_text_expected(p, "fewer parentheses");
    p->terms = p->depth == 0 ? 0 : p->terms;
    p->depth++;
    rc = take_level(p, 0, out);
    p->depth--;
    return rc;
}

/* ---- names ---- */

rsd_err rsi_text_name_word(rsi_recipe_text *p, const char **out)
{
    size_t n = 0;
    bool   inside = false;

    for (; p->at[n] && !strchr(" \t\r\n;", p->at[n]); n++) {
        if (p->at[n] == '{')
            inside = true;
        else if (p->at[n] == '}')
            inside = false;
        else if (!inside && strchr(",[]()=", p->at[n]))
            break;
    }
    if (n == 0)
        return rsi_text_expected(p, "the name of a tensor");
    return take_text(p, n, out);
}

/* The braces of a word that contain a comma; false: there are none. */
static bool find_choice(const char *word, const char **open, const char **close)
{
    for (const char *at = strchr(word, '{'); at; at = strchr(*close, '{')) {
        const char *comma = strchr(at, ',');

        *open = at;
        *close = strchr(at, '}');
        if (!*close)
            return false;
        if (comma && comma < *close)
            return true;
    }
    return false;
}

rsd_err rsi_text_alternatives(rsi_recipe_text *p, const char *word, rsi_spotted at, size_t *n)
{
    const char *open, *close, *again, *end;

    *n = 1;
    if (!find_choice(word, &open, &close))
        return RSD_OK;
    for (const char *c = open; c < close; c++)
        *n += *c == ',';
    if (find_choice(close, &again, &end))
        return rsi_text_wrong(p, at, "the name \"%s\" has two lists of alternatives", word);
    return *n <= RSI_SIDE_MOST ? RSD_OK : rsi_text_wrong(p, at, "too many alternatives");
}

/* The word with one of its alternatives. */
static rsd_err choose(rsi_recipe_text *p, const char *word, size_t choice, const char **out)
{
    const char *open, *close, *first;
    char       *text;
    size_t      len, head;

    *out = word;
    if (!find_choice(word, &open, &close))
        return RSD_OK;
    for (first = open + 1; choice > 0; choice--)
        first = strchr(first, ',') + 1;
    len = strcspn(first, ",}");
    head = (size_t)(open - word);
    text = rsi_arena_array(&p->recipe->mem, strlen(word) + 1, 1);
    if (!text)
        return no_memory(p);
    memcpy(text, word, head);
    memcpy(text + head, first, len);
    memcpy(text + head + len, close + 1, strlen(close + 1));
    *out = text;
    return RSD_OK;
}

/* The number of a capture in the rule. */
static rsd_err find_capture(rsi_recipe_text *p, const char *name, bool is_text, rsi_spotted at,
                            int *out)
{
    rsi_recipe_rule *rule = p->rule;

    for (int c = 0; c < rule->ncaptures; c++)
        if (strcmp(rule->capture[c], name) == 0) {
            *out = c;
            return rule->is_text[c] == is_text
                       ? RSD_OK
                       : rsi_text_wrong(p, at, "\"%s\" is both a number and text", name);
        }
    if (rule->ncaptures == RSI_CAPTURES)
        return rsi_text_wrong(p, at, "more than %d captures in a rule", RSI_CAPTURES);
    *out = rule->ncaptures;
    rule->is_text[rule->ncaptures] = is_text;
    rule->capture[rule->ncaptures++] = name;
    return RSD_OK;
}

/* "{i}", "{i+E}", "{i-E}", "{*x}" at q->at, which is in a copy of the name. */
static rsd_err take_capture(rsi_recipe_text *p, rsi_recipe_text *q, rsi_spotted at,
                            rsi_name_part *part)
{
    const char *name = NULL;
    bool        is_text;
    rsd_err     rc;

    q->at++;
    is_text = rsi_text_sign(q, "*");
    rc = rsi_text_identifier(q, "the name of a capture", &name);
    if (!rc)
        rc = find_capture(p, name, is_text, at, &part->capture);
    if (!rc && !is_text && (*q->at == '+' || *q->at == '-')) {
        part->minus = *q->at++ == '-';
        rc = rsi_text_expr(q, &part->plus);
    }
    if (!rc && *q->at != '}')
        rc = rsi_text_expected(q, "\"}\"");
    q->at += rc ? 0 : 1;
    return rc;
}

rsd_err rsi_text_name(rsi_recipe_text *p, const char *word, rsi_spotted at, size_t choice,
                      rsi_name_text *out)
{
    rsi_recipe_text q = *p;
    rsi_name_part  *part;
    size_t          most = 1;
    rsd_err         rc = choose(p, word, choice, &out->text);

    for (const char *c = rc ? "" : out->text; *c; c++)
        most += *c == '{';
    part = rsi_arena_array(&p->recipe->mem, most, sizeof(*part));
    if (!rc && !part)
        rc = no_memory(p);
    out->part = part;
    q.at = out->text;
    q.line = at.line;
    while (!rc && *q.at) {
        rsi_name_part *one = &part[out->n++];

        q.line_start = q.at - (at.column - 1);
        *one = (rsi_name_part){ .text = q.at, .len = strcspn(q.at, "{"), .capture = -1 };
        q.at += one->len;
        if (*q.at == '{')
            rc = take_capture(p, &q, at, one);
        if (!rc && one->capture >= 0)
            out->captures |= 1u << one->capture;
    }
    return rc;
}

/* ---- axes ---- */

static rsd_err take_product(rsi_recipe_text *p, const char *ends, rsi_axis *out);

/* "p:0": filled with constants; "p:_": dropped, any value. */
static rsd_err take_filling(rsi_recipe_text *p, rsi_axis *out)
{
    bool    minus;
    rsd_err rc;

    out->filled = true;
    if (rsi_text_sign(p, "_"))
        return RSD_OK;
    minus = rsi_text_sign(p, "-");
    rc = rsi_text_number(p, &out->value);
    out->value = minus ? -out->value : out->value;
    return rc;
}

static rsd_err take_factor(rsi_recipe_text *p, rsi_axis *out)
{
    double  number;
    rsd_err rc;

    *out = (rsi_axis){ .kind = RSI_AXIS_FACTOR, .literal = -1, .at = rsi_text_here(p) };
    if (rsi_text_sign(p, "...")) {
        out->kind = RSI_AXIS_REST;
        return RSD_OK;
    }
    if (rsi_text_sign(p, "(")) {
        if (p->depth >= RSI_RECIPE_DEPTH)
            return rsi_text_expected(p, "fewer parentheses");
        p->depth++;
        rc = take_product(p, ")", out);
        p->depth--;
        return rc ? rc : rsi_text_need(p, ")");
    }
    out->repeat = rsi_text_sign(p, "*");
    if (isdigit((unsigned char)*p->at)) {
        const char *start = p->at;
        size_t      n = strspn(start, "0123456789");

        rc = rsi_text_number(p, &number);
        if (rc || number < 1 || number > 1e9 || start[n] == '.' || start[n] == 'e')
            return rc ? rc : rsi_text_wrong(p, out->at, "an axis needs a size of at least 1");
        out->literal = (int64_t)number;
        out->name = rsi_arena_text(&p->recipe->mem, start, n);
        return out->name ? RSD_OK : no_memory(p);
    }
    rc = rsi_text_identifier(p, "an axis", &out->name);
    return rc || !rsi_text_sign(p, ":") ? rc : take_filling(p, out);
}

/* Puts a list of axes into one. */
static rsd_err join(rsi_recipe_text *p, rsi_axis_kind kind, const rsi_axis *list, int n,
                    rsi_spotted at, rsi_axis *out)
{
    rsi_axis *in;

    if (n == 1) {
        *out = list[0];
        return RSD_OK;
    }
    in = rsi_arena_array(&p->recipe->mem, (size_t)n, sizeof(*in));
    if (!in)
        return no_memory(p);
    memcpy(in, list, (size_t)n * sizeof(*in));
    *out = (rsi_axis){ .kind = kind, .literal = -1, .in = in, .n = n, .at = at };
    return RSD_OK;
}

enum { LIST_MOST = 32 };

/* Factors up to one of `ends`, with "+" between summands. */
static rsd_err take_product(rsi_recipe_text *p, const char *ends, rsi_axis *out)
{
    rsi_axis    factor[LIST_MOST], summand[LIST_MOST];
    rsi_spotted at = rsi_text_here(p);
    int         nfactors = 0, nsummands = 0;
    rsd_err     rc = RSD_OK;

    for (;;) {
        if (nfactors == LIST_MOST || nsummands == LIST_MOST)
            return rsi_text_expected(p, "a shorter list");
        if (nfactors == 0 || (!rsi_text_ended(p) && !strchr(ends, *p->at) && *p->at != '+'))
            rc = take_factor(p, &factor[nfactors++]);
        if (!rc && factor[nfactors - 1].kind == RSI_AXIS_REST)
            rc = rsi_text_wrong(p, factor[nfactors - 1].at, "\"...\" stands alone, not in ()");
        if (rc)
            return rc;
        if (!rsi_text_ended(p) && !strchr(ends, *p->at) && *p->at != '+')
            continue;
        rc = join(p, RSI_AXIS_PRODUCT, factor, nfactors, at, &summand[nsummands++]);
        nfactors = 0;
        if (rc || !rsi_text_sign(p, "+"))
            break;
    }
    return rc ? rc : join(p, RSI_AXIS_SUM, summand, nsummands, at, out);
}

rsd_err rsi_text_axes(rsi_recipe_text *p, rsi_recipe_item *item)
{
    rsi_axis  list[RSD_MAX_NDIM];
    rsi_axis *axis;
    bool      rest = false;
    rsd_err   rc = rsi_text_need(p, "[");

    item->has_axes = true;
    item->naxes = 0;
    while (!rc && *p->at != ']') {
        if (item->naxes == RSD_MAX_NDIM)
            return rsi_text_expected(p, "no more than 8 axes");
        rc = take_factor(p, &list[item->naxes]);
        if (!rc && list[item->naxes].kind == RSI_AXIS_REST && rest)
            rc = rsi_text_wrong(p, list[item->naxes].at, "\"...\" occurs twice");
        rest = rest || (!rc && list[item->naxes].kind == RSI_AXIS_REST);
        item->naxes++;
    }
    axis = rsi_arena_array(&p->recipe->mem, (size_t)item->naxes + 1, sizeof(*axis));
    if (!rc && !axis)
        rc = no_memory(p);
    if (rc)
        return rc;
    memcpy(axis, list, (size_t)item->naxes * sizeof(*axis));
    item->axis = axis;
    return rsi_text_need(p, "]");
}
