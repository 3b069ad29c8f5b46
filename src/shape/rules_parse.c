/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text form of layouts. Every error says where, what was found and what was expected. */
#include "base/checked.h"
#include "base/mem.h"
#include "shape/rules.h"

#include <inttypes.h>
#include <string.h>

typedef struct parser {
    const char *at;
    const char *line_start;
    int         line;
    rsd_rules  *rules;
    size_t      cap; /* of rules->rule */
    rsd_error  *err;
} parser;

/* Stops at a character that can't belong to a word; `also` lists further ones. */
static size_t word_len(const char *at, const char *also)
{
    size_t n = 0;

    while (at[n] && !strchr(" \t\r\n;", at[n]) && !strchr(also, at[n]))
        n++;
    return n;
}

static rsd_err expected(const parser *p, const char *what)
{
    size_t len = word_len(p->at, "");
    int    column = (int)(p->at - p->line_start) + 1;

    if (*p->at == ' ' || *p->at == '\t')
        return rsi_fail(p->err, RSD_E_INVALID, "line %d, column %d: expected %s, found a space",
                        p->line, column, what);
    if (len == 0)
        return rsi_fail(p->err, RSD_E_INVALID,
                        "line %d, column %d: expected %s, found the end of the %s", p->line, column,
                        what, *p->at == ';' ? "rule" : "line");
    return rsi_fail(p->err, RSD_E_INVALID, "line %d, column %d: expected %s, found \"%.*s\"",
                    p->line, column, what, (int)rsi_min((int64_t)len, 64), p->at);
}

/* Skips spaces and a comment, up to the next word or the end of the statement. */
static void skip_blank(parser *p)
{
    p->at += strspn(p->at, " \t\r");
    if (*p->at == '#')
        p->at += strcspn(p->at, "\n");
}

static bool at_end(const parser *p)
{
    return *p->at == '\0' || *p->at == '\n' || *p->at == ';';
}

/* Moves to the first word of the next statement; false at the end of the text. */
static bool next_statement(parser *p)
{
    for (skip_blank(p); at_end(p); skip_blank(p)) {
        if (*p->at == '\0')
            return false;
        if (*p->at++ == '\n') {
            p->line++;
            p->line_start = p->at;
        }
    }
    return true;
}

static rsd_err take_number(parser *p, int64_t low, int64_t high, const char *what, int64_t *out)
{
    const char *at = p->at;
    bool        negative = *at == '-';
    int64_t     value = 0;

    if (negative)
        at++;
    if (*at < '0' || *at > '9')
        return expected(p, what);
    for (; *at >= '0' && *at <= '9'; at++)
        if (!rsi_mul(value, 10, &value) || !rsi_add(value, *at - '0', &value))
            return expected(p, what);
    value = negative ? -value : value;
    if (value < low || value > high)
        return expected(p, what);
    p->at = at;
    *out = value;
    return RSD_OK;
}

static rsd_err take_char(parser *p, char c, const char *what)
{
    if (*p->at != c)
        return expected(p, what);
    p->at++;
    return RSD_OK;
}

/* "3,1,2" or "0-3,8-11" after "ranks=", at most `most` ranks. */
static rsd_err take_ranks(parser *p, int64_t most, int32_t **out, size_t *n)
{
    int32_t *ranks = NULL;
    size_t   cap = 0;
    int64_t  first, last;
    rsd_err  rc;

    *n = 0;
    do {
        rc = take_number(p, 0, INT32_MAX - 1, "a rank", &first);
        last = first;
        if (!rc && *p->at == '-') {
            p->at++;
            rc = take_number(p, first, INT32_MAX - 1, "a rank not below the first of its range",
                             &last);
        }
        if (!rc && last - first >= most - (int64_t)*n)
            rc = rsi_fail(p->err, RSD_E_INVALID,
                          "line %d, column %d: the mesh has %" PRId64
                          " places, but more ranks are listed",
                          p->line, (int)(p->at - p->line_start) + 1, most);
        for (int64_t r = first; !rc && r <= last; r++) {
            if (rsi_grow(&ranks, *n, &cap, sizeof(ranks[0])))
                ranks[(*n)++] = (int32_t)r;
            else
                rc = rsi_fail(p->err, RSD_E_NOMEM, "no memory for a list of ranks");
        }
    } while (!rc && *p->at == ',' && p->at++);
    if (!rc && word_len(p->at, "") > 0)
        rc = expected(p, "\",\" or the end of the list of ranks");
    if (rc)
        rsi_free(ranks);
    else
        *out = ranks;
    return rc;
}

/* A mesh while its line is being read. */
typedef struct mesh_line {
    int64_t     shape[RSD_MAX_NDIM], size;
    const char *name[RSD_MAX_NDIM];
    int         naxes;
    int32_t    *ranks;
    size_t      nranks;
    int         line, column; /* where it starts */
} mesh_line;

