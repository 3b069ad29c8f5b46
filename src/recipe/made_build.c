/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the targets of one group: turns each pair of branches into terms. Counts elements on both
 * sides, so that none is lost. */
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"
#include "recipe/made_group.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the tensors of a recipe");
}

/* ---- terms ---- */

typedef struct pair { /* a branch of a target and the branch of a source that it is made of */
    rsi_branch to, from;
    size_t     item; /* of the source */
    bool       constant;
    double     value;
} pair;

static const rsi_factor *factor_of(const rsi_branch *br, const char *name)
{
    for (int i = 0; i < br->n; i++)
        if (strcmp(br->factor[i].name, name) == 0)
            return &br->factor[i];
    return NULL;
}

static int by_target(const void *x, const void *y)
{
    const rsi_made_loop *a = x, *b = y;

    if (a->to_axis != b->to_axis)
        return a->to_axis - b->to_axis;
    return (a->to_stride < b->to_stride) - (a->to_stride > b->to_stride);
}

/* Loops that continue each other on both sides are one. */
static void merge_loops(rsi_made_form *f)
{
    int n = 0;

    qsort(f->loop, (size_t)f->n, sizeof(f->loop[0]), by_target);
    for (int i = 0; i < f->n; i++) {
        rsi_made_loop *last = n ? &f->loop[n - 1] : NULL, *l = &f->loop[i];

        if (last && last->to_axis == l->to_axis && last->from_axis == l->from_axis &&
            last->to_stride == l->to_stride * l->count &&
            last->from_stride == l->from_stride * l->count) {
            last->count *= l->count;
            last->to_stride = l->to_stride;
            last->from_stride = l->from_stride;
        } else {
            f->loop[n++] = *l;
        }
    }
    f->n = n;
}

/* The loops of a pair; *count is the number of elements, 0 if there are none. */
static rsi_made_form *make_form(rsi_building *b, const pair *p, int64_t *count)
{
    rsi_made_form *f = rsi_arena_array(&b->made->mem, 1, sizeof(*f));

    *count = 1;
    for (int i = 0; f && i < p->to.n; i++) {
        const rsi_factor *to = &p->to.factor[i];
        const rsi_factor *from = p->constant ? NULL : factor_of(&p->from, to->name);
        bool              by_name = !p->constant && !from && !to->repeat;

        if (by_name && strcmp(to->name, "1") != 0)
            continue; /* stacked: each source has its own index */
        *count *= to->size;
        if (to->size == 1)
            continue;
        f->loop[f->n++] = (rsi_made_loop){ .count = to->size,
                                           .to_stride = to->stride,
                                           .to_axis = to->axis,
                                           .from_stride = from ? from->stride : 0,
                                           .from_axis = from ? from->axis : -1 };
    }
    if (f)
        merge_loops(f);
    return f;
}

/* Adds what the numbers of a tuple say to the offsets of a branch. */
static void add_tuple(const rsi_building *b, const rsi_stacked *s, int n, int64_t k,
                      const rsi_branch *br, int64_t *off)
{
    for (int i = n - 1; i >= 0; i--) {
        const rsi_factor *f = factor_of(br, b->group->rule->capture[s[i].capture]);

        if (f)
            off[f->axis] += k % s[i].n * f->stride;
        k /= s[i].n;
    }
}

static int by_first(const void *x, const void *y)
{
    const rsi_made_term *a = x, *b = y;

    for (int d = 0; d < RSD_MAX_NDIM; d++)
        if (a->to[d] != b->to[d])
            return a->to[d] < b->to[d] ? -1 : 1;
    return 0;
}

static int64_t reach_of(const rsi_made_form *f)
{
    int64_t reach = 0;

    for (int i = 0; i < f->n && f->loop[i].to_axis == 0; i++)
        reach += (f->loop[i].count - 1) * f->loop[i].to_stride;
    return reach;
}

