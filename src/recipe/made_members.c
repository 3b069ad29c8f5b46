/* SPDX-License-Identifier: Apache-2.0 */
/* The sources of a group: that all are there, and the sizes of the factors that their shapes tell.
 * Next: made_build.c. */
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"
#include "recipe/made_group.h"

#include <inttypes.h>
#include <string.h>

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
}

/* ---- members ---- */

/* Finds an item's members in one role; they are sorted. */
static const rsi_member *members_of(const rsi_rule_group *g, int item, int role, size_t *n)
{
    const rsi_member *first = NULL;

    *n = 0;
    for (size_t i = 0; i < g->n; i++)
        if (g->member[i].item == item && g->member[i].role == role) {
            first = first ? first : &g->member[i];
            ++*n;
        }
    return first;
}

/* The numbers that tuple k stands for. */
void rsi_set_tuple(const rsi_stacked *s, int n, int64_t k, rsi_captured *c)
{
    for (int i = n - 1; i >= 0; i--) {
        c->number[s[i].capture] = s[i].first + k % s[i].n;
        k /= s[i].n;
    }
}

static rsd_err missing(rsi_building *b, const rsi_name_text *name, int64_t tuple, rsd_error *err)
{
    rsi_captured c = b->group->captured;
    char        *text;

    rsi_set_tuple(b->in, b->nin, tuple, &c);
    text = rsi_name_make(name, b->group->rule, &b->scope.scope, &c, &b->spare);
    return rsi_fail(err, RSD_E_INVALID,
                    "line %d: the source has no \"%s\", which belongs to \"%s\"",
                    b->group->rule->at.line, text ? text : name->text,
                    b->made->source[b->group->member[0].source].name);
}

/* All tuples of an item are there, and their tensors are alike. */
static rsd_err check_members(rsi_building *b, int item, int role, const rsi_name_text *name,
                             const rsi_member **out, rsd_error *err)
{
    size_t            n;
    const rsi_member *m = members_of(b->group, item, role, &n);

    for (int64_t k = 0; k < b->tuples_in; k++) {
        const rsi_made_source *s, *first;
        rsi_captured           want = b->group->captured;
        bool                   there = k < (int64_t)n;

        rsi_set_tuple(b->in, b->nin, k, &want);
        for (int i = 0; i < b->nin && there; i++)
            there = m[k].captured.number[b->in[i].capture] == want.number[b->in[i].capture];
        if (!there)
            return missing(b, name, k, err);
        s = &b->made->source[m[k].source];
        first = &b->made->source[m[0].source];
        if (s->dtype != first->dtype || s->ndim != first->ndim ||
            memcmp(s->shape, first->shape, (size_t)s->ndim * sizeof(s->shape[0])) != 0)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "line %d: \"%s\" and \"%s\" differ in dtype or shape",
                            b->group->rule->at.line, first->name, s->name);
    }
    if ((int64_t)n != b->tuples_in)
        return rsi_fail(err, RSD_E_INVALID, "line %d: \"%s\" fits the rule twice",
                        b->group->rule->at.line, b->made->source[m[n - 1].source].name);
    *out = m;
    return RSD_OK;
}

/* The numbers of the captures that are axes of the targets. */
static rsd_err find_stacked(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    uint32_t               from = rule->from.item[0].name.captures;
    uint32_t               only = from & ~rule->to.item[0].name.captures;
    rsd_err                rc = RSD_OK;

    b->tuples_in = 1;
    for (int c = 0; c < rule->ncaptures && !rc; c++) {
        rsi_stacked s = { .capture = c };
        int64_t     end = 0;
        bool        has;

        if (!(only & 1u << c))
            continue;
        rc = rsi_rule_range(&b->scope, c, &has, &s.first, &end, err);
        for (size_t i = 0; i < b->group->n && !has; i++)
            end = rsi_max(end, b->group->member[i].captured.number[c] + 1);
        s.n = end - s.first;
        if (!rc && (s.n < 1 || !rsi_mul(b->tuples_in, s.n, &b->tuples_in) ||
                    b->tuples_in > RSI_TUPLES_MOST))
            rc = has ? rsi_fail(err, RSD_E_INVALID,
                                "line %d: \"%s\" from %" PRId64 " to %" PRId64
                                " are more tensors than a source can have",
                                rule->at.line, rule->capture[c], s.first, end - 1)
                     : missing(b, &rule->from.item[0].name, 0, err);
        if (!rc && !rsi_sizes_add(&b->sizes, rule->capture[c], s.n))
            rc = no_memory(err);
        b->in[b->nin++] = s;
    }
    return rc;
}

