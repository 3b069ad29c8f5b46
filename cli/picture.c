/* SPDX-License-Identifier: Apache-2.0 */
/* reshard inspect --picture: draws one tensor with its holders: ranks if the files' names tell
 * them, else files. draw.c does the drawing. */
#include "cli.h"
#include "patterns.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_IN_LEGEND 24

/* One rank's or file's part of a tensor. */
typedef struct entry {
    int32_t     number; /* of the rank or the file */
    const char *file;   /* one of its files */
    size_t      chunks, files;
    int64_t     bytes;
    rsd_box     box; /* of its first chunk */
} entry;

/* A chunk of the tensor. */
typedef struct stored {
    int32_t     rank; /* that wrote it; undefined unless all are known */
    const char *file;
    rsd_box     box;
} stored;

static int by_rank(const void *a, const void *b)
{
    const stored *x = a, *y = b;

    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : strcmp(x->file, y->file);
}

/* Numbers the holders of this tensor alone: by the ranks that wrote the files if every name tells
 * one (sets *ranks), else in name order. Sorts the tiles and file[], the name for each, in that
 * order. False: no memory. */
static bool number_holders(const holders *h, size_t n, tile *t, const char **file, bool *ranks)
{
    stored *s = calloc(n + 1, sizeof(*s));
    int32_t number = -1;

    if (!s)
        return false;
    *ranks = n > 0;
    for (size_t i = 0; i < n; i++)
        *ranks = *ranks && file_writer(h->file[t[i].holder]) >= 0;
    for (size_t i = 0; i < n; i++) {
        s[i] = (stored){ .file = h->file[t[i].holder], .box = t[i].box };
        s[i].rank = *ranks ? file_writer(s[i].file) : 0;
    }
    qsort(s, n, sizeof(*s), by_rank);
    for (size_t i = 0; i < n; i++) {
        number += i == 0 || strcmp(s[i].file, s[i - 1].file) != 0;
        t[i] = (tile){ .holder = *ranks ? s[i].rank : number, .box = s[i].box };
        file[i] = s[i].file;
    }
    free(s);
    return true;
}

static void print_entry(const entry *e, bool ranks, int width, bool colour)
{
    char size[32], box[256];

    printf("   ");
    draw_holder(stdout, e->number, width, colour);
    if (ranks)
        printf(" rank %-5" PRId32, e->number);
    printf(" ");
    print_safe(stdout, e->file);
    if (e->files > 1)
        printf(" and %zu more", e->files - 1);
    if (e->chunks == 1)
        rsd_box_text(&e->box, box, sizeof(box));
    else
        snprintf(box, sizeof(box), "%zu chunks", e->chunks);
    printf("  %s  %s\n", box, size_text((uint64_t)e->bytes, size, sizeof(size)));
}

/* Tiles are sorted by holder here; `file` has the names in the same order. */
static void print_legend(const rsd_tensor_info *info, size_t n, const tile *t,
                         const char *const *file, bool ranks)
{
    const int64_t item = (int64_t)rsd_dtype_size(info->dtype);
    const bool    colour = in_colour(stdout);
    size_t        shown = 0, left = 0;

    for (size_t i = 0, end; i < n; i = end) {
        entry e = { .number = t[i].holder, .file = file[i], .box = t[i].box, .files = 1 };

        for (end = i; end < n && t[end].holder == e.number; end++) {
            e.chunks++;
            e.bytes += item * rsd_box_count(&t[end].box);
            e.files += end > i && strcmp(file[end], file[end - 1]) != 0;
        }
        if (shown < MOST_IN_LEGEND) {
            print_entry(&e, ranks, draw_width(n, t), colour);
            shown++;
        } else {
            left++;
        }
    }
    if (left)
        printf("    ... and %zu more %s%s\n", left, ranks ? "rank" : "file", plural(left));
}

/* The axes that are not drawn. */
static void print_rest(const rsd_tensor_info *info, size_t n, const tile *t, const int axes[2])
{
    for (int d = 0; d < info->ndim; d++) {
        int parts = draw_parts(n, t, d);

        if (d == axes[0] || d == axes[1])
            continue;
        printf("    axis %d, size %" PRId64 ": drawn at index 0, ", d, info->shape[d]);
        if (parts > 1)
            printf("cut into %s%d parts\n", parts > DRAW_MOST_PARTS ? "more than " : "",
                   parts > DRAW_MOST_PARTS ? DRAW_MOST_PARTS : parts);
        else
            printf("not cut\n");
    }
}

