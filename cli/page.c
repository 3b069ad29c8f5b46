/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the page of --html with a checkpoint's data. Equal tilings are written once, since a model
 * has many tensors but few kinds; page.js draws them. */
#include "page.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TILES  8192 /* of one tiling; browsers struggle with more */
#define RANK_VALUES 5
#define MOST_VALUE  2000 /* bytes of an object's value */

/* A tiling, or what ranks read of a tensor's sources, as JSON. */
typedef struct tiling {
    char    *text;
    uint64_t hash;
} tiling;

struct page {
    const args *a;
    const char *file; /* its final name */
    char       *temp; /* NULL: written directly to its destination */
    json_out    json;
    bool        plan, dropped;
    holders     held;
    int64_t    *bytes; /* [nbytes] of each file */
    size_t      nbytes;
    tiling     *tiling; /* [ntilings] */
    size_t      ntilings, cap;
    size_t     *slot; /* [2 * cap] hash table: number of the tiling + 1, or 0 */
    int64_t    *rank; /* [nranks][RANK_VALUES] */
    size_t      nranks, rank_cap;
    bool        failed; /* no memory */
};

static int no_memory(const page *p)
{
    return refuse(p->a, EXIT_COULD_NOT, "no memory for the page");
}

/* ---- output file ---- */

/* Only a regular file is replaced; a device or pipe of that name is written to. */
static bool replaceable(const char *file)
{
    struct stat st;

    return stat(file, &st) != 0 || S_ISREG(st.st_mode);
}

static FILE *open_temp(page *p)
{
    const size_t cap = strlen(p->file) + sizeof(".tmp-XXXXXX");
    mode_t       mask = umask(0);
    FILE        *out;
    int          fd;

    umask(mask);
    p->temp = malloc(cap);
    if (!p->temp)
        return NULL;
    snprintf(p->temp, cap, "%s.tmp-XXXXXX", p->file);
    fd = mkstemp(p->temp);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out) {
        fchmod(fd, 0666 & ~mask);
        return out;
    }
    if (fd >= 0) {
        close(fd);
        unlink(p->temp);
    }
    free(p->temp);
    p->temp = NULL;
    return NULL;
}

int page_begin(const args *a, const char *file, const page_about *about, page **out)
{
    page *p = calloc(1, sizeof(*p));
    FILE *to = stdout;

    if (!p)
        return refuse(a, EXIT_COULD_NOT, "no memory for the page");
    *p = (page){ .a = a, .file = file, .plan = about->rules != NULL };
    errno = 0;
    if (strcmp(file, "-") != 0)
        to = replaceable(file) ? open_temp(p) : fopen(file, "w");
    if (!to) {
        free(p);
        return refuse(a, EXIT_COULD_NOT, "could not write \"%s\": %s", file, strerror(errno));
    }
    p->json = (json_out){ .out = to, .html = true };
    fputs(page_head, to);
    json_open_object(&p->json, NULL);
    json_text(&p->json, "kind", p->plan ? "plan" : "inspect");
    json_text(&p->json, "path", about->path);
    json_text(&p->json, "format", format_name(about->format));
    if (p->plan)
        json_text(&p->json, "rules", about->rules);
    if (about->recipe)
        json_text(&p->json, "recipe", about->recipe);
    json_open_array(&p->json, "tensors");
    *out = p;
    return EXIT_DONE;
}

/* ---- tilings ---- */

static uint64_t hash_text(const char *text)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static bool make_room(page *p)
{
    const size_t cap = p->cap ? 2 * p->cap : 64;
    tiling      *grown;
    size_t      *slot;

    if (p->ntilings < p->cap)
        return true;
    grown = realloc(p->tiling, cap * sizeof(*grown));
    if (!grown)
        return false;
    p->tiling = grown;
    slot = calloc(2 * cap, sizeof(*slot));
    if (!slot)
        return false;
    free(p->slot);
    p->slot = slot;
    p->cap = cap;
    for (size_t i = 0; i < p->ntilings; i++) {
        size_t k = p->tiling[i].hash % (2 * cap);

        while (slot[k])
            k = (k + 1) % (2 * cap);
        slot[k] = i + 1;
    }
    return true;
}