rsd_err rsi_find_members(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    rsd_err                rc = find_stacked(b, err);

    for (size_t i = 0; i < rule->from.n && !rc; i++) {
        const rsi_recipe_item *it = &rule->from.item[i];

        rc = check_members(b, (int)i, RSI_ROLE_VALUES, &it->name, &b->values[i], err);
        if (!rc && it->with.n)
            rc = check_members(b, (int)i, RSI_ROLE_SCALES, &it->with, &b->scales[i], err);
        if (!rc && it->low.n)
            rc = check_members(b, (int)i, RSI_ROLE_LOW, &it->low, &b->low[i], err);
    }
    return rc;
}

/* ---- sizes ---- */

/* The shape of an item's sources; of a quantised one that of its values. */
rsd_err rsi_source_shape(const rsi_building *b, size_t item, int *ndim, int64_t *shape,
                         rsd_error *err)
{
    const rsi_recipe_item *it = &b->group->rule->from.item[item];
    const rsi_made_source *s = &b->made->source[b->values[item]->source];
    const rsi_made_source *w = b->scales[item] ? &b->made->source[b->scales[item]->source] : NULL;
    bool                   ok = true;

    *ndim = s->ndim;
    memcpy(shape, s->shape, sizeof(s->shape));
    if (it->kind == RSI_ITEM_FP8) {
        ok = s->dtype == RSD_F8_E4M3FN && w->dtype == RSD_F32 && s->ndim >= 2 && w->ndim == s->ndim;
        for (int d = 0; d < s->ndim && ok; d++)
            ok = w->shape[d] == (d < s->ndim - 2 ? s->shape[d] : rsi_ceil_div(s->shape[d], 128));
    }
    if (it->kind == RSI_ITEM_MXFP4) {
        ok = s->dtype == RSD_U8 && w->dtype == RSD_U8 && s->ndim >= 2 && w->ndim == s->ndim - 1 &&
             s->shape[s->ndim - 1] == 16 &&
             memcmp(w->shape, s->shape, (size_t)w->ndim * sizeof(w->shape[0])) == 0;
        *ndim = s->ndim - 1;
        ok = ok && rsi_mul(shape[*ndim - 1], 32, &shape[*ndim - 1]);
    }
    if (it->kind == RSI_ITEM_LORA) {
        const rsi_made_source *low = &b->made->source[b->low[item]->source];

        ok = s->ndim == 2 && w->ndim == 2 && low->ndim == 2 && w->shape[1] == s->shape[1] &&
             low->shape[0] == s->shape[0] && low->shape[1] == w->shape[0] &&
             rsi_cast_check(RSD_F32, w->dtype, NULL) == RSD_OK &&
             rsi_cast_check(RSD_F32, low->dtype, NULL) == RSD_OK;
    }
    return ok ? RSD_OK
              : rsi_fail(err, RSD_E_MISMATCH, "line %d: \"%s\" and \"%s\" are not %s",
                         b->group->rule->at.line, s->name, w->name,
                         it->kind == RSI_ITEM_FP8    ? "float8_e4m3fn with float32 for 128 x 128"
                         : it->kind == RSI_ITEM_LORA ? "matrices [o, i] and [r, i] with an [o, r]"
                                                     : "4-bit floats with exponents for 32");
}

