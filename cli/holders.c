/* SPDX-License-Identifier: Apache-2.0 */
/* Which files, and the ranks that wrote them, hold which part of a tensor, as tiles. draw.c and
 * page.c make pictures of them. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Chunks are mostly in file order, so the next file is tried first. */
bool holders_number(holders *h, const char *name, size_t *out)
{
    for (size_t k = 0; k < h->n; k++) {
        size_t i = (h->last + k) % h->n;

        if (h->file[i] == name || strcmp(h->file[i], name) == 0) {
            h->last = i + 1 < h->n ? i + 1 : 0;
            *out = i;
            return true;
        }
    }
    if (h->n == h->cap) {
        size_t       cap = h->cap ? 2 * h->cap : 16;
        const char **file = realloc(h->file, cap * sizeof(*file));

        if (!file)
            return false;
        h->file = file;
        h->cap = cap;
    }
    h->file[h->n] = name;
    *out = h->n++;
    h->last = 0;
    return true;
}

int32_t file_writer(const char *name)
{
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    char       *end;
    long        rank;

    if (strncmp(base, "__", 2) != 0 || base[2] < '0' || base[2] > '9')
        return -1;
    rank = strtol(base + 2, &end, 10);
    return *end == '_' && rank < INT32_MAX / 2 ? (int32_t)rank : -1;
}

uint64_t tensor_elements(const rsd_tensor_info *info)
{
    const size_t size = rsd_dtype_size(info->dtype);

    return size ? (uint64_t)info->bytes / size : 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int tensor_files(const args *a, rsd_ckpt *ckpt, size_t t, const char **first, size_t *n)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info = { .size = sizeof(info) };
    const char    **file;
    size_t          all = 0;

    *first = "";
    *n = 0;
    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(a, &err);
    file = calloc(info.chunks + 1, sizeof(*file));
    if (!file)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu chunks", info.chunks);
    for (size_t i = 0; i < info.chunks; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

        if (rsd_ckpt_chunk(ckpt, t, i, &chunk, &err)) {
            free(file);
            return fail(a, &err);
        }
        if (all == 0 || file[all - 1] != chunk.file)
            file[all++] = chunk.file;
    }
    qsort(file, all, sizeof(*file), by_text);
    for (size_t i = 0; i < all; i++)
        *n += i == 0 || strcmp(file[i], file[i - 1]) != 0;
    *first = all ? file[0] : "";
    free(file);
    return EXIT_DONE;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

int tensor_layout(const args *a, rsd_ckpt *ckpt, size_t t, char *buf, size_t cap)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info = { .size = sizeof(info) };
    int64_t        *off;
    size_t          n, at = 0, grid = 1;

    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(a, &err);
    n = info.chunks;
    snprintf(buf, cap, "whole");
    if (n <= 1)
        return EXIT_DONE;
    off = calloc(n * RSD_MAX_NDIM, sizeof(*off)); /* of dimension d: off[d * n ..] */
    if (!off)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu chunks", n);
    for (size_t i = 0; i < n; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

        if (rsd_ckpt_chunk(ckpt, t, i, &chunk, &err)) {
            free(off);
            return fail(a, &err);
        }
        for (int d = 0; d < info.ndim; d++)
            off[(size_t)d * n + i] = chunk.box.off[d];
    }
    for (int d = 0; d < info.ndim; d++) {
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

int tiles_stored(const args *a, rsd_ckpt *ckpt, size_t t, holders *h, tile **out, size_t *n)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info = { .size = sizeof(info) };
    tile           *made;

    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(a, &err);
    made = calloc(info.chunks + 1, sizeof(*made));
    if (!made)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu chunks", info.chunks);
    for (size_t i = 0; i < info.chunks; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };
        size_t    number = 0;

        if (rsd_ckpt_chunk(ckpt, t, i, &chunk, &err)) {
            free(made);
            return fail(a, &err);
        }
        if (!holders_number(h, chunk.file, &number)) {
            free(made);
            return refuse(a, EXIT_COULD_NOT, "no memory for the names of files");
        }
        made[i] = (tile){ .holder = (int32_t)number, .box = chunk.box };
    }
    *out = made;
    *n = info.chunks;
    return EXIT_DONE;
}

bool tiles_of_layout(const rsd_layout *layout, tile **out, size_t *n)
{
    const int32_t world = rsd_layout_world(layout);
    size_t        all = 0, at = 0, most = 0;
    rsd_box      *box;
    tile         *made;

    for (int32_t rank = 0; rank < world; rank++) {
        size_t boxes = rsd_layout_boxes(layout, rank, NULL, 0);

        all += boxes;
        most = boxes > most ? boxes : most;
    }
    made = calloc(all + 1, sizeof(*made));
    box = calloc(most + 1, sizeof(*box));
    if (!made || !box) {
        free(made);
        free(box);
        return false;
    }
    for (int32_t rank = 0; rank < world; rank++) {
        size_t boxes = rsd_layout_boxes(layout, rank, box, most);

        for (size_t i = 0; i < boxes; i++)
            made[at++] = (tile){ .holder = rank, .box = box[i] };
    }
    free(box);
    *out = made;
    *n = all;
    return true;
}
