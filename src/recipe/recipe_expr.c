/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a recipe: values of expressions, and variables that are set or defined. */
#include "base/checked.h"
#include "base/digest.h"
#include "base/mem.h"
#include "recipe/recipe.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WHOLE_MOST 9007199254740992.0 /* 2^53: whole numbers are exact up to it */

static bool both_whole(double a, double b)
{
    return a == floor(a) && b == floor(b) && fabs(a) <= WHOLE_MOST && fabs(b) <= WHOLE_MOST;
}

static rsd_err whole_result(const rsi_expr *e, double a, double b, double *out, rsd_error *err)
{
    if (!both_whole(a, b) || b <= 0)
        return rsi_fail(err, RSD_E_INVALID,
                        "line %d, column %d: \"%s\" needs whole numbers, the second above 0",
                        e->at.line, e->at.column, e->op == 'u' ? "up" : "%");
    *out = e->op == 'u' ? ceil(a / b) * b : a - floor(a / b) * b;
    return RSD_OK;
}

static rsd_err combine(const rsi_expr *e, double a, double b, double *out, rsd_error *err)
{
    switch (e->op) {
    case '+':
        *out = a + b;
        break;
    case '-':
        *out = a - b;
        break;
    case '*':
        *out = a * b;
        break;
    case '<':
        *out = a < b;
        break;
    case '>':
        *out = a > b;
        break;
    case 'l':
        *out = a <= b;
        break;
    case 'g':
        *out = a >= b;
        break;
    case '=':
        *out = a == b;
        break;
    case '!':
        *out = a != b;
        break;
    case '/':
        if (b == 0)
            return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: division by 0", e->at.line,
                            e->at.column);
        *out = a / b;
        break;
    case 'm':
        *out = a < b ? a : b;
        break;
    case 's':
        *out = sqrt(a);
        break;
    default:
        return whole_result(e, a, b, out, err);
    }
    if (!isfinite(*out))
        return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: the result is not a number",
                        e->at.line, e->at.column);
    return RSD_OK;
}

/* The innermost variable that is not known is the one to set. */
static rsd_err variable(const rsi_expr *e, const rsi_scope *scope, double *out, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = scope->get(scope, e->name, out, &why);

    if (rc == RSD_E_NOTFOUND && !why.msg[0])
        return rsi_fail(err, rc,
                        "line %d, column %d: \"%s\" is not set: use --set %s=N or --config",
                        e->at.line, e->at.column, e->name, e->name);
    if (rc && err)
        *err = why;
    return rc;
}

rsd_err rsi_expr_value(const rsi_expr *e, const rsi_scope *scope, double *out, rsd_error *err)
{
    double  a, b = 0;
    rsd_err rc;

    if (e->op == 'n') {
        *out = e->value;
        return RSD_OK;
    }
    if (e->op == 'h') {
        *out = scope->has && scope->has(scope, e->has);
        return RSD_OK;
    }
    if (e->op == 'v')
        return variable(e, scope, out, err);
    rc = rsi_expr_value(e->a, scope, &a, err);
    if (!rc && (e->op == '&' || e->op == '|') && (a != 0) == (e->op == '|')) {
        *out = a != 0; /* the other operand may be unknown */
        return RSD_OK;
    }
    if (!rc && e->b)
        rc = rsi_expr_value(e->b, scope, &b, err);
    if (rc)
        return rc;
    if (e->op == '&' || e->op == '|') {
        *out = b != 0;
        return RSD_OK;
    }
    return combine(e, a, b, out, err);
}

rsd_err rsi_expr_whole(const rsi_expr *e, const rsi_scope *scope, int64_t *out, rsd_error *err)
{
    double  value;
    rsd_err rc = rsi_expr_value(e, scope, &value, err);

    if (rc)
        return rc;
    if (!both_whole(value, 0))
        return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: %g is not a whole number",
                        e->at.line, e->at.column, value);
    *out = (int64_t)value;
    return RSD_OK;
}

/* ---- variables ---- */

bool rsi_is_word(const char *text, size_t len)
{
    if (len == 0 || len >= RSI_RECIPE_WORD || !(isalpha((unsigned char)*text) || *text == '_'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '_')
            return false;
    return true;
}

rsd_err rsi_recipe_set(rsd_recipe *recipe, const char *name, double value, bool config,
                       rsd_error *err)
{
    rsi_recipe_number number = { .value = value, .config = config };

    if (!rsi_is_word(name, strlen(name)))
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" is not the name of a number", name);
    if (!isfinite(value))
        return rsi_fail(err, RSD_E_INVALID, "the value of \"%s\" is not a number", name);
    number.name = rsi_arena_text(&recipe->mem, name, strlen(name));
    if (!number.name ||
        !rsi_grow(&recipe->number, recipe->nnumbers, &recipe->numbers_cap, sizeof(number)))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the numbers of a recipe");
    recipe->number[recipe->nnumbers++] = number;
    recipe->digest = rsi_digest(recipe->digest, name, strlen(name) + 1);
    recipe->digest = rsi_digest(recipe->digest, &value, sizeof(value));
    recipe->digest = rsi_digest(recipe->digest, &config, sizeof(config));
    return RSD_OK;
}

static bool find_number(const rsd_recipe *recipe, const char *name, bool config, double *out)
{
    for (size_t i = recipe->nnumbers; i-- > 0;)
        if (recipe->number[i].config == config && strcmp(recipe->number[i].name, name) == 0) {
            *out = recipe->number[i].value;
            return true;
        }
    return false;
}

/* The value of a definition: of its first expression whose variables are all known. */
static rsd_err defined(const rsi_where *let, const rsi_scope *scope, double *out, rsd_error *err)
{
    rsi_scope deeper = *scope;
    rsd_error why = { .rank = -1 };
    rsd_err   rc;

    if (++deeper.depth > RSI_RECIPE_DEPTH) /* the parser has refused cycles */
        return rsi_fail(err, RSD_E_INVALID, "line %d, column %d: \"%s\" depends on too many others",
                        let->at.line, let->at.column, let->name);
    rc = rsi_expr_value(let->expr, &deeper, out, let->other ? &why : err);
    if (rc == RSD_E_NOTFOUND && let->other)
        return rsi_expr_value(let->other, &deeper, out, err);
    if (rc && let->other && err)
        *err = why;
    return rc;
}

rsd_err rsi_recipe_get(const rsd_recipe *recipe, const rsi_scope *scope, const char *name,
                       bool factor, double *out, rsd_error *err)
{
    if (find_number(recipe, name, false, out))
        return RSD_OK;
    for (size_t i = recipe->nlets; i-- > 0;)
        if (strcmp(recipe->let[i].name, name) == 0)
            return defined(&recipe->let[i], scope, out, err);
    return !factor && find_number(recipe, name, true, out) ? RSD_OK : RSD_E_NOTFOUND;
}
