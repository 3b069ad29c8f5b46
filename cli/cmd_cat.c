/* SPDX-License-Identifier: Apache-2.0 */
/* reshard cat: prints a tensor, a slice of it, an object or everything below a name to stdout, part
 * by part in bounded memory. */
#include "cli.h"
#include "patterns.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_BYTES ((int64_t)16 << 20)

typedef enum form { FORM_RAW, FORM_NPY, FORM_TEXT, FORM_JSON } form;

typedef struct cutting {
    rsd_tensor_info info;
    rsd_box         box;
    bool            gone[RSD_MAX_NDIM]; /* indexed: the dimension is dropped */
} cutting;

/* ---- the slice ---- */

static const char *skip_space(const char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    return s;
}

/* Parses a number at *s if there is one; negative numbers count from the end `n`. */
static bool bound(const char **s, int64_t n, int64_t *out)
{
    char     *end;
    long long x;

    errno = 0;
    x = strtoll(*s, &end, 10);
    if (end == *s || errno)
        return false;
    *out = x < 0 ? x + n : x;
    *s = skip_space(end);
    return true;
}

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* Parses one dimension: "3", "1:4", ":4", "1:", ":". False: malformed, or the index is out of
 * range. */
static bool slice_dim(const char **s, cutting *c, int d)
{
    const int64_t n = c->info.shape[d];
    int64_t       from = 0, to = n;
    const bool    has_from = bound(s, n, &from);

    if (**s != ':') {
        c->gone[d] = true;
        c->box.off[d] = from;
        c->box.len[d] = 1;
        return has_from && from >= 0 && from < n;
    }
    *s = skip_space(*s + 1);
    bound(s, n, &to);
    from = clamp(from, n);
    to = clamp(to, n);
    c->box.off[d] = from;
    c->box.len[d] = to > from ? to - from : 0;
    return true;
}

static int slice_parse(const args *a, const char *text, cutting *c)
{
    const char *s = skip_space(text);
    char        shape[256];

    shape_text(c->info.ndim, c->info.shape, shape, sizeof(shape));
    for (int d = 0; *s; d++) {
        if (d == c->info.ndim)
            return misuse(a, "--slice \"%s\" has more dimensions than the shape %s", text, shape);
        if (!slice_dim(&s, c, d) || (*s && *s != ',')) {
            if (*s == ':')
                return misuse(a, "--slice \"%s\" has a step, which is not supported", text);
            return misuse(a, "--slice \"%s\" does not fit dimension %d of the shape %s", text, d,
                          shape);
        }
        s = skip_space(s + (*s == ','));
    }
    return EXIT_DONE;
}

/* ---- output formats ---- */

static void npy_dtype(rsd_dtype dtype, char *buf, size_t cap)
{
    const size_t n = rsd_dtype_size(dtype);
    char         kind = 'V'; /* numpy has no such type: raw bytes */

    if (dtype == RSD_BOOL)
        kind = 'b';
    else if (dtype == RSD_F16 || dtype == RSD_F32 || dtype == RSD_F64)
        kind = 'f';
    else if (dtype == RSD_C64 || dtype == RSD_C128)
        kind = 'c';
    else if (dtype >= RSD_U8 && dtype <= RSD_I64)
        kind = dtype % 2 ? 'i' : 'u';
    snprintf(buf, cap, "%c%c%zu", n == 1 || kind == 'V' ? '|' : '<', kind, n);
}

/* Version 1.0: the header ends at a multiple of 64. */
static void npy_header(const cutting *c)
{
    unsigned char head[10] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0 };
    char          text[384], dtype[16];
    size_t        at, len;
    int           kept = 0;

    npy_dtype(c->info.dtype, dtype, sizeof(dtype));
    at = (size_t)snprintf(text, sizeof(text), "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          dtype);
    for (int d = 0; d < c->box.ndim; d++)
        if (!c->gone[d])
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRId64, kept++ ? ", " : "",
                                   c->box.len[d]);
    at += (size_t)snprintf(text + at, sizeof(text) - at, kept == 1 ? ",), }" : "), }");
    len = (sizeof(head) + at + 1 + 63) / 64 * 64 - sizeof(head);
    head[8] = (unsigned char)(len & 255);
    head[9] = (unsigned char)(len >> 8);
    fwrite(head, 1, sizeof(head), stdout);
    printf("%s%*s\n", text, (int)(len - at - 1), "");
}

