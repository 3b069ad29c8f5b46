/* SPDX-License-Identifier: Apache-2.0 */
/* test_route.c - the hops of all ranks, played through element by element: both ends of a message
 * mean the same, every element arrives once, nobody passes on what it has not got. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "live/route.h"
#include "plan_fixture.h"

#include <string.h>

enum { WORLD = 6, TENSORS = 2, ROWS = 7, COLS = 5, ELEMENTS = ROWS * COLS, BOXES = 32 };

static const int64_t shape[] = { ROWS, COLS };

typedef struct world {
    rsd_layout *src, *dst;
    rsd_plan   *plan[WORLD];
    rsi_route   route[WORLD];
    int         has[WORLD][TENSORS][ELEMENTS];   /* how often each element of the target has come */
    int         parts[WORLD][TENSORS][ELEMENTS]; /* and how many contributions to it */
    bool        mine[WORLD][TENSORS][ELEMENTS];  /* what came in phase 0 or was combined */
} world;

static world w;

static void begin(const char *from, const char *to, int ndim, const rsi_route_opts *opts)
{
    const rsd_layout *src[TENSORS], *dst[TENSORS];

    memset(&w, 0, sizeof(w));
    w.src = fixture_layout(from, ndim, shape);
    w.dst = fixture_layout(to, ndim, shape);
    for (int t = 0; t < TENSORS; t++) {
        src[t] = w.src;
        dst[t] = w.dst;
    }
    for (int32_t r = 0; r < WORLD; r++) {
        rsd_error err;

        if (rsd_plan_create(TENSORS, src, dst, r, &w.plan[r], &err))
            fail_msg("%s to %s: %s", from, to, err.msg);
        assert_int_equal(rsi_route_make(&w.route[r], w.plan[r], opts, NULL), RSD_OK);
    }
}

static void end(void)
{
    for (int32_t r = 0; r < WORLD; r++) {
        rsi_route_release(&w.route[r]);
        assert_null(w.route[r].send[0].at);
        rsd_plan_free(w.plan[r]);
    }
    rsd_layout_free(w.src);
    rsd_layout_free(w.dst);
}

static bool has_element(const rsd_box *box, int e)
{
    int64_t index[] = { e / COLS, e % COLS };

    for (int d = 0; d < box->ndim; d++)
        if (index[d] < box->off[d] || index[d] >= box->off[d] + box->len[d])
            return false;
    return box->ndim > 0 || e == 0;
}

static bool holds(const rsd_layout *layout, int32_t rank, int e)
{
    rsd_box box[BOXES];
    size_t  n = rsd_layout_boxes(layout, rank, box, BOXES);

    assert_true(n <= BOXES);
    for (size_t i = 0; i < n; i++)
        if (has_element(&box[i], e))
            return true;
    return false;
}

/* The box of a hop; it lies in that one of the rank's boxes that it names. */
static rsd_box box_of(int32_t rank, const rsi_hop *hop, bool given)
{
    rsd_box box, mine[BOXES];
    size_t  i = rsi_hop_box(&w.route[rank], hop, given, &box);

    if (rsd_box_count(&box) == 0)
        return box;
    assert_true(i < rsd_layout_boxes(given ? w.src : w.dst, rank, mine, BOXES));
    for (int e = 0; e < ELEMENTS; e++)
        assert_true(!has_element(&box, e) || has_element(&mine[i], e));
    return box;
}

/* ---- both ends ---- */

/* The next hop of a list with that peer, from *at on; NULL: none. */
static const rsi_hop *next_with(const rsi_hops *hops, int32_t peer, size_t *at)
{
    while (*at < hops->n && hops->at[*at].peer != peer)
        ++*at;
    return *at < hops->n ? &hops->at[(*at)++] : NULL;
}

static void check_end(int32_t from, int32_t to, const rsi_hop *out, const rsi_hop *in, bool given)
{
    rsd_box a = box_of(from, out, given), b = box_of(to, in, false);

    assert_int_equal(out->tensor, in->tensor);
    assert_int_equal(out->cuts, in->cuts);
    assert_int_equal(out->cut, in->cut);
    assert_memory_equal(a.off, b.off, sizeof(a.off));
    assert_memory_equal(a.len, b.len, sizeof(a.len));
}

