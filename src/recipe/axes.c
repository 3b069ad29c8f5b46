/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and branches of axes. An axis is linear in each of its factors, because no factor occurs
 * twice in a branch; so one unknown factor follows from the axis's size. */
#include "recipe/axes.h"
#include "base/checked.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const rest_name[RSD_MAX_NDIM] = { "...0", "...1", "...2", "...3",
                                                     "...4", "...5", "...6", "...7" };

/* ---- sizes ---- */

/* RSD_E_NOTFOUND: nothing tells. A number that is set but is no size is an error. */
static rsd_err find_size(const rsi_sizes *sizes, const char *name, int64_t *out, rsd_error *err)
{
    double  value;
    rsd_err rc;

    for (size_t i = 0; i < sizes->n; i++)
        if (strcmp(sizes->name[i], name) == 0) {
            *out = sizes->size[i];
            return RSD_OK;
        }
    rc = sizes->scope ? sizes->scope->get(sizes->scope, name, &value, err) : RSD_E_NOTFOUND;
    if (!rc && (value != floor(value) || value < 0 || value > 9007199254740992.0))
        rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" is %.15g, which is no size", name, value);
    if (!rc)
        *out = (int64_t)value;
    return rc;
}

bool rsi_sizes_get(const rsi_sizes *sizes, const char *name, int64_t *out)
{
    return find_size(sizes, name, out, NULL) == RSD_OK;
}

bool rsi_sizes_add(rsi_sizes *sizes, const char *name, int64_t size)
{
    if (sizes->n == RSI_SIZES_MOST)
        return false;
    sizes->name[sizes->n] = name;
    sizes->size[sizes->n++] = size;
    return true;
}

static rsd_err factor_size(const rsi_axis *a, const rsi_sizes *sizes, int64_t *out, rsd_error *err)
{
    rsd_err rc;

    if (a->literal >= 0 || sizes->blank) {
        *out = a->literal >= 0 ? a->literal : 1;
        return RSD_OK;
    }
    rc = find_size(sizes, a->name, out, err);
    return rc && rc != RSD_E_NOTFOUND
               ? rsi_while(err, rc, "line %d, column %d", a->at.line, a->at.column)
               : rc;
}

/* The size of an axis. A factor that is not known counts as `unknown`, and *missing names it. */
static rsd_err measure(const rsi_axis *a, const rsi_sizes *sizes, int64_t unknown,
                       const rsi_axis **missing, int64_t *out, rsd_error *err)
{
    int64_t one;
    bool    ok = true;
    rsd_err rc;

    if (a->kind == RSI_AXIS_FACTOR) {
        rc = factor_size(a, sizes, out, err);
        if (rc != RSD_E_NOTFOUND)
            return rc;
        if (*missing && strcmp((*missing)->name, a->name) != 0)
            return rsi_fail(err, RSD_E_NOTFOUND,
                            "line %d, column %d: the sizes of \"%s\" and \"%s\" are not known: "
                            "use --set %s=N",
                            a->at.line, a->at.column, (*missing)->name, a->name, a->name);
        *missing = a;
        *out = unknown;
        return RSD_OK;
    }
    *out = a->kind == RSI_AXIS_SUM ? 0 : 1;
    for (int i = 0; i < a->n && ok; i++) {
        rc = measure(&a->in[i], sizes, unknown, missing, &one, err);
        if (rc)
            return rc;
        ok = a->kind == RSI_AXIS_SUM ? rsi_add(*out, one, out) : rsi_mul(*out, one, out);
    }
    return ok ? RSD_OK
              : rsi_fail(err, RSD_E_INVALID, "line %d, column %d: the axis is too long", a->at.line,
                         a->at.column);
}

static rsd_err known(const rsi_axis *a, const rsi_sizes *sizes, int64_t *out, rsd_error *err)
{
    const rsi_axis *missing = NULL;
    rsd_err         rc = measure(a, sizes, 0, &missing, out, err);

    if (!rc && missing)
        rc = rsi_fail(err, RSD_E_NOTFOUND,
                      "line %d, column %d: the size of \"%s\" is not known: use --set %s=N",
                      missing->at.line, missing->at.column, missing->name, missing->name);
    return rc;
}

int rsi_item_ndim(const rsi_recipe_item *item, const rsi_sizes *sizes)
{
    int n = item->naxes;

    for (int i = 0; i < item->naxes; i++)
        n += item->axis[i].kind == RSI_AXIS_REST ? sizes->rest - 1 : 0;
    return n;
}

/* Axis d of the item; *rest has the factor if "..." stands for it. */
static const rsi_axis *axis_at(const rsi_recipe_item *item, const rsi_sizes *sizes, int d,
                               rsi_axis *rest)
{
    for (int i = 0; i < item->naxes; i++) {
        const rsi_axis *a = &item->axis[i];
        int             n = a->kind == RSI_AXIS_REST ? sizes->rest : 1;

        if (d < n && a->kind == RSI_AXIS_REST) {
            *rest = (rsi_axis){ .name = rest_name[d], .literal = -1, .at = a->at };
            return rest;
        }
        if (d < n)
            return a;
        d -= n;
    }
    return NULL;
}

rsd_err rsi_item_shape(const rsi_recipe_item *item, const rsi_sizes *sizes, int64_t *shape,
                       rsd_error *err)
{
    int     ndim = rsi_item_ndim(item, sizes);
    rsd_err rc = RSD_OK;

    if (ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: more than %d axes", item->at.line,
                        item->at.column, RSD_MAX_NDIM);
    for (int d = 0; d < ndim && !rc; d++) {
        rsi_axis        rest;
        const rsi_axis *a = axis_at(item, sizes, d, &rest);

        rc = known(a, sizes, &shape[d], err);
    }
    return rc;
}