/* Prints one line per row of the last dimension, with an empty line between matrices. `first`: the
 * number of the part's first element in the slice. */
static void print_text(const cutting *c, const char *data, int64_t n, int64_t first)
{
    const int     nd = c->box.ndim;
    const size_t  size = rsd_dtype_size(c->info.dtype);
    const int64_t cols = nd > 0 ? c->box.len[nd - 1] : 1;
    const int64_t matrix = nd > 1 ? cols * c->box.len[nd - 2] : 0;

    for (int64_t i = 0; i < n && !output_over(); i++) {
        const int64_t at = first + i;
        char          text[96];

        if (nd > 2 && at > 0 && at % matrix == 0)
            fputc('\n', stdout);
        fputs(element_text(c->info.dtype, data + (size_t)i * size, text, sizeof(text)), stdout);
        fputc((at + 1) % cols == 0 ? '\n' : ' ', stdout);
    }
}

static void json_element(json_out *j, rsd_dtype dtype, const char *at)
{
    char   text[96];
    double imag, real = element_value(dtype, at, &imag);

    element_text(dtype, at, text, sizeof(text));
    if (dtype == RSD_BOOL)
        json_bool(j, NULL, real != 0);
    else if (!isfinite(real) || strchr(text, 'j'))
        json_text(j, NULL, text);
    else
        json_raw(j, NULL, text);
}

static void json_head(json_out *j, const char *key, const cutting *c)
{
    int64_t shape[RSD_MAX_NDIM];
    int     kept = 0;

    for (int d = 0; d < c->box.ndim; d++)
        if (!c->gone[d])
            shape[kept++] = c->box.len[d];
    json_open_object(j, key);
    json_text(j, "name", c->info.name);
    json_text(j, "dtype", rsd_dtype_name(c->info.dtype));
    json_ints(j, "shape", kept, shape);
    json_open_array(j, "values");
}

/* ---- the tensor ---- */

/* Reads the box part by part and prints each. */
static int print_parts(const args *a, rsd_ckpt *ckpt, size_t t, const cutting *c, form f,
                       json_out *j)
{
    const int64_t size = (int64_t)rsd_dtype_size(c->info.dtype);
    const int64_t all = rsd_box_count(&c->box);
    const int64_t part = PART_BYTES / size;
    const int64_t most = part < all ? part : all;
    char         *data = malloc((size_t)(most > 0 ? most * size : 1));
    rsd_error     err = { .msg = "" };
    int64_t       first = 0;
    rsd_view      view = { .data = data };
    pieces        p;

    if (!data)
        return refuse(a, EXIT_COULD_NOT, "no memory for %" PRId64 " elements", most);
    pieces_begin(&p, &c->box, most);
    while (pieces_next(&p, &view.box) && !output_over()) {
        const int64_t n = rsd_box_count(&view.box);

        if (rsd_ckpt_read(ckpt, t, &view, NULL, &err)) {
            free(data);
            return fail(a, &err);
        }
        if (f == FORM_TEXT)
            print_text(c, data, n, first);
        else if (f == FORM_JSON)
            for (int64_t i = 0; i < n && !output_over(); i++)
                json_element(j, c->info.dtype, data + i * size);
        else
            fwrite(data, (size_t)size, (size_t)n, stdout);
        first += n;
    }
    free(data);
    return EXIT_DONE;
}

/* Text on a terminal is shortened unless --full is given. */
static bool is_elided(const args *a, const cutting *c, form f)
{
    return f == FORM_TEXT && isatty(STDOUT_FILENO) && !args_has(a, "full") && c->box.ndim > 0 &&
           rsd_box_count(&c->box) > ELIDE_ABOVE;
}

