/* SPDX-License-Identifier: Apache-2.0 */
/* Splits each tensor's part of a block along the chunks that the ranks would store. */
#include "write/block_holders.h"
#include "base/mem.h"
#include "write/block.h"
#include "shape/box.h"

#include <string.h>

rsd_err rsi_holders_make(rsi_holders *s, const rsi_image *image, const rsd_state *state,
                         rsd_error *err)
{
    rsi_stored_list list = { 0 };
    rsd_err         rc = RSD_OK;

    *s = (rsi_holders){ .image = image, .state = state };
    s->chunk = rsi_arena_array(&s->mem, state->ntensors, sizeof(s->chunk[0]));
    s->n = rsi_arena_array(&s->mem, state->ntensors, sizeof(s->n[0]));
    if (!s->chunk || !s->n)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the boxes of %zu tensors", state->ntensors);
    for (size_t t = 0; t < state->ntensors && !rc; t++) {
        rc = rsi_stored_chunks(state, t, false, -1, &list, err);
        s->n[t] = list.n;
        s->chunk[t] = rsi_arena_array(&s->mem, list.n, sizeof(s->chunk[t][0]));
        if (!rc && !s->chunk[t])
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", list.n);
        if (!rc)
            memcpy(s->chunk[t], list.at, list.n * sizeof(list.at[0]));
    }
    rsi_free(list.at);
    if (rc)
        rsi_holders_release(s);
    return rc;
}

void rsi_holders_release(rsi_holders *s)
{
    rsi_arena_release(&s->mem);
    *s = (rsi_holders){ 0 };
}

bool rsi_holders_all(const rsi_holders *s, size_t tensor, int32_t rank)
{
    const rsd_layout *layout = s->state->tensor[tensor].layout;

    return layout && layout->mesh &&
           rsi_layout_ways(layout, RSD_REPLICATE) == rsd_mesh_size(layout->mesh, -1) &&
           rsd_mesh_coord(layout->mesh, rank, NULL);
}

typedef struct visiting {
    const rsi_holders *s;
    int32_t            to;
    rsd_err (*visit)(void *arg, const rsi_held_piece *piece);
    void *arg;
} visiting;

/* Visits the pieces of a run of elements at byte `at` of the block. */
static rsd_err visit_run(const visiting *v, size_t t, const rsd_box *run, size_t at)
{
    const rsi_state_tensor *tensor = &v->s->state->tensor[t];
    rsi_held_piece          p = { .tensor = t, .box = *run, .run = *run, .at = at, .from = v->to };
    rsd_err                 rc = RSD_OK;

    if (rsi_holders_all(v->s, t, v->to)) {
        p.bytes = (size_t)(rsd_box_count(run) * tensor->views.elem_bytes);
        return v->visit(v->arg, &p);
    }
    for (size_t i = 0; i < v->s->n[t] && !rc; i++) {
        if (!rsd_box_intersect(run, &v->s->chunk[t][i].box, &p.box))
            continue;
        p.from = v->s->chunk[t][i].rank;
        p.bytes = (size_t)(rsd_box_count(&p.box) * tensor->views.elem_bytes);
        rc = v->visit(v->arg, &p);
    }
    return rc;
}

static rsd_err visit_part(const visiting *v, const rsi_out_part *part, uint64_t lo, uint64_t hi,
                          uint64_t block)
{
    rsd_box box = rsi_part_box(v->s->state, part);
    int64_t elem = v->s->state->tensor[part->tensor].views.elem_bytes;
    int64_t at = (int64_t)(lo - part->at) / elem, end = (int64_t)(hi - part->at) / elem;
    size_t  byte = (size_t)(lo - block);
    rsd_err rc = RSD_OK;

    while (at < end && !rc) {
        rsd_box run;
        int64_t n = rsi_range_box(box.ndim, box.len, at, end, &run);

        rc = visit_run(v, part->tensor, &run, byte); /* the part is the whole tensor, from 0 */
        byte += (size_t)(n * elem);
        at += n;
    }
    return rc;
}

rsd_err rsi_holders_each(const rsi_holders *s, size_t file, uint64_t at, size_t len, int32_t to,
                         rsd_err (*visit)(void *arg, const rsi_held_piece *piece), void *arg)
{
    visiting            v = { .s = s, .to = to, .visit = visit, .arg = arg };
    const rsi_out_part *part = s->image->part;
    size_t              n, first = rsi_image_parts(s->image, file, &n), last = first + n;
    rsd_err             rc = RSD_OK;

    for (size_t k = rsi_image_part_at(s->image, file, at); k < last && !rc; k++) {
        uint64_t lo = part[k].at > at ? part[k].at : at, hi = part[k].at + part[k].len;

        if (part[k].at >= at + len)
            break;
        hi = hi < at + len ? hi : at + len;
        if (part[k].kind == RSI_PART_DATA && hi > lo)
            rc = visit_part(&v, &part[k], lo, hi, at);
    }
    return rc;
}
