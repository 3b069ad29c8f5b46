/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of a recipe, statement by statement:
 *
 *     let NAME = EXPR [else EXPR]
 *     layout RULE
 *     SIDE (-> | <- | <->) SIDE [as DTYPE] [times EXPR] [plus EXPR] [where NAME = EXPR, ...]
 *         [for CAPTURE in EXPR..EXPR] [if EXPR] [required]
 *
 * A statement ends at the end of a line unless the next line is indented, or at ";". Next:
 * recipe_check.c, what a rule must fulfil. */
#include "base/digest.h"
#include "base/mem.h"
#include "recipe/recipe_text.h"

#include <stdlib.h>
#include <string.h>

enum { LETS_MOST = 1024 };

typedef struct words { /* of an item, before alternatives are chosen */
    const char *name, *with, *low;
    const char *tied[RSI_CAPTURES];
    size_t      ntied;
} words;

static rsd_err no_memory(const rsi_recipe_text *p)
{
    return rsi_fail(p->err, RSD_E_NOMEM, "no memory for the recipe");
}

/* ---- sides ---- */

/* "fp8(VALUES, SCALES)", "mxfp4(BLOCKS, SCALES)", "lora(W, A, B, SCALE)" behind the first word. */
static rsd_err take_form(rsi_recipe_text *p, rsi_recipe_item *item, words *w)
{
    rsd_err rc;

    item->kind = strcmp(w->name, "fp8") == 0     ? RSI_ITEM_FP8
                 : strcmp(w->name, "mxfp4") == 0 ? RSI_ITEM_MXFP4
                 : strcmp(w->name, "lora") == 0  ? RSI_ITEM_LORA
                                                 : RSI_ITEM_PLAIN;
    if (item->kind == RSI_ITEM_PLAIN)
        return rsi_text_wrong(p, item->at, "unknown form \"%s\": expected fp8, mxfp4 or lora",
                              w->name);
    rc = rsi_text_need(p, "(");
    if (!rc)
        rc = rsi_text_name_word(p, &w->name);
    if (!rc)
        rc = rsi_text_need(p, ",");
    if (!rc)
        rc = rsi_text_name_word(p, &w->with);
    if (!rc && item->kind == RSI_ITEM_LORA) {
        rc = rsi_text_need(p, ",");
        if (!rc)
            rc = rsi_text_name_word(p, &w->low);
        if (!rc)
            rc = rsi_text_need(p, ",");
        if (!rc)
            rc = rsi_text_expr(p, &item->scale);
    }
    return rc ? rc : rsi_text_need(p, ")");
}

/* A form, a number, or a name and those tied to it. */
static rsd_err take_words(rsi_recipe_text *p, rsi_recipe_item *item, words *w)
{
    const char *end;
    char       *stop;
    rsd_err     rc = rsi_text_name_word(p, &w->name);

    if (rc)
        return rc;
    if (*p->at == '(')
        return take_form(p, item, w);
    end = w->name + strlen(w->name);
    item->value = strtod(w->name, &stop);
    if (stop == end && strspn(w->name, "+-.0123456789eE") == strlen(w->name))
        item->kind = RSI_ITEM_VALUE;
    while (!rc && rsi_text_sign(p, "=")) {
        if (w->ntied == RSI_CAPTURES)
            return rsi_text_expected(p, "fewer names of one tensor");
        rc = rsi_text_name_word(p, &w->tied[w->ntied++]);
    }
    return rc;
}

/* The item with alternative k of its words. */
static rsd_err choose_words(rsi_recipe_text *p, const words *w, size_t k, rsi_recipe_item *item)
{
    rsi_name_text *tied = rsi_arena_array(&p->recipe->mem, w->ntied + 1, sizeof(*tied));
    rsd_err        rc = tied ? RSD_OK : no_memory(p);

    if (!rc && item->kind != RSI_ITEM_VALUE)
        rc = rsi_text_name(p, w->name, item->at, k, &item->name);
    if (!rc && w->with)
        rc = rsi_text_name(p, w->with, item->at, k, &item->with);
    if (!rc && w->low)
        rc = rsi_text_name(p, w->low, item->at, k, &item->low);
    for (size_t i = 0; i < w->ntied && !rc; i++)
        rc = rsi_text_name(p, w->tied[i], item->at, k, &tied[i]);
    item->tied = tied;
    item->ntied = w->ntied;
    return rc;
}

