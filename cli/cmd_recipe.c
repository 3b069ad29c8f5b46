/* SPDX-License-Identifier: Apache-2.0 */
/* reshard recipe: what a recipe would make of a checkpoint, and the recipes that came with the
 * tool. */
#include "recipe_args.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct checking {
    columns  table;
    uint64_t made, dropped, tied;
} checking;

static void note_made(void *arg, const rsd_made *made)
{
    checking *c = arg;
    char      shape[1024];

    columns_add(&c->table, made->name);
    columns_add(&c->table, rsd_dtype_name(made->dtype));
    columns_add(&c->table, shape_text(made->ndim, made->shape, shape, sizeof(shape)));
    columns_addf(&c->table, "%zu", made->parts);
    columns_addf(&c->table, "%d", (int)made->line);
    columns_add(&c->table, made_of(made, shape, sizeof(shape)));
    c->made++;
    c->tied += made->tied;
}

static void note_dropped(void *arg, const char *name, int32_t line)
{
    checking *c = arg;

    columns_add(&c->table, "(dropped)");
    columns_add(&c->table, "");
    columns_add(&c->table, "");
    columns_add(&c->table, "");
    columns_addf(&c->table, "%d", (int)line);
    columns_add(&c->table, name);
    c->dropped++;
}

static int print_table(const args *a, columns *table)
{
    return columns_print(table, stdout) ? EXIT_DONE
                                        : refuse(a, EXIT_COULD_NOT, "no memory for the table");
}

static int check(const args *a)
{
    static const char *const title[] = { "target", "dtype",   "shape", ">parts",
                                         ">line",  "made of", NULL };
    checking                 c = { .made = 0 };
    rsd_recipe              *recipe = NULL;
    rsd_ckpt                *source = NULL;
    rsd_error                err = { .msg = "" };
    int                      code;

    if (a->noperands != 3)
        return misuse(a, "recipe check needs a recipe and a checkpoint");
    code = recipe_read(a, a->operand[1], &recipe);
    if (!code)
        code = source_open(a, a->operand[2], &source);
    columns_begin(&c.table, title);
    if (!code && rsd_recipe_check(recipe, source, note_made, note_dropped, &c, &err))
        code = fail(a, &err);
    if (!code)
        code = print_table(a, &c.table);
    if (!code)
        printf("\n%" PRIu64 " source tensors: %" PRIu64 " targets, %" PRIu64
               " of them tied, %" PRIu64 " dropped; every element has its place\n",
               (uint64_t)rsd_ckpt_tensors(source), c.made, c.tied, c.dropped);
    free(c.table.text);
    rsd_ckpt_close(source);
    rsd_recipe_free(recipe);
    return code;
}

static int show(const args *a)
{
    char *text = NULL;
    int   code;

    if (a->noperands != 2)
        return misuse(a, "recipe show needs a recipe");
    code = recipe_text(a, a->operand[1], &text);
    if (!code)
        fputs(text, stdout);
    free(text);
    return code;
}

static int is_recipe(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');

    return dot && strcmp(dot, ".recipe") == 0;
}

/* Each with its first line, which is a comment. */
static int list(const args *a)
{
    static const char *const title[] = { "recipe", "what it does", NULL };
    struct dirent          **entry = NULL;
    char                     folder[4096 + 64];
    columns                  table;
    int                      n = -1, code = EXIT_DONE;

    if (a->noperands != 1)
        return misuse(a, "recipe list takes no operands");
    if (recipe_folder(folder, sizeof(folder)))
        n = scandir(folder, &entry, is_recipe, alphasort);
    if (n < 0)
        return refuse(a, EXIT_COULD_NOT, "the folder of the recipes is missing");
    columns_begin(&table, title);
    for (int i = 0; i < n; i++) {
        char path[8192], *text = NULL, *end;

        snprintf(path, sizeof(path), "%s/%s", folder, entry[i]->d_name);
        if (!code)
            code = recipe_text(a, path, &text);
        if (!code) {
            end = strchr(text, '\n');
            if (end)
                *end = '\0';
            *strrchr(entry[i]->d_name, '.') = '\0';
            columns_add(&table, entry[i]->d_name);
            columns_add(&table, *text == '#' ? text + 1 + (text[1] == ' ') : "");
        }
        free(text);
        free(entry[i]);
    }
    free(entry);
    if (!code)
        code = print_table(a, &table);
    free(table.text);
    return code;
}

static int run(const args *a)
{
    if (strcmp(a->operand[0], "check") == 0)
        return check(a);
    if (strcmp(a->operand[0], "show") == 0)
        return show(a);
    if (strcmp(a->operand[0], "list") == 0)
        return list(a);
    return misuse(a, "unknown action \"%s\": expected check, list or show", a->operand[0]);
}

static const option_spec options[] = {
    OPTIONS_RECIPE,
    { 0 },
};

const command cmd_recipe = {
    .name = "recipe",
    .line = "show what a recipe would make of a checkpoint",
    .operands = "check RECIPE CKPT | list | show RECIPE",
    .min = 1,
    .max = 3,
    .options = options,
    .text =
        "A recipe says how tensors are made from others: renamed, cut, joined, stacked, permuted, "
        "padded, scaled, cast. `reshard convert --recipe` uses it. check lists what happens "
        "to every tensor, without reading data: each target with its shape, the tensors that it is "
        "made of, whether their elements are reordered or scaled, and the line of its rule, and "
        "each source tensor that is dropped. It fails if "
        "the conversion would: a tensor has no rule, does not fit its rule or is missing.\n"
        "\n"
        "RECIPE is a file or the name of a recipe that came with the tool; list lists these, show "
        "prints one. docs/recipes.md describes the language; in short:\n"
        "\n"
        "  let NAME = EXPR [else EXPR]\n"
        "  NAME[AXES], ... (-> | <- | <->) NAME[AXES], ... [as DTYPE] [times E] [plus E]\n"
        "      [where NAME = E, ...] [for CAPTURE in E..E] [if E] [required]\n"
        "\n"
        "Names have captures: {i} a number, {*x} any text, {a,b} alternatives, {i+E} arithmetic. "
        "Axes are products and sums of named factors, [(g (r d + d + d)) h]; p:0 is filled with a "
        "value, *r repeated, ... stands for the other axes. \"drop\" can take the place of "
        "the targets; A = B gives one tensor two names. fp8(W, SCALES) and mxfp4(BLOCKS, SCALES) "
        "are quantised tensors, lora(W, A, B, E) is W + E * B A. A `layout RULE` line lays the "
        "targets out.",
    .examples = "# what happens to every tensor\n"
                "reshard recipe check hf-megatron llama --config llama/config.json\n"
                "# a recipe to start from\n"
                "reshard recipe show hf-megatron",
    .run = run,
};