/* The terms of target tuple k, from all pairs of its item. */
static rsd_err make_terms(rsi_building *b, const pair *p, size_t npairs, int64_t k,
                          rsi_made_form *const *form, const int64_t *count, rsi_made_tensor *t,
                          rsd_error *err)
{
    size_t  most = npairs * (size_t)b->tuples_in;
    int64_t all = 0, want;

    t->term = rsi_arena_array(&b->made->mem, most, sizeof(t->term[0]));
    if (!t->term)
        return no_memory(err);
    for (size_t i = 0; i < npairs; i++)
        for (int64_t m = 0; m < (p[i].constant ? 1 : b->tuples_in) && count[i]; m++) {
            rsi_made_term *term = &t->term[t->nterms++];

            *term = (rsi_made_term){ .form = form[i],
                                     .value = p[i].value,
                                     .source = RSI_MADE_NONE,
                                     .scales = RSI_MADE_NONE,
                                     .low = RSI_MADE_NONE };
            all += count[i];
            t->reach = rsi_max(t->reach, reach_of(form[i]));
            memcpy(term->to, p[i].to.off, sizeof(term->to));
            if (p[i].constant)
                continue;
            memcpy(term->from, p[i].from.off, sizeof(term->from));
            add_tuple(b, b->in, b->nin, m, &p[i].to, term->to);
            add_tuple(b, b->out, b->nout, k, &p[i].from, term->from);
            term->source = b->values[p[i].item][m].source;
            if (b->scales[p[i].item])
                term->scales = b->scales[p[i].item][m].source;
            if (b->low[p[i].item])
                term->low = b->low[p[i].item][m].source;
        }
    qsort(t->term, t->nterms, sizeof(t->term[0]), by_first);
    if (!rsi_product(t->whole_ndim, t->whole, 1, &want) || want != all)
        return rsi_fail(err, RSD_E_BUG,
                        "tensor \"%s\" has %" PRId64 " elements, but its parts %" PRId64, t->name,
                        want, all);
    return RSD_OK;
}

/* ---- targets ---- */

static rsd_err add_target(rsi_building *b, const rsi_made_tensor *t, rsd_error *err)
{
    rsi_made *made = b->made;
    uint64_t  number = made->n;
    int64_t   elems;
    bool      was;
    rsd_err   rc = rsi_shape_check(t->dtype, t->ndim, t->shape, &elems, err);

    if (rc)
        return rsi_while(err, rc, "tensor \"%s\"", t->name);
    if (!rsi_map_add(&made->names, t->name, strlen(t->name), &number, &was) ||
        !rsi_grow(&made->tensor, made->n, &made->cap, sizeof(*t)))
        return no_memory(err);
    if (was)
        return rsi_fail(err, RSD_E_INVALID,
                        "tensor \"%s\" would be made twice: by line %d and by line %d", t->name,
                        made->tensor[number].line, t->line);
    made->tensor[made->n++] = *t;
    return RSD_OK;
}

static rsd_err target_name(rsi_building *b, const rsi_name_text *name, int64_t k, const char **out,
                           rsd_error *err)
{
    rsi_captured c = b->group->captured;

    rsi_set_tuple(b->out, b->nout, k, &c);
    *out = rsi_name_make(name, b->group->rule, &b->scope.scope, &c, &b->made->mem);
    if (*out)
        return RSD_OK;
    return rsi_fail(err, RSD_E_INVALID, "line %d: \"%s\" has no number for this capture",
                    b->group->rule->at.line, name->text);
}

/* Adds a target under its name, the names tied to it and, if quantised, its scales. */
static rsd_err add_named(rsi_building *b, const rsi_recipe_item *it, int64_t k, rsi_made_tensor *t,
                         rsd_error *err)
{
    rsd_err rc;

    t->to = it->kind;
    rc = add_target(b, t, err);
    for (size_t i = 0; i < it->ntied && !rc; i++) {
        t->tied = true;
        rc = target_name(b, &it->tied[i], k, &t->name, err);
        if (!rc)
            rc = add_target(b, t, err);
    }
    if (rc || (it->kind != RSI_ITEM_FP8 && it->kind != RSI_ITEM_MXFP4))
        return rc;
    t->scales = true;
    if (it->kind == RSI_ITEM_MXFP4) {
        t->ndim--;
    } else {
        t->dtype = RSD_F32;
        for (int d = t->ndim - 2; d < t->ndim; d++)
            t->shape[d] = rsi_ceil_div(t->shape[d], 128);
    }
    rc = target_name(b, &it->with, k, &t->name, err);
    return rc ? rc : add_target(b, t, err);
}