/* The number of a tiling; takes ownership of `text`. */
static bool add_tiling(page *p, char *text, size_t *out)
{
    const uint64_t hash = hash_text(text);
    size_t         k;

    if (!make_room(p)) {
        free(text);
        return false;
    }
    for (k = hash % (2 * p->cap); p->slot[k]; k = (k + 1) % (2 * p->cap)) {
        tiling *there = &p->tiling[p->slot[k] - 1];

        if (there->hash == hash && strcmp(there->text, text) == 0) {
            *out = p->slot[k] - 1;
            free(text);
            return true;
        }
    }
    p->tiling[p->ntilings] = (tiling){ .text = text, .hash = hash };
    *out = p->ntilings++;
    p->slot[k] = p->ntilings;
    return true;
}

/* {"n": 2, "t": [0,0,0,4,8, 1,4,0,4,8]}: holder, offsets, lengths of each tile. */
static bool tiling_text(size_t n, const tile *t, char **out)
{
    size_t len;
    FILE  *f = open_memstream(out, &len);

    if (!f)
        return false;
    fprintf(f, "{\"n\":%zu,\"t\":[", n);
    for (size_t i = 0; i < n && i < MOST_TILES; i++) {
        fprintf(f, "%s%" PRId32, i ? "," : "", t[i].holder);
        for (int d = 0; d < t[i].box.ndim; d++)
            fprintf(f, ",%" PRId64, t[i].box.off[d]);
        for (int d = 0; d < t[i].box.ndim; d++)
            fprintf(f, ",%" PRId64, t[i].box.len[d]);
    }
    fputs("]}", f);
    if (fclose(f) == 0)
        return true;
    free(*out);
    return false;
}

static bool number_tiling(page *p, size_t n, const tile *t, size_t *out)
{
    char *text = NULL;

    return tiling_text(n, t, &text) && add_tiling(p, text, out);
}

/* ---- tensors, ranks ---- */

static bool count_bytes(page *p, size_t n, const tile *t, int64_t item)
{
    if (p->nbytes < p->held.n) {
        int64_t *bytes = realloc(p->bytes, p->held.cap * sizeof(*bytes));

        if (!bytes)
            return false;
        p->bytes = bytes;
        while (p->nbytes < p->held.n)
            p->bytes[p->nbytes++] = 0;
    }
    for (size_t i = 0; i < n; i++)
        p->bytes[t[i].holder] += item * rsd_box_count(&t[i].box);
    return true;
}

/* A tensor; what it is made of is written by the caller, before the end. */
static void open_tensor(page *p, const rsd_tensor_info *info, int64_t before, int64_t after)
{
    json_open_array(&p->json, NULL);
    json_text(&p->json, NULL, info->name);
    json_text(&p->json, NULL, rsd_dtype_name(info->dtype));
    json_ints(&p->json, NULL, info->ndim, info->shape);
    json_int(&p->json, NULL, info->bytes);
    json_uint(&p->json, NULL, rsd_dtype_size(info->dtype));
    json_int(&p->json, NULL, before);
    json_int(&p->json, NULL, after);
}

/* The tiling that a tensor is stored as; `counted`: its bytes are added to those of the files. */
static int stored_tiling(page *p, rsd_ckpt *ckpt, size_t t, bool counted, int64_t *out)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info = { .size = sizeof(info) };
    tile           *tiles = NULL;
    size_t          n = 0, number = 0;
    bool            good;
    int             code;

    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(p->a, &err);
    code = tiles_stored(p->a, ckpt, t, &p->held, &tiles, &n);
    if (code)
        return code;
    good = !counted || count_bytes(p, n, tiles, (int64_t)rsd_dtype_size(info.dtype));
    if (good && out)
        good = number_tiling(p, n, tiles, &number);
    free(tiles);
    if (!good)
        return no_memory(p);
    if (out)
        *out = (int64_t)number;
    return EXIT_DONE;
}

