/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of shard and strided shard on one dimension, both ways: index to owner, owner to
 * indices. layout.c combines the dimensions; overlap.c walks the runs of two layouts in parallel.
 */
#include "shape/placement.h"
#include "base/checked.h"

#include <assert.h>

int64_t rsi_chunk(int64_t n, int64_t k, int64_t i, int64_t *start)
{
    int64_t chunk = rsi_ceil_div(n, k);
    int64_t first = i > 0 && chunk > n / i ? n : chunk * i; /* chunk * i could overflow */

    *start = rsi_min(first, n);
    return rsi_min(chunk, n - *start);
}

/* How one level cuts a list of n indices: `full` blocks of `block` indices and one of `rest`, each
 * cut into `ways` pieces. */
typedef struct cut {
    int64_t ways, block, full, rest;
} cut;

static cut cut_of(int64_t n, const rsi_level *level)
{
    cut c = { .ways = level->ways, .block = rsi_ceil_div(n, level->split) };

    if (c.ways == 1 || c.block == 1) /* the first rank gets all: one block, not n adjacent ones */
        c = (cut){ .ways = 1, .block = n };
    c.full = c.block ? n / c.block : 0;
    c.rest = n - c.full * c.block;
    return c;
}

static int64_t length_of(const cut *c, int64_t i)
{
    int64_t start;

    return c->full * rsi_chunk(c->block, c->ways, i, &start) +
           rsi_chunk(c->rest, c->ways, i, &start);
}

int64_t rsi_dim_length(const rsi_dim *dim, const int64_t *coord)
{
    int64_t n = dim->n;

    for (int l = 0; l < dim->nlevels; l++) {
        cut c = cut_of(n, &dim->level[l]);

        n = length_of(&c, coord[l]);
    }
    return n;
}

int64_t rsi_dim_owner(const rsi_dim *dim, int64_t x, int64_t *coord)
{
    int64_t n = dim->n;     /* length of the list at this level */
    int64_t pos = x;        /* position of index x in it */
    int64_t left = n - pos; /* number of indices with the same owner */

    assert(x >= 0 && x < n);
    for (int l = 0; l < dim->nlevels; l++) {
        cut     c = cut_of(n, &dim->level[l]);
        int64_t block = pos / c.block;
        int64_t in_block = pos - block * c.block;
        int64_t block_len = block < c.full ? c.block : c.rest;
        int64_t i = in_block / rsi_ceil_div(block_len, c.ways);
        int64_t start, full_start;
        int64_t len = rsi_chunk(block_len, c.ways, i, &start);

        coord[l] = i;
        left = rsi_min(left, start + len - in_block);
        pos = block * rsi_chunk(c.block, c.ways, i, &full_start) + in_block - start;
        n = length_of(&c, i);
    }
    return left;
}

/* Maps position `pos` in the list that coordinate i got from the cut to a position in the list that
 * was cut; limits *left to the number of positions that map consecutively. */
static int64_t undo(const cut *c, int64_t i, int64_t pos, int64_t *left)
{
    int64_t start;
    int64_t piece = rsi_chunk(c->block, c->ways, i, &start);
    int64_t block = piece && pos < c->full * piece ? pos / piece : c->full;
    int64_t in_piece = pos - block * piece;

    if (block == c->full)
        piece = rsi_chunk(c->rest, c->ways, i, &start);
    *left = rsi_min(*left, piece - in_piece);
    return block * c->block + start + in_piece;
}

bool rsi_dim_run(const rsi_dim *dim, const int64_t *coord, int64_t at, rsi_run *out)
{
    cut     c[RSD_MAX_NDIM];
    int64_t n = dim->n, pos = at, end;

    for (int l = 0; l < dim->nlevels; l++) {
        c[l] = cut_of(n, &dim->level[l]);
        n = length_of(&c[l], coord[l]);
    }
    if (at < 0 || at >= n)
        return false;
    *out = (rsi_run){ .local = at };
    for (end = at; end < n;) {
        int64_t left = n - end;

        pos = end;
        for (int l = dim->nlevels - 1; l >= 0; l--)
            pos = undo(&c[l], coord[l], pos, &left);
        if (out->len > 0 && pos != out->start + out->len)
            break; /* a gap: the run ends here */
        if (out->len == 0)
            out->start = pos;
        out->len += left;
        end += left;
    }
    return true;
}
