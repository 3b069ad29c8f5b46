/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks that a tensor is stored as, and the rank that writes each: of all ranks, or of one,
 * for which only that rank's boxes are looked at. Next: image_dcp.c. */
#include "base/checked.h"
#include "base/mem.h"
#include "plan/piece_holders.h"
#include "shape/box.h"
#include "write/image.h"

#include <stdlib.h>

enum {
    SPLIT_BYTES = 1 << 20, /* a box held by several ranks is split if it is larger */
    FEW = 8 /* so many holders share the others: whoever loads them needs few files */
};

static bool add_chunk(rsi_stored_list *list, const rsd_box *box, int32_t rank)
{
    if (!rsi_grow(&list->at, list->n, &list->cap, sizeof(list->at[0])))
        return false;
    list->at[list->n++] = (rsi_stored){ .box = *box, .rank = rank };
    return true;
}

/* ---- a box and its holders ---- */

/* A small box is written by one of the first FEW holders, in turn. A large one is split into
 * equal parts along the first dimension that has more than one row, one part for each of as many
 * holders as there are parts of about SPLIT_BYTES, starting with that holder. */
typedef struct split {
    const rsd_box *box;
    int64_t        copies, parts, rows; /* holders; parts, at most one per holder; rows to split */
    int64_t        first;               /* the holder that writes the first part */
    int            dim;
} split;

static split split_of(const rsi_side *side, int64_t where, uint64_t turn, const rsd_box *box)
{
    split   s = { .box = box, .copies = rsi_side_copies(side, where) };
    int64_t bytes = rsd_box_count(box) * side->layout->elem_bytes;

    while (s.dim + 1 < box->ndim && box->len[s.dim] == 1)
        s.dim++;
    s.rows = box->ndim > 0 ? box->len[s.dim] : 1;
    s.parts = rsi_max(1, rsi_min(bytes / SPLIT_BYTES + 1, rsi_min(s.copies, s.rows)));
    s.first = (int64_t)(turn % (uint64_t)(s.parts > 1 ? s.copies : rsi_min(s.copies, FEW)));
    return s;
}

static rsd_box part_of(const split *s, int64_t k)
{
    rsd_box part = *s->box;

    if (s->parts > 1) { /* (k + 1) * rows may overflow, so the remainder is dealt out one by one */
        part.off[s->dim] += k * (s->rows / s->parts) + rsi_min(k, s->rows % s->parts);
        part.len[s->dim] = s->rows / s->parts + (k < s->rows % s->parts);
    }
    return part;
}

static bool add_all_parts(rsi_stored_list *list, const rsi_side *side, int64_t where, uint64_t turn,
                          const rsd_box *box)
{
    split s = split_of(side, where, turn, box);

    for (int64_t k = 0; k < s.parts; k++) {
        rsd_box part = part_of(&s, k);
        int64_t copy = (s.first + k) % s.copies;

        if (!add_chunk(list, &part, rsi_side_holder(side, where, copy, 0)))
            return false;
    }
    return true;
}

/* Adds the part that holder `copy` writes, if it writes one. */
static bool add_part_of(rsi_stored_list *list, const rsi_side *side, int64_t where, int64_t copy,
                        uint64_t turn, const rsd_box *box)
{
    split   s = split_of(side, where, turn, box);
    int64_t k = (copy - s.first + s.copies) % s.copies;
    rsd_box part = part_of(&s, k < s.parts ? k : 0);

    return k >= s.parts || add_chunk(list, &part, side->rank);
}

/* ---- meshes ---- */

/* The box that torch assigns to a rank with an empty shard: a dimension of which it holds nothing
 * starts at its end. */
static rsd_box empty_box(const rsd_layout *layout, const int64_t *mesh_coord)
{
    rsd_box box = { .ndim = layout->ndim };

    for (int d = 0; d < layout->ndim; d++) {
        int64_t coord[RSD_MAX_NDIM];
        rsi_run run;

        rsi_dim_coord(&layout->dim[d], mesh_coord, coord);
        box.off[d] = layout->shape[d];
        if (rsi_dim_run(&layout->dim[d], coord, 0, &run))
            box.off[d] = run.start;
        box.len[d] = rsi_dim_length(&layout->dim[d], coord);
    }
    return box;
}

