/* SPDX-License-Identifier: Apache-2.0 */
/* reshard inspect: shows what a checkpoint has, from its metadata alone unless --stats is given. */
#include "page.h"
#include "patterns.h"

#include <reshard/reshard_folder.h>

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LONGEST_VALUE 200 /* characters of an object in the table; --json shows all */

typedef struct row {
    const rsd_tensor_info *t;
    size_t                 index; /* its number in the checkpoint */
    const char            *file;  /* the first of its files */
    size_t                 files;
} row;

typedef struct object {
    const char *name;
    size_t      index;
} object;

/* The requested entries. */
typedef struct listing {
    const args      *a;
    rsd_ckpt        *ckpt;
    rsd_tensor_info *tensor; /* [ntensors] */
    row             *row;    /* [ntensors] in output order */
    size_t           ntensors;
    stats           *stats;  /* [ntensors] as in `row`; NULL: not requested */
    object          *object; /* [nobjects] */
    size_t           nobjects;
    uint64_t         bytes, chunks, elements;
    bool             folder;
    bool            *used; /* [noperands] the pattern matched something */
} listing;

static bool wanted(listing *l, const char *name)
{
    bool hit = l->a->noperands == 1; /* no patterns: only the checkpoint */

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
    l->row = calloc(n + 1, sizeof(*l->row));
    if (!l->tensor || !l->row)
        return refuse(l->a, EXIT_COULD_NOT, "no memory for %zu tensors", n);
    for (size_t t = 0; t < n; t++) {
        rsd_tensor_info *info = &l->tensor[l->ntensors];

        info->size = sizeof(*info);
        if (rsd_ckpt_tensor(l->ckpt, t, info, &err))
            return fail(l->a, &err);
        if (!wanted(l, info->name))
            continue;
        l->bytes += (uint64_t)info->bytes;
        l->chunks += info->chunks;
        l->elements += tensor_elements(info);
        l->row[l->ntensors++] = (row){ .t = info, .index = t };
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
        if (wanted(l, name) && rsd_ckpt_object_health(l->ckpt, i) == RSD_WHOLE)
            l->object[l->nobjects++] = (object){ name, i };
    }
    return EXIT_DONE;
}

/* ---- their order ---- */

static int by_name(const void *a, const void *b)
{
    return name_compare(((const row *)a)->t->name, ((const row *)b)->t->name);
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = ((const row *)a)->t->bytes, y = ((const row *)b)->t->bytes;

    return x != y ? (x > y) - (x < y) : by_name(a, b);
}

static int by_dtype(const void *a, const void *b)
{
    const int c = strcmp(rsd_dtype_name(((const row *)a)->t->dtype),
                         rsd_dtype_name(((const row *)b)->t->dtype));

    return c ? c : by_name(a, b);
}

static int by_file(const void *a, const void *b)
{
    const int c = name_compare(((const row *)a)->file, ((const row *)b)->file);

    return c ? c : by_name(a, b);
}

static int objects_by_name(const void *a, const void *b)
{
    return name_compare(((const object *)a)->name, ((const object *)b)->name);
}

/* Tables are sorted by name unless --sort is given; JSON keeps the stored order. */
static void sort_listing(listing *l)
{
    static int (*const by[])(const void *, const void *) = { by_name, by_size, by_dtype, by_file };
    static const char *const key[] = { "name", "size", "dtype", "file" };
    const bool               text = !args_has(l->a, "json") && !args_has(l->a, "html");
    const char              *wish = args_text(l->a, "sort", text ? "name" : "stored");
    const bool               back = wish[0] == '-';

    if (strcmp(wish, "stored") == 0)
        return;
    for (size_t i = 0; i < sizeof(key) / sizeof(key[0]); i++)
        if (strcmp(wish + back, key[i]) == 0)
            qsort(l->row, l->ntensors, sizeof(*l->row), by[i]);
    for (size_t i = 0; back && i < l->ntensors / 2; i++) {
        const row other = l->row[i];

        l->row[i] = l->row[l->ntensors - 1 - i];
        l->row[l->ntensors - 1 - i] = other;
    }
    qsort(l->object, l->nobjects, sizeof(*l->object), objects_by_name);
}

/* Finds what sorting and the table need to know about files. */
static int find_files(listing *l)
{
    struct stat st;
    int         code = EXIT_DONE;

    l->folder = stat(l->a->operand[0], &st) == 0 &&
                (S_ISDIR(st.st_mode) || strstr(l->a->operand[0], ".index."));
    for (size_t i = 0; !code && i < l->ntensors; i++) {
        row *r = &l->row[i];

        code = tensor_files(l->a, l->ckpt, r->index, &r->file, &r->files);
    }
    return code;
}