/* What `from` sends to `to` is what that one waits for, one by one. */
static void check_ends(int32_t from, int32_t to, const rsi_hops *sends, const rsi_hops *recvs,
                       bool given)
{
    size_t         i = 0, j = 0;
    const rsi_hop *out, *in;

    do {
        out = next_with(sends, to, &i);
        in = next_with(recvs, from, &j);
        assert_int_equal(out != NULL, in != NULL);
        if (out)
            check_end(from, to, out, in, given);
    } while (out);
}

static int compare(const rsi_hop *a, const rsi_hop *b)
{
    const uint32_t x[] = { a->far, a->tensor, a->piece, a->part };
    const uint32_t y[] = { b->far, b->tensor, b->piece, b->part };

    for (int i = 0; i < 4; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

static void check_order(const rsi_hops *hops)
{
    for (size_t i = 1; i < hops->n; i++)
        assert_true(compare(&hops->at[i - 1], &hops->at[i]) <= 0);
}

static void check_orders(int32_t r)
{
    const rsi_route *route = &w.route[r];

    for (int p = 0; p < 2; p++) {
        check_order(&route->send[p]);
        check_order(&route->recv[p]);
        for (size_t i = 0; i < route->send[p].n; i++)
            assert_int_equal(route->send[p].at[i].far,
                             (route->send[p].at[i].peer - r + WORLD) % WORLD);
        for (size_t i = 0; i < route->recv[p].n; i++)
            assert_int_equal(route->recv[p].at[i].far,
                             (r - route->recv[p].at[i].peer + WORLD) % WORLD);
    }
    check_order(&route->give);
    check_order(&route->take);
}

/* ---- element by element ---- */

static void play_list(int32_t r, const rsi_hops *hops, int phase, bool takes)
{
    for (size_t i = 0; i < hops->n; i++) {
        const rsi_hop *hop = &hops->at[i];
        rsd_box        box = box_of(r, hop, false);

        for (int e = 0; e < ELEMENTS; e++) {
            if (!has_element(&box, e))
                continue;
            if (phase == 0)
                assert_true(holds(w.src, hop->peer, e));
            else
                assert_true(w.mine[hop->peer][hop->tensor][e]);
            if (takes)
                w.parts[r][hop->tensor][e]++;
            else
                w.has[r][hop->tensor][e]++;
            w.mine[r][hop->tensor][e] |= phase == 0;
        }
    }
}

/* All contributions or none have come to an element. */
static void combine(int32_t r)
{
    for (int t = 0; t < TENSORS; t++) {
        const rsi_class *c = w.plan[r]->class[w.plan[r]->class_of[t]];
        int              parts = c->reduce ? (int)c->src.parts.count : 1;

        for (int e = 0; e < ELEMENTS; e++) {
            assert_true(w.parts[r][t][e] == 0 || w.parts[r][t][e] == parts);
            w.has[r][t][e] += w.parts[r][t][e] > 0;
        }
    }
}

static void play(void)
{
    for (int32_t r = 0; r < WORLD; r++) {
        play_list(r, &w.route[r].local, 0, false);
        play_list(r, &w.route[r].recv[0], 0, false);
        play_list(r, &w.route[r].take, 0, true);
        combine(r);
    }
    for (int32_t r = 0; r < WORLD; r++)
        play_list(r, &w.route[r].recv[1], 1, false);
    for (int32_t r = 0; r < WORLD; r++)
        for (int t = 0; t < TENSORS; t++)
            for (int e = 0; e < ELEMENTS; e++)
                assert_int_equal(w.has[r][t][e], holds(w.dst, r, e));
}

static void check_all(void)
{
    for (int32_t r = 0; r < WORLD; r++) {
        check_orders(r);
        for (int32_t to = 0; to < WORLD; to++) {
            for (int p = 0; p < 2; p++)
                check_ends(r, to, &w.route[r].send[p], &w.route[to].recv[p], p == 0);
            if (to != r) /* own contributions are taken, but not given */
                check_ends(r, to, &w.route[r].give, &w.route[to].take, true);
        }
    }
    play();
}

static const char *const layouts[] = {
    "mesh a=6; * shard(0)@a",
    "mesh a=6; * shard(1)@a",
    "mesh a=6; * replicate",
    "mesh a=2 b=3; * shard(0)@a",
    "mesh a=3 b=2; * shard(1)@b",
    "mesh a=2 b=2 ranks=5,3,0,1; * shard(0)@a shard(1)@b",
    "mesh a=1 ranks=4; * replicate",
    "mesh a=2 b=3; * strided(0,2)@a",
    "mesh a=3 ranks=1,3,5; * replicate",
    "mesh a=6; * partial(sum)@a",
    "mesh a=2 b=3; * partial(sum)@a",
    "mesh a=2 b=3; * partial(sum)@a shard(0)@b",
};
enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static bool is_partial(const char *rules)
{
    return strstr(rules, "partial") != NULL;
}

static void every_element_arrives_once_whatever_is_cut(void **state)
{
    static const int64_t cut_min[] = { -1, 1, 24, 100, INT64_MAX };

    (void)state;
    for (int from = 0; from < LAYOUTS; from++) {
        for (int to = 0; to < LAYOUTS; to++) {
            for (int k = 0; k < 10; k++) {
                rsi_route_opts opts = { .size = WORLD, .cut_min = cut_min[k / 2] };

                opts.cut_reduced = k % 2;
                if (is_partial(layouts[to]) && from != to)
                    continue;
                begin(layouts[from], layouts[to], 2, &opts);
                check_all();
                end();
            }
        }
    }
}

static size_t hops_of(int phase)
{
    size_t n = 0;

    for (int32_t r = 0; r < WORLD; r++)
        n += w.route[r].send[phase].n;
    return n;
}

/* ---- machines ---- */

static const int32_t machines[][WORLD] = {
    { 0, 0, 0, 1, 1, 1 }, /* halves */
    { 0, 1, 0, 1, 0, 1 }, /* crosswise */
    { 0, 0, 0, 0, 1, 2 }, /* uneven */
    { 2, 1, 0, 0, 1, 2 }, { 0, 1, 2, 3, 4, 5 },
};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

static bool is_on(const rsd_layout *layout, const int32_t *host_of, int32_t host, int e)
{
    for (int32_t r = 0; r < WORLD; r++)
        if (host_of[r] == host && holds(layout, r, e))
            return true;
    return false;
}

/* How often element e comes from another machine to this one. */
static int comings(const int32_t *host_of, int32_t host, uint32_t tensor, int e)
{
    int n = 0;

    for (int32_t r = 0; r < WORLD; r++) {
        const rsi_route      *route = &w.route[r];
        const rsi_hops *const lists[] = { &route->recv[0], &route->recv[1], &route->take };

        for (int k = 0; k < 3 && host_of[r] == host; k++)
            for (size_t i = 0; i < lists[k]->n; i++) {
                const rsi_hop *hop = &lists[k]->at[i];
                rsd_box        box = box_of(r, hop, false);

                n += hop->tensor == tensor && host_of[hop->peer] != host && has_element(&box, e);
            }
    }
    return n;
}

static void check_comings(const int32_t *host_of)
{
    for (int32_t host = 0; host < WORLD; host++)
        for (uint32_t t = 0; t < TENSORS; t++)
            for (int e = 0; e < ELEMENTS; e++)
                assert_int_equal(comings(host_of, host, t, e),
                                 is_on(w.dst, host_of, host, e) && !is_on(w.src, host_of, host, e));
}

static void every_element_comes_to_a_machine_once_if_it_is_not_there(void **state)
{
    static const int64_t cut_min[] = { 1, 24, INT64_MAX };

    (void)state;
    for (int from = 0; from < LAYOUTS; from++)
        for (int to = 0; to < LAYOUTS; to++)
            for (int k = 0; k < 3 * MACHINES; k++) {
                const int32_t *host_of = machines[k / 3];
                rsi_route_opts opts = {
                    .size = WORLD, .cut_min = cut_min[k % 3], .hosts = WORLD, .host_of = host_of
                };

                if (is_partial(layouts[to]) && from != to)
                    continue;
                begin(layouts[from], layouts[to], 2, &opts);
                check_all();
                if (!is_partial(layouts[from]) || from == to)
                    check_comings(host_of);
                end();
            }
}

/* Targets that can't be read: nothing is passed on, but what is near comes from there. */
static void without_passing_on_what_a_machine_has_stays_there(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = -1, .hosts = 2, .host_of = machines[1] };

    (void)state;
    begin("mesh a=3 b=2; * shard(0)@a", "mesh a=6; * replicate", 2, &opts);
    check_all();
    assert_int_equal(hops_of(1), 0);
    for (int e = 0; e < ELEMENTS; e++)
        assert_int_equal(comings(machines[1], 0, 0, e), 0);
    end();
}

static int64_t elements(int32_t rank, const rsi_hops *hops, bool given)
{
    int64_t n = 0;

    for (size_t i = 0; i < hops->n; i++) {
        rsd_box box = box_of(rank, &hops->at[i], given);

        n += rsd_box_count(&box);
    }
    return n;
}

/* One has it, six want it: five get a fifth of it each and pass that on. */
static void what_many_want_leaves_its_holder_once(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = 1 };

    (void)state;
    begin("mesh a=1 ranks=4; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_int_equal(elements(4, &w.route[4].send[0], true), TENSORS * ELEMENTS);
    assert_int_equal(w.route[4].send[1].n, 0);
    for (int32_t r = 0; r < WORLD; r++) {
        int64_t got = elements(r, &w.route[r].recv[0], false);

        assert_int_equal(elements(r, &w.route[r].send[1], false), 4 * got);
        assert_in_range(got, r == 4 ? 0 : TENSORS * COLS, r == 4 ? 0 : TENSORS * 2 * COLS);
    }
    end();
    opts.cut_min = -1;
    begin("mesh a=1 ranks=4; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_int_equal(elements(4, &w.route[4].send[0], true), 5 * TENSORS * ELEMENTS);
    assert_int_equal(hops_of(1), 0);
    end();
}

static void a_piece_smaller_than_the_limit_is_not_cut(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = ELEMENTS * 4 };

    (void)state;
    begin("mesh a=1; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_true(hops_of(1) > 0);
    end();
    opts.cut_min++;
    begin("mesh a=1; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_int_equal(hops_of(1), 0);
    end();
}

static void nothing_is_cut_where_there_is_a_holder_for_each(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = 1 };

    (void)state;
    begin("mesh a=3; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_int_equal(hops_of(1), 0);
    end();
    begin("mesh a=2; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_true(hops_of(1) > 0);
    end();
}

static void only_what_is_reduced_is_cut_if_copies_are_cheap(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = 1, .cut_reduced = true };

    (void)state;
    begin("mesh a=1; * replicate", "mesh a=6; * replicate", 2, &opts);
    assert_int_equal(hops_of(1), 0);
    end();
    begin("mesh a=6; * partial(sum)@a", "mesh a=6; * replicate", 2, &opts);
    assert_true(hops_of(1) > 0);
    for (int32_t r = 0; r < WORLD; r++) /* each combines its sixth only: columns are too few */
        assert_in_range(elements(r, &w.route[r].take, false), 1, TENSORS * WORLD * 2 * COLS);
    end();
}

static void contributions_come_in_the_order_of_the_mesh(void **state)
{
    static const int32_t order[] = { 3, 1, 5, 0, 2, 4 };
    rsi_route_opts       opts = { .size = WORLD, .cut_min = -1 };

    (void)state;
    begin("mesh a=6 ranks=3,1,5,0,2,4; * partial(sum)@a", "mesh a=1 ranks=2; * replicate", 2,
          &opts);
    assert_int_equal(w.route[2].take.n, TENSORS * 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(w.route[2].take.at[i].part, i);
        assert_int_equal(w.route[2].take.at[i].peer, order[i]);
    }
    end();
}

static void a_scalar_is_never_cut(void **state)
{
    rsi_route_opts opts = { .size = WORLD, .cut_min = 0 };

    (void)state;
    begin("mesh a=1; * replicate", "mesh a=6; * replicate", 0, &opts);
    assert_int_equal(hops_of(0), TENSORS * 5);
    assert_int_equal(hops_of(1), 0);
    for (size_t i = 0; i < w.route[0].send[0].n; i++)
        assert_int_equal(w.route[0].send[0].at[i].cuts, 1);
    end();
}

/* Three elements cut among five ranks. */
static void parts_of_nothing_keep_their_place(void **state)
{
    static const char *const from = "mesh a=1; * replicate", *const to = "mesh a=6; * replicate";
    rsi_route_opts    opts = { .size = WORLD, .cut_min = 0 };
    rsd_layout       *src = fixture_layout(from, 1, (int64_t[]){ 3 });
    rsd_layout       *dst = fixture_layout(to, 1, (int64_t[]){ 3 });
    const rsd_layout *s = src, *d = dst;
    int64_t           sent = 0;
    size_t            empty = 0;
    rsd_plan         *plan;
    rsi_route         route;

    (void)state;
    assert_int_equal(rsd_plan_create(1, &s, &d, 0, &plan, NULL), RSD_OK);
    assert_int_equal(rsi_route_make(&route, plan, &opts, NULL), RSD_OK);
    assert_int_equal(route.send[0].n, 5);
    for (size_t i = 0; i < 5; i++) {
        rsd_box box;

        rsi_hop_box(&route, &route.send[0].at[i], true, &box);
        sent += rsd_box_count(&box);
        empty += rsd_box_count(&box) == 0;
    }
    assert_int_equal(sent, 3);
    assert_int_equal(empty, 2);
    rsi_route_release(&route);
    rsd_plan_free(plan);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void a_plan_of_nothing_has_no_hops(void **state)
{
    rsi_route_opts opts = { .size = 1, .cut_min = 1 };
    rsd_plan      *plan;
    rsi_route      route;

    (void)state;
    assert_int_equal(rsd_plan_create(0, NULL, NULL, 0, &plan, NULL), RSD_OK);
    assert_int_equal(rsi_route_make(&route, plan, &opts, NULL), RSD_OK);
    assert_int_equal(route.local.n + route.send[0].n + route.recv[0].n + route.give.n, 0);
    rsi_route_release(&route);
    rsd_plan_free(plan);
}

static void averages_and_sums_are_computed(void **state)
{
    rsi_class c = { .share = 1 };

    (void)state;
    assert_false(rsi_class_computes(&c));
    c.share = 2;
    assert_true(rsi_class_computes(&c));
    c = (rsi_class){ .share = 1, .reduce = RSD_SUM };
    assert_true(rsi_class_computes(&c));
}

static rsi_route_opts making = { .size = WORLD, .cut_min = 1 };

static rsd_err make_and_release(void *arg, rsd_error *err)
{
    rsi_route route;
    rsd_err   rc = rsi_route_make(&route, arg, &making, err);

    assert_true(!rc || !route.send[0].at);
    rsi_route_release(&route);
    return rc;
}

static void every_allocation_that_fails_is_told(void **state)
{
    (void)state;
    begin("mesh a=1; * replicate", "mesh a=6; * replicate", 2, &making);
    assert_survives_no_memory(make_and_release, w.plan[3]);
    making.hosts = WORLD;
    making.host_of = machines[0];
    assert_survives_no_memory(make_and_release, w.plan[3]);
    making.host_of = NULL;
    end();
    begin("mesh a=6; * partial(sum)@a", "mesh a=6; * replicate", 2, &making);
    assert_survives_no_memory(make_and_release, w.plan[0]);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_once_whatever_is_cut),
        cmocka_unit_test(every_element_comes_to_a_machine_once_if_it_is_not_there),
        cmocka_unit_test(without_passing_on_what_a_machine_has_stays_there),
        cmocka_unit_test(what_many_want_leaves_its_holder_once),
        cmocka_unit_test(a_piece_smaller_than_the_limit_is_not_cut),
        cmocka_unit_test(nothing_is_cut_where_there_is_a_holder_for_each),
        cmocka_unit_test(only_what_is_reduced_is_cut_if_copies_are_cheap),
        cmocka_unit_test(contributions_come_in_the_order_of_the_mesh),
        cmocka_unit_test(a_scalar_is_never_cut),
        cmocka_unit_test(parts_of_nothing_keep_their_place),
        cmocka_unit_test(a_plan_of_nothing_has_no_hops),
        cmocka_unit_test(averages_and_sums_are_computed),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
