/* SPDX-License-Identifier: Apache-2.0 */
/* reshard plan --recipe: what ranks would read to load tensors that are made of others, and of
 * which ones each is made; as tables, as JSON or as a page. */
#include "plan_recipe.h"
#include "page.h"
#include "recipe_args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct share {
    int64_t needs, reads, pieces, tensors;
} share;

/* What ranks read of a target's sources: [{"rank", "needs", "reads", "pieces"}] */
typedef struct reads {
    char *target, *json;
} reads;

typedef struct planning {
    const args      *a;
    const rsd_rules *rules;
    rsd_ckpt        *source;
    rsd_recipe      *recipe;
    share           *ranks; /* [n] */
    int32_t          n;
    bool             lost; /* no memory */
    int              code;
    columns          made; /* a table */
    /* JSON or a page: */
    bool     json;
    json_out out;
    page    *page;
    reads   *of; /* [nof] in the order of targets; those without bytes are left out */
    size_t   nof, cap, next;
    FILE    *text; /* of the last one; NULL: closed */
    size_t   len;
    uint64_t targets;
    bool     dropped;
} planning;

static int no_memory(const planning *p)
{
    return refuse(p->a, EXIT_COULD_NOT, "no memory for the plan");
}

/* ---- what ranks read ---- */

static void end_reads(planning *p)
{
    if (!p->text)
        return;
    fputc(']', p->text);
    p->lost = fclose(p->text) != 0 || p->lost;
    p->text = NULL;
}

static bool begin_reads(planning *p, const char *target)
{
    end_reads(p);
    if (p->nof == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        reads       *more = realloc(p->of, cap * sizeof(*more));

        if (!more)
            return false;
        p->of = more;
        p->cap = cap;
    }
    p->of[p->nof] = (reads){ .target = strdup(target) };
    if (!p->of[p->nof].target)
        return false;
    p->text = open_memstream(&p->of[p->nof++].json, &p->len);
    return p->text != NULL;
}

/* of[] may move while a stream is open on one of its members: the stream is closed before. */
static void keep_read(planning *p, const rsd_made_read *read)
{
    const bool first = p->nof == 0 || strcmp(p->of[p->nof - 1].target, read->target) != 0;

    if (first && !begin_reads(p, read->target))
        p->lost = true;
    if (p->lost)
        return;
    fprintf(p->text,
            "%s{\"rank\": %" PRId32 ", \"needs\": %" PRId64 ", \"reads\": %" PRId64
            ", \"pieces\": %" PRId64 "}",
            first ? "[" : ", ", read->rank, read->needs, read->reads, read->pieces);
}

static void note_read(void *arg, const rsd_made_read *read)
{
    planning *p = arg;

    if (p->lost)
        return;
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
    if (p->json || args_has(p->a, "html"))
        keep_read(p, read);
}

static const char *reads_of(planning *p, const char *target)
{
    if (p->next < p->nof && strcmp(p->of[p->next].target, target) == 0)
        return p->of[p->next++].json;
    return "[]";
}

static share total(const planning *p)
{
    share all = { 0 };

    for (int32_t r = 0; r < p->n; r++) {
        all.needs += p->ranks[r].needs;
        all.reads += p->ranks[r].reads;
        all.pieces += p->ranks[r].pieces;
        all.tensors += p->ranks[r].tensors;
    }
    return all;
}

/* ---- as tables ---- */

static void table_made(void *arg, const rsd_made *made)
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
    const share              all = total(p);
    columns                  table;

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
    }
    return columns_print(&table, stdout) ? EXIT_DONE
                                         : refuse(p->a, EXIT_COULD_NOT, "no memory for the table");
}

static int print_tables(planning *p)
{
    static const char *const title[] = { "target", "dtype", "shape", ">parts", "made of", NULL };
    rsd_error                err = { .msg = "" };
    int                      code = EXIT_DONE;

    columns_begin(&p->made, title);
    if (rsd_recipe_check(p->recipe, p->source, table_made, NULL, p, &err))
        code = fail(p->a, &err);
    else if (!columns_print(&p->made, stdout))
        code = refuse(p->a, EXIT_COULD_NOT, "no memory for the table");
    free(p->made.text);
    if (code)
        return code;
    printf("\n");
    return print_shares(p);
}

/* ---- as JSON ---- */

static void json_made(void *arg, const rsd_made *made)
{
    planning *p = arg;
    json_out *j = &p->out;

    json_open_object(j, NULL);
    json_text(j, "name", made->name);
    json_text(j, "dtype", rsd_dtype_name(made->dtype));
    json_ints(j, "shape", made->ndim, made->shape);
    json_open_array(j, "from");
    for (size_t i = 0; i < made->nfrom; i++)
        json_text(j, NULL, made->from[i]);
    json_close(j);
    json_int(j, "line", made->line);
    json_uint(j, "parts", made->parts);
    json_bool(j, "tied", made->tied);
    json_bool(j, "reordered", made->reordered);
    json_bool(j, "scaled", made->scaled);
    json_raw(j, "ranks", reads_of(p, made->name));
    json_close(j);
    p->targets++;
}

