/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks tell each other what they hold; every rank puts the same state together from that. */
#include "save/merge.h"
#include "base/mem.h"
#include "format/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- telling ---- */

typedef struct fact {
    int64_t tensor; /* 0: a value */
    int64_t dtype, ndim, shape[RSD_MAX_NDIM];
    int64_t path_bytes, nparts, nboxes; /* which follow: steps of the path, boxes */
} fact;

typedef struct step {
    int64_t index, key_len; /* -1: no key; else that many characters follow */
    int64_t number;         /* the key is the text of `index` */
} step;

typedef struct words {
    char  *at;
    size_t len, cap;
    bool   full; /* there was no memory */
} words;

static void say(words *w, const void *bytes, size_t len)
{
    char *grown = w->at;

    if (w->full || len == 0)
        return;
    if (len > w->cap - w->len) {
        grown = len < SIZE_MAX / 4 ? rsi_realloc(w->at, (w->len + len) * 2, 1) : NULL;
        w->full = !grown;
        if (w->full)
            return;
        w->at = grown;
        w->cap = (w->len + len) * 2;
    }
    memcpy(w->at + w->len, bytes, len);
    w->len += len;
}

static size_t path_bytes(const rsi_spot *spot)
{
    size_t len = spot->nparts * sizeof(step);

    for (size_t i = 0; i < spot->nparts; i++)
        len += spot->part[i].key ? strlen(spot->part[i].key) : 0;
    return len;
}

static void say_path(words *w, const rsi_spot *spot)
{
    for (size_t i = 0; i < spot->nparts; i++) {
        const rsd_path_part *part = &spot->part[i];
        step                 s = { .index = part->index, .key_len = -1 };

        if (part->key)
            s = (step){ .index = part->number ? part->index : 0,
                        .key_len = (int64_t)strlen(part->key),
                        .number = part->number };
        say(w, &s, sizeof(s));
        if (part->key)
            say(w, part->key, (size_t)s.key_len);
    }
}

static void say_tensor(words *w, const rsi_state_tensor *t, int32_t rank)
{
    fact     f = { .tensor = 1, .dtype = (int64_t)t->dtype, .ndim = t->ndim };
    rsd_box *box = NULL;

    memcpy(f.shape, rsi_tensor_whole(t).len, sizeof(f.shape));
    f.path_bytes = (int64_t)path_bytes(&t->spot);
    f.nparts = (int64_t)t->spot.nparts;
    f.nboxes = (int64_t)(t->layout ? rsd_layout_boxes(t->layout, rank, NULL, 0) : t->views.n);
    say(w, &f, sizeof(f));
    say_path(w, &t->spot);
    if (!t->layout) {
        for (size_t i = 0; i < t->views.n; i++)
            say(w, &t->views.view[i].box, sizeof(t->views.view[i].box));
        return;
    }
    box = rsi_calloc((size_t)f.nboxes, sizeof(box[0]));
    w->full = w->full || !box;
    if (box) {
        rsd_layout_boxes(t->layout, rank, box, (size_t)f.nboxes);
        say(w, box, (size_t)f.nboxes * sizeof(box[0]));
    }
    rsi_free(box);
}

static rsd_err say_all(words *w, const rsd_state *state, int32_t rank, rsd_error *err)
{
    for (size_t i = 0; i < state->ntensors; i++)
        say_tensor(w, &state->tensor[i], rank);
    for (size_t i = 0; i < state->nvalues; i++) {
        fact f = { .nparts = (int64_t)state->value[i].spot.nparts };

        f.path_bytes = (int64_t)path_bytes(&state->value[i].spot);
        say(w, &f, sizeof(f));
        say_path(w, &state->value[i].spot);
    }
    return w->full ? rsi_fail(err, RSD_E_NOMEM, "no memory to describe the state") : RSD_OK;
}

/* ---- hearing ---- */

/* Something that a rank has, or several. */
typedef struct thing {
    fact        fact;
    const char *path; /* in what was gathered */
    int32_t     rank; /* the lowest that has it */
    size_t      own;  /* its number in this rank's state; SIZE_MAX: not there */
    size_t      n;    /* boxes */
} thing;

