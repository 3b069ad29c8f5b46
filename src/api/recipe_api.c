/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_recipe.h: checks arguments and passes them on; reads a model's config. */
#include "base/checked.h"
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

static bool is_as_is(const rsi_made *made, const rsi_made_tensor *t)
{
    const rsi_made_term   *term = &t->term[0];
    const rsi_made_source *s;

    if (t->nterms != 1 || term->source == RSI_MADE_NONE || term->scales != RSI_MADE_NONE ||
        term->low != RSI_MADE_NONE || t->affine || rsi_made_reorders(t))
        return false;
    for (int k = 0; k < term->form->n; k++)
        if (term->form->loop[k].from_axis < 0)
            return false;
    s = &made->source[term->source];
    return s->dtype == t->dtype && s->ndim == t->ndim &&
           (t->ndim == 0 || memcmp(s->shape, t->shape, (size_t)t->ndim * sizeof(s->shape[0])) == 0);
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
                                       .as_is = is_as_is(made, t),
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

/* ---- reads ---- */

typedef struct reading {
    const rsi_made *made;
    rsd_made_read   read;
} reading;

static rsd_err add_piece(void *arg, const rsi_made_piece *piece, rsd_error *err)
{
    reading *r = arg;
    size_t   source = piece->term->source;
    int64_t  n = 1;

    (void)err;
    if (source == RSI_MADE_NONE)
        return RSD_OK;
    for (int k = 0; k < piece->term->form->n; k++)
        n *= piece->term->form->loop[k].from_axis < 0 ? 1 : piece->count[k];
    r->read.reads += n * (int64_t)rsd_dtype_size(r->made->source[source].dtype);
    r->read.pieces++;
    return RSD_OK;
}

/* The box of the tensor that the terms describe, for one of what is stored of it. */
static rsd_box whole_box(const rsi_made_tensor *t, const rsd_box *box)
{
    rsd_box whole = *box;

    whole.ndim = t->whole_ndim;
    for (int d = 0; d < t->whole_ndim; d++) {
        int64_t unit = t->to == RSI_ITEM_MXFP4 && d == t->whole_ndim - 1              ? 32
                       : t->to == RSI_ITEM_FP8 && t->scales && d >= t->whole_ndim - 2 ? 128
                                                                                      : 1;

        whole.off[d] = box->off[d] * unit;
        whole.len[d] = rsi_min(box->len[d] * unit, t->whole[d] - whole.off[d]);
    }
    return whole;
}

static rsd_err read_rank(reading *r, const rsi_made_tensor *t, const rsd_layout *layout,
                         int32_t rank, rsd_error *err)
{
    size_t   n = rsd_layout_boxes(layout, rank, NULL, 0);
    rsd_box *box = rsi_calloc(n + 1, sizeof(box[0]));
    rsd_err  rc = box ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);

    r->read = (rsd_made_read){ .size = sizeof(r->read),
                               .target = t->name,
                               .rank = rank,
                               .needs = rsd_layout_bytes(layout, rank) };
    if (box)
        rsd_layout_boxes(layout, rank, box, n);
    for (size_t i = 0; i < n && !rc; i++) {
        rsd_box whole = whole_box(t, &box[i]);

        rc = rsi_made_pieces(t, &whole, add_piece, r, err);
    }
    rsi_free(box);
    return rc;
}

rsd_err rsd_recipe_reads(const rsd_recipe *recipe, rsd_ckpt *source, const rsd_rules *rules,
                         void (*on_read)(void *arg, const rsd_made_read *read), void *arg,
                         rsd_error *err)
{
    rsi_made *made = NULL;
    reading   r;
    rsd_err   rc;

    if (!recipe || !source || !rules || !on_read)
        return rsi_fail(err, RSD_E_INVALID,
                        "missing argument: recipe, checkpoint, rules or on_read");
    rc = rsi_made_of(recipe, source, NULL, NULL, &made, err);
    r.made = made;
    for (size_t i = 0; !rc && i < made->n; i++) {
        const rsi_made_tensor *t = &made->tensor[i];
        rsd_layout            *layout = NULL;

        rc = rsd_rules_layout(rules, t->name, t->dtype, t->ndim, t->shape, &layout, err);
        for (int32_t rank = 0; !rc && rank < rsd_layout_world(layout); rank++) {
            rc = read_rank(&r, t, layout, rank, err);
            if (!rc && r.read.needs > 0)
                on_read(arg, &r.read);
        }
        rsd_layout_free(layout);
    }
    rsi_made_drop(made);
    return rc;
}
