/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a large tensor on a terminal as numpy does: the first and last three entries of each
 * dimension, with dots in between. Reads only what is shown. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EDGE 3

typedef struct eliding {
    const args *a;
    rsd_ckpt   *ckpt;
    size_t      tensor;
    rsd_dtype   dtype;
    rsd_box     box; /* the part shown; dimensions already entered have length 1 */
} eliding;

static bool elided(int64_t len)
{
    return len > 2 * EDGE;
}

/* Prints `n` elements along the last dimension, with a space before each but the first of a row. */
static int print_run(const eliding *e, int64_t from, int64_t n, bool first)
{
    const int    last = e->box.ndim - 1;
    const size_t size = rsd_dtype_size(e->dtype);
    char         data[2 * EDGE * 16], text[96];
    rsd_view     view = { .box = e->box, .data = data };
    rsd_error    err = { .msg = "" };

    view.box.off[last] += from;
    view.box.len[last] = n;
    if (rsd_ckpt_read(e->ckpt, e->tensor, &view, NULL, &err))
        return fail(e->a, &err);
    for (int64_t i = 0; i < n; i++)
        printf("%s%s", first && i == 0 ? "" : " ",
               element_text(e->dtype, data + (size_t)i * size, text, sizeof(text)));
    return EXIT_DONE;
}

static int print_row(const eliding *e)
{
    const int64_t len = e->box.len[e->box.ndim - 1];
    int           code;

    if (!elided(len)) {
        code = print_run(e, 0, len, true);
    } else {
        code = print_run(e, 0, EDGE, true);
        printf(" ...");
        if (!code)
            code = print_run(e, len - EDGE, EDGE, false);
    }
    printf("\n");
    return code;
}

/* The recursion is as deep as the number of dimensions. */
static int print_dim(eliding *e, int d)
{
    const int64_t off = e->box.off[d], len = e->box.len[d];
    const bool    rows = d + 2 == e->box.ndim; /* no empty lines between rows */
    int           code = EXIT_DONE;

    if (d + 1 == e->box.ndim)
        return print_row(e);
    e->box.len[d] = 1;
    for (int64_t i = 0; !code && i < len && !output_over(); i++) {
        if (i > 0 && !rows)
            printf("\n");
        if (i == EDGE && elided(len)) {
            printf(rows ? "...\n" : "...\n\n");
            i = len - EDGE;
        }
        e->box.off[d] = off + i;
        code = print_dim(e, d + 1);
    }
    e->box.off[d] = off;
    e->box.len[d] = len;
    return code;
}

int elide_print(const args *a, rsd_ckpt *ckpt, size_t t, rsd_dtype dtype, const rsd_box *box)
{
    eliding e = { .a = a, .ckpt = ckpt, .tensor = t, .dtype = dtype, .box = *box };

    return print_dim(&e, 0);
}