typedef struct heard {
    size_t  thing;
    int32_t owner;
    rsd_box box;
} heard;

typedef struct merging {
    const rsd_state *state;
    thing           *thing;
    size_t           n, cap;
    heard           *box; /* in the order they were heard */
    size_t           nboxes, box_cap;
    rsi_map          names; /* by path */
} merging;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory to put the states of all ranks together");
}

static rsd_err compare(const thing *t, const fact *f, int32_t rank, rsd_error *err)
{
    const char *what = t->fact.tensor != f->tensor ? "kind"
                       : t->fact.dtype != f->dtype ? "dtype"
                                                   : "shape";

    if (t->fact.tensor == f->tensor && t->fact.dtype == f->dtype && t->fact.ndim == f->ndim &&
        memcmp(t->fact.shape, f->shape, sizeof(f->shape)) == 0)
        return RSD_OK;
    return rsi_fail(err, RSD_E_MISMATCH, "rank %" PRId32 " has another %s than rank %" PRId32, rank,
                    what, t->rank);
}

/* The last step of a path, for messages. */
static rsd_err about(const fact *f, const char *path, rsd_err rc, rsd_error *err)
{
    char   text[256];
    size_t len = 0;

    for (int64_t i = 0; i < f->nparts; i++) {
        size_t room = sizeof(text) - len;
        step   s;

        memcpy(&s, path, sizeof(s));
        path += sizeof(s);
        len +=
            (size_t)(s.key_len < 0 ? snprintf(text + len, room, "%s%" PRId64, i ? "." : "", s.index)
                                   : snprintf(text + len, room, "%s%.*s", i ? "." : "",
                                              (int)s.key_len, path));
        path += s.key_len < 0 ? 0 : s.key_len;
        len = len < sizeof(text) ? len : sizeof(text) - 1;
    }
    text[len] = 0;
    return rsi_while(err, rc, "\"%s\"", text);
}

static rsd_err hear(merging *m, const fact *f, const char *path, int32_t rank, size_t own,
                    rsd_error *err)
{
    const char *boxes = path + f->path_bytes;
    uint64_t    which = m->n;
    bool        was;
    rsd_err     rc;

    if (!rsi_grow(&m->thing, m->n, &m->cap, sizeof(m->thing[0])) ||
        !rsi_map_add(&m->names, path, (size_t)f->path_bytes, &which, &was))
        return no_memory(err);
    if (!was)
        m->thing[m->n++] = (thing){ .fact = *f, .path = path, .rank = rank, .own = SIZE_MAX };
    rc = compare(&m->thing[which], f, rank, err);
    if (rc)
        return about(f, path, rc, err);
    if (own != SIZE_MAX)
        m->thing[which].own = own;
    for (int64_t i = 0; i < f->nboxes; i++) {
        heard h = { .thing = (size_t)which, .owner = rank };

        memcpy(&h.box, boxes + (size_t)i * sizeof(h.box), sizeof(h.box));
        if (!rsi_grow(&m->box, m->nboxes, &m->box_cap, sizeof(m->box[0])))
            return no_memory(err);
        m->box[m->nboxes++] = h;
        m->thing[which].n++;
    }
    return RSD_OK;
}

static rsd_err hear_all(merging *m, const rsd_comm *comm, const rsi_gathered *all, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t r = 0; r < comm->size && !rc; r++) {
        size_t at = all->first[r], k = 0;

        for (; at < all->first[r + 1] && !rc; k++) {
            fact f;

            memcpy(&f, all->data + at, sizeof(f));
            at += sizeof(f);
            rc = hear(m, &f, all->data + at, r, r == comm->rank ? k : SIZE_MAX, err);
            at += (size_t)f.path_bytes + (size_t)f.nboxes * sizeof(rsd_box);
        }
    }
    return rc;
}

/* ---- the state ---- */

static rsd_err push_path(rsd_state *to, const thing *t, rsd_error *err)
{
    const char *at = t->path;
    rsd_err     rc = RSD_OK;

    for (int64_t i = 0; i < t->fact.nparts && !rc; i++) {
        step  s;
        char *key;

        memcpy(&s, at, sizeof(s));
        at += sizeof(s);
        if (s.key_len < 0) {
            rc = rsd_state_push_index(to, s.index, err);
            continue;
        }
        key = rsi_arena_text(&to->mem, at, (size_t)s.key_len);
        if (s.number)
            rc = rsd_state_push_number(to, s.index, err);
        else
            rc = key ? rsd_state_push(to, key, err) : no_memory(err);
        at += s.key_len;
    }
    return rc;
}