static rsd_err take_item(rsi_recipe_text *p, rsi_recipe_item *list, size_t *n)
{
    rsi_recipe_item item = { .at = rsi_text_here(p) };
    words           w = { 0 };
    size_t          count = 1, other;
    rsd_err         rc = take_words(p, &item, &w);

    if (!rc)
        rc = rsi_text_alternatives(p, w.name, item.at, &count);
    for (size_t i = 0; i <= w.ntied + 1 && !rc; i++) {
        const char *word = i < w.ntied ? w.tied[i] : i == w.ntied ? w.with : w.low;

        rc = word ? rsi_text_alternatives(p, word, item.at, &other) : RSD_OK;
        if (!rc && word && other != count)
            rc = rsi_text_wrong(p, item.at, "\"%s\" and \"%s\" have different alternatives", w.name,
                                word);
    }
    if (!rc && *p->at == '[')
        rc = rsi_text_axes(p, &item);
    for (size_t k = 0; k < count && !rc; k++) {
        if (*n == RSI_SIDE_MOST)
            return rsi_text_wrong(p, item.at, "more than %d tensors on a side", RSI_SIDE_MOST);
        list[*n] = item;
        rc = choose_words(p, &w, k, &list[*n]);
        ++*n;
    }
    return rc;
}

static rsd_err take_side(rsi_recipe_text *p, rsi_rule_side *out)
{
    rsi_recipe_item *list;
    rsd_err          rc = RSD_OK;

    if (rsi_text_word(p, "drop"))
        return RSD_OK;
    list = rsi_arena_array(&p->recipe->mem, RSI_SIDE_MOST, sizeof(*list));
    if (!list)
        return no_memory(p);
    do
        rc = take_item(p, list, &out->n);
    while (!rc && rsi_text_sign(p, ","));
    out->item = list;
    return rc;
}

/* ---- clauses ---- */

static rsd_err take_as(rsi_recipe_text *p, rsi_recipe_rule *rule)
{
    rsi_spotted at = rsi_text_here(p);
    const char *word = NULL;
    rsd_err     rc = rsi_text_identifier(p, "a dtype", &word);

    if (!rc)
        rc = rsd_dtype_parse(word, &rule->as, p->err);
    return rc == RSD_E_INVALID && word ? rsi_text_wrong(p, at, "unknown dtype \"%s\"", word) : rc;
}

/* "a = E [else E]" */
static rsd_err take_definition(rsi_recipe_text *p, rsi_where *out)
{
    rsd_err rc;

    *out = (rsi_where){ .at = rsi_text_here(p) };
    rc = rsi_text_identifier(p, "the name of a number", &out->name);
    if (!rc)
        rc = rsi_text_need(p, "=");
    if (!rc)
        rc = rsi_text_expr(p, &out->expr);
    if (!rc && rsi_text_word(p, "else"))
        rc = rsi_text_expr(p, &out->other);
    return rc;
}

static rsd_err take_where(rsi_recipe_text *p, rsi_recipe_rule *rule)
{
    enum { MOST = 16 };
    rsi_where *where = rsi_arena_array(&p->recipe->mem, MOST, sizeof(*where));
    rsd_err    rc = where ? RSD_OK : no_memory(p);

    rule->where = where;
    while (!rc) {
        if (rule->nwhere == MOST)
            return rsi_text_expected(p, "fewer numbers");
        rc = take_definition(p, &where[rule->nwhere++]);
        if (rc || !rsi_text_sign(p, ","))
            break;
    }
    return rc;
}

/* "i in E..E" */
static rsd_err take_range(rsi_recipe_text *p, rsi_recipe_rule *rule)
{
    rsi_recipe_range *range = (rsi_recipe_range *)(uintptr_t)rule->range;
    rsi_spotted       at = rsi_text_here(p);
    const char       *name = NULL;
    rsd_err           rc = rsi_text_identifier(p, "a capture", &name);

    if (!rc && !range)
        rule->range = range = rsi_arena_array(&p->recipe->mem, RSI_CAPTURES, sizeof(*range));
    if (!rc && !range)
        rc = no_memory(p);
    if (rc)
        return rc;
    if (rule->nranges == RSI_CAPTURES)
        return rsi_text_wrong(p, at, "too many ranges");
    range += rule->nranges++;
    for (range->capture = 0; range->capture < rule->ncaptures; range->capture++)
        if (strcmp(rule->capture[range->capture], name) == 0)
            break;
    if (range->capture == rule->ncaptures || rule->is_text[range->capture])
        return rsi_text_wrong(p, at, "no name of the rule has the number {%s}", name);
    for (size_t i = 0; i + 1 < rule->nranges; i++)
        if (rule->range[i].capture == range->capture)
            return rsi_text_wrong(p, at, "{%s} has two ranges", name);
    rc = rsi_text_word(p, "in") ? RSD_OK : rsi_text_expected(p, "\"in\"");
    if (!rc)
        rc = rsi_text_expr(p, &range->first);
    if (!rc)
        rc = rsi_text_need(p, "..");
    return rc ? rc : rsi_text_expr(p, &range->end);
}

