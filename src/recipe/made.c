/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rule of every source tensor and groups the tensors that a rule uses together. Next:
 * made_build.c, which makes a group's targets. */
#include "recipe/made.h"
#include "base/mem.h"
#include "recipe/axes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RANGE_MOST = 1 << 22 };

typedef struct making {
    const rsd_recipe *recipe;
    rsi_made         *made;
    rsi_map           sources, groups;
    rsi_member       *member;
    size_t            nmembers, members_cap;
    rsi_rule_group   *group;
    size_t            ngroups, groups_cap;
    rsi_arena         spare;
} making;

/* ---- numbers ---- */

static rsd_err get_number(const rsi_scope *scope, const char *name, double *out, rsd_error *err)
{
    const rsi_rule_scope *s = scope->arg;

    for (int c = 0; s->rule && c < s->rule->ncaptures && !s->factor; c++)
        if ((s->captures & 1u << c) && !s->rule->is_text[c] &&
            strcmp(s->rule->capture[c], name) == 0) {
            *out = (double)s->captured->number[c];
            return RSD_OK;
        }
    for (size_t i = 0; s->sizes && i < s->sizes->n; i++)
        if (strcmp(s->sizes->name[i], name) == 0) {
            *out = (double)s->sizes->size[i];
            return RSD_OK;
        }
    return rsi_recipe_get(s->recipe, scope, name, s->factor && scope->depth == 0, out, err);
}

static bool has_name(const rsi_scope *scope, const rsi_name_text *name)
{
    const rsi_rule_scope *s = scope->arg;
    uint64_t              at;
    char                 *made;

    if (name->captures & ~s->captures)
        return false;
    made = rsi_name_make(name, s->rule, scope, s->captured, s->spare);
    return made && rsi_map_get(s->sources, made, strlen(made), &at);
}

void rsi_rule_scope_begin(rsi_rule_scope *s, const rsd_recipe *recipe, const rsi_recipe_rule *rule,
                          const rsi_captured *captured, uint32_t captures, const rsi_map *sources,
                          rsi_arena *spare)
{
    *s = (rsi_rule_scope){ .scope = { .get = get_number, .has = has_name },
                           .recipe = recipe,
                           .rule = rule,
                           .captured = captured,
                           .captures = captures,
                           .sources = sources,
                           .spare = spare };
    s->scope.arg = s;
}

rsd_err rsi_rule_range(const rsi_rule_scope *scope, int capture, bool *has, int64_t *first,
                       int64_t *end, rsd_error *err)
{
    *has = false;
    for (size_t i = 0; i < scope->rule->nranges; i++) {
        const rsi_recipe_range *range = &scope->rule->range[i];
        rsd_err                 rc;

        if (range->capture != capture)
            continue;
        *has = true;
        rc = rsi_expr_whole(range->first, &scope->scope, first, err);
        return rc ? rc : rsi_expr_whole(range->end, &scope->scope, end, err);
    }
    return RSD_OK;
}

/* ---- matching ---- */

/* Whether ranges and guard let the rule take these captures. */
static rsd_err rule_takes(making *m, const rsi_recipe_rule *rule, uint32_t captures,
                          const rsi_captured *c, bool *out, rsd_error *err)
{
    rsi_rule_scope s;
    double         value = 1;
    rsd_err        rc = RSD_OK;

    rsi_rule_scope_begin(&s, m->recipe, rule, c, captures, &m->sources, &m->spare);
    *out = true;
    for (int k = 0; k < rule->ncaptures && !rc; k++) {
        int64_t first, end;
        bool    has;

        rc = rsi_rule_range(&s, k, &has, &first, &end, err);
        if (!rc && has && (captures & 1u << k))
            *out = *out && c->number[k] >= first && c->number[k] < end;
    }
    if (!rc && *out && rule->guard)
        rc = rsi_expr_value(rule->guard, &s.scope, &value, err);
    *out = *out && value != 0;
    return rc;
}