static rsd_err add_tensor(const merging *m, const thing *t, const heard *const *box, rsd_state *to,
                          rsd_error *err)
{
    const rsi_state_tensor *own = t->own < m->state->ntensors ? &m->state->tensor[t->own] : NULL;
    int32_t                *owner = rsi_calloc(t->n, sizeof(owner[0]));
    rsd_box                *boxes = rsi_calloc(t->n, sizeof(boxes[0]));
    rsd_layout             *layout = NULL;
    rsd_err                 rc = owner && boxes ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < t->n && !rc; i++) {
        owner[i] = box[i]->owner;
        boxes[i] = box[i]->box;
    }
    if (!rc)
        rc = rsd_layout_create_boxes((rsd_dtype)t->fact.dtype, (int)t->fact.ndim, t->fact.shape,
                                     t->n, owner, boxes, &layout, err);
    if (!rc)
        rc = rsd_state_tensor(to, NULL, layout, (rsd_dtype)t->fact.dtype, (int)t->fact.ndim,
                              t->fact.shape, own ? own->views.n : 0, own ? own->views.view : NULL,
                              err);
    rsd_layout_free(layout);
    rsi_free(owner);
    rsi_free(boxes);
    return rc;
}

static rsd_err add_value(const merging *m, const thing *t, rsd_state *to, rsd_error *err)
{
    static const rsd_value stand_in = { 0 };
    const rsd_value       *value = &stand_in;
    rsd_err                rc;

    if (t->own != SIZE_MAX)
        value = m->state->value[t->own - m->state->ntensors].value;
    rc = rsd_state_value(to, NULL, value, err);
    if (rc)
        return rc;
    to->value[to->nvalues - 1].value = t->own == SIZE_MAX ? NULL : value;
    to->value[to->nvalues - 1].writer = t->rank;
    return RSD_OK;
}

static rsd_err build(const merging *m, rsd_state *to, rsd_error *err)
{
    size_t       *first = rsi_calloc(m->n + 2, sizeof(first[0]));
    const heard **order = rsi_calloc(m->nboxes, sizeof(order[0]));
    rsd_err       rc = first && order ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < m->n && !rc; i++)
        first[i + 2] = first[i + 1] + m->thing[i].n;
    for (size_t i = 0; i < m->nboxes && !rc; i++)
        order[first[m->box[i].thing + 1]++] = &m->box[i];
    for (size_t i = 0; i < m->n && !rc; i++) {
        const thing *t = &m->thing[i];

        rc = push_path(to, t, err);
        if (!rc)
            rc = t->fact.tensor ? add_tensor(m, t, order + first[i], to, err)
                                : add_value(m, t, to, err);
        if (rc)
            rc = about(&t->fact, t->path, rc, err);
        to->depth = 0;
    }
    rsi_free(first);
    rsi_free(order);
    return rc;
}

rsd_err rsi_merge_states(rsd_comm *comm, const rsd_state *state, rsd_err rc, rsd_state **out,
                         rsd_error *err)
{
    merging      m = { .state = state };
    words        mine = { 0 };
    rsi_gathered all = { 0 };
    rsd_state   *made = NULL;

    if (!rc)
        rc = say_all(&mine, state, rsd_comm_rank(comm), err);
    if (!rc)
        rc = rsd_state_create(&made, err);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_allgather_any(comm, mine.at, mine.len, &all, err);
    if (!rc) {
        rc = hear_all(&m, comm, &all, err);
        if (!rc)
            rc = build(&m, made, err);
        rc = rsi_agree(comm, rc, err);
    }
    if (!rc)
        *out = made;
    else
        rsd_state_free(made);
    rsi_gathered_release(&all);
    rsi_map_release(&m.names);
    rsi_free(m.thing);
    rsi_free(m.box);
    rsi_free(mine.at);
    return rc;
}