static rsd_err take_clause(rsi_recipe_text *p, rsi_recipe_rule *rule)
{
    if (!rule->as && rsi_text_word(p, "as"))
        return take_as(p, rule);
    if (!rule->times && rsi_text_word(p, "times"))
        return rsi_text_expr(p, &rule->times);
    if (!rule->plus && rsi_text_word(p, "plus"))
        return rsi_text_expr(p, &rule->plus);
    if (!rule->where && rsi_text_word(p, "where"))
        return take_where(p, rule);
    if (rsi_text_word(p, "for"))
        return take_range(p, rule);
    if (!rule->guard && rsi_text_word(p, "if"))
        return rsi_text_expr(p, &rule->guard);
    if (!rule->required && rsi_text_word(p, "required")) {
        rule->required = true;
        return RSD_OK;
    }
    return rsi_text_expected(p, "as, times, plus, where, for, if, required or the end of the rule");
}

/* ---- statements ---- */

static rsd_err take_arrow(rsi_recipe_text *p, rsi_recipe_rule *rule)
{
    rule->forward = rule->backward = true;
    if (rsi_text_sign(p, "<->"))
        return RSD_OK;
    if (rsi_text_sign(p, "->"))
        rule->backward = false;
    else if (rsi_text_sign(p, "<-"))
        rule->forward = false;
    else
        return rsi_text_expected(p, "\"->\", \"<-\" or \"<->\"");
    return RSD_OK;
}

static rsd_err take_rule(rsi_recipe_text *p)
{
    rsd_recipe     *recipe = p->recipe;
    rsi_recipe_rule rule = { .at = rsi_text_here(p) };
    rsi_rule_side   left = { 0 }, right = { 0 };
    rsd_err         rc;

    p->rule = &rule;
    rc = take_side(p, &left);
    if (!rc)
        rc = take_arrow(p, &rule);
    if (!rc)
        rc = take_side(p, &right);
    while (!rc && !rsi_text_ended(p))
        rc = take_clause(p, &rule);
    for (int way = 0; way < 2 && !rc; way++) { /* both must be right, whichever is asked for */
        bool back = way == (recipe->reverse ? 0 : 1);

        if (back ? !rule.backward : !rule.forward)
            continue;
        rule.from = back ? right : left;
        rule.to = back ? left : right;
        rc = rsi_rule_check(p, &rule);
        if (rc || back != recipe->reverse)
            continue;
        if (!rsi_grow(&recipe->rule, recipe->n, &recipe->cap, sizeof(rule)))
            return no_memory(p);
        recipe->rule[recipe->n++] = rule;
    }
    p->rule = NULL;
    return rc;
}

static rsd_err take_let(rsi_recipe_text *p)
{
    rsd_recipe     *recipe = p->recipe;
    rsi_recipe_rule none = { 0 }; /* for names in has() */
    rsi_where       let;
    rsd_err         rc;

    p->rule = &none;
    rc = take_definition(p, &let);
    p->rule = NULL;
    if (!rc && none.ncaptures)
        rc = rsi_text_wrong(p, let.at, "{%s} has no value here", none.capture[0]);
    if (!rc && !rsi_text_ended(p))
        rc = rsi_text_expected(p, "the end of the line");
    for (size_t i = 0; i < recipe->nlets && !rc; i++)
        if (strcmp(recipe->let[i].name, let.name) == 0)
            rc = rsi_text_wrong(p, let.at, "\"%s\" was already defined in line %d", let.name,
                                recipe->let[i].at.line);
    if (!rc && recipe->nlets == LETS_MOST)
        rc = rsi_text_wrong(p, let.at, "more than %d numbers are defined", LETS_MOST);
    if (!rc && !rsi_grow(&recipe->let, recipe->nlets, &recipe->lets_cap, sizeof(let)))
        rc = no_memory(p);
    if (!rc)
        recipe->let[recipe->nlets++] = let;
    return rc;
}

/* "layout RULE": the rest of the statement is a rule of a layout. */
static rsd_err take_layout(rsi_recipe_text *p)
{
    rsd_recipe *recipe = p->recipe;
    size_t      n = strcspn(p->at, "#;\n");
    char       *text = rsi_arena_text(&recipe->mem, p->at, n);

    if (!text || !rsi_grow(&recipe->layout, recipe->nlayouts, &recipe->layouts_cap, sizeof(text)))
        return no_memory(p);
    recipe->layout[recipe->nlayouts++] = text;
    p->at += n;
    return RSD_OK;
}

