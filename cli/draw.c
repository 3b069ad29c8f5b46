/* SPDX-License-Identifier: Apache-2.0 */
/* Draws tiles for the terminal: colours and letters, or letters alone; numbers if there are more
 * holders than letters. For a tensor with more than two dimensions, draws two, at index 0 of the
 * others. Callers explain the letters. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FEW_ROWS  16 /* rows of a picture; more only to tell more parts apart */
#define MOST_ROWS DRAW_MOST_PARTS
#define MOST_COLS 100
#define NO_SCREEN 80 /* columns without a terminal */
#define INDENT    3
#define LETTERS   ((int32_t)sizeof(letters) - 1)

static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const int  palette[] = {
     31, 136, 64, 125, 37, 166, 61, 160, 28, 94, 24, 133
}; /* 256 colours */

/* Each cell is one element of the tensor, or several adjacent ones. */
typedef struct canvas {
    int64_t rows, cols;    /* of the tensor */
    int     height, width; /* of the picture, in cells */
    int     cell;          /* characters of a cell after a space */
    int32_t holder[MOST_ROWS][MOST_COLS];
    int     holders[MOST_ROWS][MOST_COLS];
} canvas;

int draw_parts(size_t n, const tile *t, int axis)
{
    int64_t last = -1;
    int     found = 0;

    while (axis >= 0) {
        int64_t next = INT64_MAX;

        for (size_t i = 0; i < n; i++)
            if (t[i].box.off[axis] > last && t[i].box.off[axis] < next && rsd_box_count(&t[i].box))
                next = t[i].box.off[axis];
        if (next == INT64_MAX || ++found > DRAW_MOST_PARTS)
            break;
        last = next;
    }
    return found;
}

void draw_axes(int ndim, const int64_t *shape, size_t n, const tile *t, int axes[2])
{
    int64_t best[2] = { -1, -1 };

    axes[0] = axes[1] = -1;
    for (int d = ndim - 1; d >= 0; d--) {
        /* Cut axes come before whole ones, longer before shorter. */
        int64_t worth = (draw_parts(n, t, d) > 1 ? INT64_MAX / 2 : 0) + shape[d] / 2;

        if (worth > best[0]) {
            best[1] = best[0];
            axes[1] = axes[0];
            best[0] = worth;
            axes[0] = d;
        } else if (worth > best[1]) {
            best[1] = worth;
            axes[1] = d;
        }
    }
    /* Rows go down, columns across; a single axis goes across. */
    if (axes[1] < 0 || axes[0] > axes[1]) {
        int d = axes[0];

        axes[0] = axes[1];
        axes[1] = d;
    }
}

/* The first cell that starts at or after element `at`. */
static int cell_from(int64_t at, int64_t elements, int cells)
{
    int c = (int)((double)at / (double)elements * cells);

    while (c > 0 && elements / cells * (c - 1) + elements % cells * (c - 1) / cells >= at)
        c--;
    while (c < cells && elements / cells * c + elements % cells * c / cells < at)
        c++;
    return c;
}

static bool at_origin(const rsd_box *box, const int axes[2])
{
    for (int d = 0; d < box->ndim; d++)
        if (d != axes[0] && d != axes[1] && (box->off[d] > 0 || box->len[d] == 0))
            return false;
    return true;
}

static bool add_tile(canvas *p, const tile *t, const int axes[2])
{
    const rsd_box *b = &t->box;
    int            y = 0, y_end = 1, x = 0, x_end = 1;
    bool           any = false;

    if (axes[0] >= 0) {
        y = cell_from(b->off[axes[0]], p->rows, p->height);
        y_end = cell_from(b->off[axes[0]] + b->len[axes[0]], p->rows, p->height);
    }
    if (axes[1] >= 0) {
        x = cell_from(b->off[axes[1]], p->cols, p->width);
        x_end = cell_from(b->off[axes[1]] + b->len[axes[1]], p->cols, p->width);
    }
    for (; y < y_end; y++)
        for (int i = x; i < x_end; i++, any = true)
            if (p->holders[y][i]++ == 0)
                p->holder[y][i] = t->holder;
    return any;
}

int draw_width(size_t n, const tile *t)
{
    int32_t most = 0;
    char    text[16];

    for (size_t i = 0; i < n; i++)
        most = t[i].holder > most ? t[i].holder : most;
    return most < LETTERS ? 1 : snprintf(text, sizeof(text), "%" PRId32, most);
}