/* "dp=2" or "ranks=0,1" */
static rsd_err take_mesh_word(parser *p, mesh_line *m)
{
    size_t  len = word_len(p->at, "=");
    bool    is_ranks = len == 5 && strncmp(p->at, "ranks", 5) == 0;
    rsd_err rc;

    if (m->ranks)
        return expected(p, "the end of the line after the ranks");
    if (len == 0 || p->at[len] != '=')
        return expected(p, "AXIS=SIZE");
    if (!is_ranks && m->naxes == RSD_MAX_NDIM)
        return expected(p, "no more than 8 axes");
    if (!is_ranks) {
        m->name[m->naxes] = rsi_arena_text(&p->rules->mem, p->at, len);
        if (!m->name[m->naxes])
            return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the rules");
    }
    p->at += len + 1;
    if (is_ranks)
        rc = take_ranks(p, m->size, &m->ranks, &m->nranks);
    else
        rc = take_number(p, 1, INT32_MAX - 1, "a size of at least 1", &m->shape[m->naxes]);
    if (!rc && word_len(p->at, "") > 0)
        rc = expected(p, "a space after the size");
    if (!rc && !is_ranks &&
        (!rsi_mul(m->size, m->shape[m->naxes++], &m->size) || m->size >= INT32_MAX))
        rc = rsi_fail(p->err, RSD_E_INVALID,
                      "line %d, column %d: a mesh can't have more than %d ranks", m->line,
                      m->column, INT32_MAX - 1);
    return rc;
}

/* "dp=2 tp=4 ranks=..." after the word "mesh". Without axes it is one rank. */
static rsd_err take_mesh(parser *p)
{
    mesh_line m = { .size = 1, .line = p->line, .column = (int)(p->at - p->line_start) + 1 };
    rsd_err   rc = RSD_OK;

    p->at += strlen("mesh");
    for (skip_blank(p); !at_end(p) && !rc; skip_blank(p))
        rc = take_mesh_word(p, &m);
    if (!rc && m.ranks && m.size != (int64_t)m.nranks)
        rc = rsi_fail(p->err, RSD_E_INVALID,
                      "line %d, column %d: the mesh has %" PRId64 " places but %zu ranks", m.line,
                      m.column, m.size, m.nranks);
    if (!rc) {
        rc = rsd_mesh_create(m.naxes, m.shape, m.name, m.ranks, &p->rules->mesh, p->err);
        if (rc)
            rsi_while(p->err, rc, "line %d, column %d", m.line, m.column);
    }
    rsi_free(m.ranks);
    return rc;
}

static rsd_err take_axis(parser *p, const char *stops, int *out)
{
    const rsd_mesh *mesh = p->rules->mesh;
    size_t          len = word_len(p->at, stops);

    for (int a = 0; a < mesh->ndim; a++)
        if (strlen(mesh->axis[a]) == len && strncmp(mesh->axis[a], p->at, len) == 0) {
            p->at += len;
            *out = a;
            return RSD_OK;
        }
    return expected(p, "an axis of the mesh");
}

static rsd_err take_reduction(parser *p, rsd_reduce *out)
{
    size_t len = word_len(p->at, ")");

    for (int r = RSD_SUM; r <= RSD_PRODUCT; r++)
        if (strlen(rsi_reductions[r]) == len && strncmp(rsi_reductions[r], p->at, len) == 0) {
            p->at += len;
            *out = (rsd_reduce)r;
            return RSD_OK;
        }
    return expected(p, "sum, avg, min, max or product");
}

/* The arguments in a placement's parentheses. */
static rsd_err take_arguments(parser *p, rsd_placement *place)
{
    int64_t dim = 0;
    rsd_err rc = take_char(p, '(', "\"(\"");

    skip_blank(p);
    if (rc)
        return rc;
    if (place->kind == RSD_PARTIAL) {
        rc = take_reduction(p, &place->reduce);
    } else {
        rc = take_number(p, -RSD_MAX_NDIM, RSD_MAX_NDIM - 1, "a dimension", &dim);
        place->dim = (int32_t)dim;
    }
    skip_blank(p);
    if (!rc && place->kind == RSD_STRIDED) {
        rc = take_char(p, ',', "\",\" and a split factor");
        skip_blank(p);
        if (!rc)
            rc = take_number(p, 1, INT64_MAX, "a split factor of at least 1", &place->split);
        skip_blank(p);
    }
    return rc ? rc : take_char(p, ')', "\")\"");
}

