/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks list what they hold. Either all get all lists, and every rank builds the same state; or
 * rank 0 alone does, and tells each rank which boxes and values it writes. */
#include "save/states_join.h"
#include "base/mem.h"
#include "format/value.h"
#include "write/image.h"

#include <inttypes.h>
#include <string.h>

/* A tensor or value of one rank. After it come its name and the steps of its path, which identify
 * it across ranks, padded to a multiple of 8 bytes, and then the rank's boxes. */
typedef struct record {
    int64_t  dtype, ndim, shape[RSD_MAX_NDIM]; /* ndim -1: a value */
    int64_t  rank;
    uint64_t number; /* among the rank's tensors or values */
    uint64_t steps, key_bytes, nboxes;
    /* Set by the receiver. In the first of several records of the same thing: */
    struct record *last, *own; /* this rank's, or NULL */
    uint64_t       all_boxes;
    struct record *next; /* the same thing on another rank */
} record;

typedef struct step {
    int64_t index, kind;
} step;
enum { INDEX, NUMBER, KEY }; /* KEY: text follows */

static const char *name_of(const record *r)
{
    return (const char *)(r + 1);
}

static rsd_box *boxes_of(record *r)
{
    return (rsd_box *)(void *)((char *)(r + 1) + (r->key_bytes + 7) / 8 * 8);
}

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory to join the states of all ranks");
}

/* ---- records ---- */

/* Writes the record and its key; the boxes follow later. */
static void tell(rsi_bytes *w, const rsi_spot *spot, record r)
{
    size_t at = w->len;

    r.steps = spot->nparts;
    rsi_bytes_add(w, &r, sizeof(r));
    rsi_bytes_add(w, spot->name, strlen(spot->name) + 1);
    for (size_t i = 0; i < spot->nparts; i++) {
        const rsd_path_part *part = &spot->part[i];
        step                 s = { part->index, !part->key ? INDEX : part->number ? NUMBER : KEY };

        s.index = s.kind == KEY ? 0 : s.index;
        rsi_bytes_add(w, &s, sizeof(s));
        if (s.kind == KEY)
            rsi_bytes_add(w, part->key, strlen(part->key) + 1);
    }
    r.key_bytes = w->len - at - sizeof(r);
    rsi_bytes_add(w, "\0\0\0\0\0\0\0", -w->len % 8);
    if (!w->lost)
        memcpy(w->at + at, &r, sizeof(r));
}

static rsd_err tell_all(rsi_bytes *w, const rsd_state *state, int32_t rank, rsd_error *err)
{
    for (size_t i = 0; i < state->ntensors; i++) {
        const rsi_state_tensor *t = &state->tensor[i];
        size_t   n = t->layout ? rsd_layout_boxes(t->layout, rank, NULL, 0) : t->views.n;
        record   r = { .dtype = t->dtype, .ndim = t->ndim, .rank = rank, .number = i, .nboxes = n };
        rsd_box *box;

        memcpy(r.shape, rsi_tensor_whole(t).len, sizeof(r.shape));
        tell(w, &t->spot, r);
        box = rsi_bytes_more(w, n * sizeof(box[0]));
        for (size_t k = 0; box && !t->layout && k < n; k++)
            box[k] = t->views.view[k].box;
        if (box && t->layout)
            rsd_layout_boxes(t->layout, rank, box, n);
    }
    for (size_t i = 0; i < state->nvalues; i++)
        tell(w, &state->value[i].spot, (record){ .ndim = -1, .rank = rank, .number = i });
    return w->lost ? rsi_fail(err, RSD_E_NOMEM, "no memory to describe the state") : RSD_OK;
}

/* ---- the state ---- */

static rsd_err compare(const record *a, const record *b, rsd_error *err)
{
    const char *what = (a->ndim < 0) != (b->ndim < 0) ? "kind"
                       : a->dtype != b->dtype         ? "dtype"
                       : a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof(a->shape))
                           ? "shape"
                           : NULL;

    return what ? rsi_fail(err, RSD_E_MISMATCH,
                           "the %s of rank %" PRId64 " differs from that of rank %" PRId64, what,
                           b->rank, a->rank)
                : RSD_OK;
}