static void print_scale(const drawn *told, const int axes[2])
{
    if (told->cell_rows > 1 || told->cell_cols > 1)
        printf("    one character is about %" PRId64 " x %" PRId64 " elements\n", told->cell_rows,
               told->cell_cols);
    if (told->strip >= 0) {
        printf("    each chunk along axis %d in order, regardless of its size\n", told->strip);
        return;
    }
    if (axes[0] >= 0)
        printf("    axis %d goes down, axis %d across\n", axes[0], axes[1]);
    if (told->shown < told->here)
        printf("    %zu of %zu chunks are too small to draw; --html shows all\n",
               told->here - told->shown, told->here);
}

static int draw_one(const args *a, const rsd_tensor_info *info, const int *wish, holders *h,
                    size_t n, tile *t)
{
    char         shape[256];
    int          axes[2];
    drawn        told;
    const char **file = calloc(n + 1, sizeof(*file));
    bool         ranks;

    if (!file || !number_holders(h, n, t, file, &ranks)) {
        free(file);
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu chunks", n);
    }
    draw_axes(info->ndim, info->shape, n, t, axes);
    if (wish)
        memcpy(axes, wish, sizeof(axes));
    print_safe(stdout, info->name);
    printf("  %s %s, %zu chunk%s\n\n", rsd_dtype_name(info->dtype),
           shape_text(info->ndim, info->shape, shape, sizeof(shape)), info->chunks,
           plural(info->chunks));
    if (!draw_tiles(stdout, info->shape, n, t, axes, in_colour(stdout), &told)) {
        free(file);
        return refuse(a, EXIT_COULD_NOT, "no memory for a picture");
    }
    printf("\n");
    print_scale(&told, axes);
    print_rest(info, n, t, axes);
    print_legend(info, n, t, file, ranks);
    free(file);
    return EXIT_DONE;
}

/* "0,1" */
static bool parse_axes(const char *text, int axes[2])
{
    char *end;

    axes[0] = (int)strtol(text, &end, 10);
    if (end == text || *end != ',')
        return false;
    text = end + 1;
    axes[1] = (int)strtol(text, &end, 10);
    return end != text && *end == '\0' && axes[0] >= 0 && axes[1] >= 0 && axes[0] != axes[1];
}

typedef struct match {
    rsd_tensor_info info;
    size_t          index;
} match;

static int by_name(const void *a, const void *b)
{
    return name_compare(((const match *)a)->info.name, ((const match *)b)->info.name);
}

/* The tensors that match the pattern, in name order. */
static int find_matches(const args *a, rsd_ckpt *ckpt, const char *pattern, match **out, size_t *n)
{
    const size_t all = rsd_ckpt_tensors(ckpt);
    match       *m = calloc(all + 1, sizeof(*m));
    rsd_error    err = { .msg = "" };

    *n = 0;
    if (!m)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu tensors", all);
    for (size_t i = 0; i < all; i++) {
        rsd_tensor_info *info = &m[*n].info;

        info->size = sizeof(*info);
        if (rsd_ckpt_tensor(ckpt, i, info, &err)) {
            free(m);
            return fail(a, &err);
        }
        if (strcmp(pattern, info->name) == 0 || fnmatch(pattern, info->name, 0) == 0)
            m[(*n)++].index = i;
    }
    qsort(m, *n, sizeof(*m), by_name);
    *out = m;
    return EXIT_DONE;
}

int picture_print(const args *a, rsd_ckpt *ckpt, const char *pattern)
{
    const char *wish = args_text(a, "axes", NULL);
    holders     h = { 0 };
    match      *m = NULL;
    size_t      found = 0;
    int         axes[2] = { 0, 0 }, code;

    if (wish && !parse_axes(wish, axes))
        return misuse(a, "--axes takes two different axes, such as 0,1; not \"%s\"", wish);
    code = find_matches(a, ckpt, pattern, &m, &found);
    if (!code && found == 0)
        code = patterns_missing(a, ckpt, "no tensor", pattern);
    for (size_t i = 0; !code && i < found && !output_over(); i++) {
        const rsd_tensor_info *info = &m[i].info;
        tile                  *t = NULL;
        size_t                 n = 0;

        if (wish && (axes[0] >= info->ndim || axes[1] >= info->ndim)) {
            code = misuse(a, "\"%s\" has %" PRId32 " axes, not those of \"%s\"", info->name,
                          info->ndim, wish);
            break;
        }
        printf(i > 0 ? "\n" : "");
        code = tiles_stored(a, ckpt, m[i].index, &h, &t, &n);
        if (!code)
            code = draw_one(a, info, wish ? axes : NULL, &h, n, t);
        free(t);
    }
    free(h.file);
    free(m);
    return code;
}
