/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes on the command line: --recipe, --reverse, --set and --config. */
#ifndef CLI_RECIPE_ARGS_H
#define CLI_RECIPE_ARGS_H

#include "cli.h"

#include <reshard/reshard_recipe.h>

#define OPTIONS_RECIPE                                                                             \
    { "set", 0, OPT_TEXT, "NAME=N", "set a number of the recipe; may be repeated" },               \
        { "config", 0, OPT_PATH, "FILE", "take the recipe's numbers from a model's config.json" }, \
    {                                                                                              \
        "reverse", 0, OPT_FLAG, NULL, "use the recipe from right to left"                          \
    }

/* Reads the recipe of this name or path with the options above; free *out with
 * rsd_recipe_free. */
int recipe_read(const args *a, const char *name, rsd_recipe **out);
/* The text of a recipe, for free(): a file or, if there is none, one that came with the tool. */
int recipe_text(const args *a, const char *name, char **out);
/* What a tensor is made of, in words: "a.weight, b.weight (reordered)". */
const char *made_of(const rsd_made *made, char *buf, size_t cap);
/* The folder of the recipes that came with the tool; false: not found. */
bool recipe_folder(char *buf, size_t cap);

#endif