/* Appends a record to those of the same thing. */
static rsd_err hear(rsi_map *known, record *r, int32_t me, rsd_error *err)
{
    uint64_t at = (uintptr_t)r;
    record  *first;

    if (!rsi_map_add(known, r + 1, (size_t)r->key_bytes, &at, NULL))
        return no_memory(err);
    first = (record *)(uintptr_t)at;
    if (first->last)
        first->last->next = r;
    first->last = r;
    first->all_boxes += r->nboxes;
    first->own = r->rank == me ? r : first->own;
    return compare(first, r, err);
}

static rsd_err push_path(rsd_state *to, const record *r, rsd_error *err)
{
    const char *at = name_of(r) + strlen(name_of(r)) + 1;
    rsd_err     rc = RSD_OK;

    for (uint64_t i = 0; i < r->steps && !rc; i++) {
        step s;

        memcpy(&s, at, sizeof(s));
        at += sizeof(s);
        rc = s.kind == INDEX    ? rsd_state_push_index(to, s.index, err)
             : s.kind == NUMBER ? rsd_state_push_number(to, s.index, err)
                                : rsd_state_push(to, at, err);
        at += s.kind == KEY ? strlen(at) + 1 : 0;
    }
    return rc;
}

static rsd_err add_tensor(const rsd_state *state, record *first, rsd_state *to, rsd_error *err)
{
    const rsi_state_tensor *own = first->own ? &state->tensor[first->own->number] : NULL;
    size_t                  n = (size_t)first->all_boxes, k = 0;
    int32_t                *owner = rsi_calloc(n, sizeof(owner[0]));
    rsd_box                *box = rsi_calloc(n, sizeof(box[0]));
    rsd_layout             *layout = NULL;
    rsd_err                 rc = owner && box ? RSD_OK : no_memory(err);

    for (record *r = first; r && !rc; r = r->next)
        for (size_t i = 0; i < r->nboxes; i++, k++) {
            owner[k] = (int32_t)r->rank;
            box[k] = boxes_of(r)[i];
        }
    if (!rc)
        rc = rsd_layout_create_boxes((rsd_dtype)first->dtype, (int)first->ndim, first->shape, n,
                                     owner, box, &layout, err);
    if (!rc)
        rc = rsd_state_tensor(to, NULL, layout, (rsd_dtype)first->dtype, (int)first->ndim,
                              first->shape, own ? own->views.n : 0, own ? own->views.view : NULL,
                              err);
    rsd_layout_free(layout);
    rsi_free(owner);
    rsi_free(box);
    return rc;
}

static rsd_err add_value(const rsd_state *state, const record *first, rsd_state *to, rsd_error *err)
{
    static const rsd_value stand_in = { 0 };
    const rsd_value       *value = first->own ? state->value[first->own->number].value : NULL;
    rsd_err                rc = rsd_state_value(to, NULL, value ? value : &stand_in, err);

    if (rc)
        return rc;
    to->value[to->nvalues - 1].value = value;
    to->value[to->nvalues - 1].writer = (int32_t)first->rank;
    if (first->own) {
        to->value[to->nvalues - 1].raw = state->value[first->own->number].raw;
        to->value[to->nvalues - 1].raw_len = state->value[first->own->number].raw_len;
    }
    return RSD_OK;
}

static rsd_err add(const rsd_state *state, record *first, rsd_state *to, rsd_error *err)
{
    rsd_err rc = push_path(to, first, err);

    if (!rc)
        rc = first->ndim < 0 ? add_value(state, first, to, err) : add_tensor(state, first, to, err);
    to->depth = 0;
    return rc;
}