/* Ranks with equal empty boxes follow each other, so the search begins at the end. */
static bool is_known(const rsi_stored_list *list, const rsd_box *box)
{
    for (size_t i = list->n; i-- > 0;)
        if (rsi_box_order(&list->at[i].box, box) == 0 && rsd_box_count(&list->at[i].box) == 0)
            return true;
    return false;
}

static uint64_t turn_of(const rsi_side *side, size_t ordinal)
{
    return (uint64_t)ordinal + (uint64_t)side->my_chunk;
}

/* The i-th mesh rank's side, in row-major order. */
static void side_at(rsi_side *side, const rsd_layout *layout, int64_t i)
{
    const rsd_mesh *mesh = layout->mesh;
    int64_t         coord[RSD_MAX_NDIM];

    for (int a = mesh->ndim - 1; a >= 0; a--) {
        coord[a] = i % mesh->shape[a];
        i /= mesh->shape[a];
    }
    rsi_side_make(side, layout, rsd_mesh_rank(mesh, coord), true);
}

/* The boxes of a rank, for rsi_free; *ok is false without memory. */
static rsd_box *boxes_of(const rsd_layout *layout, int32_t rank, size_t *n, bool *ok)
{
    rsd_box *box = NULL;

    *n = rsd_layout_boxes(layout, rank, NULL, 0);
    if (*n > 0) {
        box = rsi_calloc(*n, sizeof(box[0]));
        *ok = box != NULL;
        if (box)
            rsd_layout_boxes(layout, rank, box, *n);
        else
            *n = 0;
    }
    return box;
}

/* Adds the boxes of a mesh rank that is the first of its replicas. */
static bool add_mesh_rank(rsi_stored_list *list, const rsd_layout *layout, const rsi_side *side,
                          size_t ordinal, bool empties)
{
    bool     ok = true;
    size_t   n;
    rsd_box *box = boxes_of(layout, side->rank, &n, &ok);

    for (size_t i = 0; ok && i < n; i++)
        ok = add_all_parts(list, side, side->my_where, turn_of(side, ordinal), &box[i]);
    if (ok && n == 0 && empties) {
        rsd_box empty = empty_box(layout, side->coord);

        ok = is_known(list, &empty) ||
             add_all_parts(list, side, side->my_where, turn_of(side, ordinal), &empty);
    }
    rsi_free(box);
    return ok;
}

static bool list_mesh(rsi_stored_list *list, const rsd_layout *layout, size_t ordinal, bool empties)
{
    for (int64_t i = 0; i < layout->mesh->size; i++) {
        rsi_side side;

        side_at(&side, layout, i);
        if (side.my_copy == 0 && !add_mesh_rank(list, layout, &side, ordinal, empties))
            return false;
    }
    return true;
}

/* An empty box is stored once, for the first mesh rank that has it. */
static bool add_own_empty(rsi_stored_list *list, const rsd_layout *layout, const rsi_side *mine,
                          size_t ordinal)
{
    rsd_box empty = empty_box(layout, mine->coord);

    for (int64_t i = 0; i < layout->mesh->size; i++) {
        rsi_side side;
        rsd_box  other;

        side_at(&side, layout, i);
        other = empty_box(layout, side.coord);
        if (side.my_copy == 0 && rsd_box_count(&other) == 0 && rsi_box_order(&other, &empty) == 0)
            return side.my_where != mine->my_where ||
                   add_part_of(list, mine, mine->my_where, mine->my_copy, turn_of(&side, ordinal),
                               &empty);
    }
    return true;
}