/* ---- cycles ---- */

enum { COST_MOST = 4096 };

/* The cost of a definition is how many of them are evaluated to get its value, itself included:
 * those that it uses are evaluated each time. */
typedef struct visiting {
    const rsi_recipe_text *p;
    uint32_t              *cost; /* [nlets] once known; 0: not visited, UINT32_MAX: right now */
    uint32_t               sum;  /* of what the current definition has used so far */
    int                    depth;
} visiting;

static rsd_err visit_expr(visiting *v, const rsi_expr *e);

static rsd_err too_many(const visiting *v, const rsi_where *let)
{
    return rsi_text_wrong(v->p, let->at, "\"%s\" depends on too many others", let->name);
}

static rsd_err visit_let(visiting *v, size_t i)
{
    const rsi_where *let = &v->p->recipe->let[i];
    const uint32_t   before = v->sum;
    rsd_err          rc = RSD_OK;

    if (v->cost[i] == UINT32_MAX)
        return rsi_text_wrong(v->p, let->at, "\"%s\" is defined by itself", let->name);
    if (v->cost[i] == 0) {
        v->cost[i] = UINT32_MAX;
        v->sum = 1;
        rc = ++v->depth > RSI_RECIPE_DEPTH ? too_many(v, let) : visit_expr(v, let->expr);
        if (!rc && let->other)
            rc = visit_expr(v, let->other);
        if (!rc && v->sum > COST_MOST)
            rc = too_many(v, let);
        v->depth--;
        v->cost[i] = v->sum;
    }
    v->sum = before + v->cost[i];
    return rc;
}

static rsd_err visit_expr(visiting *v, const rsi_expr *e)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; e->op == 'v' && i < v->p->recipe->nlets; i++)
        if (strcmp(v->p->recipe->let[i].name, e->name) == 0)
            return visit_let(v, i);
    if (e->a)
        rc = visit_expr(v, e->a);
    return rc || !e->b ? rc : visit_expr(v, e->b);
}

static rsd_err check_cycles(const rsi_recipe_text *p)
{
    visiting v = { .p = p, .cost = rsi_calloc(p->recipe->nlets + 1, sizeof(v.cost[0])) };
    rsd_err  rc = v.cost ? RSD_OK : no_memory(p);

    for (size_t i = 0; i < p->recipe->nlets && !rc; i++) {
        v.sum = 0;
        rc = visit_let(&v, i);
    }
    rsi_free(v.cost);
    return rc;
}

/* Moves to the first word of the next statement; false at the end of the text. */
static bool next_statement(rsi_recipe_text *p)
{
    for (rsi_text_blank(p); rsi_text_ended(p); rsi_text_blank(p)) {
        if (*p->at == '\0')
            return false;
        if (*p->at++ == '\n') {
            p->line++;
            p->line_start = p->at;
        }
    }
    return true;
}

rsd_err rsi_recipe_parse(const char *text, bool reverse, rsd_recipe **out, rsd_error *err)
{
    rsi_recipe_text p = { .at = text, .line_start = text, .line = 1, .err = err };
    bool            any = false;
    rsd_err         rc = RSD_OK;

    p.recipe = rsi_calloc(1, sizeof(*p.recipe));
    if (!p.recipe)
        return no_memory(&p);
    p.recipe->reverse = reverse;
    p.recipe->digest = rsi_digest(reverse, text, strlen(text));
    while (!rc && next_statement(&p)) {
        bool let = rsi_text_word(&p, "let"), layout = !let && rsi_text_word(&p, "layout");

        rc = let ? take_let(&p) : layout ? take_layout(&p) : take_rule(&p);
        any = any || !(let || layout);
    }
    if (!rc && !any)
        rc = rsi_text_expected(&p, "a rule");
    if (!rc)
        rc = check_cycles(&p);
    if (!rc && p.recipe->n == 0)
        rc = rsi_fail(err, RSD_E_INVALID, "no rule of the recipe goes %s",
                      reverse ? "backward: all have \"->\"" : "forward: all have \"<-\"");
    if (rc) {
        rsd_recipe_free(p.recipe);
        return rc;
    }
    *out = p.recipe;
    return RSD_OK;
}

void rsd_recipe_free(rsd_recipe *recipe)
{
    if (!recipe)
        return;
    rsi_free(recipe->rule);
    rsi_free(recipe->let);
    rsi_free(recipe->number);
    rsi_free(recipe->layout);
    rsi_arena_release(&recipe->mem);
    rsi_free(recipe);
}
