/* SPDX-License-Identifier: Apache-2.0 */
/* reshard diff: do two checkpoints hold the same, whatever their formats and layouts? Names, dtypes
 * and shapes are compared here, values in compare.c. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_VALUE 100 /* characters of an object */

typedef struct diff {
    const args *a;
    rsd_ckpt   *ckpt[2];
    bool        json, quiet, names_only;
    json_out    out;
    size_t      different;
    pair       *pair; /* [npairs] tensors whose values are to be compared */
    size_t      npairs;
    bool       *in_a;    /* [tensors of b] */
    size_t      objects; /* that were compared */
} diff;

static int out_of_memory(const diff *d)
{
    return refuse(d->a, EXIT_COULD_NOT, "no memory to compare the checkpoints");
}

/* ---- what is said about a difference ---- */

/* `what` is for scripts. Without a and b: only one of the two has it. */
static void say(diff *d, bool object, const char *what, const char *name, const char *a,
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

static void say_values(diff *d, const pair *p)
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

/* ---- names, dtypes, shapes ---- */

static bool same_shape(const rsd_tensor_info *a, const rsd_tensor_info *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

static int match_tensor(diff *d, size_t ta)
{
    rsd_tensor_info a, b;
    rsd_error       err = { .msg = "" };
    char            sa[256], sb[256];
    size_t          tb;

    if (rsd_ckpt_tensor(d->ckpt[0], ta, &a, &err))
        return fail(d->a, &err);
    if (rsd_ckpt_find(d->ckpt[1], a.name, &tb, NULL)) {
        say(d, false, "only_a", a.name, NULL, NULL);
        return EXIT_DONE;
    }
    if (rsd_ckpt_tensor(d->ckpt[1], tb, &b, &err))
        return fail(d->a, &err);
    d->in_a[tb] = true;
    if (d->names_only)
        return EXIT_DONE;
    if (a.dtype != b.dtype)
        say(d, false, "dtype", a.name, rsd_dtype_name(a.dtype), rsd_dtype_name(b.dtype));
    if (!same_shape(&a, &b))
        say(d, false, "shape", a.name, shape_text(a.ndim, a.shape, sa, sizeof(sa)),
            shape_text(b.ndim, b.shape, sb, sizeof(sb)));
    if (a.dtype == b.dtype && same_shape(&a, &b))
        d->pair[d->npairs++] = (pair){ .ta = ta, .tb = tb, .info = a };
    return EXIT_DONE;
}

static int match_tensors(diff *d)
{
    const size_t    na = rsd_ckpt_tensors(d->ckpt[0]), nb = rsd_ckpt_tensors(d->ckpt[1]);
    rsd_tensor_info b;
    rsd_error       err = { .msg = "" };

    d->pair = calloc(na + 1, sizeof(*d->pair));
    d->in_a = calloc(nb + 1, sizeof(*d->in_a));
    if (!d->pair || !d->in_a)
        return out_of_memory(d);
    for (size_t t = 0; t < na; t++) {
        int code = match_tensor(d, t);

        if (code)
            return code;
    }
    for (size_t t = 0; t < nb; t++) {
        if (rsd_ckpt_tensor(d->ckpt[1], t, &b, &err))
            return fail(d->a, &err);
        if (!d->in_a[t])
            say(d, false, "only_b", b.name, NULL, NULL);
    }
    return EXIT_DONE;
}

/* ---- objects ---- */

typedef struct object {
    const char *name;
    size_t      i;
} object;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const object *)a)->name, ((const object *)b)->name);
}

static int list_objects(diff *d, int side, object **out, size_t *count)
{
    const size_t n = rsd_ckpt_objects(d->ckpt[side]);
    object      *list = calloc(n + 1, sizeof(*list));
    rsd_error    err = { .msg = "" };

    if (!list)
        return out_of_memory(d);
    for (size_t i = 0; i < n; i++) {
        list[i].i = i;
        if (rsd_ckpt_object(d->ckpt[side], i, &list[i].name, NULL, NULL, &err)) {
            free(list);
            return fail(d->a, &err);
        }
    }
    qsort(list, n, sizeof(*list), by_name);
    *out = list;
    *count = n;
    return EXIT_DONE;
}

/* Long ones are cut for people; --json has all. */
static void say_object(diff *d, const char *name, char *a, char *b)
{
    if (!d->json) {
        text_shorten(a, LONGEST_VALUE);
        text_shorten(b, LONGEST_VALUE);
    }
    say(d, true, "value", name, a, b);
}

static int compare_object(diff *d, const object *a, const object *b)
{
    const char *name;
    char       *ta = NULL, *tb = NULL;
    int         code = EXIT_DONE;

    if (!d->names_only)
        code = source_object(d->a, d->ckpt[0], a->i, false, &name, &ta);
    if (!code && ta)
        code = source_object(d->a, d->ckpt[1], b->i, false, &name, &tb);
    if (!code && ta && strcmp(ta, tb) != 0)
        say_object(d, a->name, ta, tb);
    d->objects++;
    free(ta);
    free(tb);
    return code;
}

static bool holds_objects(const rsd_ckpt *ckpt)
{
    return rsd_ckpt_format(ckpt) != RSD_FORMAT_SAFETENSORS;
}