/* Builds the state from all ranks' records. */
static rsd_err build(const rsd_state *state, const rsd_comm *comm, rsi_gathered *all, rsd_state *to,
                     rsd_error *err)
{
    char   *end = all->data + all->first[comm->size];
    rsi_map known = { 0 };
    rsd_err rc = RSD_OK;

    for (int pass = 0; pass < 2; pass++)
        for (record *r = (record *)(void *)all->data; (char *)r < end && !rc;
             r = (record *)(void *)(boxes_of(r) + r->nboxes)) {
            if (pass == 0)
                rc = hear(&known, r, comm->rank, err);
            else if (r->last)
                rc = add(state, r, to, err);
            if (rc)
                rsi_while(err, rc, "\"%s\"", name_of(r));
        }
    rsi_map_release(&known);
    return rc;
}

/* ---- rank 0 tells each rank what it writes ---- */

/* A box of a tensor, or a value, as numbered by the rank that writes it. */
typedef struct told {
    uint64_t number;
    int64_t  value; /* 1: a value, without a box */
    rsd_box  box;
} told;

typedef struct telling {
    const rsd_comm *comm;
    rsi_bytes      *to;     /* [size] */
    uint64_t       *number; /* [size] of the current tensor */
} telling;

static rsd_err tell_tensor(telling *k, const rsd_state *made, size_t t, const record *first,
                           rsi_stored_list *chunks, rsd_error *err)
{
    rsd_err rc = rsi_stored_chunks(made, t, true, 0, chunks, err);

    for (const record *r = first; r; r = r->next)
        k->number[r->rank] = r->number;
    for (size_t i = 0; i < chunks->n && !rc; i++) {
        const rsi_stored *chunk = &chunks->at[i];
        const told        one = { .number = k->number[chunk->rank], .box = chunk->box };

        rsi_bytes_add(&k->to[chunk->rank], &one, sizeof(one));
    }
    return rc;
}

/* In the order of the joined state, which is that of the ranks' files. */
static rsd_err tell_writers(telling *k, const rsd_state *made, rsi_gathered *all, rsd_error *err)
{
    char           *end = all->data + all->first[k->comm->size];
    rsi_stored_list chunks = { 0 };
    size_t          t = 0;
    rsd_err         rc = RSD_OK;

    for (record *r = (record *)(void *)all->data; (char *)r < end && !rc;
         r = (record *)(void *)(boxes_of(r) + r->nboxes)) {
        const told value = { .number = r->number, .value = 1 };

        if (r->last && r->ndim >= 0)
            rc = tell_tensor(k, made, t++, r, &chunks, err);
        else if (r->last)
            rsi_bytes_add(&k->to[r->rank], &value, sizeof(value));
    }
    rsi_free(chunks.at);
    return rc;
}

/* The bytes for all ranks, one after the other. */
static rsd_err put_together(const telling *k, rsi_gathered *out, rsd_error *err)
{
    size_t at = 0;

    out->first = rsi_calloc((size_t)k->comm->size + 1, sizeof(out->first[0]));
    for (int32_t r = 0; out->first && r < k->comm->size; r++) {
        if (k->to[r].lost)
            return no_memory(err);
        out->first[r + 1] = at += k->to[r].len;
    }
    out->data = rsi_alloc_aligned(64, at);
    if (!out->first || !out->data)
        return no_memory(err);
    for (int32_t r = 0; r < k->comm->size; r++)
        if (k->to[r].len > 0)
            memcpy(out->data + out->first[r], k->to[r].at, k->to[r].len);
    return RSD_OK;
}

static rsd_err make_answers(const rsd_comm *comm, const rsd_state *made, rsi_gathered *all,
                            rsi_gathered *out, rsd_error *err)
{
    const size_t n = (size_t)comm->size;
    telling      k = { comm, rsi_calloc(n, sizeof(k.to[0])), rsi_calloc(n, sizeof(k.number[0])) };
    rsd_err      rc = k.to && k.number ? RSD_OK : no_memory(err);

    if (!rc)
        rc = tell_writers(&k, made, all, err);
    if (!rc)
        rc = put_together(&k, out, err);
    for (size_t r = 0; k.to && r < n; r++)
        rsi_free(k.to[r].at);
    rsi_free(k.to);
    rsi_free(k.number);
    return rc;
}

