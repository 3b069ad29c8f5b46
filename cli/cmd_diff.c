/* SPDX-License-Identifier: Apache-2.0 */
/* reshard diff: compares the contents of two checkpoints, whatever their formats and layouts.
 * diff_names.c pairs their entries, compare.c compares values, diff_objects.c objects; this file
 * reports the result. */
#include "diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int diff_no_memory(const diff *d)
{
    return refuse(d->a, EXIT_COULD_NOT, "no memory to compare the checkpoints");
}

int diff_unsure(diff *d, const char *name, const char *why)
{
    if (d->nunsure == d->unsure_cap) {
        size_t  cap = 2 * d->unsure_cap + 16;
        unsure *more = realloc(d->unsure, cap * sizeof(more[0]));

        if (!more)
            return diff_no_memory(d);
        d->unsure = more;
        d->unsure_cap = cap;
    }
    d->unsure[d->nunsure].name = strdup(name);
    if (!d->unsure[d->nunsure].name)
        return diff_no_memory(d);
    snprintf(d->unsure[d->nunsure].why, sizeof(d->unsure[0].why), "%s", why);
    d->nunsure++;
    return EXIT_DONE;
}

/* ---- reporting differences ---- */

void diff_say(diff *d, bool object, const char *what, const char *name, const char *a,
              const char *b)
{
    d->different++;
    if (d->json) {
        json_open_object(&d->out, NULL);
        json_text(&d->out, "name", name);
        json_text(&d->out, "kind", object ? "object" : "tensor");
        json_text(&d->out, "what", what);
        if (a && b) {
            json_text(&d->out, "a", a);
            json_text(&d->out, "b", b);
        }
        json_close(&d->out);
        return;
    }
    if (d->quiet)
        return;
    printf(object ? "object " : "");
    print_safe(stdout, name);
    if (!a || !b) {
        printf(": only in %c\n", strcmp(what, "only_a") == 0 ? 'A' : 'B');
        return;
    }
    printf(": %s%s", object ? "" : what, object ? "" : " ");
    print_safe(stdout, a);
    if (strcmp(what, "contents") == 0) {
        printf(", with other contents\n");
        return;
    }
    printf(" and ");
    print_safe(stdout, b);
    printf("\n");
}

static void index_of(const pair *p, int64_t *index)
{
    int64_t at = p->first;

    for (int k = p->info.ndim - 1; k >= 0; k--) {
        index[k] = at % p->info.shape[k];
        at /= p->info.shape[k];
    }
}

void diff_say_values(diff *d, const pair *p)
{
    const int64_t all = p->info.bytes / (int64_t)rsd_dtype_size(p->info.dtype);
    int64_t       index[RSD_MAX_NDIM] = { 0 };
    char          a[96], b[96], at[256];

    d->different++;
    index_of(p, index);
    element_text(p->info.dtype, p->a, a, sizeof(a));
    element_text(p->info.dtype, p->b, b, sizeof(b));
    if (d->json) {
        json_open_object(&d->out, NULL);
        json_text(&d->out, "name", p->info.name);
        json_text(&d->out, "kind", "tensor");
        json_text(&d->out, "what", "values");
        json_text(&d->out, "a", a);
        json_text(&d->out, "b", b);
        json_int(&d->out, "elements", all);
        json_int(&d->out, "different", p->count);
        json_ints(&d->out, "first", p->info.ndim, index);
        json_real(&d->out, "largest", p->largest);
        json_close(&d->out);
        return;
    }
    if (d->quiet)
        return;
    print_safe(stdout, p->info.name);
    printf(": %" PRId64 " of %" PRId64 " elements differ, first at %s: %s and %s; largest "
           "difference %.6g\n",
           p->count, all, shape_text(p->info.ndim, index, at, sizeof(at)), a, b, p->largest);
}

/* ---- the command ---- */

static int compare_values(diff *d)
{
    rsd_error err = { .msg = "" };
    progress  bar;
    rsd_err   rc;

    progress_begin(&bar, d->a, "comparing");
    rc = compare_pairs(d->side[0].ckpt, d->side[1].ckpt, d->pair, d->npairs, &d->tol,
                       args_number(d->a, "threads", 0), &bar, &err);
    progress_end(&bar);
    if (rc)
        return fail(d->a, &err);
    for (size_t i = 0; i < d->npairs; i++)
        if (d->pair[i].count)
            diff_say_values(d, &d->pair[i]);
    return EXIT_DONE;
}

static void say_end_json(diff *d)
{
    json_close(&d->out);
    json_open_array(&d->out, "not_compared");
    for (size_t i = 0; i < d->nunsure; i++) {
        json_open_object(&d->out, NULL);
        json_text(&d->out, "name", d->unsure[i].name);
        json_text(&d->out, "why", d->unsure[i].why);
        json_close(&d->out);
    }
    json_close(&d->out);
    json_bool(&d->out, "same", d->different == 0 && d->nunsure == 0);
    json_close(&d->out);
}

static void say_end(diff *d)
{
    const char *same = d->nunsure ? "no difference in" : d->names_only ? "same names:" : "same:";
    size_t      tensors = 0;
    uint64_t    bytes = d->bytes;
    reasons     why = { 0 };
    char        size[32];

    if (d->quiet)
        return;
    for (size_t i = 0; i < d->side[0].n; i++)
        tensors += !d->side[0].all[i].object && d->side[0].all[i].wanted;
    for (size_t i = 0; i < d->npairs; i++)
        bytes += (uint64_t)d->pair[i].info.bytes;
    size_text(bytes, size, sizeof(size));
    if (d->different)
        printf("%zu difference%s\n", d->different, plural(d->different));
    else if (d->names_only)
        printf("%s %zu tensor%s, %zu object%s\n", same, tensors, plural(tensors), d->objects,
               plural(d->objects));
    else
        printf("%s %zu tensor%s, %s, %zu object%s\n", same, tensors, plural(tensors), size,
               d->objects, plural(d->objects));
    for (size_t i = 0; i < d->nunsure; i++)
        reasons_add(&why, d->unsure[i].name, d->unsure[i].why);
    reasons_print(stdout, "not compared: ", &why);
    reasons_free(&why);
}

