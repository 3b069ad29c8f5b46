/* SPDX-License-Identifier: Apache-2.0 */
/* test_random_plans.c - random layouts and the plans between them, against the brute-force oracle.
 *
 *     RESHARD_SEED=7 RESHARD_CASES=100000 test_random_plans
 *
 * Case k is drawn from seed + k, so RESHARD_SEED=<seed + k> RESHARD_CASES=1 repeats it alone.
 * Elements are moved by hand here; running plans is left to the tests of exec. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "random_case.h"

enum {
    WORLD = CASE_RANKS + 3, /* every rank is asked, and some that are in no layout */
    MAX_BOXES = 512,        /* of one rank: at most 7 runs in each of 3 dimensions that are cut */
    SEED = 20250,
    CASES = 2000
};

typedef struct moves {
    rsd_move *at;
    size_t    n, cap;
} moves;

/* The case at hand. Static, so that a failed check can tell it and the teardown can free it. */
static struct {
    uint64_t    seed, number;
    random_case drawn;
    random_side side[CASE_TENSORS][2]; /* before, after */
    rsd_plan   *plan, *derived;        /* the plan looked at; its inverse or a view of it */
    moves       of[WORLD];             /* the plan of each rank; memory is kept for the next case */
    moves       view;
} now;

/* Tells the case and what is wrong with it, and ends the test. */
static void wrong(const char *fmt, ...)
{
    va_list args;

    random_case_tell(&now.drawn);
    va_start(args, fmt);
    vprint_error(fmt, args);
    va_end(args);
    print_error("\n");
    fail_msg("case %" PRIu64 " of seed %" PRIu64 ": RESHARD_SEED=%" PRIu64 " RESHARD_CASES=1",
             now.number, now.seed, now.seed + now.number);
}

/* A macro for speed: elements are checked one by one, and the text is rarely needed. */
#define check(ok, ...) ((ok) ? (void)0 : wrong(__VA_ARGS__))

/* ---- the cases ------------------------------------------------------------------------------ */

static void free_plans(void)
{
    rsd_plan_free(now.plan);
    rsd_plan_free(now.derived);
    now.plan = now.derived = NULL;
}