/* `key`: in the enclosing JSON object; NULL: none. */
static int cat_tensor(const args *a, rsd_ckpt *ckpt, size_t t, form f, json_out *j, const char *key)
{
    const char *slice = args_text(a, "slice", "");
    rsd_error   err = { .msg = "" };
    cutting     c = { .info.size = sizeof(c.info) };
    int         code;

    if (rsd_ckpt_tensor(ckpt, t, &c.info, &err))
        return fail(a, &err);
    c.box.ndim = c.info.ndim;
    memcpy(c.box.len, c.info.shape, sizeof(c.box.len));
    code = slice_parse(a, slice, &c);
    if (code)
        return code;
    if (is_elided(a, &c, f))
        return elide_print(a, ckpt, t, c.info.dtype, &c.box);
    if (f == FORM_NPY)
        npy_header(&c);
    if (f == FORM_JSON)
        json_head(j, key, &c);
    code = print_parts(a, ckpt, t, &c, f, j);
    if (!code && f == FORM_JSON) {
        json_close(j);
        json_close(j);
    }
    return code;
}

/* ---- everything below a name ---- */

typedef struct entry {
    const char *name;
    size_t      index;
    bool        tensor;
} entry;

static int by_name(const void *a, const void *b)
{
    return name_compare(((const entry *)a)->name, ((const entry *)b)->name);
}

static int collect_below(const args *a, rsd_ckpt *ckpt, const char *top, entry **out, size_t *n)
{
    const size_t tensors = rsd_ckpt_tensors(ckpt), all = tensors + rsd_ckpt_objects(ckpt);
    entry       *e = calloc(all + 1, sizeof(*e));
    rsd_error    err = { .msg = "" };

    *n = 0;
    if (!e)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu names", all);
    for (size_t i = 0; i < all; i++) {
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_err         rc;

        if (i < tensors)
            rc = rsd_ckpt_tensor(ckpt, i, &info, &err);
        else
            rc = rsd_ckpt_object(ckpt, i - tensors, &info.name, NULL, NULL, &err);
        if (rc) {
            free(e);
            return fail(a, &err);
        }
        if (name_below(info.name, top))
            e[(*n)++] = (entry){ info.name, i < tensors ? i : i - tensors, i < tensors };
    }
    qsort(e, *n, sizeof(*e), by_name);
    *out = e;
    return EXIT_DONE;
}

static int print_object(const args *a, rsd_ckpt *ckpt, const entry *e, json_out *j)
{
    const char *name;
    char       *text;
    int         code = source_object(a, ckpt, e->index, j != NULL, &name, &text);

    if (code)
        return code;
    if (j) {
        json_raw(j, name, text);
    } else {
        print_safe(stdout, name);
        printf(": ");
        print_safe(stdout, text);
        printf("\n");
    }
    free(text);
    return EXIT_DONE;
}

static int print_tensor(const args *a, rsd_ckpt *ckpt, const entry *e, json_out *j)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err = { .msg = "" };
    char            shape[256];

    if (j)
        return cat_tensor(a, ckpt, e->index, FORM_JSON, j, e->name);
    if (rsd_ckpt_tensor(ckpt, e->index, &info, &err))
        return fail(a, &err);
    print_safe(stdout, info.name);
    printf("  %s %s\n", rsd_dtype_name(info.dtype),
           shape_text(info.ndim, info.shape, shape, sizeof(shape)));
    return cat_tensor(a, ckpt, e->index, FORM_TEXT, NULL, NULL);
}

/* Prints objects on one line each, tensors with their rows below; as JSON, one object with a key
 * for each. */
static int cat_below(const args *a, rsd_ckpt *ckpt, const char *top, form f)
{
    json_out json = { .out = stdout }, *j = f == FORM_JSON ? &json : NULL;
    entry   *e = NULL;
    size_t   n;
    int      code = collect_below(a, ckpt, top, &e, &n);

    if (code)
        return code;
    if (n == 0)
        code = patterns_missing(a, ckpt, "nothing", top);
    else if (args_has(a, "slice") || f == FORM_NPY || (f == FORM_RAW && args_has(a, "format")))
        code = misuse(a, "%zu items lie below \"%s\": they can be printed only as text or JSON", n,
                      top);
    if (!code && j)
        json_open_object(j, NULL);
    for (size_t i = 0; !code && i < n && !output_over(); i++) {
        if (!j && i > 0 && (e[i].tensor || e[i - 1].tensor))
            printf("\n");
        code = e[i].tensor ? print_tensor(a, ckpt, &e[i], j) : print_object(a, ckpt, &e[i], j);
    }
    if (!code && j)
        json_close(j);
    free(e);
    return code;
}

