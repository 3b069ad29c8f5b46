/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out the parts of this rank's files one after the other, copies them there, and makes views
 * of the copies, which write_files.c writes like any others. Next: async.c. */
#include "save/stage.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/workers.h"
#include "state/tensor.h"
#include "write/block.h"
#include "shape/box.h"

#include <string.h>

enum { ALIGN = 64, PIECE = 4 << 20 }; /* of parts; bytes that a thread copies at once */

/* A part and its destination. */
typedef struct place {
    const rsi_out_part *part;
    uint64_t            at;
} place;

typedef struct copying {
    const rsd_state *state;
    const place     *place; /* [n] by `at` */
    size_t           n;
    uint64_t         total;
    unsigned char   *to;
} copying;

/* ---- memory ---- */

static void drop(void *arg)
{
    rsi_stage_memory *mem = arg;

    if (mem)
        rsi_pages_free(mem->at, mem->bytes);
    rsi_free(mem);
}

rsd_err rsi_stage_take(const rsd_state *home, size_t bytes, rsi_stage_memory **out, rsd_error *err)
{
    rsi_stage_memory *mem = atomic_exchange(&home->cache->stage, NULL);

    if (mem && mem->bytes >= bytes) {
        *out = mem;
        return RSD_OK;
    }
    drop(mem);
    mem = rsi_calloc(1, sizeof(*mem));
    if (mem)
        mem->at = rsi_pages_alloc(bytes);
    if (!mem || !mem->at) {
        drop(mem);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a copy of %zu bytes", bytes);
    }
    mem->bytes = bytes;
    *out = mem;
    return RSD_OK;
}

void rsi_stage_give(const rsd_state *home, rsi_stage_memory *mem)
{
    if (!mem)
        return;
    home->cache->drop_stage = drop;
    drop(atomic_exchange(&home->cache->stage, mem));
}

void rsi_stage_forget(const rsd_state *home)
{
    drop(atomic_exchange(&home->cache->stage, NULL));
}

void rsi_stage_move(const rsd_state *to, const rsd_state *from)
{
    rsi_stage_give(to, atomic_exchange(&from->cache->stage, NULL));
}

/* ---- copying ---- */

static rsd_err copy_part(const copying *c, const place *p, uint64_t lo, uint64_t hi, rsd_error *err)
{
    const rsi_out_part     *part = p->part;
    const rsi_state_tensor *tensor = &c->state->tensor[part->tensor];
    const unsigned char    *from = part->bytes;
    rsd_box                 box;

    if (part->kind == RSI_PART_DATA) {
        box = rsi_part_box(c->state, part);
        from = rsi_tensor_direct(tensor, &box);
    }
    if (from) {
        memcpy(c->to + lo, from + (lo - p->at), (size_t)(hi - lo));
        return RSD_OK;
    }
    return rsi_tensor_bytes(tensor, &box, lo - p->at, (size_t)(hi - lo), c->to + lo, err);
}

/* Piece i of the memory. Its ends are multiples of every element's size, as are parts' places. */
static rsd_err copy_piece(void *arg, size_t i, rsd_error *err)
{
    const copying *c = arg;
    uint64_t       lo = (uint64_t)i * PIECE, hi = lo + PIECE;
    size_t         first = 0, end = c->n;
    rsd_err        rc = RSD_OK;

    while (first < end) {
        size_t mid = first + (end - first) / 2;

        if (c->place[mid].at + c->place[mid].part->len > lo)
            end = mid;
        else
            first = mid + 1;
    }
    for (; first < c->n && c->place[first].at < hi && !rc; first++) {
        const place *p = &c->place[first];
        uint64_t     from = p->at > lo ? p->at : lo, to = p->at + p->part->len;

        to = to < hi ? to : hi;
        if (to > from)
            rc = copy_part(c, p, from, to, err);
    }
    return rc;
}

static rsd_err copy_all(copying *c, int32_t threads, rsd_error *err)
{
    size_t       n = (size_t)((c->total + PIECE - 1) / PIECE);
    rsi_workers *workers = NULL;
    rsd_err      rc = RSD_OK;

    if (n > 1)
        rc = rsi_workers_create(threads, &workers, err);
    if (!rc)
        rc = rsi_workers_run(workers, n, copy_piece, c, err);
    rsi_workers_free(workers);
    return rc;
}

/* ---- parts to copy ---- */

/* Elements of tensors, including those inside values; the image owns the rest. */
static bool is_callers(const rsi_out_part *part)
{
    return part->kind == RSI_PART_DATA || (part->kind == RSI_PART_BYTES && part->zip);
}

static rsd_err check_part(const rsd_state *state, const rsi_out_part *part, rsd_error *err)
{
    const rsd_box box = rsi_part_box(state, part);

    return rsi_tensor_check(&state->tensor[part->tensor], &box, err);
}

/* Lists the parts of this rank's files that lie in the caller's memory; place NULL: only counts
 * them. */