/* ---- learning ---- */

static rsd_err learn_axis(const rsi_axis *a, rsi_sizes *sizes, int d, int64_t size, bool *learned,
                          rsd_error *err)
{
    const rsi_axis *missing = NULL, *same = NULL;
    int64_t         at0, at1;
    rsd_error       why = { .rank = -1 };
    rsd_err         rc = measure(a, sizes, 0, &missing, &at0, &why);

    if (rc == RSD_E_NOTFOUND)
        return RSD_OK; /* two unknown ones: others may tell */
    if (rc && err)
        *err = why;
    if (rc)
        return rc;
    if (!missing && at0 != size)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "axis %d has the size %" PRId64 ", but the recipe's is %" PRId64
                        " (line %d, column %d)",
                        d, size, at0, a->at.line, a->at.column);
    if (!missing || measure(a, sizes, 1, &same, &at1, NULL))
        return RSD_OK;
    if (at1 == at0 || size < at0 || (size - at0) % (at1 - at0) != 0)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "axis %d has the size %" PRId64 ", which does not fit: with \"%s\" = N it "
                        "would be %" PRId64 " + N * %" PRId64 " (line %d, column %d)",
                        d, size, missing->name, at0, at1 - at0, a->at.line, a->at.column);
    *learned = true;
    return rsi_sizes_add(sizes, missing->name, (size - at0) / (at1 - at0))
               ? RSD_OK
               : rsi_fail(err, RSD_E_INVALID, "line %d, column %d: too many factors", a->at.line,
                          a->at.column);
}

rsd_err rsi_item_learn(const rsi_recipe_item *item, rsi_sizes *sizes, int ndim,
                       const int64_t *shape, bool *learned, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (rsi_item_ndim(item, sizes) != ndim)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "it has %d axes, but the recipe says %d (line %d, column %d)", ndim,
                        rsi_item_ndim(item, sizes), item->at.line, item->at.column);
    for (int d = 0; d < ndim && !rc; d++) {
        rsi_axis        rest;
        const rsi_axis *a = axis_at(item, sizes, d, &rest);

        rc = learn_axis(a, sizes, d, shape[d], learned, err);
    }
    return rc;
}

/* ---- branches ---- */

static int64_t branches_of(const rsi_axis *a)
{
    int64_t n = a->kind == RSI_AXIS_SUM ? 0 : 1;

    for (int i = 0; i < a->n; i++)
        n = a->kind == RSI_AXIS_SUM ? n + branches_of(&a->in[i]) : n * branches_of(&a->in[i]);
    return rsi_min(n, RSI_SIDE_MOST + 1); /* more are refused */
}

int64_t rsi_item_branches(const rsi_recipe_item *item)
{
    int64_t n = 1;

    for (int i = 0; i < item->naxes; i++)
        n = rsi_min(n * branches_of(&item->axis[i]), RSI_SIDE_MOST + 1);
    return n;
}

static rsd_err add_factor(const rsi_axis *a, const rsi_sizes *sizes, int d, int64_t stride,
                          rsi_branch *out, rsd_error *err)
{
    rsi_factor f = { .name = a->name, .stride = stride, .axis = d, .repeat = a->repeat };
    rsd_err    rc = known(a, sizes, &f.size, err);

    if (rc)
        return rc;
    if (a->filled) {
        out->filled = true;
        out->value = a->value;
    }
    for (int i = 0; i < out->n; i++)
        if (strcmp(out->factor[i].name, a->name) == 0)
            return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: \"%s\" occurs twice",
                            a->at.line, a->at.column, a->name);
    if (out->n == RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: more than %d factors", a->at.line,
                        a->at.column, RSD_MAX_NDIM);
    out->factor[out->n++] = f;
    return RSD_OK;
}

/* Adds branch b of axis `a`, whose index counts `stride` on axis d. */
static rsd_err add_branch(const rsi_axis *a, const rsi_sizes *sizes, int64_t b, int d,
                          int64_t stride, rsi_branch *out, rsd_error *err)
{
    int64_t size;
    rsd_err rc = RSD_OK;

    if (a->kind == RSI_AXIS_FACTOR)
        return add_factor(a, sizes, d, stride, out, err);
    if (a->kind == RSI_AXIS_SUM) {
        for (int i = 0; i < a->n && !rc; i++) {
            int64_t n = branches_of(&a->in[i]);

            if (b < n)
                return add_branch(&a->in[i], sizes, b, d, stride, out, err);
            b -= n;
            rc = known(&a->in[i], sizes, &size, err);
            if (!rc)
                out->off[d] += size * stride;
        }
        return rc;
    }
    for (int i = a->n - 1; i >= 0 && !rc; i--) {
        int64_t n = branches_of(&a->in[i]);

        rc = add_branch(&a->in[i], sizes, b % n, d, stride, out, err);
        b /= n;
        if (!rc)
            rc = known(&a->in[i], sizes, &size, err);
        if (!rc)
            stride *= size;
    }
    return rc;
}

rsd_err rsi_item_branch(const rsi_recipe_item *item, const rsi_sizes *sizes, int64_t b,
                        rsi_branch *out, rsd_error *err)
{
    int     ndim = rsi_item_ndim(item, sizes);
    rsd_err rc = RSD_OK;

    *out = (rsi_branch){ .n = 0 };
    for (int d = ndim - 1; d >= 0 && !rc; d--) {
        rsi_axis        rest;
        const rsi_axis *a = axis_at(item, sizes, d, &rest);
        int64_t         n = branches_of(a);

        rc = add_branch(a, sizes, b % n, d, 1, out, err);
        b /= n;
    }
    return rc;
}
