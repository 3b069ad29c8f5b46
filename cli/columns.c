/* SPDX-License-Identifier: Apache-2.0 */
/* Plain-text tables: collects cells, then prints them in columns as wide as needed. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP         2  /* spaces between columns */
#define FIRST_LEAST 24 /* cells guaranteed to the first column before others are left out */
#define NARROW      4  /* indentation if it gets lines of its own */

static void add_bytes(columns *c, const char *cell, size_t len)
{
    if (c->failed)
        return;
    if (c->cap - c->len < len) {
        size_t cap = c->cap + c->cap / 2 + len + 4096;
        char  *text = realloc(c->text, cap);

        c->failed = !text;
        if (!text)
            return;
        c->text = text;
        c->cap = cap;
    }
    memcpy(c->text + c->len, cell, len);
    c->len += len;
}

void columns_begin(columns *c, const char *const *title)
{
    *c = (columns){ 0 };
    for (; *title && c->n < MOST_COLUMNS; title++) {
        const char *text = *title;

        c->spare[c->n] = *text == '?';
        text += c->spare[c->n];
        c->right[c->n] = *text == '>';
        c->title[c->n] = text + c->right[c->n];
        c->n++;
    }
    for (int i = 0; i < c->n; i++)
        columns_add(c, c->title[i]);
}

/* Control characters would break the table, and more. */
void columns_add(columns *c, const char *cell)
{
    char seen[SAFE_CHARACTER];

    while (*cell) {
        cell += safe_character(cell, seen);
        add_bytes(c, seen, strlen(seen));
    }
    add_bytes(c, "", 1);
    c->cells++;
}

void columns_addf(columns *c, const char *fmt, ...)
{
    char    cell[512];
    va_list list;

    va_start(list, fmt);
    vsnprintf(cell, sizeof(cell), fmt, list);
    va_end(list);
    columns_add(c, cell);
}

static void measure(const columns *c, size_t *width)
{
    const char *cell = c->text;

    for (int i = 0; i < c->n; i++)
        width[i] = 0;
    for (size_t i = 0; i < c->cells; i++) {
        size_t w = text_width(cell);
        int    col = (int)(i % (size_t)c->n);

        if (w > width[col])
            width[col] = w;
        cell += strlen(cell) + 1;
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The width of the columns after the first. Text at the end of a line may wrap to the next. */
static size_t rest_width(const columns *c, const size_t *width, const bool *left_out)
{
    size_t rest = 0;
    int    last = c->n - 1;

    while (last > 0 && left_out[last])
        last--;
    for (int i = 1; i < c->n; i++)
        if (!left_out[i])
            rest += GAP + (i < last || c->right[i] || width[i] < 20 ? width[i] : 20);
    return rest;
}

/* Makes the table fit the screen: drops optional columns, then narrows the first. */
static void fit(const columns *c, size_t *width, bool *left_out, FILE *out)
{
    const size_t screen = (size_t)screen_width(out);
    const size_t first = least(width[0], FIRST_LEAST);
    size_t       rest;

    if (screen == 0)
        return;
    for (int i = c->n - 1; i > 0 && first + rest_width(c, width, left_out) > screen; i--)
        left_out[i] = c->spare[i];
    rest = screen - least(screen, rest_width(c, width, left_out));
    width[0] = least(width[0], rest > NARROW ? rest : NARROW);
}

static void spaces(FILE *out, size_t n)
{
    fprintf(out, "%*s", (int)n, "");
}

static void print_cell(const columns *c, int col, const char *cell, const size_t *width, bool last,
                       FILE *out)
{
    const size_t w = text_width(cell);

    if (col > 0 && !(last && w == 0))
        spaces(out, GAP);
    if (col == 0 && w > width[0]) { /* the other columns follow on the next line */
        fprintf(out, "%s\n", cell);
        spaces(out, width[0]);
    } else {
        const size_t pad = w < width[col] ? width[col] - w : 0;

        spaces(out, c->right[col] ? pad : 0);
        fputs(cell, out);
        spaces(out, c->right[col] || last ? 0 : pad);
    }
}

static void print_left_out(const columns *c, const bool *left_out, FILE *out)
{
    char   text[256] = "no room for: ";
    size_t at = strlen(text), any = at;

    for (int i = 0; i < c->n; i++)
        if (left_out[i] && at < sizeof(text))
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", at > any ? ", " : "",
                                   c->title[i]);
    if (at > any)
        print_wrapped(out, text);
}

bool columns_print(columns *c, FILE *out)
{
    const char *cell = c->text;
    const bool  ok = !c->failed, bold = in_colour(out);
    size_t      width[MOST_COLUMNS];
    bool        left_out[MOST_COLUMNS] = { false };
    int         last = c->n - 1;

    if (ok) {
        measure(c, width);
        fit(c, width, left_out, out);
    }
    while (last > 0 && left_out[last])
        last--;
    for (size_t i = 0; ok && i < c->cells; i++) {
        const int  col = (int)(i % (size_t)c->n);
        const bool title = i < (size_t)c->n;

        if (bold && title && col == 0)
            fputs("\033[1m", out);
        if (!left_out[col])
            print_cell(c, col, cell, width, col == last, out);
        if (col == last)
            fputs(bold && title ? "\033[0m\n" : "\n", out);
        cell += strlen(cell) + 1;
    }
    if (ok)
        print_left_out(c, left_out, out);
    free(c->text);
    *c = (columns){ 0 };
    return ok;
}