static rsd_err list_parts(const rsi_save_job *job, place *p, size_t *n, uint64_t *total,
                          rsd_error *err)
{
    const rsi_image *image = &job->commit.image;
    rsd_err          rc = RSD_OK;

    *n = 0;
    *total = 0;
    for (size_t f = 0; f < image->nfiles; f++) {
        size_t count, k = rsi_image_parts(image, f, &count), end = k + count;

        if (job->commit.rank >= 0 && image->file[f].owner != job->commit.rank)
            continue;
        for (; k < end && !rc; k++) {
            const rsi_out_part *part = &image->part[k];

            if (!is_callers(part))
                continue;
            if (p)
                p[*n] = (place){ .part = part, .at = *total };
            else if (part->kind == RSI_PART_DATA)
                rc = check_part(job->state, part, err);
            if (rc)
                return rc;
            *n += 1;
            *total += (part->len + ALIGN - 1) / ALIGN * ALIGN;
        }
    }
    return RSD_OK;
}

rsd_err rsi_stage_check(const rsi_save_job *job, rsd_error *err)
{
    uint64_t total;
    size_t   n;

    return list_parts(job, NULL, &n, &total, err);
}

/* ---- views of the copies ---- */

/* Tensor t's views start at first[t] and end before first[t + 1]. */
static void count_views(const copying *c, size_t *first)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->place[i].part->kind == RSI_PART_DATA)
            first[c->place[i].part->tensor + 1]++;
    for (size_t t = 0; t < c->state->ntensors; t++)
        first[t + 1] += first[t];
}

static void add_view(rsi_stage *stage, const copying *c, const place *p)
{
    rsi_state_tensor *tensor = &stage->state.tensor[p->part->tensor];
    rsd_view         *view = (rsd_view *)&tensor->views.view[tensor->views.n++];

    *view = (rsd_view){ .box = rsi_part_box(c->state, p->part), .data = c->to + p->at };
    rsi_strides(view->box.ndim, view->box.len, tensor->views.elem_bytes, view->stride);
}

static void redirect(rsi_stage *stage, const copying *c, const place *p)
{
    rsi_out_part *part = (rsi_out_part *)(uintptr_t)p->part;

    stage->bytes[stage->nbytes] = part;
    stage->was[stage->nbytes++] = part->bytes;
    part->bytes = c->to + p->at;
}

static rsd_err make_views(rsi_stage *stage, const copying *c, rsd_error *err)
{
    size_t  ntensors = c->state->ntensors;
    size_t *first = rsi_calloc(ntensors + 1, sizeof(first[0]));

    stage->state.tensor = rsi_calloc(ntensors, sizeof(stage->state.tensor[0]));
    stage->view = rsi_calloc(c->n, sizeof(stage->view[0]));
    stage->bytes = rsi_calloc(c->n, sizeof(stage->bytes[0]));
    stage->was = rsi_calloc(c->n, sizeof(stage->was[0]));
    if (!first || !stage->state.tensor || !stage->view || !stage->bytes || !stage->was) {
        rsi_free(first);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the views of %zu parts", c->n);
    }
    count_views(c, first);
    stage->state.ntensors = ntensors;
    for (size_t t = 0; t < ntensors; t++) {
        stage->state.tensor[t] = c->state->tensor[t];
        stage->state.tensor[t].views.view = stage->view + first[t];
        stage->state.tensor[t].views.n = 0;
    }
    for (size_t i = 0; i < c->n; i++)
        if (c->place[i].part->kind == RSI_PART_DATA)
            add_view(stage, c, &c->place[i]);
    for (size_t i = 0; i < c->n; i++)
        if (c->place[i].part->kind == RSI_PART_BYTES)
            redirect(stage, c, &c->place[i]);
    rsi_free(first);
    return RSD_OK;
}

rsd_err rsi_stage_make(rsi_stage *stage, rsi_save_job *job, const rsd_state *home, rsd_error *err)
{
    copying c = { .state = job->state };
    place  *at = NULL;
    rsd_err rc;

    *stage = (rsi_stage){ .real = job->state };
    rc = list_parts(job, NULL, &c.n, &c.total, err);
    if (rc)
        return rc;
    at = rsi_calloc(c.n, sizeof(at[0]));
    if (!at)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of %zu parts", c.n);
    rc = list_parts(job, at, &c.n, &c.total, err);
    if (!rc)
        rc = rsi_stage_take(home, (size_t)c.total, &stage->mem, err);
    if (!rc) {
        c.place = at;
        c.to = stage->mem->at;
        rc = copy_all(&c, job->opts.threads, err);
    }
    if (!rc)
        rc = make_views(stage, &c, err);
    if (!rc)
        job->state = &stage->state;
    rsi_free(at);
    return rc;
}

void rsi_stage_end(rsi_stage *stage, rsi_save_job *job, const rsd_state *home)
{
    if (!stage->real)
        return;
    job->state = stage->real;
    for (size_t i = 0; i < stage->nbytes; i++)
        stage->bytes[i]->bytes = stage->was[i];
    rsi_stage_give(home, stage->mem);
    rsi_free(stage->state.tensor);
    rsi_free(stage->view);
    rsi_free(stage->bytes);
    rsi_free(stage->was);
    *stage = (rsi_stage){ 0 };
}