static int compare_objects(diff *d)
{
    object *a = NULL, *b = NULL;
    size_t  na = 0, nb = 0, i = 0, k = 0;
    int     code;

    if (!holds_objects(d->ckpt[0]) || !holds_objects(d->ckpt[1]))
        return EXIT_DONE;
    code = list_objects(d, 0, &a, &na);
    if (!code)
        code = list_objects(d, 1, &b, &nb);
    while (!code && (i < na || k < nb)) {
        int c = i == na ? 1 : k == nb ? -1 : strcmp(a[i].name, b[k].name);

        if (c < 0)
            say(d, true, "only_a", a[i].name, NULL, NULL);
        else if (c > 0)
            say(d, true, "only_b", b[k].name, NULL, NULL);
        else
            code = compare_object(d, &a[i], &b[k]);
        i += c <= 0;
        k += c >= 0;
    }
    free(a);
    free(b);
    return code;
}

/* ---- the command ---- */

static int compare_values(diff *d)
{
    const args     *a = d->a;
    const tolerance tol = { .on = args_has(a, "rtol") || args_has(a, "atol"),
                            .rtol = args_real(a, "rtol", 0),
                            .atol = args_real(a, "atol", 0) };
    rsd_error       err = { .msg = "" };
    progress        bar;
    rsd_err         rc;

    progress_begin(&bar, a, "comparing");
    rc = compare_pairs(d->ckpt[0], d->ckpt[1], d->pair, d->npairs, &tol,
                       args_number(a, "threads", 0), &bar, &err);
    progress_end(&bar);
    if (rc)
        return fail(a, &err);
    for (size_t i = 0; i < d->npairs; i++)
        if (d->pair[i].count)
            say_values(d, &d->pair[i]);
    return EXIT_DONE;
}

static void say_end(diff *d)
{
    const size_t tensors = rsd_ckpt_tensors(d->ckpt[0]);
    const size_t left = rsd_ckpt_objects(d->ckpt[0]) + rsd_ckpt_objects(d->ckpt[1]);
    uint64_t     bytes = 0;
    char         size[32];

    if (d->json) {
        json_close(&d->out);
        json_bool(&d->out, "same", d->different == 0);
        json_close(&d->out);
        return;
    }
    if (d->quiet)
        return;
    for (size_t i = 0; i < d->npairs; i++)
        bytes += (uint64_t)d->pair[i].info.bytes;
    if (d->different)
        printf("%zu difference%s\n", d->different, plural(d->different));
    else if (d->names_only)
        printf("same names: %zu tensor%s, %zu object%s\n", tensors, plural(tensors), d->objects,
               plural(d->objects));
    else
        printf("same: %zu tensor%s, %s, %zu object%s\n", tensors, plural(tensors),
               size_text(bytes, size, sizeof(size)), d->objects, plural(d->objects));
    if (left && (!holds_objects(d->ckpt[0]) || !holds_objects(d->ckpt[1])))
        printf("objects were not compared: safetensors holds none\n");
}

static int run(const args *a)
{
    diff d = { .a = a, .out = { .out = stdout } };
    int  code = source_open(a, a->operand[0], &d.ckpt[0]);

    if (!code)
        code = source_open(a, a->operand[1], &d.ckpt[1]);
    if (code)
        goto out;
    d.json = args_has(a, "json");
    d.quiet = args_has(a, "quiet");
    d.names_only = args_has(a, "names-only");
    if (d.json) {
        json_open_object(&d.out, NULL);
        json_text(&d.out, "a", a->operand[0]);
        json_text(&d.out, "b", a->operand[1]);
        json_open_array(&d.out, "differences");
    }
    code = match_tensors(&d);
    if (!code && !d.names_only)
        code = compare_values(&d);
    if (!code)
        code = compare_objects(&d);
    if (!code) {
        say_end(&d);
        code = d.different ? EXIT_NO : EXIT_DONE;
    }
out:
    free(d.pair);
    free(d.in_a);
    rsd_ckpt_close(d.ckpt[0]);
    rsd_ckpt_close(d.ckpt[1]);
    return code;
}

static const option_spec options[] = {
    { "rtol", 0, OPT_REAL, "X", "values may differ by X times the second's value" },
    { "atol", 0, OPT_REAL, "X", "values may differ by X" },
    { "names-only", 0, OPT_FLAG, NULL, "compare only which tensors and objects there are" },
    { "threads", 'j', OPT_COUNT, "N",
      "threads that read and compare; all processors if not given" },
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
    .text = "Compares names, dtypes, shapes, values and objects. Prints a line for each tensor or "
            "object that differs: for values how many elements, the first of them and the largest "
            "absolute difference. Ends with 0 if all is the same, with 1 if not.\n"
            "\n"
            "Values are compared bit by bit, so that a NaN equals the same NaN and 0 is not -0. "
            "With --rtol or --atol, elements are the same if |a - b| <= atol + rtol * |b|, too. "
            "Objects are compared where both formats can hold them. Checksums are not looked at: "
            "that is "
            "what `reshard verify` does.",
    .examples = "# did the conversion keep everything?\n"
                "reshard diff step-1000 model.safetensors\n"
                "# are two runs near each other?\n"
                "reshard diff --rtol 1e-3 --atol 1e-6 run-a run-b\n",
    .run = run,
};