/* The group of a rule with these captures in the targets' names. */
static rsd_err find_group(making *m, const rsi_recipe_rule *rule, const rsi_captured *c,
                          size_t *out, rsd_error *err)
{
    uint32_t key_bits = rule->to.item[0].name.captures;
    size_t   len = sizeof(rule), at = len;
    char    *key;
    uint64_t number = m->ngroups;
    bool     was;

    if (rule->from.item[0].kind != RSI_ITEM_VALUE)
        key_bits &= rule->from.item[0].name.captures;
    for (int k = 0; k < rule->ncaptures; k++)
        len += key_bits & 1u << k ? sizeof(int64_t) + c->len[k] : 0;
    key = rsi_arena_array(&m->spare, len, 1);
    if (key)
        memcpy(key, &rule, sizeof(rule));
    for (int k = 0; k < rule->ncaptures && key; k++) {
        int64_t head = rule->is_text[k] ? (int64_t)c->len[k] : c->number[k];

        if (!(key_bits & 1u << k))
            continue;
        memcpy(key + at, &head, sizeof(head));
        if (c->len[k])
            memcpy(key + at + sizeof(head), c->text[k], c->len[k]);
        at += sizeof(head) + c->len[k];
    }
    if (!key || !rsi_map_add(&m->groups, key, len, &number, &was) ||
        !rsi_grow(&m->group, m->ngroups, &m->groups_cap, sizeof(m->group[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
    if (!was)
        m->group[m->ngroups++] = (rsi_rule_group){ .rule = rule, .captured = *c };
    *out = (size_t)number;
    return RSD_OK;
}

/* Tries one name of a rule; *taken is set if it fits. */
static rsd_err try_name(making *m, const rsi_recipe_rule *rule, const rsi_name_text *name, int item,
                        int role, size_t s, bool *taken, rsd_error *err)
{
    rsi_made_source *source = &m->made->source[s];
    rsi_member       member = { .item = item, .role = role, .source = s };
    rsi_rule_scope   scope;
    rsd_err          rc;

    rsi_rule_scope_begin(&scope, m->recipe, rule, NULL, 0, &m->sources, &m->spare);
    if (!name->n || !rsi_name_fits(name, rule, &scope.scope, source->name, &member.captured))
        return RSD_OK;
    rc = rule_takes(m, rule, name->captures, &member.captured, taken, err);
    if (rc || !*taken)
        return rc;
    source->line = rule->at.line;
    source->dropped = rule->to.n == 0;
    if (source->dropped)
        return RSD_OK;
    rc = find_group(m, rule, &member.captured, &member.group, err);
    if (!rc && !rsi_grow(&m->member, m->nmembers, &m->members_cap, sizeof(member)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
    if (!rc)
        m->member[m->nmembers++] = member;
    return rc;
}

static rsd_err find_rule(making *m, size_t s, rsd_error *err)
{
    bool    taken = false;
    rsd_err rc = RSD_OK;

    for (size_t r = 0; r < m->recipe->n && !taken && !rc; r++) {
        const rsi_recipe_rule *rule = &m->recipe->rule[r];

        for (size_t i = 0; i < rule->from.n && !taken && !rc; i++) {
            const rsi_recipe_item *it = &rule->from.item[i];

            rc = try_name(m, rule, &it->name, (int)i, RSI_ROLE_VALUES, s, &taken, err);
            if (!rc && !taken)
                rc = try_name(m, rule, &it->with, (int)i, RSI_ROLE_SCALES, s, &taken, err);
            if (!rc && !taken)
                rc = try_name(m, rule, &it->low, (int)i, RSI_ROLE_LOW, s, &taken, err);
            for (size_t k = 0; k < it->ntied && !taken && !rc; k++)
                rc = try_name(m, rule, &it->tied[k], (int)i, RSI_ROLE_TIED, s, &taken, err);
        }
    }
    if (!rc && !taken)
        rc = rsi_fail(err, RSD_E_INVALID,
                      "no rule of the recipe matches tensor \"%s\": add one, or drop it",
                      m->made->source[s].name);
    return rc;
}

/* ---- constants ---- */

/* A rule without sources has a group for each number of its ranges. */
static rsd_err constant_groups(making *m, const rsi_recipe_rule *rule, rsd_error *err)
{
    rsi_captured   c = { .len = { 0 } };
    int64_t        first[RSI_CAPTURES] = { 0 }, end[RSI_CAPTURES];
    rsi_rule_scope s;
    bool           has, ok = true;
    double         value = 1;
    int64_t        product = 1;
    size_t         group;
    rsd_err        rc = RSD_OK;

    rsi_rule_scope_begin(&s, m->recipe, rule, &c, 0, &m->sources, &m->spare);
    for (int k = 0; k < rule->ncaptures && !rc; k++) {
        end[k] = 1;
        rc = rsi_rule_range(&s, k, &has, &first[k], &end[k], err);
        ok = ok && end[k] > first[k];
        c.number[k] = first[k];
        if (!rc && ok && (end[k] - first[k] > RANGE_MOST / product))
            rc = rsi_fail(err, RSD_E_INVALID, "line %d: the range of {%s} is too long",
                          rule->at.line, rule->capture[k]);
        product *= ok ? end[k] - first[k] : 1;
    }
    while (!rc && ok) {
        s.captures = rule->to.item[0].name.captures;
        value = 1;
        if (rule->guard)
            rc = rsi_expr_value(rule->guard, &s.scope, &value, err);
        if (!rc && value != 0)
            rc = find_group(m, rule, &c, &group, err);
        ok = false;
        for (int k = rule->ncaptures - 1; k >= 0 && !ok; k--) {
            ok = ++c.number[k] < end[k];
            if (!ok)
                c.number[k] = first[k];
        }
    }
    return rc;
}

/* ---- what is missing ---- */

/* Every number of a range has a group. */
static rsd_err check_range(const making *m, const rsi_recipe_rule *rule, int k, int64_t first,
                           int64_t end, rsd_error *err)
{
    uint8_t *seen;
    int64_t  i = 0;

    if (end - first > RANGE_MOST || first > end)
        return rsi_fail(err, RSD_E_INVALID, "line %d: the range of {%s} is too long or empty",
                        rule->at.line, rule->capture[k]);
    seen = rsi_calloc((size_t)(end - first) + 1, 1);
    if (!seen)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
    for (size_t g = 0; g < m->ngroups; g++)
        if (m->group[g].rule == rule)
            seen[m->group[g].captured.number[k] - first] = 1;
    while (i < end - first && seen[i])
        i++;
    rsi_free(seen);
    return i == end - first
               ? RSD_OK
               : rsi_fail(err, RSD_E_INVALID,
                          "line %d: the source has no \"%s\" for %s = %" PRId64
                          ", which is in the rule's range",
                          rule->at.line, rule->from.item[0].name.text, rule->capture[k], first + i);
}

static rsd_err check_rule(making *m, const rsi_recipe_rule *rule, rsd_error *err)
{
    rsi_rule_scope s;
    uint32_t       both = rule->to.n ? rule->to.item[0].name.captures : 0;
    int64_t        product = 1;
    double         guard = 1;
    size_t         n = 0;
    bool           all = true;
    rsd_err        rc = RSD_OK;

    for (size_t g = 0; g < m->ngroups; g++)
        n += m->group[g].rule == rule;
    rsi_rule_scope_begin(&s, m->recipe, rule, NULL, 0, &m->sources, &m->spare);
    if (n == 0 && rule->required && rule->guard) /* only as far as it does not ask about tensors */
        rc = rsi_expr_value(rule->guard, &s.scope, &guard, err);
    if (rc)
        return rc == RSD_E_NOTFOUND ? RSD_E_INVALID : rc;
    if (n == 0 && rule->required && guard != 0)
        return rsi_fail(err, RSD_E_INVALID,
                        "line %d: the source has no \"%s\", which the recipe requires",
                        rule->at.line, rule->from.item[0].name.text);
    if (n == 0 || rule->guard || rule->from.item[0].kind == RSI_ITEM_VALUE)
        return RSD_OK;
    both &= rule->from.item[0].name.captures;
    for (int k = 0; k < rule->ncaptures && !rc; k++) {
        int64_t first = 0, end = 0;
        bool    has = false;

        if (both & 1u << k)
            rc = rsi_rule_range(&s, k, &has, &first, &end, err);
        if (!rc && has)
            rc = check_range(m, rule, k, first, end, err);
        all = all && (has || !(both & 1u << k));
        product *= has ? end - first : 1;
    }
    if (!rc && all && product != (int64_t)n && both)
        rc = rsi_fail(err, RSD_E_INVALID, "line %d: \"%s\" occurs %zu times, not %" PRId64,
                      rule->at.line, rule->from.item[0].name.text, n, product);
    return rc;
}

/* ---- all together ---- */

static int by_group(const void *x, const void *y)
{
    const rsi_member *a = x, *b = y;
    int64_t           d = a->group < b->group ? -1 : a->group > b->group;

    if (d == 0)
        d = a->item - b->item;
    if (d == 0)
        d = a->role - b->role;
    for (int k = 0; k < RSI_CAPTURES && d == 0; k++)
        d = (a->captured.number[k] > b->captured.number[k]) -
            (a->captured.number[k] < b->captured.number[k]);
    if (d == 0)
        d = a->source < b->source ? -1 : a->source > b->source;
    return d < 0 ? -1 : d > 0;
}

static rsd_err build_groups(making *m, rsd_error *err)
{
    size_t  at = 0;
    rsd_err rc = RSD_OK;

    qsort(m->member, m->nmembers, sizeof(m->member[0]), by_group);
    for (size_t g = 0; g < m->ngroups && !rc; g++) {
        rsi_rule_group *group = &m->group[g];

        group->member = m->member + at;
        while (at < m->nmembers && m->member[at].group == g)
            at++;
        group->n = (size_t)(m->member + at - group->member);
        rc = rsi_made_group(m->made, m->recipe, &m->sources, group, err);
    }
    return rc;
}

static rsd_err make(making *m, rsd_error *err)
{
    rsi_made *made = m->made;
    rsd_err   rc = RSD_OK;

    for (size_t s = 0; s < made->nsources; s++) {
        uint64_t number = s;

        if (!made->source[s].left_out && !rsi_map_add(&m->sources, made->source[s].name,
                                                      strlen(made->source[s].name), &number, NULL))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", made->nsources);
    }
    for (size_t s = 0; s < made->nsources && !rc; s++)
        rc = made->source[s].left_out ? RSD_OK : find_rule(m, s, err);
    for (size_t r = 0; r < m->recipe->n && !rc; r++) {
        const rsi_recipe_rule *rule = &m->recipe->rule[r];

        if (rule->from.item[0].kind == RSI_ITEM_VALUE)
            rc = constant_groups(m, rule, err);
        if (!rc)
            rc = check_rule(m, rule, err);
    }
    return rc ? rc : build_groups(m, err);
}

rsd_err rsi_made_make(const rsd_recipe *recipe, rsi_made_source *source, size_t n, rsi_made **out,
                      rsd_error *err)
{
    making  m = { .recipe = recipe, .made = rsi_calloc(1, sizeof(*m.made)) };
    rsd_err rc;

    if (!m.made)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
    m.made->source = source;
    m.made->nsources = n;
    rc = make(&m, err);
    rsi_map_release(&m.sources);
    rsi_map_release(&m.groups);
    rsi_free(m.member);
    rsi_free(m.group);
    rsi_arena_release(&m.spare);
    if (rc) {
        rsi_made_free(m.made);
        return rsi_while(err, rc, "recipe");
    }
    *out = m.made;
    return RSD_OK;
}

void rsi_made_free(rsi_made *made)
{
    if (!made)
        return;
    rsi_map_release(&made->names);
    rsi_free(made->tensor);
    rsi_arena_release(&made->mem);
    rsi_free(made);
}
