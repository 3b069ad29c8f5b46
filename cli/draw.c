/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts as pictures for the terminal: colours, or letters where there are none. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 16
#define MOST_COLS 48

static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
static const int  palette[] = {
     31, 136, 64, 125, 37, 166, 61, 160, 28, 94, 24, 133
}; /* 256 colours */

/* The picture: each cell is one element of the tensor, or stands for several next to each other. */
typedef struct picture {
    int64_t rows, cols;    /* of the tensor */
    int     height, width; /* of the picture */
    int32_t owner[MOST_ROWS][MOST_COLS];
    int     holders[MOST_ROWS][MOST_COLS];
} picture;

static int64_t row_of(const picture *p, int y)
{
    return p->rows * y / p->height;
}

static int64_t col_of(const picture *p, int x)
{
    return p->cols * x / p->width;
}

static void add_box(picture *p, int32_t rank, const rsd_box *box)
{
    int64_t row = box->ndim == 2 ? box->off[0] : 0, rows = box->ndim == 2 ? box->len[0] : 1;
    int64_t col = box->ndim ? box->off[box->ndim - 1] : 0;
    int64_t cols = box->ndim ? box->len[box->ndim - 1] : 1;

    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            if (row_of(p, y) < row || row_of(p, y) >= row + rows || col_of(p, x) < col ||
                col_of(p, x) >= col + cols)
                continue;
            if (p->holders[y][x]++ == 0)
                p->owner[y][x] = rank;
        }
}

static bool fill(picture *p, const rsd_layout *layout)
{
    for (int32_t rank = 0; rank < rsd_layout_world(layout); rank++) {
        size_t   n = rsd_layout_boxes(layout, rank, NULL, 0);
        rsd_box *box = calloc(n ? n : 1, sizeof(*box));

        if (!box)
            return false;
        rsd_layout_boxes(layout, rank, box, n);
        for (size_t i = 0; i < n; i++)
            add_box(p, rank, &box[i]);
        free(box);
    }
    return true;
}

static void print_cell(FILE *out, int32_t rank, int holders, bool colour)
{
    char letter = holders == 0 ? '.' : letters[(size_t)rank % (sizeof(letters) - 1)];

    if (colour && holders > 0)
        fprintf(out, "\033[48;5;%dm\033[38;5;231m%c \033[0m",
                palette[(size_t)rank % (sizeof(palette) / sizeof(palette[0]))], letter);
    else
        fprintf(out, "%c ", letter);
}

void draw_layout(FILE *out, const rsd_layout *layout, bool colour)
{
    static picture empty;
    picture        p = empty;
    int64_t        shape[RSD_MAX_NDIM] = { 1, 1 };
    int            ndim = rsd_layout_shape(layout, shape), most = 0;

    p.rows = ndim == 2 ? shape[0] : 1;
    p.cols = ndim ? shape[ndim - 1] : 1;
    p.height = p.rows < MOST_ROWS ? (int)p.rows : MOST_ROWS;
    p.width = p.cols < MOST_COLS ? (int)p.cols : MOST_COLS;
    if (ndim > 2 || !fill(&p, layout)) {
        fprintf(out, "    (no picture)\n");
        return;
    }
    for (int y = 0; y < p.height; y++) {
        fprintf(out, "    ");
        for (int x = 0; x < p.width; x++) {
            print_cell(out, p.owner[y][x], p.holders[y][x], colour);
            most = p.holders[y][x] > most ? p.holders[y][x] : most;
        }
        fprintf(out, "\n");
    }
    if (most > 1)
        fprintf(out, "    (the first of up to %d ranks that hold the same)\n", most);
}
