/* SPDX-License-Identifier: Apache-2.0 */
/* reshard inspect: what is in a checkpoint, from its metadata alone. */
#include "page.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_VALUE 200 /* characters of an object in the table; --json has all */

/* What was asked for. */
typedef struct listing {
    const args      *a;
    rsd_ckpt        *ckpt;
    rsd_tensor_info *tensor; /* [ntensors] */
    size_t          *index;  /* [ntensors] their numbers in the checkpoint */
    size_t           ntensors;
    size_t          *object; /* [nobjects] */
    size_t           nobjects;
    uint64_t         bytes, chunks;
    bool            *used; /* [noperands] the pattern matched something */
} listing;

static bool wanted(listing *l, const char *name)
{
    bool hit = l->a->noperands == 1; /* only the checkpoint */

    for (size_t i = 1; i < l->a->noperands; i++)
        if (strcmp(l->a->operand[i], name) == 0 || fnmatch(l->a->operand[i], name, 0) == 0)
            hit = l->used[i] = true;
    return hit;
}

static int collect_tensors(listing *l)
{
    const size_t n = rsd_ckpt_tensors(l->ckpt);
    rsd_error    err = { .msg = "" };

    l->tensor = calloc(n + 1, sizeof(*l->tensor));
    l->index = calloc(n + 1, sizeof(*l->index));
    if (!l->tensor || !l->index)
        return refuse(l->a, EXIT_COULD_NOT, "no memory for %zu tensors", n);
    for (size_t t = 0; t < n; t++) {
        rsd_tensor_info *info = &l->tensor[l->ntensors];

        if (rsd_ckpt_tensor(l->ckpt, t, info, &err))
            return fail(l->a, &err);
        if (!wanted(l, info->name))
            continue;
        l->bytes += (uint64_t)info->bytes;
        l->chunks += info->chunks;
        l->index[l->ntensors++] = t;
    }
    return EXIT_DONE;
}

static int collect_objects(listing *l)
{
    const size_t n = rsd_ckpt_objects(l->ckpt);
    rsd_error    err = { .msg = "" };
    const char  *name;

    l->object = calloc(n + 1, sizeof(*l->object));
    if (!l->object)
        return refuse(l->a, EXIT_COULD_NOT, "no memory for %zu objects", n);
    for (size_t i = 0; i < n; i++) {
        if (rsd_ckpt_object(l->ckpt, i, &name, NULL, NULL, &err))
            return fail(l->a, &err);
        if (wanted(l, name))
            l->object[l->nobjects++] = i;
    }
    return EXIT_DONE;
}

