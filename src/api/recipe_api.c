/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_recipe.h: checks arguments and passes them on; reads a model's config. */
#include "base/mem.h"
#include "base/text.h"
#include "format/json.h"
#include "read/made_read.h"

#include <stdlib.h>
#include <string.h>

rsd_err rsd_recipe_parse(const char *text, bool reverse, rsd_recipe **out, rsd_error *err)
{
    if (!text || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: text or output pointer");
    return rsi_recipe_parse(text, reverse, out, err);
}

rsd_err rsd_recipe_set(rsd_recipe *recipe, const char *name, double value, rsd_error *err)
{
    if (!recipe || !name)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: recipe or name");
    return rsi_recipe_set(recipe, name, value, false, err);
}

/* ---- config ---- */

/* Keeps numbers and booleans; text and lists can't be used in a recipe. */
static rsd_err take_value(rsd_recipe *recipe, const char *name, const rsi_json_token *token,
                          rsd_error *err)
{
    char   text[64];
    double value;

    if (token->kind != RSI_JSON_INTEGER && token->kind != RSI_JSON_NUMBER &&
        token->kind != RSI_JSON_TRUE && token->kind != RSI_JSON_FALSE)
        return RSD_OK;
    value = token->kind == RSI_JSON_TRUE;
    if (token->kind == RSI_JSON_INTEGER || token->kind == RSI_JSON_NUMBER) {
        if (token->len >= sizeof(text))
            return RSD_OK;
        memcpy(text, token->text, token->len);
        text[token->len] = '\0';
        value = strtod(text, NULL);
    }
    return rsi_is_word(name, strlen(name)) ? rsi_recipe_set(recipe, name, value, true, err)
                                           : RSD_OK;
}

/* The members of an object; one named "text_config" is entered. */
static rsd_err take_members(rsd_recipe *recipe, rsi_json *json, bool top, rsd_error *err)
{
    rsi_json_token key, value;
    rsd_err        rc = RSD_OK;

    while (rsi_json_each(json, &key, &rc, err)) {
        char name[RSI_RECIPE_WORD] = "";

        if (key.len < sizeof(name))
            memcpy(name, key.text, key.len);
        rc = rsi_json_next(json, &value, err);
        if (!rc && value.kind == RSI_JSON_OBJECT && top && strcmp(name, "text_config") == 0)
            rc = take_members(recipe, json, false, err);
        else if (!rc)
            rc = rsi_json_skip(json, &value, err);
        if (!rc && *name)
            rc = take_value(recipe, name, &value, err);
    }
    return rc;
}

rsd_err rsd_recipe_config(rsd_recipe *recipe, const char *text, size_t len, rsd_error *err)
{
    rsi_arena      mem = { 0 };
    rsi_json       json;
    rsi_json_token token;
    rsd_err        rc;

    if (!recipe || !text)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: recipe or text");
    rsi_json_begin(&json, text, len, 0, &mem);
    rc = rsi_json_want(&json, RSI_JSON_OBJECT, "an object", &token, err);
    if (!rc)
        rc = take_members(recipe, &json, true, err);
    if (!rc)
        rc = rsi_json_want(&json, RSI_JSON_END, "the end", &token, err);
    rsi_arena_release(&mem);
    return rc;
}

/* ---- check ---- */

/* Names of the sources of a tensor, each once; the list belongs to `mem`. */
static rsd_err list_sources(const rsi_made *made, const rsi_made_tensor *t, rsi_arena *mem,
                            const char *const **out, size_t *n, rsd_error *err)
{
    size_t       cap = t->nterms ? 3 * t->nterms : 1;
    const char **list = rsi_arena_array(mem, cap, sizeof(list[0]));
    rsi_map      seen = { 0 };

    *n = 0;
    if (!list)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu names", t->nterms);
    for (size_t i = 0; i < 3 * t->nterms; i++) {
        const rsi_made_term *term = &t->term[i / 3];
        uint64_t             number = *n;
        size_t source = i % 3 == 0 ? term->source : i % 3 == 1 ? term->scales : term->low;
        bool   was = true;

        if (source == RSI_MADE_NONE)
            continue;
        if (!rsi_map_add(&seen, made->source[source].name, strlen(made->source[source].name),
                         &number, &was)) {
            rsi_map_release(&seen);
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu names", t->nterms);
        }
        if (!was)
            list[(*n)++] = made->source[source].name;
    }
    rsi_map_release(&seen);
    *out = list;
    return RSD_OK;
}

rsd_err rsd_recipe_check(const rsd_recipe *recipe, rsd_ckpt *source,
                         void (*on_made)(void *arg, const rsd_made *made),
                         void (*on_dropped)(void *arg, const char *name, int32_t line), void *arg,
                         rsd_error *err)
{
    rsi_made *made = NULL;
    rsd_err   rc;

    if (!recipe || !source)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: recipe or checkpoint");
    rc = rsi_made_of(recipe, source, NULL, NULL, &made, err);
    for (size_t i = 0; !rc && on_made && i < made->n; i++) {
        const rsi_made_tensor *t = &made->tensor[i];
        rsi_arena              mem = { 0 };
        rsd_made               one = { .size = sizeof(one),
                                       .name = t->name,
                                       .dtype = t->dtype,
                                       .ndim = t->ndim,
                                       .shape = t->shape,
                                       .parts = t->nterms,
                                       .tied = t->tied,
                                       .reordered = rsi_made_reorders(t),
                                       .scaled = t->affine || t->from == RSI_ITEM_LORA,
                                       .line = t->line };

        rc = list_sources(made, t, &mem, &one.from, &one.nfrom, err);
        if (!rc)
            on_made(arg, &one);
        rsi_arena_release(&mem);
    }
    for (size_t i = 0; !rc && on_dropped && i < made->nsources; i++)
        if (made->source[i].dropped)
            on_dropped(arg, made->source[i].name, made->source[i].line);
    rsi_made_drop(made);
    return rc;
}