static void begin_dropped(planning *p)
{
    if (!p->dropped) {
        json_close(&p->out); /* the targets */
        json_open_array(&p->out, "dropped");
    }
    p->dropped = true;
}

static void json_dropped(void *arg, const char *name, int32_t line)
{
    planning *p = arg;

    begin_dropped(p);
    json_open_object(&p->out, NULL);
    json_text(&p->out, "name", name);
    json_int(&p->out, "line", line);
    json_close(&p->out);
}

static void json_share(json_out *j, const char *key, int32_t rank, const share *s)
{
    json_open_object(j, key);
    if (rank >= 0)
        json_int(j, "rank", rank);
    json_int(j, "needs", s->needs);
    json_int(j, "reads", s->reads);
    json_int(j, "pieces", s->pieces);
    if (rank >= 0)
        json_int(j, "tensors", s->tensors);
    json_close(j);
}

static int print_json(planning *p)
{
    json_out   *j = &p->out;
    const share all = total(p);
    rsd_error   err = { .msg = "" };

    json_open_object(j, NULL);
    json_text(j, "path", p->a->operand[0]);
    json_text(j, "recipe", args_text(p->a, "recipe", ""));
    json_open_array(j, "made");
    if (rsd_recipe_check(p->recipe, p->source, json_made, json_dropped, p, &err))
        return fail(p->a, &err);
    begin_dropped(p);
    json_close(j);
    json_uint(j, "tensors", p->targets);
    json_open_array(j, "ranks");
    for (int32_t r = 0; r < p->n; r++)
        json_share(j, NULL, r, &p->ranks[r]);
    json_close(j);
    json_share(j, "total", -1, &all);
    json_close(j);
    return EXIT_DONE;
}

/* ---- as a page ---- */

static void draw_made(void *arg, const rsd_made *made)
{
    planning   *p = arg;
    rsd_layout *layout = NULL;
    rsd_error   err = { .msg = "" };

    if (p->code)
        return;
    if (rsd_rules_layout(p->rules, made->name, made->dtype, made->ndim, made->shape, &layout, &err))
        p->code = fail(p->a, &err);
    else
        p->code =
            page_made(p->page, p->source, &(page_recipe){ made, reads_of(p, made->name), layout });
    rsd_layout_free(layout);
}

static void draw_dropped(void *arg, const char *name, int32_t line)
{
    planning *p = arg;

    if (!p->code)
        page_dropped(p->page, name, line);
}

static int fill_page(planning *p)
{
    rsd_error err = { .msg = "" };
    int       code = EXIT_DONE;

    for (size_t t = 0; !code && t < rsd_ckpt_tensors(p->source); t++)
        code = page_source(p->page, p->source, t);
    if (!code && rsd_recipe_check(p->recipe, p->source, draw_made, draw_dropped, p, &err))
        code = fail(p->a, &err);
    if (!code)
        code = p->code;
    if (!code)
        code = page_objects(p->page, p->source, rsd_ckpt_objects(p->source), NULL);
    for (int32_t r = 0; !code && r < p->n; r++)
        page_rank(p->page, (const int64_t[]){ p->ranks[r].needs, p->ranks[r].reads, -1, -1, -1 });
    return code;
}

static int write_page(planning *p)
{
    size_t     cap = rsd_rules_text(p->rules, NULL, 0) + 1;
    char      *rules = malloc(cap);
    page_about about = { p->a->operand[0], rules, rsd_ckpt_format(p->source),
                         args_text(p->a, "recipe", "") };
    int        code;

    if (!rules)
        return no_memory(p);
    rsd_rules_text(p->rules, rules, cap);
    code = page_begin(p->a, args_text(p->a, "html", "-"), &about, &p->page);
    if (!code)
        code = fill_page(p);
    free(rules);
    return page_end(p->page, code);
}

/* ---- the command ---- */

int plan_recipe(const args *a, const rsd_rules *rules, rsd_ckpt *source)
{
    planning  p = { .a = a,
                    .rules = rules,
                    .source = source,
                    .json = args_has(a, "json"),
                    .out = { .out = stdout } };
    rsd_error err = { .msg = "" };
    int       code = recipe_read(a, args_text(a, "recipe", ""), &p.recipe);

    if (!code && rsd_recipe_reads(p.recipe, source, rules, note_read, &p, &err))
        code = err.code == RSD_E_NOTFOUND ? refuse(a, EXIT_MISUSE, "%s", err.msg) : fail(a, &err);
    end_reads(&p);
    if (!code && p.lost)
        code = no_memory(&p);
    if (!code)
        code = p.json ? print_json(&p) : args_has(a, "html") ? write_page(&p) : print_tables(&p);
    for (size_t i = 0; i < p.nof; i++) {
        free(p.of[i].target);
        free(p.of[i].json);
    }
    free(p.of);
    free(p.ranks);
    rsd_recipe_free(p.recipe);
    return code;
}
