/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a box into parts of bounded size, in row-major order. */
#include "cli.h"

void pieces_begin(pieces *p, const rsd_box *whole, int64_t most_elements)
{
    int64_t row = 1; /* elements of one step along `dim` */
    int     dim = whole->ndim - 1;

    while (dim > 0 && row <= most_elements / (whole->len[dim] > 0 ? whole->len[dim] : 1)) {
        row *= whole->len[dim] > 0 ? whole->len[dim] : 1;
        dim--;
    }
    *p = (pieces){ .whole = *whole, .next = *whole, .dim = dim };
    p->rows = most_elements / row > 0 ? most_elements / row : 1;
    p->done = rsd_box_count(whole) == 0;
}

bool pieces_next(pieces *p, rsd_box *out)
{
    const rsd_box *w = &p->whole;
    int            d = p->dim;

    if (p->done)
        return false;
    *out = p->next;
    if (d < 0) { /* a scalar */
        p->done = true;
        return true;
    }
    for (int k = 0; k < d; k++)
        out->len[k] = 1;
    out->len[d] = w->off[d] + w->len[d] - out->off[d];
    if (out->len[d] > p->rows)
        out->len[d] = p->rows;
    p->next.off[d] += out->len[d];
    while (d >= 0 && p->next.off[d] == w->off[d] + w->len[d]) {
        p->next.off[d] = w->off[d];
        p->done = d == 0;
        if (--d >= 0)
            p->next.off[d]++;
    }
    return true;
}
