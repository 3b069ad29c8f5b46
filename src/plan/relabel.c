/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses which rank takes which part of the target so that the fewest bytes move. This is an
 * assignment problem: a matrix, computed from the layouts' pieces, says what rank r has of part q,
 * and shortest augmenting paths with prices for rows and columns (Jonker and Volgenant) find the
 * best permutation in O(ranks^3). */
#include "base/mem.h"
#include "plan/overlap.h"
#include "plan/piece_holders.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <string.h>

typedef struct relabeling {
    int32_t  n;     /* number of ranks in the target */
    int32_t *rank;  /* [n] ascending */
    int32_t *place; /* [nranks] index in `rank`, or -1 */
    int64_t *have;  /* [n][n] bytes of part q that rank[r] holds: have[q * n + r] */
} relabeling;

/* Adds what each rank has of rank[q]'s part. */
static rsd_err add_part(relabeling *b, int32_t q, const rsd_layout *src, const rsd_layout *dst,
                        rsd_error *err)
{
    rsi_overlaps     pieces;
    rsi_arena        mem = { 0 };
    rsi_side         side;
    rsi_overlap_iter it;
    rsd_err          rc = rsi_overlaps_make(&pieces, dst, src, b->rank[q], &mem, err);

    rsi_side_make(&side, src, b->rank[q], true);
    for (rsi_iter_begin(&it, &pieces); !rc && it.i < pieces.n; rsi_iter_next(&it)) {
        int64_t where = rsi_iter_where(&it), copies = rsi_side_copies(&side, where);

        for (int64_t i = 0; i < copies * side.parts.count; i++) {
            int32_t r = b->place[rsi_side_holder(&side, where, i % copies, i / copies)];

            if (r >= 0)
                b->have[(size_t)q * (size_t)b->n + (size_t)r] +=
                    rsi_iter_count(&it) * src->elem_bytes;
        }
    }
    rsi_arena_release(&mem);
    return rc;
}

/* The search for one augmenting path; column n stands for "none". */
typedef struct search {
    int64_t *row_price, *col_price; /* [n], [n + 1] */
    int64_t *dist;                  /* [n + 1] cheapest path to a column */
    int32_t *row_of, *before;       /* [n + 1] a column's row; the previous column on the path */
    bool    *seen;                  /* [n + 1] */
} search;

/* Gives row `q` a column, moving others along the cheapest path. */
static void assign_row(const relabeling *b, search *s, int32_t q)
{
    int32_t n = b->n, at = n;

    for (int32_t c = 0; c <= n; c++) {
        s->dist[c] = INT64_MAX;
        s->seen[c] = false;
    }
    s->row_of[n] = q;
    do {
        int32_t row = s->row_of[at], next = n;
        int64_t least = INT64_MAX;

        s->seen[at] = true;
        for (int32_t c = 0; c < n; c++) {
            int64_t cost;

            if (s->seen[c])
                continue;
            cost =
                -b->have[(size_t)row * (size_t)n + (size_t)c] - s->row_price[row] - s->col_price[c];
            if (cost < s->dist[c]) {
                s->dist[c] = cost;
                s->before[c] = at;
            }
            if (s->dist[c] < least) {
                least = s->dist[c];
                next = c;
            }
        }
        for (int32_t c = 0; c <= n; c++) {
            if (s->seen[c]) {
                s->row_price[s->row_of[c]] += least;
                s->col_price[c] -= least;
            } else {
                s->dist[c] -= s->dist[c] == INT64_MAX ? 0 : least;
            }
        }
        at = next;
    } while (s->row_of[at] >= 0);
    for (; at != n; at = s->before[at])
        s->row_of[at] = s->row_of[s->before[at]];
}

static rsd_err assign(const relabeling *b, int32_t *column_of, rsd_error *err)
{
    size_t  n = (size_t)b->n + 1;
    search  s = { .row_price = rsi_calloc(n, sizeof(int64_t)),
                  .col_price = rsi_calloc(n, sizeof(int64_t)),
                  .dist = rsi_calloc(n, sizeof(int64_t)),
                  .row_of = rsi_calloc(n, sizeof(int32_t)),
                  .before = rsi_calloc(n, sizeof(int32_t)),
                  .seen = rsi_calloc(n, sizeof(bool)) };
    rsd_err rc = RSD_OK;

    if (!s.row_price || !s.col_price || !s.dist || !s.row_of || !s.before || !s.seen) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to relabel %" PRId32 " ranks", b->n);
        goto out;
    }
    for (size_t c = 0; c < n; c++)
        s.row_of[c] = -1;
    for (int32_t q = 0; q < b->n; q++)
        assign_row(b, &s, q);
    for (int32_t c = 0; c < b->n; c++)
        column_of[s.row_of[c]] = c;