/* ---- the other ranks ---- */

static rsd_err push_spot(rsd_state *to, const rsi_spot *spot, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < spot->nparts && !rc; i++)
        rc = rsi_state_push_part(to, &spot->part[i], err);
    return rc;
}

static rsd_err add_own_tensor(const rsi_state_tensor *own, const told *from, size_t n,
                              rsd_state *to, rsd_error *err)
{
    rsd_box *box = rsi_arena_array(&to->mem, n, sizeof(box[0]));
    rsd_err  rc = box ? push_spot(to, &own->spot, err) : no_memory(err);

    if (!rc)
        rc = rsd_state_tensor(to, NULL, NULL, own->dtype, own->ndim, own->shape, own->views.n,
                              own->views.view, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        box[i] = from[i].box;
    to->tensor[to->ntensors - 1].stored = box;
    to->tensor[to->ntensors - 1].nstored = n;
    return RSD_OK;
}

static rsd_err add_own_value(const rsi_state_value *own, int32_t rank, rsd_state *to,
                             rsd_error *err)
{
    rsd_err rc = push_spot(to, &own->spot, err);

    if (!rc)
        rc = rsd_state_value(to, NULL, own->value, err);
    if (!rc) {
        to->value[to->nvalues - 1].writer = rank;
        to->value[to->nvalues - 1].raw = own->raw;
        to->value[to->nvalues - 1].raw_len = own->raw_len;
    }
    return rc;
}

static rsd_err build_own(const rsd_state *state, int32_t rank, const rsi_bytes *answer,
                         rsd_state *to, rsd_error *err)
{
    const told *at = (const told *)(const void *)answer->at;
    size_t      n = answer->len / sizeof(*at), end;
    rsd_err     rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i = end) {
        for (end = i + 1;
             end < n && !at[i].value && !at[end].value && at[end].number == at[i].number;)
            end++;
        if (at[i].number >= (at[i].value ? state->nvalues : state->ntensors))
            return rsi_fail(err, RSD_E_BUG, "rank 0 asked for something that was not listed");
        rc = at[i].value ? add_own_value(&state->value[at[i].number], rank, to, err)
                         : add_own_tensor(&state->tensor[at[i].number], &at[i], end - i, to, err);
        to->depth = 0;
    }
    return rc;
}

rsd_err rsi_states_join(rsd_comm *comm, const rsd_state *state, bool own_only, rsd_err rc,
                        rsd_state **out, rsd_error *err)
{
    const bool   builds = !own_only || rsd_comm_rank(comm) == 0;
    rsi_bytes    mine = { 0 }, answer = { 0 };
    rsi_gathered all = { 0 }, answers = { 0 };
    rsd_state   *made = NULL;

    if (!rc)
        rc = tell_all(&mine, state, rsd_comm_rank(comm), err);
    if (!rc)
        rc = rsd_state_create(&made, err);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = own_only ? rsi_gather_any(comm, mine.at, mine.len, &all, err)
                      : rsi_allgather_any(comm, mine.at, mine.len, &all, err);
    if (!rc)
        rc = rsi_agree(comm, builds ? build(state, comm, &all, made, err) : RSD_OK, err);
    if (!rc && own_only) {
        rc = builds ? make_answers(comm, made, &all, &answers, err) : RSD_OK;
        rc = rsi_scatter_any(comm, &answers, &answer, rc, err);
        if (!rc)
            rc = builds ? RSD_OK : build_own(state, rsd_comm_rank(comm), &answer, made, err);
        rc = rsi_agree(comm, rc, err);
    }
    if (!rc)
        *out = made;
    else
        rsd_state_free(made);
    rsi_gathered_release(&all);
    rsi_gathered_release(&answers);
    rsi_free(mine.at);
    rsi_free(answer.at);
    return rc;
}
