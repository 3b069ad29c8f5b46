/* SPDX-License-Identifier: Apache-2.0 */
/* What a rule must fulfil whatever the source is: every part of one side has its place on the
 * other, and every factor too. */
#include "recipe/axes.h"
#include "recipe/recipe_text.h"

#include <string.h>

/* Captures of a side's names, which all have the same. */
static rsd_err side_captures(const rsi_recipe_text *p, const rsi_rule_side *side, uint32_t *out)
{
    *out = side->n ? side->item[0].name.captures : 0;
    for (size_t i = 0; i < side->n; i++) {
        const rsi_recipe_item *it = &side->item[i];
        bool same = it->name.captures == *out && (!it->with.n || it->with.captures == *out) &&
                    (!it->low.n || it->low.captures == *out);

        for (size_t k = 0; k < it->ntied; k++)
            same = same && it->tied[k].captures == *out;
        if (!same)
            return rsi_text_wrong(p, it->at, "all names of a side need the same captures");
        for (size_t k = 0; k < i; k++)
            if (it->kind != RSI_ITEM_VALUE && side->item[k].kind != RSI_ITEM_VALUE &&
                strcmp(side->item[k].name.text, it->name.text) == 0)
                return rsi_text_wrong(p, it->at, "\"%s\" is listed twice", it->name.text);
    }
    return RSD_OK;
}

static rsd_err check_drop(const rsi_recipe_text *p, const rsi_recipe_rule *rule)
{
    if (rule->from.n == 0)
        return rsi_text_wrong(p, rule->at, "nothing can be made of \"drop\"");
    if (rule->backward && rule->forward)
        return rsi_text_wrong(p, rule->at, "what is dropped does not come back: use \"%s\"", "->");
    for (size_t i = 0; i < rule->from.n; i++)
        if (rule->from.item[i].kind != RSI_ITEM_PLAIN)
            return rsi_text_wrong(p, rule->from.item[i].at, "only names can be dropped");
    return RSD_OK;
}

static bool has_rest(const rsi_recipe_item *item)
{
    for (int i = 0; i < item->naxes; i++)
        if (item->axis[i].kind == RSI_AXIS_REST)
            return true;
    return false;
}

/* Either all tensors have axes, or none; the same for "...". */
static rsd_err check_forms(const rsi_recipe_text *p, const rsi_recipe_rule *rule)
{
    const rsi_recipe_item *first = &rule->to.item[0];

    for (size_t i = 0; i < rule->from.n + rule->to.n; i++) {
        bool                   source = i < rule->from.n;
        const rsi_recipe_item *it = source ? &rule->from.item[i] : &rule->to.item[i - rule->from.n];

        if (it->kind == RSI_ITEM_VALUE && (!source || rule->from.n > 1))
            return rsi_text_wrong(p, it->at, "a number stands alone, left of \"->\"");
        if (it->kind == RSI_ITEM_VALUE && !first->has_axes)
            return rsi_text_wrong(p, first->at, "the axes of \"%s\" are missing", first->name.text);
        if (it->kind == RSI_ITEM_VALUE)
            continue;
        if (it->has_axes != first->has_axes)
            return rsi_text_wrong(p, it->has_axes ? first->at : it->at,
                                  "the axes of \"%s\" are missing",
                                  it->has_axes ? first->name.text : it->name.text);
        if (has_rest(it) != has_rest(first))
            return rsi_text_wrong(p, it->at, "\"...\" is on one side only");
        if (!source && it->kind == RSI_ITEM_LORA)
            return rsi_text_wrong(p, it->at, "what lora merges can't be taken apart");
        if (it->ntied && it->kind != RSI_ITEM_PLAIN)
            return rsi_text_wrong(p, it->at, "only a plain tensor can be tied");
    }
    if (!first->has_axes && rule->from.n != rule->to.n)
        return rsi_text_wrong(p, rule->at, "%zu tensors can't become %zu without axes",
                              rule->from.n, rule->to.n);
    return RSD_OK;
}

/* ---- branches ---- */

typedef struct counter {
    const rsi_recipe_text *p;
    const rsi_recipe_rule *rule;
    const rsi_rule_side   *side;
    size_t                 item;
    int64_t                b;
} counter;

/* The side's next branch that the other side must have too; false at the end. */
static bool next_branch(counter *c, rsi_branch *out, rsd_err *rc)
{
    rsi_sizes blank = { .blank = true };

    for (; c->item < c->side->n; c->item++, c->b = 0) {
        const rsi_recipe_item *it = &c->side->item[c->item];

        if (rsi_item_branches(it) > RSI_SIDE_MOST) {
            *rc = rsi_text_wrong(c->p, it->at, "more than %d parts", RSI_SIDE_MOST);
            return false;
        }
        while (c->b < rsi_item_branches(it)) {
            *rc = rsi_item_branch(it, &blank, c->b++, out, c->p->err);
            if (*rc)
                return false;
            if (!out->filled)
                return true;
        }
    }
    return false;
}

static const rsi_factor *find(const rsi_branch *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->factor[i].name, name) == 0)
            return &b->factor[i];
    return NULL;
}