/* One of replicate[@AXIS], shard(D)@AXIS, strided(D,S)@AXIS, partial(OP)@AXIS. */
static rsd_err take_placement(parser *p, rsi_rule *rule)
{
    static const char *const words[] = { "", "replicate", "shard", "strided", "partial" };
    const char *const        what = "replicate, shard(DIM)@AXIS, strided(DIM,SPLIT)@AXIS, "
                                    "partial(OP)@AXIS or on AXIS=INDEX";
    size_t                   len = word_len(p->at, "(@");
    rsd_placement            place = { 0 };
    const char              *start;
    int                      axis = 0;
    rsd_err                  rc = RSD_OK;

    for (int k = RSD_REPLICATE; k <= RSD_PARTIAL; k++)
        if (strlen(words[k]) == len && strncmp(words[k], p->at, len) == 0)
            place.kind = (rsd_place_kind)k;
    if (!place.kind)
        return expected(p, what);
    p->at += len;
    if (place.kind == RSD_REPLICATE && *p->at != '@')
        return word_len(p->at, "") ? expected(p, "a space after \"replicate\"") : RSD_OK;
    if (place.kind != RSD_REPLICATE)
        rc = take_arguments(p, &place);
    if (!rc)
        rc = take_char(p, '@', "\"@\" and an axis of the mesh");
    if (rc)
        return rc;
    start = p->at;
    rc = take_axis(p, "", &axis);
    if (!rc && rule->named[axis]) {
        p->at = start;
        rc = expected(p, "an axis that the rule has not named yet");
    }
    if (rc)
        return rc;
    rule->named[axis] = true;
    rule->place[axis] = place;
    return RSD_OK;
}

/* "on pp=0": one or more AXIS=INDEX up to the end of the rule. */
static rsd_err take_on(parser *p, rsi_rule *rule)
{
    skip_blank(p);
    do {
        const char *start = p->at;
        int         axis = 0;
        rsd_err     rc = take_axis(p, "=", &axis);

        if (!rc && (rule->named[axis] || rule->on[axis] >= 0)) {
            p->at = start;
            rc = expected(p, "an axis that the rule has not named yet");
        }
        if (!rc)
            rc = take_char(p, '=', "\"=\" and an index on the axis");
        if (!rc)
            rc = take_number(p, 0, p->rules->mesh->shape[axis] - 1, "an index on the axis",
                             &rule->on[axis]);
        if (!rc && word_len(p->at, "") > 0)
            rc = expected(p, "a space or the end of the rule");
        if (rc)
            return rc;
        skip_blank(p);
    } while (!at_end(p));
    return RSD_OK;
}

/* Makes the sub-mesh that `on` selects. */
static rsd_err slice_for(parser *p, rsi_rule *rule)
{
    rule->mesh = rsi_mesh_ref(p->rules->mesh);
    for (int a = 0; a < p->rules->mesh->ndim; a++) {
        rsd_mesh *slice;
        rsd_err   rc;

        if (rule->on[a] < 0)
            continue;
        rc = rsd_mesh_slice(rule->mesh, p->rules->mesh->axis[a], rule->on[a], &slice, p->err);
        if (rc)
            return rc;
        rsd_mesh_free(rule->mesh);
        rule->mesh = slice;
    }
    return RSD_OK;
}

static rsi_rule *add_rule(parser *p)
{
    rsd_rules *rules = p->rules;
    rsi_rule  *rule;

    if (!rsi_grow(&rules->rule, rules->n, &p->cap, sizeof(rules->rule[0])))
        return NULL;
    rule = &rules->rule[rules->n++];
    *rule = (rsi_rule){ .line = p->line };
    for (int a = 0; a < RSD_MAX_NDIM; a++) {
        rule->place[a].kind = RSD_REPLICATE;
        rule->on[a] = -1;
    }
    return rule;
}

static rsd_err take_rule(parser *p)
{
    size_t    len = word_len(p->at, "");
    rsi_rule *rule = add_rule(p);
    bool      some = false;

    if (rule)
        rule->pattern = rsi_arena_text(&p->rules->mem, p->at, len);
    if (!rule || !rule->pattern)
        return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the rules");
    p->at += len;
    for (skip_blank(p); !at_end(p) || !some; skip_blank(p)) {
        rsd_err rc;

        if (word_len(p->at, "") == 2 && strncmp(p->at, "on", 2) == 0) {
            p->at += 2;
            rc = take_on(p, rule);
        } else {
            rc = take_placement(p, rule);
        }
        if (rc)
            return rc;
        some = true;
    }
    return slice_for(p, rule);
}

static bool is_mesh(const parser *p)
{
    return word_len(p->at, "") == 4 && strncmp(p->at, "mesh", 4) == 0;
}

static rsd_err parse(parser *p)
{
    rsd_err rc;

    if (!next_statement(p) || !is_mesh(p))
        return expected(p, "\"mesh\" and its axes");
    rc = take_mesh(p);
    while (!rc && next_statement(p))
        rc = is_mesh(p) ? expected(p, "a rule: there can be only one mesh") : take_rule(p);
    if (!rc && p->rules->n == 0)
        rc = expected(p, "a rule after the mesh");
    return rc;
}

rsd_err rsd_rules_parse(const char *text, rsd_rules **out, rsd_error *err)
{
    parser  p = { .at = text, .line_start = text, .line = 1, .err = err };
    rsd_err rc;

    if (!text || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: text or output pointer");
    p.rules = rsi_calloc(1, sizeof(*p.rules));
    if (!p.rules)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the rules");
    rc = parse(&p);
    if (rc) {
        rsd_rules_free(p.rules);
        return rc;
    }
    *out = p.rules;
    return RSD_OK;
}
