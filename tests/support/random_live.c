/* SPDX-License-Identifier: Apache-2.0 */
/* random_live.c - from drawn layouts to tensors that can be moved. See random_live.h; live_case.c
 * moves them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "live/exchange.h"
#include "random_live.h"

enum { TINY = 5120, DEFAULT_MIN = 64 << 10 };

const random_way random_ways[RANDOM_WAYS] = {
    { "memory that is reached", { .direct = true, .count = true }, 0, 0 },
    { "memory of the comm", { .direct = true, .shared = true, .count = true }, 0, 0 },
    { "messages", { .count = true }, 0, 0 },
    { "buffers of a few bytes", { .memory = TINY, .count = true, .in_steps = true }, 0, TINY },
    { "pieces cut among their receivers", { .memory = TINY, .count = true }, 1, TINY },
    { "cut pieces that are reached", { .direct = true, .count = true, .in_steps = true }, 1, TINY },
    { "callbacks", { .direct = true, .count = true, .callbacks = true }, 1, 0 },
};

void random_way_take(const random_way *way)
{
    rsi_exchange_cut_min = way && way->cut_min ? way->cut_min : DEFAULT_MIN;
    rsi_exchange_memory_min = way && way->memory_min ? way->memory_min : DEFAULT_MIN;
}

static int32_t part_of(int32_t rank, void *arg)
{
    return ((const oracle *)arg)->part[rank];
}

/* Types in which small whole numbers can be combined. */
static void use_number_types(random_case *c)
{
    static const rsd_dtype types[] = { RSD_I32, RSD_F32, RSD_BF16, RSD_F64, RSD_I16, RSD_I64 };

    for (size_t t = 0; t < c->n; t++)
        if (c->partial[0])
            c->tensor[t].dtype = types[(size_t)c->tensor[t].dtype % 6];
        else if (c->partial[1])
            c->tensor[t].dtype = types[1 + (size_t)c->tensor[t].dtype % 3];
}

void random_live_make(random_live *l, uint64_t seed, int32_t ranks)
{
    random_case *c = &l->drawn;

    memset(l, 0, sizeof(*l));
    random_case_draw(c, seed, ranks);
    use_number_types(c);
    for (size_t t = 0; t < c->n; t++) {
        random_side *side = l->side[t];

        assert_int_equal(random_side_make(&side[0], &c->tensor[t], 0, ranks, NULL), RSD_OK);
        assert_int_equal(random_side_make(&side[1], &c->tensor[t], 1, ranks, NULL), RSD_OK);
        l->tensor[t] = (live_tensor){ .src = side[0].layout,
                                      .dst = side[1].layout,
                                      .parts = side[0].want.parts,
                                      .part_of = part_of,
                                      .arg = &side[0].want };
    }
}

void random_live_free(random_live *l)
{
    for (size_t i = 0; i < 2 * l->drawn.n; i++)
        random_side_free(&l->side[i / 2][i % 2]);
}

int32_t random_live_world(const random_live *l)
{
    int32_t world = 1;

    for (size_t i = 0; i < 2 * l->drawn.n; i++) {
        int32_t w = rsd_layout_world(l->side[i / 2][i % 2].layout);

        world = w > world ? w : world;
    }
    return world;
}