/* ---- how a tensor is cut ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* "whole", "shard(0)/4", "shard(0)/2 shard(1)/4", or "irregular" if the chunks make no grid. */
static int layout_text(listing *l, size_t t, const rsd_tensor_info *info, char *buf, size_t cap)
{
    const size_t n = info->chunks;
    rsd_error    err = { .msg = "" };
    int64_t     *off;
    size_t       at = 0, grid = 1;

    snprintf(buf, cap, "whole");
    if (n <= 1)
        return EXIT_DONE;
    off = calloc(n * RSD_MAX_NDIM, sizeof(*off)); /* of dimension d: off[d * n ..] */
    if (!off)
        return refuse(l->a, EXIT_COULD_NOT, "no memory for %zu chunks", n);
    for (size_t i = 0; i < n; i++) {
        rsd_chunk chunk;

        if (rsd_ckpt_chunk(l->ckpt, t, i, &chunk, &err)) {
            free(off);
            return fail(l->a, &err);
        }
        for (int d = 0; d < info->ndim; d++)
            off[(size_t)d * n + i] = chunk.box.off[d];
    }
    for (int d = 0; d < info->ndim; d++) {
        int64_t *of_dim = off + (size_t)d * n;
        size_t   parts = 1;

        qsort(of_dim, n, sizeof(*of_dim), by_number);
        for (size_t i = 1; i < n; i++)
            parts += of_dim[i] != of_dim[i - 1];
        grid *= parts;
        if (parts > 1 && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%sshard(%d)/%zu", at ? " " : "", d, parts);
    }
    free(off);
    if (grid != n)
        snprintf(buf, cap, "irregular");
    return EXIT_DONE;
}

/* ---- as text ---- */

static int print_tensors(listing *l)
{
    static const char *const title[] = { "name",    "dtype",  "shape", "layout",
                                         ">chunks", ">bytes", NULL };
    columns                  c;
    char                     text[256];

    columns_begin(&c, title);
    for (size_t i = 0; i < l->ntensors; i++) {
        const rsd_tensor_info *t = &l->tensor[i];
        char                   layout[128];
        int                    code = layout_text(l, l->index[i], t, layout, sizeof(layout));

        if (code) {
            free(c.text);
            return code;
        }
        columns_add(&c, t->name);
        columns_add(&c, rsd_dtype_name(t->dtype));
        columns_add(&c, shape_text(t->ndim, t->shape, text, sizeof(text)));
        columns_add(&c, layout);
        columns_addf(&c, "%zu", t->chunks);
        columns_add(&c, size_text((uint64_t)t->bytes, text, sizeof(text)));
    }
    if (!columns_print(&c, stdout))
        return refuse(l->a, EXIT_COULD_NOT, "no memory for the table");
    return EXIT_DONE;
}

static int print_objects(listing *l)
{
    static const char *const title[] = { "object", "value", NULL };
    columns                  c;

    columns_begin(&c, title);
    for (size_t i = 0; i < l->nobjects; i++) {
        const char *name;
        char       *value;
        int         code = source_object(l->a, l->ckpt, l->object[i], false, &name, &value);

        if (code) {
            free(c.text);
            return code;
        }
        text_shorten(value, LONGEST_VALUE);
        columns_add(&c, name);
        columns_add(&c, value);
        free(value);
    }
    if (!columns_print(&c, stdout))
        return refuse(l->a, EXIT_COULD_NOT, "no memory for the table");
    return EXIT_DONE;
}

static int print_text(listing *l)
{
    char size[32];
    int  code = EXIT_DONE;

    if (l->ntensors && args_has(l->a, "tree")) {
        if (!tree_print(stdout, l->tensor, l->ntensors))
            code = refuse(l->a, EXIT_COULD_NOT, "no memory for the tree");
    } else if (l->ntensors) {
        code = print_tensors(l);
    }
    if (!code && l->nobjects) {
        printf(l->ntensors ? "\n" : "");
        code = print_objects(l);
    }
    if (code)
        return code;
    printf("%s%s: %zu tensor%s in %" PRIu64 " chunk%s, %s; %zu object%s\n",
           l->ntensors || l->nobjects ? "\n" : "", format_name(rsd_ckpt_format(l->ckpt)),
           l->ntensors, plural(l->ntensors), l->chunks, plural(l->chunks),
           size_text(l->bytes, size, sizeof(size)), l->nobjects, plural(l->nobjects));
    return EXIT_DONE;
}

/* ---- as JSON ---- */

static int json_chunks(listing *l, json_out *j, size_t t, size_t n)
{
    rsd_error err = { .msg = "" };

    json_open_array(j, "chunks");
    for (size_t i = 0; i < n; i++) {
        rsd_chunk chunk;

        if (rsd_ckpt_chunk(l->ckpt, t, i, &chunk, &err))
            return fail(l->a, &err);
        json_open_object(j, NULL);
        json_ints(j, "offset", chunk.box.ndim, chunk.box.off);
        json_ints(j, "size", chunk.box.ndim, chunk.box.len);
        json_text(j, "file", chunk.file);
        json_uint(j, "file_offset", chunk.offset);
        json_uint(j, "length", chunk.length);
        json_close(j);
    }
    json_close(j);
    return EXIT_DONE;
}

static int json_objects(listing *l, json_out *j)
{
    json_open_array(j, "objects");
    for (size_t i = 0; i < l->nobjects; i++) {
        const char *name;
        char       *value;
        int         code = source_object(l->a, l->ckpt, l->object[i], true, &name, &value);

        if (code)
            return code;
        json_open_object(j, NULL);
        json_text(j, "name", name);
        json_raw(j, "value", value);
        json_close(j);
        free(value);
    }
    json_close(j);
    return EXIT_DONE;
}

static int print_json(listing *l)
{
    json_out j = { .out = stdout };
    int      code;

    json_open_object(&j, NULL);
    json_text(&j, "format", format_name(rsd_ckpt_format(l->ckpt)));
    json_text(&j, "path", l->a->operand[0]);
    json_uint(&j, "bytes", l->bytes);
    json_open_array(&j, "tensors");
    for (size_t i = 0; i < l->ntensors; i++) {
        const rsd_tensor_info *t = &l->tensor[i];

        json_open_object(&j, NULL);
        json_text(&j, "name", t->name);
        json_text(&j, "dtype", rsd_dtype_name(t->dtype));
        json_ints(&j, "shape", t->ndim, t->shape);
        json_int(&j, "bytes", t->bytes);
        code = json_chunks(l, &j, l->index[i], t->chunks);
        if (code)
            return code;
        json_close(&j);
    }
    json_close(&j);
    code = json_objects(l, &j);
    if (!code)
        json_close(&j);
    return code;
}

/* ---- as a page ---- */

static int write_page(listing *l)
{
    const page_about about = { .path = l->a->operand[0], .format = rsd_ckpt_format(l->ckpt) };
    page            *p = NULL;
    int              code = page_begin(l->a, args_text(l->a, "html", "-"), &about, &p);

    for (size_t i = 0; !code && i < l->ntensors; i++)
        code = page_tensor(p, l->ckpt, l->index[i], NULL);
    return page_end(p, code);
}

/* ---- the command ---- */

static int print_listing(listing *l)
{
    if (args_has(l->a, "html"))
        return write_page(l);
    return args_has(l->a, "json") ? print_json(l) : print_text(l);
}

static int report_unmatched(const listing *l)
{
    int code = EXIT_DONE;

    for (size_t i = 1; i < l->a->noperands; i++)
        if (!l->used[i])
            code = refuse(l->a, EXIT_NO, "nothing in \"%s\" is called \"%s\"", l->a->operand[0],
                          l->a->operand[i]);
    return code;
}

static int check_options(const args *a)
{
    static const char *const way[] = { "json", "tree", "picture", "html", NULL };
    const char              *first = NULL;

    for (int i = 0; way[i]; i++) {
        if (!args_has(a, way[i]))
            continue;
        if (first)
            return misuse(a, "--%s and --%s exclude each other", first, way[i]);
        first = way[i];
    }
    if (args_has(a, "picture") && a->noperands > 1)
        return misuse(a, "--picture takes the name; \"%s\" is one too many", a->operand[1]);
    if (args_has(a, "axes") && !args_has(a, "picture"))
        return misuse(a, "--axes needs --picture");
    return EXIT_DONE;
}

static int run(const args *a)
{
    listing l = { .a = a };
    int     code = check_options(a);

    if (!code)
        code = source_open(a, a->operand[0], &l.ckpt);
    if (code)
        return code;
    if (args_has(a, "picture")) {
        code = picture_print(a, l.ckpt, args_text(a, "picture", ""));
        rsd_ckpt_close(l.ckpt);
        return code;
    }
    l.used = calloc(a->noperands, sizeof(*l.used));
    if (!l.used)
        code = refuse(a, EXIT_COULD_NOT, "no memory for %zu patterns", a->noperands);
    if (!code)
        code = collect_tensors(&l);
    if (!code)
        code = collect_objects(&l);
    if (!code && args_has(a, "html"))
        code = report_unmatched(&l);
    if (!code)
        code = print_listing(&l);
    if (!code && !args_has(a, "html"))
        code = report_unmatched(&l);
    free(l.used);
    free(l.tensor);
    free(l.index);
    free(l.object);
    rsd_ckpt_close(l.ckpt);
    return code;
}

static const option_spec options[] = {
    OPTION_JSON,
    { "tree", 0, OPT_FLAG, NULL, "group the tensors by the dots in their names, with sums" },
    { "picture", 0, OPT_TEXT, "NAME", "draw which rank or file holds which part of a tensor" },
    { "axes", 0, OPT_TEXT, "A,B", "the axes that --picture draws, down and across" },
    { "html", 0, OPT_PATH, "FILE", "write a page for browsers, with a picture of each tensor" },
    { 0 },
};

const command cmd_inspect = {
    .name = "inspect",
    .line = "list the tensors and objects of a checkpoint",
    .operands = "CKPT [NAME...]",
    .min = 1,
    .max = -1,
    .options = options,
    .text = "Lists each tensor with its dtype, its shape, how it is cut into chunks and its size, "
            "then the objects that are no tensors, then totals. Reads only metadata.\n"
            "\n"
            "NAME is a name or a pattern of the shell; `*` also matches dots. The layout is "
            "\"whole\" for one chunk, \"shard(0)/4\" for four along dimension 0, \"irregular\" if "
            "the chunks make no grid.\n"
            "\n"
            "--picture draws a tensor, or each one that a pattern matches: a letter, and on a "
            "terminal a colour, for each rank or file. Of more than two dimensions the two longest "
            "that are cut are drawn unless --axes names others; the rest is at index 0.\n"
            "\n"
            "--html writes one page that needs no network: a table to search, and for each tensor "
            "who holds what of it. FILE `-` is stdout.",
    .examples =
        "# the tensors of one layer\n"
        "reshard inspect step-1000 'model.layers.0.*'\n"
        "# who holds what of one tensor\n"
        "reshard inspect step-1000 --picture model.embed.weight\n"
        "# names and shapes for a script\n"
        "reshard inspect --json step-1000 | jq -r '.tensors[] | [.name, .shape[]] | @tsv'\n",
    .run = run,
};
