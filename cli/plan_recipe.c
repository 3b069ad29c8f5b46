/* SPDX-License-Identifier: Apache-2.0 */
/* reshard plan --recipe: what ranks would read to load tensors that are made of others, and of
 * which ones each is made. */
#include "plan_recipe.h"
#include "recipe_args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct share {
    int64_t needs, reads, pieces, tensors;
} share;

typedef struct planning {
    const args *a;
    share      *ranks; /* [n] */
    int32_t     n;
    bool        lost; /* no memory */
    columns     made;
} planning;

static void note_read(void *arg, const rsd_made_read *read)
{
    planning *p = arg;

    if (read->rank >= p->n) {
        share *more = realloc(p->ranks, (size_t)(read->rank + 1) * sizeof(more[0]));

        p->lost = p->lost || !more;
        if (!more)
            return;
        memset(more + p->n, 0, (size_t)(read->rank + 1 - p->n) * sizeof(more[0]));
        p->ranks = more;
        p->n = read->rank + 1;
    }
    p->ranks[read->rank].needs += read->needs;
    p->ranks[read->rank].reads += read->reads;
    p->ranks[read->rank].pieces += read->pieces;
    p->ranks[read->rank].tensors++;
}

static void note_made(void *arg, const rsd_made *made)
{
    planning *p = arg;
    char      shape[1024];

    columns_add(&p->made, made->name);
    columns_add(&p->made, rsd_dtype_name(made->dtype));
    columns_add(&p->made, shape_text(made->ndim, made->shape, shape, sizeof(shape)));
    columns_addf(&p->made, "%zu", made->parts);
    columns_add(&p->made, made_of(made, shape, sizeof(shape)));
}

static int print_shares(const planning *p)
{
    static const char *const title[] = { ">rank", ">needs", ">reads", ">pieces", ">tensors", NULL };
    columns                  table;
    share                    all = { 0 };

    columns_begin(&table, title);
    for (int32_t r = 0; r <= p->n; r++) {
        const share *s = r < p->n ? &p->ranks[r] : &all;
        char         text[32];

        if (r < p->n)
            columns_addf(&table, "%" PRId32, r);
        else
            columns_add(&table, "all");
        columns_add(&table, size_text((uint64_t)s->needs, text, sizeof(text)));
        columns_add(&table, size_text((uint64_t)s->reads, text, sizeof(text)));
        columns_addf(&table, "%" PRId64, s->pieces);
        columns_addf(&table, "%" PRId64, s->tensors);
        if (r < p->n) {
            all.needs += s->needs;
            all.reads += s->reads;
            all.pieces += s->pieces;
            all.tensors += s->tensors;
        }
    }
    return columns_print(&table, stdout) ? EXIT_DONE
                                         : refuse(p->a, EXIT_COULD_NOT, "no memory for the table");
}

int plan_recipe(const args *a, const rsd_rules *rules, rsd_ckpt *source)
{
    static const char *const title[] = { "target", "dtype", "shape", ">parts", "made of", NULL };
    planning                 p = { .a = a };
    rsd_recipe              *recipe = NULL;
    rsd_error                err = { .msg = "" };
    rsd_err                  rc = RSD_OK;
    int                      code = recipe_read(a, args_text(a, "recipe", ""), &recipe);

    columns_begin(&p.made, title);
    if (!code)
        rc = rsd_recipe_check(recipe, source, note_made, NULL, &p, &err);
    if (!code && !rc)
        rc = rsd_recipe_reads(recipe, source, rules, note_read, &p, &err);
    if (rc)
        code = fail(a, &err);
    if (!code && p.lost)
        code = refuse(a, EXIT_COULD_NOT, "no memory for the plan");
    if (!code && !columns_print(&p.made, stdout))
        code = refuse(a, EXIT_COULD_NOT, "no memory for the table");
    if (!code)
        printf("\n");
    if (!code)
        code = print_shares(&p);
    free(p.made.text);
    free(p.ranks);
    rsd_recipe_free(recipe);
    return code;
}