/* Refuses a pattern that leaves nothing to compare: everything would seem equal. */
static int check_patterns(diff *d)
{
    const patterns *p = &d->patterns;
    size_t          n = 0, any = 0;
    const char    **name = NULL;
    bool            ok = patterns_names(d->side[0].ckpt, &name, &n);

    if (ok)
        patterns_warn_rename(d->a, p, name, n);
    ok = ok && patterns_names(d->side[1].ckpt, &name, &n);
    if (ok)
        patterns_warn_exclude(d->a, p, name, n);
    for (size_t i = 0; ok && i < p->ninclude; i++)
        patterns_warn_glob(d->a, "include", p->include[i], name, n);
    for (size_t i = 0; i < n; i++)
        any += patterns_want(p, name[i]);
    free(name);
    if (!ok)
        return diff_no_memory(d);
    if (n > 0 && any == 0)
        return misuse(d->a, "the patterns leave nothing to compare");
    return EXIT_DONE;
}

static int compare(diff *d)
{
    int code = check_patterns(d);

    if (!code)
        code = diff_list(d);
    if (!code && d->json) {
        json_open_object(&d->out, NULL);
        json_text(&d->out, "a", d->a->operand[0]);
        json_text(&d->out, "b", d->a->operand[1]);
        json_open_array(&d->out, "differences");
    }
    if (!code)
        code = diff_match(d);
    if (!code && !d->names_only)
        code = compare_values(d);
    if (!code)
        code = diff_objects(d);
    if (code)
        return code;
    if (d->json)
        say_end_json(d);
    else
        say_end(d);
    return d->different ? EXIT_NO : d->nunsure ? EXIT_UNSURE : EXIT_DONE;
}

static int run(const args *a)
{
    diff d = { .a = a, .out = { .out = stdout } };
    int  code = patterns_read(a, &d.patterns);

    d.json = args_has(a, "json");
    d.quiet = args_has(a, "quiet");
    d.names_only = args_has(a, "names-only");
    d.cast = args_has(a, "cast");
    d.tol = (tolerance){ .on = args_has(a, "rtol") || args_has(a, "atol"),
                         .rtol = args_real(a, "rtol", 0),
                         .atol = args_real(a, "atol", 0) };
    if (!code)
        code = source_open(a, a->operand[0], &d.side[0].ckpt);
    if (!code)
        code = source_open(a, a->operand[1], &d.side[1].ckpt);
    if (!code)
        code = compare(&d);
    diff_names_free(&d);
    for (size_t i = 0; i < d.nunsure; i++)
        free(d.unsure[i].name);
    free(d.unsure);
    patterns_free(&d.patterns);
    rsd_ckpt_close(d.side[0].ckpt);
    rsd_ckpt_close(d.side[1].ckpt);
    return code;
}

static const option_spec options[] = {
    { "include", 0, OPT_NAME, "GLOB", "compare only names that match; may be repeated" },
    { "exclude", 0, OPT_NAME, "GLOB", "skip names that match; may be repeated" },
    { "rename", 0, OPT_TEXT, "s/RE/TO/",
      "rename A's tensors and objects before comparing, as sed -E does; may be repeated" },
    { "cast", 0, OPT_FLAG, NULL, "cast the tensors of A to the dtypes of B" },
    { "rtol", 0, OPT_REAL, "X", "relative tolerance: values may differ by X times B's value" },
    { "atol", 0, OPT_REAL, "X", "absolute tolerance: values may differ by X" },
    { "names-only", 0, OPT_FLAG, NULL, "compare only the names of tensors and objects" },
    { "threads", 'j', OPT_COUNT, "N", "number of threads; default: all processors" },
    OPTION_JSON,
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_diff = {
    .name = "diff",
    .line = "compare two checkpoints, whatever their formats and layouts",
    .operands = "A B",
    .min = 2,
    .max = 2,
    .options = options,
    .text =
        "Compares names, dtypes, shapes, values and objects. Prints a line for each tensor or "
        "object that differs: for values the number of elements, the first of them and the largest "
        "absolute difference. Exits with 0 if everything is equal, with 1 if not, and with 5 if no "
        "difference was found but something could not be compared, which is then listed.\n"
        "\n"
        "Values are compared bit by bit, so that a NaN equals the same NaN and 0 is not -0. "
        "With --rtol or --atol, elements are also equal if |a - b| <= atol + rtol * |b|. Tensors "
        "of different dtypes differ, unless --cast converts A's values as `convert --dtype` "
        "would.\n"
        "\n"
        "Objects are equal if their values are; those of unknown classes, if their pickled content "
        "is. A dict or tuple that one format stores as one object is compared with its parts that "
        "the other stores under several names. Checksums are not compared: `reshard verify` does "
        "that.\n"
        "\n"
        "Patterns are shell-style globs; * also matches dots. --include and --exclude see the "
        "original names in A and B, A's before --rename.",
    .examples = "# did a conversion keep everything?\n"
                "reshard diff step-1000 model.pt\n"
                "# and one that took only the model, shortened its names and cast it?\n"
                "reshard diff step-1000 model.safetensors --include 'model.*' --rename "
                "'s/^model\\.//' --cast\n"
                "# are two runs close to each other?\n"
                "reshard diff --rtol 1e-3 --atol 1e-6 run-a run-b\n",
    .run = run,
};