/* 32 values of the last axis are 16 bytes. */
static rsd_err shape_mxfp4(const rsi_recipe_rule *rule, rsi_made_tensor *t, rsd_error *err)
{
    int last = t->ndim - 1;

    if (t->ndim < 1 || t->ndim == RSD_MAX_NDIM || t->shape[last] % 32 != 0)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "line %d: mxfp4 needs a last axis that is a multiple of 32", rule->at.line);
    t->dtype = RSD_U8;
    t->shape[last] /= 32;
    t->shape[last + 1] = 16;
    t->ndim++;
    return RSD_OK;
}

/* B A of LoRA is scaled by this. */
static rsd_err choose_scale(rsi_building *b, const pair *p, size_t n, rsi_made_tensor *t,
                            rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_recipe_item *it = &b->group->rule->from.item[p[i].item];

        if (!p[i].constant && it->scale)
            rc = rsi_expr_value(it->scale, &b->scope.scope, &t->low_scale, err);
    }
    return rc == RSD_E_NOTFOUND ? RSD_E_INVALID : rc;
}

/* The dtype of a target: as its sources, unless the rule says otherwise. */
static rsd_err choose_dtype(rsi_building *b, const rsi_recipe_item *it, const pair *p, size_t n,
                            rsi_made_tensor *t, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    rsd_dtype              as = b->scope.recipe->reverse ? 0 : rule->as;
    rsd_err                rc = RSD_OK;

    t->dtype = as;
    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_made_source *s =
            p[i].constant ? NULL : &b->made->source[b->values[p[i].item]->source];
        rsd_dtype dtype = s ? s->dtype : 0;

        if (!s)
            continue;
        t->from = rule->from.item[p[i].item].kind;
        if (t->from == RSI_ITEM_FP8 || t->from == RSI_ITEM_MXFP4)
            dtype = RSD_BF16;
        t->dtype = t->dtype ? t->dtype : dtype;
        if (t->dtype != dtype && !as)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "line %d: \"%s\" is %s, but other parts of \"%s\" are %s: say as DTYPE",
                            rule->at.line, s->name, rsd_dtype_name(dtype), t->name,
                            rsd_dtype_name(t->dtype));
        rc = rsi_cast_check(t->dtype, t->from == RSI_ITEM_PLAIN ? s->dtype : RSD_F32, err);
        if (!rc && (t->affine || it->kind != RSI_ITEM_PLAIN || t->from == RSI_ITEM_LORA))
            rc = rsi_cast_check(RSD_F32, s->dtype, err);
    }
    if (!rc && !t->dtype)
        rc = rsi_fail(err, RSD_E_INVALID, "line %d: a constant needs a dtype: say as DTYPE",
                      rule->at.line);
    if (!rc && it->kind == RSI_ITEM_FP8 && t->ndim < 2)
        rc = rsi_fail(err, RSD_E_INVALID, "line %d: fp8 needs at least 2 axes", rule->at.line);
    if (!rc && it->kind == RSI_ITEM_FP8)
        t->dtype = RSD_F8_E4M3FN;
    if (!rc && it->kind == RSI_ITEM_MXFP4)
        rc = shape_mxfp4(rule, t, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", t->name) : RSD_OK;
}