static void free_case(void)
{
    free_plans();
    for (size_t i = 0; i < 2 * CASE_TENSORS; i++)
        random_side_free(&now.side[i / 2][i % 2]);
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void each_case(void (*check_case)(void))
{
    rsd_error err = { 0 };
    uint64_t  cases = number_from("RESHARD_CASES", CASES);

    now.seed = number_from("RESHARD_SEED", SEED);
    for (now.number = 0; now.number < cases; now.number++) {
        random_case_draw(&now.drawn, now.seed + now.number, CASE_RANKS);
        for (size_t i = 0; i < 2 * now.drawn.n; i++)
            check(!random_side_make(&now.side[i / 2][i % 2], &now.drawn.tensor[i / 2], i % 2, WORLD,
                                    &err),
                  "no layout: %s", err.msg);
        check_case();
        free_case();
    }
}

static int tear_down(void **state)
{
    (void)state;
    free_case();
    for (int r = 0; r < WORLD; r++)
        free(now.of[r].at);
    free(now.view.at);
    memset(&now, 0, sizeof(now));
    return 0;
}

/* ---- layouts -------------------------------------------------------------------------------- */

/* Where in the rank's memory the library puts the element at `index`, which lies in the box. */
static int64_t place_of(const random_side *s, int32_t rank, const rsd_local *at,
                        const int64_t *index)
{
    int64_t off = at->offset;

    for (int d = 0; d < at->box.ndim; d++)
        off += (index[d] - at->box.off[d]) * at->stride[d];
    check(off % s->size == 0 && off >= 0 && off / s->size < s->want.held[rank],
          "rank %d has an element at byte %" PRId64, rank, off);
    return off / s->size;
}

/* Every element of the box is where the oracle has it; marks them, and returns how many. */
static int64_t check_local(const random_side *s, int32_t rank, const rsd_local *at)
{
    int64_t *mem = &s->mem[rank * s->want.count];
    int64_t  index[RSD_MAX_NDIM], n = 0;

    for (bool go = oracle_first(&at->box, index); go; go = oracle_next(&at->box, index)) {
        int64_t e = oracle_element(s->whole->ndim, s->whole->len, index);
        int64_t place = place_of(s, rank, at, index);

        check(place == oracle_pos(&s->want, rank, e),
              "rank %d has element %" PRId64 " at %" PRId64 ", not at %" PRId64, rank, e, place,
              oracle_pos(&s->want, rank, e));
        check(!mem[place]++, "rank %d has element %" PRId64 " twice", rank, e);
        n++;
    }
    return n;
}

/* As many boxes as were given; a range may need 2 * ndim - 1. A formula may make any number. */
static void check_box_count(const random_side *s, int32_t rank, size_t n)
{
    const random_layout *l = s->drawn;
    size_t               given = 0, each = s->whole->ndim ? 2 * (size_t)s->whole->ndim - 1 : 1;

    for (size_t i = 0; i < l->n; i++)
        if (l->rank[i] == rank && l->kind == RANGES)
            given += l->count[i] > 0;
        else if (l->rank[i] == rank)
            given += oracle_holds(&l->box[i], &l->box[i]);
    check(l->kind != BOXES || n == given, "rank %d has %zu of %zu boxes", rank, n, given);
    check(l->kind != RANGES || (n >= given && n <= given * each),
          "rank %d: %zu ranges in %zu boxes", rank, given, n);
}

static void check_rank_layout(const random_side *s, int32_t rank)
{
    static rsd_box box[MAX_BOXES];
    size_t         n = rsd_layout_boxes(s->layout, rank, box, MAX_BOXES);
    int64_t        held = 0;
    rsd_local      at;

    check(n <= MAX_BOXES, "rank %d has %zu boxes", rank, n);
    check_box_count(s, rank, n);
    for (size_t i = 0; i < n; i++) {
        check(oracle_holds(s->whole, &box[i]), "rank %d: box %zu is empty or outside", rank, i);
        check(!rsd_layout_local(s->layout, rank, i, &at, NULL) && oracle_same(&at.box, &box[i]),
              "rank %d: box %zu is another one in memory", rank, i);
        if (s->drawn->kind == MESH)
            check(!i || oracle_starts_before(&box[i - 1], &box[i]), "rank %d: box %zu is late",
                  rank, i);
        else
            check(at.offset == held * s->size, "rank %d: box %zu is not packed", rank, i);
        held += check_local(s, rank, &at);
    }
    check(held == s->want.held[rank], "rank %d holds %" PRId64 " elements, not %" PRId64, rank,
          held, s->want.held[rank]);
    check(rsd_layout_bytes(s->layout, rank) == held * s->size, "rank %d: wrong bytes", rank);
    check(rsd_layout_local(s->layout, rank, n, &at, NULL), "rank %d has a box too many", rank);
}

static void check_layout(const random_side *s, const random_tensor *t)
{
    int64_t shape[RSD_MAX_NDIM] = { 0 };
    int32_t named = 0, holding = 0, world = rsd_layout_world(s->layout);

    for (size_t i = 0; i < s->drawn->n; i++)
        named = s->drawn->rank[i] >= named ? s->drawn->rank[i] + 1 : named;
    for (int32_t r = 0; r < WORLD; r++)
        holding = s->want.held[r] > 0 ? r + 1 : holding;
    /* Empty ranks of a mesh count; owners of nothing but empty boxes may or may not. */
    check(world >= (s->drawn->axes ? named : holding) && world <= named, "world of %d", world);
    check(rsd_layout_dtype(s->layout) == t->dtype, "another dtype");
    check(rsd_layout_shape(s->layout, shape) == t->whole.ndim &&
              !memcmp(shape, t->whole.len, sizeof(shape)),
          "another shape");
    for (int32_t r = 0; r < WORLD; r++)
        check_rank_layout(s, r);
}

static void check_layouts(void)
{
    for (size_t i = 0; i < 2 * now.drawn.n; i++)
        check_layout(&now.side[i / 2][i % 2], &now.drawn.tensor[i / 2]);
}

/* ---- plans ---------------------------------------------------------------------------------- */

static rsd_err add_move(void *arg, const rsd_move *move)
{
    moves *list = arg;

    if (list->n == list->cap) {
        list->cap = 2 * list->cap + 64;
        list->at = realloc(list->at, list->cap * sizeof(*list->at));
        assert_non_null(list->at);
    }
    list->at[list->n++] = *move;
    return RSD_OK;
}

/* Lists what a rank's plan visits; all else relies on what is checked here. */
static void list_moves(const rsd_plan *plan, int32_t rank, moves *list)
{
    rsd_error err = { 0 };

    list->n = 0;
    check(!rsd_plan_each(plan, add_move, list, &err), "moves not visited: %s", err.msg);
    for (size_t i = 0; i < list->n; i++) {
        const rsd_move *m = &list->at[i];

        check(m->tensor < now.drawn.n && oracle_holds(now.side[m->tensor][0].whole, &m->box),
              "rank %d: move %zu is empty or of no tensor", rank, i);
        check(m->from >= 0 && m->from < WORLD && m->to >= 0 && m->to < WORLD &&
                  (m->from == rank || m->to == rank),
              "rank %d: move %zu goes from %d to %d", rank, i, m->from, m->to);
    }
}

static rsd_plan *make_plan(int32_t rank)
{
    const rsd_layout *src[CASE_TENSORS] = { NULL }, *dst[CASE_TENSORS] = { NULL };
    rsd_plan         *plan = NULL;
    rsd_error         err = { 0 };

    for (size_t t = 0; t < now.drawn.n; t++) {
        src[t] = now.drawn.tensor[t].shared[0] ? src[t - 1] : now.side[t][0].layout;
        dst[t] = now.drawn.tensor[t].shared[1] ? dst[t - 1] : now.side[t][1].layout;
    }
    check(!rsd_plan_create(now.drawn.n, src, dst, rank, &plan, &err), "no plan for rank %d: %s",
          rank, err.msg);
    return plan;
}

static void check_stats(const rsd_plan *plan, int32_t rank, const moves *list)
{
    bool           to[WORLD] = { false }, from[WORLD] = { false };
    rsd_plan_stats want = { .size = sizeof(want),
                            .tensors = (int64_t)now.drawn.n,
                            .moves = (int64_t)list->n },
                   got = { .size = sizeof(got) };

    for (size_t i = 0; i < list->n; i++) {
        const rsd_move *m = &list->at[i];
        int64_t         bytes = now.side[m->tensor][0].size;

        for (int d = 0; d < m->box.ndim; d++)
            bytes *= m->box.len[d];
        want.bytes_local += m->from == m->to ? bytes : 0;
        want.bytes_sent += m->to != rank ? bytes : 0;
        want.bytes_recv += m->from != rank ? bytes : 0;
        to[m->to] |= m->to != rank;
        from[m->from] |= m->from != rank;
    }
    for (int r = 0; r < WORLD; r++) {
        want.messages += to[r] + from[r];
        want.peers += to[r] || from[r];
    }
    rsd_plan_stats_get(plan, &got, NULL);
    check(got.tensors == want.tensors && got.moves == want.moves,
          "rank %d: stats count %d tensors, %d moves", rank, (int)got.tensors, (int)got.moves);
    check(got.bytes_local == want.bytes_local && got.bytes_sent == want.bytes_sent &&
              got.bytes_recv == want.bytes_recv,
          "rank %d: stats have %" PRId64 " bytes local, %" PRId64 " sent, %" PRId64 " received",
          rank, got.bytes_local, got.bytes_sent, got.bytes_recv);
    check(got.messages == want.messages && got.peers == want.peers,
          "rank %d: stats count %d messages, %d peers", rank, (int)got.messages, got.peers);
}

/* Lists the plan of each rank or, with `back` 1, the inverse of it. */
static void list_plans(int back)
{
    rsd_error err = { 0 };

    for (int32_t r = 0; r < WORLD; r++) {
        now.plan = make_plan(r);
        if (back)
            check(!rsd_plan_invert(now.plan, &now.derived, &err), "no inverse: %s", err.msg);
        list_moves(back ? now.derived : now.plan, r, &now.of[r]);
        check_stats(back ? now.derived : now.plan, r, &now.of[r]);
        free_plans();
    }
}

/* A move names the box it lies in at the rank's own end and none at the other. */
static void check_end(const random_side *s, int32_t end, int64_t i, const rsd_move *m, int32_t rank)
{
    rsd_local at;

    if (end != rank)
        check(i == -1, "rank %d names box %" PRId64 " of rank %d", rank, i, end);
    else
        check(i >= 0 && !rsd_layout_local(s->layout, rank, (size_t)i, &at, NULL) &&
                  oracle_holds(&at.box, &m->box),
              "rank %d: a move does not lie in box %" PRId64, rank, i);
}

/* What a layout's Partial axes reduce by, 0 if it has none. */
static rsd_reduce reduce_of(const random_side *s)
{
    for (int a = 0; a < s->drawn->axes; a++)
        if (s->drawn->place[a].kind == RSD_PARTIAL)
            return s->drawn->place[a].reduce;
    return (rsd_reduce)0;
}

static void check_move(const rsd_move *m, int32_t rank, int back)
{
    const random_side *from = &now.side[m->tensor][back], *to = &now.side[m->tensor][!back];
    int64_t            share = reduce_of(to) == RSD_SUM ? to->want.parts : 1;

    check_end(from, m->from, m->from_box, m, rank);
    check_end(to, m->to, m->to_box, m, rank);
    /* With one contributor there is nothing to combine: then a copy will do, too. */
    check(m->reduce == reduce_of(from) || (from->want.parts == 1 && !m->reduce),
          "rank %d: reduce is %d", rank, (int)m->reduce);
    check(m->share == share, "rank %d: share is %" PRId64, rank, m->share);
}

/* Copies, then for each peer what is sent to it, then what is received from it. */
static int32_t row_of(const rsd_move *m, int32_t rank)
{
    if (m->from == m->to)
        return 0;
    return m->from == rank ? 2 * m->to + 1 : 2 * m->from + 2;
}

static bool moves_before(const rsd_move *a, const rsd_move *b, int32_t rank)
{
    if (row_of(a, rank) != row_of(b, rank))
        return row_of(a, rank) < row_of(b, rank);
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor;
    return oracle_starts_before(&a->box, &b->box);
}

/* The first move from one rank to another in the plan of one of the two, and how many there are. */
static size_t find_row(const moves *list, int32_t from, int32_t to, size_t *n)
{
    size_t first = list->n;

    *n = 0;
    for (size_t i = list->n; i-- > 0;)
        if (list->at[i].from == from && list->at[i].to == to) {
            first = i;
            ++*n;
        }
    return first;
}

/* What one rank sends is, move for move, what the other one receives. */
static void check_ends_agree(int32_t from, int32_t to)
{
    size_t nsend, nrecv;
    size_t send = find_row(&now.of[from], from, to, &nsend);
    size_t recv = find_row(&now.of[to], from, to, &nrecv);

    check(nsend == nrecv, "rank %d sends %zu moves, rank %d receives %zu", from, nsend, to, nrecv);
    for (size_t i = 0; i < nsend; i++) {
        const rsd_move *a = &now.of[from].at[send + i], *b = &now.of[to].at[recv + i];

        check(a->tensor == b->tensor && oracle_same(&a->box, &b->box) && a->reduce == b->reduce &&
                  a->share == b->share,
              "move %zu from rank %d to rank %d differs at its ends", i, from, to);
    }
}

static void check_both_ends(void)
{
    /* There is no way back into a Partial(product). */
    for (int back = 0; back <= !now.drawn.partial[0]; back++) {
        list_plans(back);
        for (int32_t r = 0; r < WORLD; r++)
            for (size_t i = 0; i < now.of[r].n; i++) {
                check_move(&now.of[r].at[i], r, back);
                check(!i || moves_before(&now.of[r].at[i - 1], &now.of[r].at[i], r),
                      "rank %d: move %zu is out of order", r, i);
            }
        for (int32_t i = 0; i < WORLD * WORLD; i++)
            check_ends_agree(i / WORLD, i % WORLD);
    }
}

/* ---- what arrives --------------------------------------------------------------------------- */

/* Notes in got[WORLD][count] what a move brings of each element: bit p for part p. */
static void receive(const rsd_move *m, const random_side *from, uint16_t *got)
{
    const oracle *src = &from->want;
    int32_t       part = src->part[m->from];
    int64_t       index[RSD_MAX_NDIM];

    for (bool go = oracle_first(&m->box, index); go; go = oracle_next(&m->box, index)) {
        int64_t   e = oracle_element(from->whole->ndim, from->whole->len, index);
        uint16_t *bits = &got[m->to * src->count + e];

        check(oracle_pos(src, m->from, e) >= 0, "rank %d sends element %" PRId64 " it has not",
              m->from, e);
        check(!(*bits & 1u << part), "rank %d gets element %" PRId64 " twice, once from %d", m->to,
              e, m->from);
        check(m->from == m->to || oracle_pos(src, m->to, e) < 0 || src->part[m->to] != part,
              "rank %d gets element %" PRId64 " from %d and has it itself", m->to, e, m->from);
        *bits = (uint16_t)(*bits | 1u << part);
    }
}

static void check_delivery(size_t tensor, int back)
{
    static uint16_t    got[WORLD * CASE_ELEMENTS];
    const random_side *from = &now.side[tensor][back], *to = &now.side[tensor][!back];
    int64_t            count = from->want.count;

    memset(got, 0, sizeof(*got) * (size_t)(WORLD * count));
    for (int32_t r = 0; r < WORLD; r++)
        for (size_t i = 0; i < now.of[r].n; i++)
            if (now.of[r].at[i].tensor == tensor && now.of[r].at[i].to == r)
                receive(&now.of[r].at[i], from, got);
    for (int64_t i = 0; i < WORLD * count; i++) {
        unsigned want = to->want.pos[i] >= 0 ? (1u << from->want.parts) - 1 : 0;

        check(got[i] == want, "rank %d gets parts %x of element %" PRId64 ", not %x",
              (int)(i / count), (unsigned)got[i], i % count, want);
    }
}

static void check_deliveries(void)
{
    for (int back = 0; back <= !now.drawn.partial[0]; back++) {
        list_plans(back);
        for (size_t t = 0; t < now.drawn.n; t++)
            check_delivery(t, back);
    }
}

/* Moves element by element; contributions are summed up whatever the reduction. */
static void run_move(const rsd_move *send, const rsd_move *recv, int back)
{
    const random_side *from = &now.side[send->tensor][back], *to = &now.side[send->tensor][!back];
    int64_t            index[RSD_MAX_NDIM];
    rsd_local          out, in;

    check(!rsd_layout_local(from->layout, send->from, (size_t)send->from_box, &out, NULL) &&
              !rsd_layout_local(to->layout, recv->to, (size_t)recv->to_box, &in, NULL),
          "a move from rank %d to rank %d names no box", send->from, recv->to);
    for (bool go = oracle_first(&send->box, index); go; go = oracle_next(&send->box, index)) {
        int64_t a = send->from * from->want.count + place_of(from, send->from, &out, index);
        int64_t b = recv->to * to->want.count + place_of(to, recv->to, &in, index);

        to->mem[b] = from->mem[a] + (recv->reduce ? to->mem[b] : 0);
    }
}

static void run_moves(int back)
{
    for (int32_t from = 0; from < WORLD; from++)
        for (int32_t to = 0; to < WORLD; to++) {
            size_t n, send = find_row(&now.of[from], from, to, &n);
            size_t recv = find_row(&now.of[to], from, to, &n);

            check_ends_agree(from, to);
            for (size_t i = 0; i < n; i++)
                run_move(&now.of[from].at[send + i], &now.of[to].at[recv + i], back);
        }
}

/* Gives each rank the elements it holds: their own numbers, and which part of them. */
static void fill(const random_side *s)
{
    for (int64_t i = 0; i < WORLD * s->want.count; i++) {
        int64_t rank = i / s->want.count, e = i % s->want.count;

        if (s->want.pos[i] >= 0)
            s->mem[rank * s->want.count + s->want.pos[i]] = 64 * (e + 1) + s->want.part[rank];
    }
}

/* Each rank has the elements it holds, all parts of them summed up. */
static void check_filled(const random_side *s, int64_t parts)
{
    for (int64_t i = 0; i < WORLD * s->want.count; i++) {
        int64_t rank = i / s->want.count, e = i % s->want.count;
        int64_t sum = parts * 64 * (e + 1) + parts * (parts - 1) / 2;

        check(s->want.pos[i] < 0 || s->mem[rank * s->want.count + s->want.pos[i]] == sum,
              "rank %d has a wrong element %" PRId64, (int)rank, e);
    }
}

/* There and back; only there if a layout is Partial. */
static void check_round_trip(void)
{
    bool partial = now.drawn.partial[0] || now.drawn.partial[1];

    for (size_t t = 0; t < now.drawn.n; t++)
        fill(&now.side[t][0]);
    for (int back = 0; back <= !partial; back++) {
        list_plans(back);
        for (size_t t = 0; t < now.drawn.n; t++)
            memset(now.side[t][!back].mem, 0,
                   sizeof(int64_t) * (size_t)(WORLD * now.side[t][!back].want.count));
        run_moves(back);
        for (size_t t = 0; t < now.drawn.n; t++)
            check_filled(&now.side[t][!back], now.side[t][back].want.parts);
    }
}

static bool same_move(const rsd_move *a, const rsd_move *b)
{
    return a->tensor == b->tensor && a->from == b->from && a->to == b->to &&
           a->from_box == b->from_box && a->to_box == b->to_box && a->reduce == b->reduce &&
           a->share == b->share && oracle_same(&a->box, &b->box);
}

static void check_views(void)
{
    rsd_error err = { 0 };

    list_plans(0);
    now.plan = make_plan((int32_t)((now.seed + now.number) % WORLD));
    for (int32_t r = 0; r < WORLD; r++) {
        check(!rsd_plan_of_rank(now.plan, r, &now.derived, &err), "no view: %s", err.msg);
        list_moves(now.derived, r, &now.view);
        check_stats(now.derived, r, &now.view);
        check(now.view.n == now.of[r].n, "rank %d is seen to have %zu moves", r, now.view.n);
        for (size_t i = 0; i < now.view.n; i++)
            check(same_move(&now.view.at[i], &now.of[r].at[i]), "rank %d: move %zu", r, i);
        rsd_plan_free(now.derived);
        now.derived = NULL;
    }
}

/* ---- the tests ------------------------------------------------------------------------------ */

static void layouts_give_each_rank_the_elements_of_the_oracle(void **state)
{
    (void)state;
    each_case(check_layouts);
}

static void plans_are_in_order_and_agree_at_both_ends(void **state)
{
    (void)state;
    each_case(check_both_ends);
}

static void plans_bring_each_element_once_to_each_new_owner(void **state)
{
    (void)state;
    each_case(check_deliveries);
}

static void moving_there_and_back_restores_every_rank(void **state)
{
    (void)state;
    each_case(check_round_trip);
}

static void view_of_a_plan_is_the_plan_of_the_other_rank(void **state)
{
    (void)state;
    each_case(check_views);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(layouts_give_each_rank_the_elements_of_the_oracle, tear_down),
        cmocka_unit_test_teardown(plans_are_in_order_and_agree_at_both_ends, tear_down),
        cmocka_unit_test_teardown(plans_bring_each_element_once_to_each_new_owner, tear_down),
        cmocka_unit_test_teardown(moving_there_and_back_restores_every_rank, tear_down),
        cmocka_unit_test_teardown(view_of_a_plan_is_the_plan_of_the_other_rank, tear_down),
    };

    print_message("RESHARD_SEED=%" PRIu64 " RESHARD_CASES=%" PRIu64 "\n",
                  number_from("RESHARD_SEED", SEED), number_from("RESHARD_CASES", CASES));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