/* ---- as text ---- */

static int add_row(listing *l, columns *c, const row *r)
{
    char layout[128], text[256];
    int  code = tensor_layout(l->a, l->ckpt, r->index, layout, sizeof(layout));

    columns_add(c, layout);
    columns_addf(c, "%zu", r->t->chunks);
    columns_add(c, size_text((uint64_t)r->t->bytes, text, sizeof(text)));
    if (l->folder && r->files == 1)
        columns_add(c, r->file);
    else if (l->folder)
        columns_addf(c, "%zu files", r->files);
    return code;
}

static void add_stats(columns *c, const stats *s)
{
    const char *real = s->whole ? "%.0Lf" : "%.5Lg";

    if (s->known) {
        columns_addf(c, real, s->least);
        columns_addf(c, real, s->most);
        columns_addf(c, "%.5g", s->mean);
        columns_addf(c, "%.5g", s->norm);
    } else {
        for (int i = 0; i < 4; i++)
            columns_add(c, "-");
    }
    columns_addf(c, "%" PRId64, s->nans);
    columns_addf(c, "%" PRId64, s->infs);
}

static int print_tensors(listing *l)
{
    static const char *const title[] = { "name",     "dtype",  "?shape", "?layout",
                                         "?>chunks", ">bytes", NULL };
    static const char *const placed[] = { "name",     "dtype",  "?shape", "?layout",
                                          "?>chunks", ">bytes", "?file",  NULL };
    static const char *const counted[] = { "name",  "?dtype", "?shape", ">min", ">max",
                                           ">mean", ">norm",  ">nan",   ">inf", NULL };
    columns                  c;
    char                     text[256];
    int                      code = EXIT_DONE;

    columns_begin(&c, l->stats ? counted : l->folder ? placed : title);
    for (size_t i = 0; !code && i < l->ntensors; i++) {
        const rsd_tensor_info *t = l->row[i].t;

        columns_add(&c, t->name);
        columns_add(&c, rsd_dtype_name(t->dtype));
        columns_add(&c, shape_text(t->ndim, t->shape, text, sizeof(text)));
        if (l->stats)
            add_stats(&c, &l->stats[i]);
        else
            code = add_row(l, &c, &l->row[i]);
    }
    if (code) {
        free(c.text);
        return code;
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
        int         code = source_object(l->a, l->ckpt, l->object[i].index, false, &name, &value);

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

/* Tells a user who looks for weights that objects contain some. */
static void print_hidden(const listing *l)
{
    char    size[32], line[256];
    size_t  n = 0;
    int64_t bytes = 0;

    if (l->nobjects == 0 || rsd_ckpt_hidden(l->ckpt, &n, &bytes, NULL) || n == 0)
        return;
    snprintf(line, sizeof(line),
             "%zu storage%s with %s inside objects of unknown classes: to get their tensors, load "
             "them in Python and save the state_dict",
             n, plural(n), size_text((uint64_t)bytes, size, sizeof(size)));
    print_wrapped(stdout, line);
}

static int print_text(listing *l)
{
    const char *kind = rsd_ckpt_kind(l->ckpt);
    char        size[32], count[32], line[768];
    int         code = EXIT_DONE;

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
    if (!code && l->a->noperands == 1)
        code = metas_print(l->a, l->ckpt);
    if (code)
        return code;
    printf(l->ntensors || l->nobjects ? "\n" : "");
    snprintf(line, sizeof(line),
             "%s%s%s%s: %zu tensor%s in %" PRIu64 " chunk%s, %s parameter%s, %s; %zu object%s",
             format_name(rsd_ckpt_format(l->ckpt)), *kind ? " (" : "", kind, *kind ? ")" : "",
             l->ntensors, plural(l->ntensors), l->chunks, plural(l->chunks),
             count_text(l->elements, count, sizeof(count)), plural(l->elements),
             size_text(l->bytes, size, sizeof(size)), l->nobjects, plural(l->nobjects));
    print_wrapped(stdout, line);
    print_hidden(l);
    notes_print(stdout, l->ckpt);
    health_print(stdout, l->ckpt);
    return EXIT_DONE;
}

/* ---- as JSON ---- */

static int json_chunks(listing *l, json_out *j, size_t t, size_t n)
{
    rsd_error err = { .msg = "" };

    json_open_array(j, "chunks");
    for (size_t i = 0; i < n; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

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
        int         code = source_object(l->a, l->ckpt, l->object[i].index, true, &name, &value);

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

static void json_stats(json_out *j, const stats *s)
{
    char text[64];

    json_open_object(j, "stats");
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), s->whole ? "%.0Lf" : "%.17Lg", i ? s->most : s->least);
        json_raw(j, i ? "max" : "min", s->known ? text : "null");
    }
    json_real(j, "mean", s->mean);
    json_real(j, "norm", s->known ? s->norm : (double)NAN);
    json_int(j, "nan", s->nans);
    json_int(j, "inf", s->infs);
    json_close(j);
}

static int print_json(listing *l)
{
    json_out j = { .out = stdout };
    int      code;

    json_open_object(&j, NULL);
    json_text(&j, "format", format_name(rsd_ckpt_format(l->ckpt)));
    if (*rsd_ckpt_kind(l->ckpt))
        json_text(&j, "kind", rsd_ckpt_kind(l->ckpt));
    json_text(&j, "path", l->a->operand[0]);
    json_uint(&j, "parameters", l->elements);
    json_uint(&j, "bytes", l->bytes);
    json_open_array(&j, "tensors");
    for (size_t i = 0; i < l->ntensors; i++) {
        const rsd_tensor_info *t = l->row[i].t;

        json_open_object(&j, NULL);
        json_text(&j, "name", t->name);
        json_text(&j, "dtype", rsd_dtype_name(t->dtype));
        json_ints(&j, "shape", t->ndim, t->shape);
        json_int(&j, "bytes", t->bytes);
        if (l->stats)
            json_stats(&j, &l->stats[i]);
        code = json_chunks(l, &j, l->row[i].index, t->chunks);
        if (code)
            return code;
        json_close(&j);
    }
    json_close(&j);
    metas_json(l->ckpt, &j);
    if (health_lost(l->ckpt))
        health_json(&j, l->ckpt);
    notes_json(&j, l->ckpt);
    code = json_objects(l, &j);
    if (!code)
        json_close(&j);
    return code;
}

/* ---- as a page ---- */

static int write_page(listing *l)
{
    const page_about about = { .path = l->a->operand[0], .format = rsd_ckpt_format(l->ckpt) };
    size_t          *which = calloc(l->nobjects + 1, sizeof(*which));
    page            *p = NULL;
    int              code = page_begin(l->a, args_text(l->a, "html", "-"), &about, &p);

    for (size_t i = 0; !code && i < l->ntensors; i++)
        code = page_tensor(p, l->ckpt, l->row[i].index, NULL);
    if (!code && !which)
        code = refuse(l->a, EXIT_COULD_NOT, "no memory for %zu objects", l->nobjects);
    for (size_t i = 0; !code && i < l->nobjects; i++)
        which[i] = l->object[i].index;
    if (!code)
        code = page_objects(p, l->ckpt, l->nobjects, which);
    free(which);
    return page_end(p, code);
}

/* ---- statistics ---- */

static int find_stats(listing *l)
{
    size_t   *tensor = calloc(l->ntensors + 1, sizeof(*tensor));
    rsd_error err = { .msg = "" };
    progress  bar;
    rsd_err   rc;

    l->stats = calloc(l->ntensors + 1, sizeof(*l->stats));
    if (!tensor || !l->stats) {
        free(tensor);
        return refuse(l->a, EXIT_COULD_NOT, "no memory for %zu tensors", l->ntensors);
    }
    for (size_t i = 0; i < l->ntensors; i++)
        tensor[i] = l->row[i].index;
    progress_begin(&bar, l->a, "reading");
    rc = stats_read(l->ckpt, tensor, l->ntensors, l->stats, args_number(l->a, "threads", 0), &bar,
                    &err);
    progress_end(&bar);
    free(tensor);
    return rc ? fail(l->a, &err) : EXIT_DONE;
}

/* ---- the command ---- */

static int print_listing(listing *l)
{
    int code = EXIT_DONE;

    if (args_has(l->a, "stats"))
        code = find_stats(l);
    if (code)
        return code;
    if (args_has(l->a, "html"))
        return write_page(l);
    return args_has(l->a, "json") ? print_json(l) : print_text(l);
}

static int report_unmatched(const listing *l)
{
    int code = EXIT_DONE;

    for (size_t i = 1; i < l->a->noperands; i++)
        if (!l->used[i])
            code = patterns_missing(l->a, l->ckpt, "nothing", l->a->operand[i]);
    return code;
}

static int check_options(const args *a)
{
    static const char *const way[] = { "json", "tree", "picture", "html", NULL };
    static const char *const table[] = { "stats", "sort", NULL };
    const char              *first = NULL;

    for (int i = 0; way[i]; i++) {
        if (!args_has(a, way[i]))
            continue;
        if (first)
            return misuse(a, "--%s and --%s can't be combined", first, way[i]);
        first = way[i];
    }
    for (int i = 0; table[i]; i++)
        if (first && strcmp(first, "json") != 0 && args_has(a, table[i]))
            return misuse(a, "--%s and --%s can't be combined", first, table[i]);
    if (args_has(a, "threads") && !args_has(a, "stats"))
        return misuse(a, "--threads needs --stats");
    if (args_has(a, "picture") && a->noperands > 1)
        return misuse(a, "--picture takes one name; \"%s\" is one too many", a->operand[1]);
    if (args_has(a, "axes") && !args_has(a, "picture"))
        return misuse(a, "--axes needs --picture");
    return EXIT_DONE;
}

static int run(const args *a)
{
    listing l = { .a = a };
    int     code = check_options(a);

    if (!code)
        code = args_has(a, "picture") || args_has(a, "stats") || args_has(a, "html")
                   ? source_open(a, a->operand[0], &l.ckpt)
                   : source_salvage(a, a->operand[0], &l.ckpt);
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
        code = find_files(&l);
    if (!code) {
        sort_listing(&l);
        code = print_listing(&l);
    }
    if (!code && !args_has(a, "html"))
        code = report_unmatched(&l);
    if (!code && health_lost(l.ckpt))
        code = EXIT_NO;
    free(l.used);
    free(l.tensor);
    free(l.row);
    free(l.stats);
    free(l.object);
    rsd_ckpt_close(l.ckpt);
    return code;
}

static const option_spec options[] = {
    OPTION_JSON,
    { "sort", 0, OPT_CHOICE, "name|-name|size|-size|dtype|-dtype|file|-file|stored",
      "sort order of the tensors, reversed with a minus; default: name, for --json stored" },
    { "stats", 0, OPT_FLAG, NULL,
      "read the tensors and show minimum, maximum, mean, norm and how many elements are NaN or "
      "infinite" },
    { "threads", 'j', OPT_COUNT, "N", "number of threads for --stats; default: all processors" },
    { "tree", 0, OPT_FLAG, NULL, "group the tensors by the dots in their names, with sums" },
    { "picture", 0, OPT_NAME, "NAME", "draw which rank or file holds which part of a tensor" },
    { "axes", 0, OPT_TEXT, "A,B", "the axes that --picture draws, down and across" },
    { "html", 0, OPT_PATH, "FILE", "write an HTML page with a picture of each tensor" },
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_inspect = {
    .name = "inspect",
    .line = "list the tensors and objects of a checkpoint",
    .operands = "CKPT [NAME...]",
    .min = 1,
    .max = -1,
    .options = options,
    .text =
        "Lists each tensor with its dtype, its shape, how it is cut into chunks, its size and "
        "its file, then the non-tensor objects, then totals. Reads only metadata, unless --stats "
        "asks for the tensors' contents.\n"
        "\n"
        "NAME is a name or a shell-style glob; `*` also matches dots. The layout is \"whole\" for "
        "one chunk, \"shard(0)/4\" for four along dimension 0, \"irregular\" if the chunks form no "
        "grid.\n"
        "\n"
        "--picture draws a tensor, or each one that a glob matches: a letter, and on a "
        "terminal a colour, for each rank or file. Of more than two dimensions, the two longest "
        "that are cut are drawn unless --axes names others; the rest are drawn at index 0.\n"
        "\n"
        "--html writes one page that works offline: a searchable table, and for each tensor which "
        "rank or file holds which part. FILE `-` is stdout.",
    .examples =
        "# the tensors of one layer\n"
        "reshard inspect step-1000 'model.layers.0.*'\n"
        "# which rank holds which part of a tensor\n"
        "reshard inspect step-1000 --picture model.embed.weight\n"
        "# the largest tensors\n"
        "reshard inspect step-1000 --sort -size | head\n"
        "# find NaNs and huge values\n"
        "reshard inspect --stats step-1000 'model.*'\n"
        "# names and shapes for a script\n"
        "reshard inspect --json step-1000 | jq -r '.tensors[] | [.name, .shape[]] | @tsv'\n",
    .run = run,
};