static rsd_err choose_affine(rsi_building *b, rsi_made_tensor *t, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    double                 times = 1, plus = 0;
    rsd_err                rc = RSD_OK;

    if (rule->times)
        rc = rsi_expr_value(rule->times, &b->scope.scope, &times, err);
    if (!rc && rule->plus)
        rc = rsi_expr_value(rule->plus, &b->scope.scope, &plus, err);
    t->affine = rule->times || rule->plus;
    t->inverse = b->scope.recipe->reverse;
    t->times = (float)times;
    t->plus = (float)plus;
    if (!rc && t->affine && t->inverse && t->times == 0)
        rc = rsi_fail(err, RSD_E_INVALID, "line %d: times 0 has no inverse", rule->at.line);
    return rc == RSD_E_NOTFOUND ? RSD_E_INVALID : rc;
}

/* All targets of one item, made of these pairs. */
static rsd_err make_item(rsi_building *b, const rsi_recipe_item *it, const pair *p, size_t n,
                         const rsi_made_tensor *like, rsd_error *err)
{
    rsi_made_form *form[RSI_SIDE_MOST];
    int64_t        count[RSI_SIDE_MOST];
    rsd_err        rc = RSD_OK;

    for (size_t i = 0; i < n; i++) {
        form[i] = make_form(b, &p[i], &count[i]);
        if (!form[i])
            return no_memory(err);
    }
    for (int64_t k = 0; k < b->tuples_out && !rc; k++) {
        rsi_made_tensor t = *like;

        rc = target_name(b, &it->name, k, &t.name, err);
        if (!rc)
            rc = choose_affine(b, &t, err);
        t.whole_ndim = t.ndim;
        if (!rc)
            rc = choose_scale(b, p, n, &t, err);
        if (!rc)
            rc = choose_dtype(b, it, p, n, &t, err);
        if (!rc)
            rc = make_terms(b, p, n, k, form, count, &t, err);
        if (!rc)
            rc = add_named(b, it, k, &t, err);
    }
    return rc;
}

/* The next branch of the sources that a target has; the others, which are dropped, count as
 * used. */
static rsd_err next_source(rsi_building *b, size_t *item, int64_t *branch, pair *p, rsd_error *err)
{
    const rsi_rule_side *side = &b->group->rule->from;

    for (; *item < side->n; ++*item, *branch = 0)
        while (*branch < rsi_item_branches(&side->item[*item])) {
            rsd_err rc = rsi_item_branch(&side->item[*item], &b->sizes, (*branch)++, &p->from, err);
            int64_t count = 1;

            if (rc)
                return rc;
            for (int i = 0; i < p->from.n; i++)
                count *= p->from.factor[i].size;
            b->used[*item] += count;
            p->item = *item;
            if (!p->from.filled)
                return RSD_OK;
        }
    return RSD_OK; /* the parser has compared the numbers of branches */
}

static rsd_err make_branches(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    bool                   constant = rule->from.item[0].kind == RSI_ITEM_VALUE;
    pair                  *p = rsi_arena_array(&b->spare, RSI_SIDE_MOST, sizeof(*p));
    size_t                 item = 0;
    int64_t                branch = 0;
    rsd_err                rc = p ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < rule->to.n && !rc; i++) {
        const rsi_recipe_item *it = &rule->to.item[i];
        rsi_made_tensor        like = { .line = rule->at.line };
        int64_t                n = rsi_item_branches(it), elems;

        like.ndim = rsi_item_ndim(it, &b->sizes);
        rc = rsi_item_shape(it, &b->sizes, like.shape, err);
        if (!rc && !rsi_product(like.ndim, like.shape, 16, &elems))
            rc = rsi_fail(err, RSD_E_INVALID, "line %d: \"%s\" would be too large", rule->at.line,
                          it->name.text);
        memcpy(like.whole, like.shape, sizeof(like.whole));
        for (int64_t k = 0; k < n && !rc; k++) {
            p[k] = (pair){ .constant = constant, .value = rule->from.item[0].value };
            rc = rsi_item_branch(it, &b->sizes, k, &p[k].to, err);
            if (!rc && p[k].to.filled) {
                p[k].constant = true;
                p[k].value = p[k].to.value;
            } else if (!rc && !constant) {
                rc = next_source(b, &item, &branch, &p[k], err);
            }
        }
        if (!rc)
            rc = make_item(b, it, p, (size_t)n, &like, err);
    }
    if (!rc && !constant) { /* the rest, if it is dropped */
        pair last;

        rc = next_source(b, &item, &branch, &last, err);
    }
    return rc == RSD_E_NOTFOUND ? rsi_while(err, RSD_E_INVALID, "line %d", rule->at.line) : rc;
}