static int wanted_tiling(page *p, const rsd_layout *layout, int64_t *out)
{
    tile  *tiles = NULL;
    size_t n = 0, number = 0;
    bool   good = tiles_of_layout(layout, &tiles, &n);

    if (good) {
        good = number_tiling(p, n, tiles, &number);
        free(tiles);
    }
    *out = (int64_t)number;
    return good ? EXIT_DONE : no_memory(p);
}

int page_tensor(page *p, rsd_ckpt *ckpt, size_t t, const rsd_layout *after)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info = { .size = sizeof(info) };
    int64_t         before = -1, wanted = -1;
    int             code;

    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(p->a, &err);
    code = stored_tiling(p, ckpt, t, true, &before);
    if (!code && after)
        code = wanted_tiling(p, after, &wanted);
    if (code)
        return code;
    open_tensor(p, &info, before, wanted);
    json_close(&p->json);
    return EXIT_DONE;
}

/* ---- tensors made of others ---- */

int page_source(page *p, rsd_ckpt *ckpt, size_t t)
{
    return stored_tiling(p, ckpt, t, true, NULL);
}

/* [name, dtype, shape] of each source. */
static int write_sources(page *p, rsd_ckpt *ckpt, const rsd_made *made)
{
    json_open_array(&p->json, "from");
    for (size_t i = 0; i < made->nfrom; i++) {
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_error       err = { .msg = "" };
        size_t          t;

        if (rsd_ckpt_find(ckpt, made->from[i], &t, &err) || rsd_ckpt_tensor(ckpt, t, &info, &err))
            return fail(p->a, &err);
        json_open_array(&p->json, NULL);
        json_text(&p->json, NULL, info.name);
        json_text(&p->json, NULL, rsd_dtype_name(info.dtype));
        json_ints(&p->json, NULL, info.ndim, info.shape);
        json_close(&p->json);
    }
    json_close(&p->json);
    return EXIT_DONE;
}

int page_made(page *p, rsd_ckpt *ckpt, const page_recipe *r)
{
    const rsd_made *made = r->made;
    rsd_tensor_info info = { .name = made->name, .dtype = made->dtype, .ndim = made->ndim };
    rsd_error       err = { .msg = "" };
    int64_t         before = -1, after = -1;
    size_t          t, reads = 0;
    char           *text = strdup(r->reads);
    int             code = text && add_tiling(p, text, &reads) ? EXIT_DONE : no_memory(p);

    if (!code && made->as_is) /* where its parts lie is known */
        code = rsd_ckpt_find(ckpt, made->from[0], &t, &err)
                   ? fail(p->a, &err)
                   : stored_tiling(p, ckpt, t, false, &before);
    if (!code)
        code = wanted_tiling(p, r->after, &after);
    if (code)
        return code;
    info.bytes = (int64_t)rsd_dtype_size(made->dtype);
    for (int d = 0; d < made->ndim; d++) {
        info.shape[d] = made->shape[d];
        info.bytes *= made->shape[d];
    }
    open_tensor(p, &info, before, after);
    json_open_object(&p->json, NULL);
    code = write_sources(p, ckpt, made);
    json_int(&p->json, "line", made->line);
    json_uint(&p->json, "parts", made->parts);
    json_bool(&p->json, "tied", made->tied);
    json_bool(&p->json, "reordered", made->reordered);
    json_bool(&p->json, "scaled", made->scaled);
    json_uint(&p->json, "reads", reads);
    json_close(&p->json);
    json_close(&p->json);
    return code;
}