out:
    rsi_free(s.row_price);
    rsi_free(s.col_price);
    rsi_free(s.dist);
    rsi_free(s.row_of);
    rsi_free(s.before);
    rsi_free(s.seen);
    return rc;
}

static bool is_in(const rsd_layout *layout, int32_t rank)
{
    if (layout->mesh)
        return rsd_mesh_coord(layout->mesh, rank, NULL);
    return rsd_layout_boxes(layout, rank, NULL, 0) > 0;
}

static rsd_err start(relabeling *b, size_t n, const rsd_layout *const *dst, int32_t nranks,
                     rsd_error *err)
{
    b->rank = rsi_calloc((size_t)nranks, sizeof(b->rank[0]));
    b->place = rsi_calloc((size_t)nranks, sizeof(b->place[0]));
    if (!b->rank || !b->place)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to relabel %" PRId32 " ranks", nranks);
    for (int32_t r = 0; r < nranks; r++) {
        bool in = false;

        for (size_t i = 0; i < n && !in; i++)
            in = is_in(dst[i], r);
        b->place[r] = in ? b->n : -1;
        if (in)
            b->rank[b->n++] = r;
    }
    b->have = rsi_calloc((size_t)b->n * (size_t)b->n, sizeof(b->have[0]));
    if (!b->have)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to relabel %" PRId32 " ranks", nranks);
    return RSD_OK;
}

static rsd_err check(size_t n, const rsd_layout *const *src, const rsd_layout *const *dst,
                     int32_t nranks, const int32_t *relabel, rsd_error *err)
{
    if (nranks < 1 || !relabel || (n > 0 && (!src || !dst)))
        return rsi_fail(err, RSD_E_INVALID,
                        "missing argument: layouts, or output for %" PRId32 " ranks", nranks);
    for (size_t i = 0; i < n; i++) {
        if (!src[i] || !dst[i])
            return rsi_fail(err, RSD_E_INVALID, "tensor %zu: a layout is missing", i);
        if (src[i]->ndim != dst[i]->ndim || src[i]->dtype != dst[i]->dtype ||
            memcmp(src[i]->shape, dst[i]->shape, (size_t)src[i]->ndim * sizeof(int64_t)) != 0)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "tensor %zu: the layouts are those of different tensors", i);
        if (rsd_layout_world(src[i]) > nranks || rsd_layout_world(dst[i]) > nranks)
            return rsi_fail(err, RSD_E_MISMATCH,
                            "tensor %zu: a layout names a rank beyond %" PRId32, i, nranks - 1);
    }
    return RSD_OK;
}

rsd_err rsd_plan_relabel(size_t n, const rsd_layout *const *src, const rsd_layout *const *dst,
                         int32_t nranks, int32_t *relabel, int64_t *saved, rsd_error *err)
{
    relabeling b = { 0 };
    int32_t   *column_of = NULL;
    int64_t    more = 0;
    rsd_err    rc = check(n, src, dst, nranks, relabel, err);

    if (!rc)
        rc = start(&b, n, dst, nranks, err);
    if (rc)
        goto out;
    for (size_t i = 0; i < n && !rc; i++)
        for (int32_t q = 0; q < b.n && !rc; q++)
            rc = add_part(&b, q, src[i], dst[i], err);
    column_of = rsi_calloc((size_t)b.n, sizeof(column_of[0]));
    if (!rc && !column_of)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to relabel %" PRId32 " ranks", nranks);
    if (!rc)
        rc = assign(&b, column_of, err);
    if (rc)
        goto out;
    for (int32_t r = 0; r < nranks; r++)
        relabel[r] = b.place[r] < 0 ? r : b.rank[column_of[b.place[r]]];
    for (size_t q = 0; q < (size_t)b.n; q++)
        more += b.have[q * (size_t)b.n + (size_t)column_of[q]] - b.have[q * (size_t)b.n + q];
    if (saved)
        *saved = more;
out:
    rsi_free(b.rank);
    rsi_free(b.place);
    rsi_free(b.have);
    rsi_free(column_of);
    return rc;
}