static bool list_own_mesh(rsi_stored_list *list, const rsd_layout *layout, int32_t rank,
                          size_t ordinal, bool empties)
{
    bool     ok = true;
    size_t   n;
    rsi_side side;
    rsd_box *box;

    rsi_side_make(&side, layout, rank, true);
    if (!side.inside)
        return true;
    box = boxes_of(layout, rank, &n, &ok);
    for (size_t i = 0; ok && i < n; i++)
        ok =
            add_part_of(list, &side, side.my_where, side.my_copy, turn_of(&side, ordinal), &box[i]);
    if (ok && n == 0 && empties)
        ok = add_own_empty(list, layout, &side, ordinal);
    rsi_free(box);
    return ok;
}

/* ---- tables ---- */

static bool list_table(rsi_stored_list *list, const rsd_layout *layout, size_t ordinal)
{
    const rsi_table *table = &layout->table;
    rsi_side         side;

    rsi_side_make(&side, layout, 0, true);
    for (size_t row = 0; row < table->boxes.n; row++) {
        rsd_box box = rsi_boxes_get(&table->boxes, row);

        if (!add_all_parts(list, &side, (int64_t)row, (uint64_t)(ordinal + row), &box))
            return false;
    }
    return true;
}

static int by_offset(const void *a, const void *b)
{
    return rsi_box_order(&((const rsi_stored *)a)->box, &((const rsi_stored *)b)->box);
}

/* Rows are ordered by offset, a rank's list of them is as the caller gave it. */
static bool list_own_table(rsi_stored_list *list, const rsd_layout *layout, int32_t rank,
                           size_t ordinal)
{
    const rsi_table *table = &layout->table;
    size_t           first, n = rsi_table_part(table, rank, &first);
    rsi_side         side;

    rsi_side_make(&side, layout, rank, true);
    for (size_t i = 0; i < n; i++) {
        size_t  row = table->part[first + i];
        rsd_box box = rsi_boxes_get(&table->boxes, row);

        if (!add_part_of(list, &side, (int64_t)row, rsi_table_holder_index(table, row, rank),
                         (uint64_t)(ordinal + row), &box))
            return false;
    }
    if (list->n > 1)
        qsort(list->at, list->n, sizeof(list->at[0]), by_offset);
    return true;
}

/* ---- all kinds ---- */

static bool list_all(rsi_stored_list *list, const rsd_layout *layout, const rsd_box *whole,
                     size_t ordinal, bool empties)
{
    bool ok = true;

    if (layout)
        ok = layout->mesh ? list_mesh(list, layout, ordinal, empties)
                          : list_table(list, layout, ordinal);
    /* without a layout, and an empty tensor still needs one chunk */
    return ok && (list->n > 0 || add_chunk(list, whole, 0));
}

static bool list_own(rsi_stored_list *list, const rsd_layout *layout, int32_t rank, size_t ordinal,
                     bool empties)
{
    if (!layout)
        return true;
    return layout->mesh ? list_own_mesh(list, layout, rank, ordinal, empties)
                        : list_own_table(list, layout, rank, ordinal);
}

static bool list_told(rsi_stored_list *list, const rsi_state_tensor *tensor, int32_t rank)
{
    for (size_t i = 0; i < tensor->nstored; i++)
        if (!add_chunk(list, &tensor->stored[i], rank))
            return false;
    return true;
}

rsd_err rsi_stored_chunks(const rsd_state *state, size_t t, bool empties, int32_t rank,
                          rsi_stored_list *list, rsd_error *err)
{
    rsd_box                 whole = rsi_tensor_whole(&state->tensor[t]);
    const rsi_state_tensor *tensor = &state->tensor[t];
    rsd_layout             *layout;
    bool                    ok;
    rsd_err                 rc = rsi_state_layout(state, t, &layout, err);

    if (rc)
        return rc;
    list->n = 0;
    ok = tensor->stored ? list_told(list, tensor, rank)
         : rank > 0     ? list_own(list, layout, rank, t, empties)
                        : list_all(list, layout, &whole, t, empties);
    rsd_layout_free(layout);
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for the chunks of a tensor");
}