void page_dropped(page *p, const char *name, int32_t line)
{
    if (!p->dropped) {
        json_close(&p->json); /* the tensors */
        json_open_array(&p->json, "dropped");
    }
    p->dropped = true;
    json_open_array(&p->json, NULL);
    json_text(&p->json, NULL, name);
    json_int(&p->json, NULL, line);
    json_close(&p->json);
}

int page_objects(page *p, rsd_ckpt *ckpt, size_t n, const size_t *which)
{
    int code = EXIT_DONE;

    json_close(&p->json); /* the tensors, or those that are dropped */
    json_open_array(&p->json, "objects");
    for (size_t i = 0; !code && i < n; i++) {
        const char *name;
        char       *value;

        code = source_object(p->a, ckpt, which ? which[i] : i, false, &name, &value);
        if (code)
            break;
        text_shorten(value, MOST_VALUE);
        json_open_array(&p->json, NULL);
        json_text(&p->json, NULL, name);
        json_text(&p->json, NULL, value);
        json_close(&p->json);
        free(value);
    }
    return code;
}

void page_rank(page *p, const int64_t bytes[RANK_VALUES])
{
    if (p->nranks == p->rank_cap) {
        size_t   cap = p->rank_cap ? 2 * p->rank_cap : 64;
        int64_t *grown = realloc(p->rank, cap * RANK_VALUES * sizeof(*grown));

        p->failed = p->failed || !grown;
        if (!grown)
            return;
        p->rank = grown;
        p->rank_cap = cap;
    }
    memcpy(p->rank + p->nranks++ * RANK_VALUES, bytes, RANK_VALUES * sizeof(*bytes));
}

/* ---- the end ---- */

static void write_rest(page *p)
{
    json_close(&p->json);
    json_open_array(&p->json, "tilings");
    for (size_t i = 0; i < p->ntilings; i++)
        json_raw(&p->json, NULL, p->tiling[i].text);
    json_close(&p->json);
    json_open_array(&p->json, "files");
    for (size_t i = 0; i < p->held.n; i++) {
        json_open_array(&p->json, NULL);
        json_text(&p->json, NULL, p->held.file[i]);
        json_int(&p->json, NULL, file_writer(p->held.file[i]));
        json_int(&p->json, NULL, p->bytes[i]);
        json_close(&p->json);
    }
    json_close(&p->json);
    json_open_array(&p->json, "ranks");
    for (size_t i = 0; i < p->nranks; i++)
        json_ints(&p->json, NULL, RANK_VALUES, p->rank + i * RANK_VALUES);
    json_close(&p->json);
    json_close(&p->json);
    fputs(page_tail, p->json.out);
}

/* Renames the file to its final name. */
static int put_in_place(page *p)
{
    FILE *out = p->json.out;
    bool  bad;

    if (out == stdout)
        return EXIT_DONE; /* checked when the tool ends */
    p->json.out = NULL;
    errno = 0;
    bad = ferror(out) != 0;
    bad = fclose(out) != 0 || bad;
    if (!bad && p->temp)
        bad = rename(p->temp, p->file) != 0;
    if (!bad) {
        free(p->temp);
        p->temp = NULL;
        return EXIT_DONE;
    }
    return refuse(p->a, EXIT_COULD_NOT, "could not write \"%s\": %s", p->file,
                  errno ? strerror(errno) : "the disk is full or broken");
}

int page_end(page *p, int code)
{
    if (!p)
        return code;
    if (!code && p->failed)
        code = no_memory(p);
    if (!code) {
        write_rest(p);
        code = put_in_place(p);
    }
    if (p->json.out && p->json.out != stdout)
        fclose(p->json.out);
    if (p->temp)
        unlink(p->temp);
    for (size_t i = 0; i < p->ntilings; i++)
        free(p->tiling[i].text);
    free(p->tiling);
    free(p->slot);
    free(p->bytes);
    free(p->rank);
    free(p->held.file);
    free(p->temp);
    free(p);
    return code;
}
