/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as plain text: cells are collected, then printed in columns as wide as they need. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GAP 2 /* spaces between columns */

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
        c->right[c->n] = **title == '>';
        c->title[c->n] = *title + c->right[c->n];
        c->n++;
    }
    for (int i = 0; i < c->n; i++)
        columns_add(c, c->title[i]);
}

/* Control characters would break the table and more. */
void columns_add(columns *c, const char *cell)
{
    static const char hex[] = "0123456789abcdef";

    for (const unsigned char *p = (const unsigned char *)cell; *p; p++) {
        const bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        char       seen[4];

        if (*p >= 0x20 && *p != 0x7f && !c1) {
            add_bytes(c, (const char *)p, 1);
            continue;
        }
        p += c1;
        seen[0] = '\\';
        seen[1] = 'x';
        seen[2] = hex[*p >> 4];
        seen[3] = hex[*p & 15];
        add_bytes(c, seen, 4);
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

/* How wide the first column may be. Text at the end of a line may go on in the next. */
static size_t limit_first(const columns *c, const size_t *width, FILE *out)
{
    size_t screen = (size_t)screen_width(out), rest = 0;

    for (int i = 1; i < c->n; i++)
        rest += GAP + (i + 1 < c->n || c->right[i] || width[i] < 20 ? width[i] : 20);
    if (screen == 0 || width[0] + rest <= screen)
        return width[0];
    screen = screen > rest + 12 ? screen - rest : 12;
    return width[0] < screen ? width[0] : screen;
}

static void spaces(FILE *out, size_t n)
{
    fprintf(out, "%*s", (int)n, "");
}

static void print_cell(const columns *c, int col, const char *cell, const size_t *width, FILE *out)
{
    const size_t w = text_width(cell);
    const bool   last = col + 1 == c->n;

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

bool columns_print(columns *c, FILE *out)
{
    const char *cell = c->text;
    const bool  ok = !c->failed, bold = in_colour(out);
    size_t      width[MOST_COLUMNS];

    if (ok) {
        measure(c, width);
        width[0] = limit_first(c, width, out);
    }
    for (size_t i = 0; ok && i < c->cells; i++) {
        const int  col = (int)(i % (size_t)c->n);
        const bool title = i < (size_t)c->n;

        if (bold && title && col == 0)
            fputs("\033[1m", out);
        print_cell(c, col, cell, width, out);
        if (col + 1 == c->n)
            fputs(bold && title ? "\033[0m\n" : "\n", out);
        cell += strlen(cell) + 1;
    }
    free(c->text);
    *c = (columns){ 0 };
    return ok;
}
