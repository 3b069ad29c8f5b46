/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by recipe_parse.c, which reads statements, and recipe_words.c, which reads their names,
 * numbers and axes. */
#ifndef RSI_RECIPE_TEXT_H
#define RSI_RECIPE_TEXT_H

#include "recipe/recipe.h"

typedef struct rsi_recipe_text {
    const char      *at, *line_start;
    int              line, depth;
    int              terms; /* of the expression that is being read */
    rsd_recipe      *recipe;
    rsi_recipe_rule *rule; /* the one being read */
    rsd_error       *err;
} rsi_recipe_text;

/* ---- recipe_words.c ---- */

rsi_spotted rsi_text_here(const rsi_recipe_text *p);
/* "line L, column C: expected <what>, found ..." */
rsd_err rsi_text_expected(const rsi_recipe_text *p, const char *what);
/* Another error at a place of the text. */
rsd_err rsi_text_wrong(const rsi_recipe_text *p, rsi_spotted at, const char *fmt, ...)
    RSI_PRINTF(3, 4);
/* Skips spaces, comments, and ends of lines if the next line is indented. */
void rsi_text_blank(rsi_recipe_text *p);
bool rsi_text_ended(const rsi_recipe_text *p); /* at the end of the statement */
/* Moves past `word` and the blanks behind it, if it is next. */
bool    rsi_text_word(rsi_recipe_text *p, const char *word);
bool    rsi_text_sign(rsi_recipe_text *p, const char *sign);
rsd_err rsi_text_need(rsi_recipe_text *p, const char *sign);
rsd_err rsi_text_identifier(rsi_recipe_text *p, const char *what, const char **out);
rsd_err rsi_text_number(rsi_recipe_text *p, double *out);
rsd_err rsi_text_expr(rsi_recipe_text *p, const rsi_expr **out);
/* The next word as a name, with alternatives "{a,b}" not yet chosen; blanks behind it are
 * skipped. */
rsd_err rsi_text_name_word(rsi_recipe_text *p, const char **out);
/* Number of alternatives in such a word, and the name with one of them. */
rsd_err rsi_text_alternatives(rsi_recipe_text *p, const char *word, rsi_spotted at, size_t *n);
rsd_err rsi_text_name(rsi_recipe_text *p, const char *word, rsi_spotted at, size_t choice,
                      rsi_name_text *out);
/* "[...]" */
rsd_err rsi_text_axes(rsi_recipe_text *p, rsi_recipe_item *item);

/* ---- recipe_check.c: what a rule must fulfil whatever the source is ---- */
rsd_err rsi_rule_check(const rsi_recipe_text *p, const rsi_recipe_rule *rule);

#endif