static int capture_of(const rsi_recipe_rule *rule, const char *name)
{
    for (int c = 0; c < rule->ncaptures; c++)
        if (strcmp(rule->capture[c], name) == 0)
            return c;
    return -1;
}

/* Every factor of `a` has its match in `b` or in the names of b's side. */
static rsd_err match(const counter *a, const rsi_branch *fa, const counter *b, const rsi_branch *fb,
                     uint32_t a_names, uint32_t b_names, bool target)
{
    const rsi_recipe_item *ia = &a->side->item[a->item];
    const rsi_recipe_item *ib = &b->side->item[b->item];

    for (int i = 0; i < fa->n; i++) {
        const rsi_factor *f = &fa->factor[i];
        int               c = capture_of(a->rule, f->name);
        bool              named = c >= 0 && (b_names & 1u << c);
        bool              there = find(fb, f->name) != NULL;

        if (c >= 0 && (a_names & 1u << c))
            return rsi_text_wrong(a->p, ia->at, "{%s} is both in the name and an axis", f->name);
        if (f->repeat && (!target || a->rule->forward == a->rule->backward))
            return rsi_text_wrong(a->p, ia->at,
                                  "\"*%s\" has no inverse: use it on the right of \"->\"", f->name);
        if (there && named)
            return rsi_text_wrong(a->p, ia->at, "\"%s\" is already in the other side", f->name);
        if (!f->repeat && !there && !named && strcmp(f->name, "1") != 0)
            return rsi_text_wrong(a->p, ia->at, "\"%s\" has the factor \"%s\", but \"%s\" lacks it",
                                  ia->name.text, f->name, ib->name.text);
    }
    return RSD_OK;
}

static rsd_err check_branches(const rsi_recipe_text *p, const rsi_recipe_rule *rule, uint32_t from,
                              uint32_t to)
{
    counter    a = { .p = p, .rule = rule, .side = &rule->from };
    counter    b = { .p = p, .rule = rule, .side = &rule->to };
    rsi_branch fa, fb;
    rsd_err    rc = RSD_OK;
    size_t     n[2] = { 0 };

    for (;;) {
        bool more_a = !rc && next_branch(&a, &fa, &rc), more_b = !rc && next_branch(&b, &fb, &rc);

        n[0] += more_a;
        n[1] += more_b;
        if (rc || (!more_a && !more_b))
            break;
        if (!more_a || !more_b)
            continue;
        rc = match(&a, &fa, &b, &fb, from, to, false);
        if (!rc)
            rc = match(&b, &fb, &a, &fa, to, from, true);
    }
    if (!rc && n[0] != n[1])
        rc = rsi_text_wrong(p, rule->at,
                            "the sources have %zu parts, but the targets %zu: every part needs a "
                            "place",
                            n[0], n[1]);
    return rc;
}

/* A capture that only one side's names have is an axis of the other side's tensors. */
static rsd_err check_captures(const rsi_recipe_text *p, const rsi_recipe_rule *rule, uint32_t from,
                              uint32_t to)
{
    bool constant = rule->from.item[0].kind == RSI_ITEM_VALUE;

    for (int c = 0; c < rule->ncaptures; c++) {
        uint32_t             bit = 1u << c;
        const rsi_rule_side *other = from & bit ? &rule->to : &rule->from;
        rsi_sizes            blank = { .blank = true };
        bool                 ranged = false;

        if (!((from ^ to) & bit))
            continue;
        for (size_t i = 0; i < rule->nranges; i++)
            ranged = ranged || rule->range[i].capture == c;
        if (constant && ranged)
            continue;
        if (constant)
            return rsi_text_wrong(p, rule->at, "{%s} needs a range: for %s in 0..N",
                                  rule->capture[c], rule->capture[c]);
        for (size_t i = 0; i < other->n; i++)
            for (int64_t b = 0; b < rsi_item_branches(&other->item[i]); b++) {
                rsi_branch br;
                rsd_err    rc = rsi_item_branch(&other->item[i], &blank, b, &br, p->err);

                if (rc)
                    return rc;
                if (rule->is_text[c] || (!br.filled && !find(&br, rule->capture[c])))
                    return rsi_text_wrong(p, other->item[i].at,
                                          "\"%s\" has {%s} neither in its name nor as an axis",
                                          other->item[i].name.text, rule->capture[c]);
            }
    }
    return RSD_OK;
}

rsd_err rsi_rule_check(const rsi_recipe_text *p, const rsi_recipe_rule *rule)
{
    uint32_t from, to;
    rsd_err  rc = side_captures(p, &rule->from, &from);

    if (!rc)
        rc = side_captures(p, &rule->to, &to);
    if (rc)
        return rc;
    if (rule->from.n == 0 || rule->to.n == 0)
        return check_drop(p, rule);
    rc = check_forms(p, rule);
    if (!rc)
        rc = check_captures(p, rule, from, to);
    if (!rc && rule->from.item[0].kind != RSI_ITEM_VALUE && rule->to.item[0].has_axes)
        rc = check_branches(p, rule, from, to);
    return rc;
}