/* Tensors that only get a new name. */
static rsd_err make_plain(rsi_building *b, rsd_error *err)
{
    const rsi_recipe_rule *rule = b->group->rule;
    rsd_err                rc = RSD_OK;

    for (size_t i = 0; i < rule->to.n && !rc; i++) {
        rsi_made_tensor like = { .line = rule->at.line };
        pair            p = { .item = i };
        int             ndim = 0;

        rc = rsi_source_shape(b, i, &ndim, like.shape, err);
        like.ndim = ndim;
        memcpy(like.whole, like.shape, sizeof(like.whole));
        p.to.n = p.from.n = like.ndim;
        b->used[i] = 1;
        for (int d = 0; d < like.ndim && !rc; d++) {
            static const char *const name[] = { "0", "1", "2", "3", "4", "5", "6", "7" };

            p.to.factor[d] = p.from.factor[d] =
                (rsi_factor){ .name = name[d], .size = like.shape[d], .stride = 1, .axis = d };
            b->used[i] *= like.shape[d];
        }
        if (!rc)
            rc = make_item(b, &rule->to.item[i], &p, 1, &like, err);
    }
    return rc;
}

/* Every element of every source is used once or dropped. */
static rsd_err count_sources(const rsi_building *b, rsd_error *err)
{
    for (size_t i = 0; i < b->group->rule->from.n; i++) {
        int64_t shape[RSD_MAX_NDIM], all;
        int     ndim;
        rsd_err rc = rsi_source_shape(b, i, &ndim, shape, err);

        if (rc)
            return rc;
        if (!rsi_product(ndim, shape, 1, &all) || all != b->used[i])
            return rsi_fail(err, RSD_E_BUG,
                            "%" PRId64 " elements of tensor \"%s\" are used, not %" PRId64,
                            b->used[i], b->made->source[b->values[i]->source].name, all);
    }
    return RSD_OK;
}

rsd_err rsi_made_group(rsi_made *made, const rsd_recipe *recipe, const rsi_map *sources,
                       const rsi_rule_group *group, rsd_error *err)
{
    const rsi_recipe_rule *rule = group->rule;
    rsi_building          *b = rsi_calloc(1, sizeof(*b));
    bool                   constant = rule->from.item[0].kind == RSI_ITEM_VALUE;
    rsd_err                rc = RSD_OK;

    if (!b)
        return no_memory(err);
    b->made = made;
    b->group = group;
    b->tuples_in = 1;
    rsi_rule_scope_begin(&b->scope, recipe, rule, &group->captured,
                         constant
                             ? rule->to.item[0].name.captures
                             : rule->to.item[0].name.captures & rule->from.item[0].name.captures,
                         sources, &b->spare);
    b->sizes_scope = b->scope;
    b->sizes_scope.scope.arg = &b->sizes_scope;
    b->sizes_scope.factor = true;
    b->sizes.scope = &b->sizes_scope.scope;
    b->scope.sizes = &b->sizes;
    if (!constant)
        rc = rsi_find_members(b, err);
    if (!rc)
        rc = rsi_learn_sizes(b, err);
    if (!rc)
        rc = rsi_find_unstacked(b, err);
    if (!rc)
        rc = rule->to.item[0].has_axes ? make_branches(b, err) : make_plain(b, err);
    if (!rc && !constant)
        rc = count_sources(b, err);
    rsi_arena_release(&b->spare);
    rsi_free(b);
    return rc;
}
