/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds which part of a tensor: files, the ranks that wrote them, and the tiles of both. draw.c
 * and page.c make pictures of them. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Chunks mostly stand in the files' order, so the next file is looked at first. */
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

int tiles_stored(const args *a, rsd_ckpt *ckpt, size_t t, holders *h, tile **out, size_t *n)
{
    rsd_error       err = { .msg = "" };
    rsd_tensor_info info;
    tile           *made;

    if (rsd_ckpt_tensor(ckpt, t, &info, &err))
        return fail(a, &err);
    made = calloc(info.chunks + 1, sizeof(*made));
    if (!made)
        return refuse(a, EXIT_COULD_NOT, "no memory for %zu chunks", info.chunks);
    for (size_t i = 0; i < info.chunks; i++) {
        rsd_chunk chunk;
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