/* ---- the object ---- */

static int cat_object(const args *a, rsd_ckpt *ckpt, const char *wanted, form f)
{
    rsd_error err = { .msg = "" };

    for (size_t i = 0; i < rsd_ckpt_objects(ckpt); i++) {
        const char *name;
        char       *text;
        int         code;

        if (rsd_ckpt_object(ckpt, i, &name, NULL, NULL, &err))
            return fail(a, &err);
        if (strcmp(name, wanted) != 0)
            continue;
        if (args_has(a, "slice") || f == FORM_NPY)
            return misuse(a, "\"%s\" is an object, not a tensor: it has no slices and no npy form",
                          wanted);
        if (rsd_ckpt_format(ckpt) == RSD_FORMAT_SAFETENSORS)
            return refuse(a, EXIT_COULD_NOT,
                          "\"%s\" can't be read: its dtype or number of dimensions is not "
                          "supported; `reshard inspect` lists it",
                          wanted);
        code = source_object(a, ckpt, i, f == FORM_JSON, &name, &text);
        if (code)
            return code;
        printf("%s\n", text);
        free(text);
        return EXIT_DONE;
    }
    return cat_below(a, ckpt, wanted, f);
}

static form form_wanted(const args *a)
{
    const char *text = args_text(a, "format", isatty(STDOUT_FILENO) ? "text" : "raw");

    if (args_has(a, "json"))
        return FORM_JSON;
    return text[0] == 'r' ? FORM_RAW : text[0] == 'n' ? FORM_NPY : FORM_TEXT;
}

static int run(const args *a)
{
    json_out  j = { .out = stdout };
    rsd_ckpt *ckpt;
    size_t    t;
    form      f = form_wanted(a);
    int       code;

    if (args_has(a, "json") && args_has(a, "format"))
        return misuse(a, "--json and --format can't be combined");
    code = source_open(a, a->operand[0], &ckpt);
    if (code)
        return code;
    if (rsd_ckpt_find(ckpt, a->operand[1], &t, NULL) == RSD_OK)
        code = cat_tensor(a, ckpt, t, f, &j, NULL);
    else
        code = cat_object(a, ckpt, a->operand[1], f);
    rsd_ckpt_close(ckpt);
    return code;
}

static const option_spec options[] = {
    { "slice", 0, OPT_TEXT, "SLICE", "only this part, as in Python: 0:128,: or 3 or -1,:,0:4" },
    { "format", 0, OPT_CHOICE, "raw|npy|text",
      "raw bytes (little-endian, row-major), a numpy file, or numbers with one line per row; "
      "default: raw, text on a terminal" },
    { "full", 0, OPT_FLAG, NULL, "print large tensors in full on a terminal too" },
    OPTION_JSON,
    { 0 },
};

const command cmd_cat = {
    .name = "cat",
    .line = "print a tensor, a slice, an object, or everything below a name",
    .operands = "CKPT NAME",
    .min = 2,
    .max = 2,
    .options = options,
    .text = "Writes the tensor NAME to stdout, whatever chunks and files it is cut into, reading "
            "only the bytes that the slice needs. An object is printed as Python would print it. A "
            "NAME that is a prefix of others, such as optim.state, prints everything below it.\n"
            "\n"
            "On a terminal a tensor of more than 1,000 elements is shortened to the first and the "
            "last three of each dimension.\n"
            "\n"
            "Types that numpy lacks (bfloat16, float8) become raw items of as many bytes in npy "
            "files.",
    .examples = "# the first 128 rows as a numpy file\n"
                "reshard cat step-1000 model.embed.weight --slice 0:128 --format npy >rows.npy\n"
                "# one row, to look at\n"
                "reshard cat step-1000 model.norm.weight --format text | head\n",
    .run = run,
};
