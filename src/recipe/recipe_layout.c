/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a recipe's targets: rules in the text form of layouts, in which {NAME} stands for a
 * number of the recipe. */
#include "base/bytes.h"
#include "base/mem.h"
#include "recipe/made.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The value of "{NAME}" at *at, which is moved behind it. */
static rsd_err take_number(const rsd_recipe *recipe, const char **at, char *out, size_t cap,
                           rsd_error *err)
{
    size_t         n = strcspn(*at + 1, "}");
    char           name[RSI_RECIPE_WORD] = "";
    rsi_rule_scope s;
    double         value = 0;
    rsd_err        rc;

    if ((*at)[n + 1] != '}' || !rsi_is_word(*at + 1, n))
        return rsi_fail(err, RSD_E_INVALID, "expected {NAME}, found \"%.32s\"", *at);
    memcpy(name, *at + 1, n);
    rsi_rule_scope_begin(&s, recipe, NULL, NULL, 0, NULL, NULL);
    rc = rsi_recipe_get(recipe, &s.scope, name, false, &value, err);
    if (rc == RSD_E_NOTFOUND)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" is not set: use --set %s=N or --config", name,
                        name);
    if (!rc && (value < 0 || value > 1e9 || value != (double)(int64_t)value))
        rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" is %.15g, not a whole number up to 10^9", name,
                      value);
    snprintf(out, cap, "%" PRId64, rc ? 0 : (int64_t)value);
    *at += n + 2;
    return rc;
}

static rsd_err add_line(const rsd_recipe *recipe, const char *line, rsi_bytes *text, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (*line && !rc) {
        size_t n = strcspn(line, "{");
        char   number[32] = "";

        rsi_bytes_add(text, line, n);
        line += n;
        if (*line)
            rc = take_number(recipe, &line, number, sizeof(number), err);
        rsi_bytes_add(text, number, strlen(number));
    }
    rsi_bytes_add(text, "\n", 1);
    return rc;
}

rsd_err rsi_recipe_layout(const rsd_recipe *recipe, rsd_rules **out, rsd_error *err)
{
    rsi_bytes text = { 0 };
    rsd_err   rc = RSD_OK;

    *out = NULL;
    if (recipe->nlayouts == 0)
        return RSD_OK;
    for (size_t i = 0; i < recipe->nlayouts && !rc; i++)
        rc = add_line(recipe, recipe->layout[i], &text, err);
    if (!rc && !rsi_bytes_add(&text, "", 1))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the layout");
    if (!rc)
        rc = rsd_rules_parse((const char *)text.at, out, err);
    rsi_free(text.at);
    return rc ? rsi_while(err, rc, "the layout of the recipe") : RSD_OK;
}