static rsd_err learn_where(rsi_building *b, bool *learned, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;

    for (size_t i = 0; i < rule->nwhere; i++) {
        int64_t   value, known;
        rsd_error why = { .rank = -1 };
        rsd_err   rc = rsi_expr_whole(rule->where[i].expr, &b->scope.scope, &value, &why);

        if (rc == RSD_E_NOTFOUND && rule->where[i].other)
            rc = rsi_expr_whole(rule->where[i].other, &b->scope.scope, &value, &why);
        if (rc == RSD_E_NOTFOUND)
            continue;
        if (!rc && rsi_sizes_get(&b->sizes, rule->where[i].name, &known) && known != value)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "line %d, column %d: \"%s\" is %" PRId64
                            ", but the shapes and numbers given make it %" PRId64,
                            rule->where[i].at.line, rule->where[i].at.column, rule->where[i].name,
                            value, known);
        if (rc && err)
            *err = why;
        if (rc)
            return rc;
        if (rsi_sizes_get(&b->sizes, rule->where[i].name, &known))
            continue;
        if (value < 0)
            return rsi_fail(err, RSD_E_MISMATCH, "line %d, column %d: \"%s\" is %" PRId64,
                            rule->where[i].at.line, rule->where[i].at.column, rule->where[i].name,
                            value);
        if (!rsi_sizes_add(&b->sizes, rule->where[i].name, value))
            return no_memory(err);
        *learned = true;
    }
    return RSD_OK;
}

static bool has_rest(const rsi_recipe_item *it)
{
    for (int i = 0; i < it->naxes; i++)
        if (it->axis[i].kind == RSI_AXIS_REST)
            return true;
    return false;
}

static rsd_err learn_item(rsi_building *b, size_t item, bool *learned, rsd_error *err)
{
    const rsi_recipe_item *it = &b->group->rule->from.item[item];
    int64_t                shape[RSD_MAX_NDIM];
    int                    ndim;
    rsd_err                rc = rsi_source_shape(b, item, &ndim, shape, err);

    if (rc)
        return rc;
    if (has_rest(it))
        b->sizes.rest = ndim - (it->naxes - 1) < 0 ? 0 : ndim - (it->naxes - 1);
    rc = rsi_item_learn(it, &b->sizes, ndim, shape, learned, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", b->made->source[b->values[item]->source].name)
              : RSD_OK;
}

rsd_err rsi_learn_sizes(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    bool                   learned = true;
    int64_t                shape[RSD_MAX_NDIM];
    rsd_err                rc = RSD_OK;

    while (learned && !rc) {
        learned = false;
        rc = learn_where(b, &learned, err);
        for (size_t i = 0; i < rule->from.n && !rc; i++)
            if (rule->from.item[i].kind != RSI_ITEM_VALUE && rule->from.item[i].has_axes)
                rc = learn_item(b, i, &learned, err);
    }
    for (size_t i = 0; i < rule->from.n && !rc; i++)
        if (rule->from.item[i].kind != RSI_ITEM_VALUE && rule->from.item[i].has_axes)
            rc = rsi_item_shape(&rule->from.item[i], &b->sizes, shape, err);
    return rc == RSD_E_NOTFOUND ? rsi_while(err, RSD_E_INVALID, "tensor \"%s\"",
                                            b->made->source[b->group->member[0].source].name)
                                : rc;
}

/* The numbers of the captures that are axes of the sources. */
rsd_err rsi_find_unstacked(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    uint32_t only = rule->to.item[0].name.captures & ~rule->from.item[0].name.captures;

    b->tuples_out = 1;
    for (int c = 0; c < rule->ncaptures && rule->from.item[0].kind != RSI_ITEM_VALUE; c++) {
        rsi_stacked s = { .capture = c };
        int64_t     end = 0;
        bool        has;
        rsd_err     rc;

        if (!(only & 1u << c))
            continue;
        rc = rsi_rule_range(&b->scope, c, &has, &s.first, &end, err);
        if (rc)
            return rc;
        if (!rsi_sizes_get(&b->sizes, rule->capture[c], &s.n))
            return rsi_fail(err, RSD_E_INVALID, "line %d: the size of \"%s\" is not known",
                            rule->at.line, rule->capture[c]);
        if (has && end - s.first != s.n)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "line %d: the axis \"%s\" has the size %" PRId64
                            ", but the rule's range %" PRId64,
                            rule->at.line, rule->capture[c], s.n, end - s.first);
        if (!rsi_mul(b->tuples_out, s.n, &b->tuples_out) || b->tuples_out > RSI_TUPLES_MOST)
            return no_memory(err);
        b->out[b->nout++] = s;
    }
    return RSD_OK;
}