void draw_holder(FILE *out, int32_t holder, int width, bool colour)
{
    char text[16] = ".";

    if (holder >= 0 && width == 1)
        snprintf(text, sizeof(text), "%c", letters[holder % LETTERS]);
    else if (holder >= 0)
        snprintf(text, sizeof(text), "%" PRId32, holder);
    if (colour && holder >= 0)
        fprintf(out, "\033[48;5;%dm\033[38;5;231m %*s\033[0m",
                palette[(size_t)holder % (sizeof(palette) / sizeof(palette[0]))], width, text);
    else
        fprintf(out, " %*s", width, text);
}

static void print_canvas(FILE *out, const canvas *p, bool colour)
{
    for (int y = 0; y < p->height; y++) {
        fprintf(out, "%*s", INDENT, "");
        for (int x = 0; x < p->width; x++)
            draw_holder(out, p->holders[y][x] ? p->holder[y][x] : -1, p->cell, colour);
        fprintf(out, "\n");
    }
}

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static void size_canvas(canvas *p, const int64_t *shape, size_t n, const tile *t, const int axes[2],
                        int screen)
{
    int64_t parts = draw_parts(n, t, axes[0]), most = FEW_ROWS;

    p->rows = axes[0] >= 0 ? shape[axes[0]] : 1;
    p->cols = axes[1] >= 0 ? shape[axes[1]] : 1;
    most = parts > most ? least(parts, MOST_ROWS) : most;
    p->height = least(p->rows, most);
    p->cell = draw_width(n, t);
    p->width =
        least(p->cols, least(((screen ? screen : NO_SCREEN) - INDENT) / (p->cell + 1), MOST_COLS));
}

/* ---- more parts than rows, along one axis ---- */

typedef struct along {
    int64_t off;
    int32_t holder;
} along;

static int by_offset(const void *a, const void *b)
{
    const along *x = a, *y = b;

    return x->off != y->off ? (x->off > y->off) - (x->off < y->off)
                            : (x->holder > y->holder) - (x->holder < y->holder);
}

/* The only axis that is cut, if into more parts than there are rows; -1: none. */
static int strip_axis(size_t n, const tile *t, const int axes[2])
{
    const int down = draw_parts(n, t, axes[0]), across = draw_parts(n, t, axes[1]);

    if (down > DRAW_MOST_PARTS && across <= 1)
        return axes[0];
    return across > DRAW_MOST_PARTS && down <= 1 ? axes[1] : -1;
}

/* Draws one cell per tile, in lines. */
static bool draw_strip(FILE *out, size_t n, const tile *t, const int axes[2], bool colour,
                       drawn *told)
{
    const int screen = screen_width(out), cell = draw_width(n, t);
    const int width = ((screen ? screen : NO_SCREEN) - INDENT) / (cell + 1);
    along    *a = calloc(n + 1, sizeof(*a));

    if (!a)
        return false;
    for (size_t i = 0; i < n; i++)
        if (rsd_box_count(&t[i].box) > 0 && at_origin(&t[i].box, axes))
            a[told->here++] = (along){ t[i].box.off[told->strip], t[i].holder };
    qsort(a, told->here, sizeof(*a), by_offset);
    for (size_t i = 0; i < told->here; i++) {
        if (i % (size_t)width == 0)
            fprintf(out, "%s%*s", i ? "\n" : "", INDENT, "");
        draw_holder(out, a[i].holder, cell, colour);
    }
    fprintf(out, "\n");
    told->shown = told->here;
    free(a);
    return true;
}

bool draw_tiles(FILE *out, const int64_t *shape, size_t n, const tile *t, const int axes[2],
                bool colour, drawn *told)
{
    canvas *p;

    *told = (drawn){ .strip = strip_axis(n, t, axes) };
    if (told->strip >= 0)
        return draw_strip(out, n, t, axes, colour, told);
    p = calloc(1, sizeof(*p));
    if (!p)
        return false;
    size_canvas(p, shape, n, t, axes, screen_width(out));
    for (size_t i = 0; i < n && p->rows && p->cols; i++) {
        bool here = rsd_box_count(&t[i].box) > 0 && at_origin(&t[i].box, axes);

        told->here += here;
        told->shown += here && add_tile(p, &t[i], axes);
    }
    print_canvas(out, p, colour);
    told->cell_rows = p->height ? p->rows / p->height + (p->rows % p->height > 0) : 0;
    told->cell_cols = p->width ? p->cols / p->width + (p->cols % p->width > 0) : 0;
    free(p);
    return true;
}
