/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes recipes: a text is refused with a reason, or what it makes of a few tensors has a place
 * for every element. */
#include "base/mem.h"
#include "recipe/made.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

static rsd_err count_piece(void *arg, const rsi_made_piece *piece, rsd_error *err)
{
    int64_t n = 1;

    (void)err;
    for (int k = 0; k < piece->term->form->n; k++) {
        require(piece->count[k] >= 1 && piece->first[k] >= 0);
        require(piece->first[k] + piece->count[k] <= piece->term->form->loop[k].count);
        n *= piece->count[k];
    }
    *(int64_t *)arg += n;
    return RSD_OK;
}

/* The whole tensor, and a part of it. */
static void cut(const rsi_made_tensor *t)
{
    rsd_box box = { .ndim = t->whole_ndim };

    for (int d = 0; d < t->whole_ndim; d++)
        box.len[d] = t->whole[d];
    for (int part = 0; part < 2; part++) {
        int64_t n = 0;

        for (int d = 0; d < t->whole_ndim && part; d++) {
            box.off[d] = box.len[d] / 3;
            box.len[d] -= box.len[d] / 2;
        }
        require(rsi_made_pieces(t, &box, count_piece, &n, NULL) == RSD_OK);
        require(n == rsd_box_count(&box));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rsi_made_source known[] = {
        { .name = "a", .dtype = RSD_F32, .ndim = 2, .shape = { 12, 6 } },
        { .name = "b", .dtype = RSD_F32, .ndim = 2, .shape = { 12, 6 } },
        { .name = "l.0.w", .dtype = RSD_BF16, .ndim = 2, .shape = { 4, 8 } },
        { .name = "l.1.w", .dtype = RSD_BF16, .ndim = 2, .shape = { 4, 8 } },
        { .name = "q", .dtype = RSD_F8_E4M3FN, .ndim = 2, .shape = { 130, 128 } },
        { .name = "q_scale", .dtype = RSD_F32, .ndim = 2, .shape = { 2, 1 } },
        { .name = "s", .dtype = RSD_F32, .ndim = 0 },
        { .name = "la", .dtype = RSD_F32, .ndim = 2, .shape = { 2, 6 } },
        { .name = "lb", .dtype = RSD_F32, .ndim = 2, .shape = { 12, 2 } },
        { .name = "x", .dtype = RSD_F32, .ndim = 2, .shape = { 3, 64 } },
    };
    enum { N = sizeof(known) / sizeof(known[0]) };
    char *text = calloc(size + 1, 1);

    require(text != NULL);
    if (size)
        memcpy(text, data, size);
    for (int reverse = 0; reverse < 2; reverse++) {
        rsi_made_source source[N];
        rsd_recipe     *recipe = NULL;
        rsi_made       *made = NULL;
        rsd_rules      *rules = NULL;
        rsd_error       err = { .msg = "" };
        rsd_err         rc = rsi_recipe_parse(text, reverse, &recipe, &err);

        require(rc == RSD_OK || (rc == RSD_E_INVALID && err.msg[0]));
        if (rc)
            continue;
        memcpy(source, known, sizeof(known));
        require(rsi_recipe_set(recipe, "n", 3, false, NULL) == RSD_OK);
        rc = rsi_recipe_layout(recipe, &rules, &err);
        require(rc == RSD_OK || err.msg[0]);
        rsd_rules_free(rules);
        rc = rsi_made_make(recipe, source, N, &made, &err);
        require(rc == RSD_OK || err.msg[0]);
        require(rc != RSD_E_BUG);
        for (size_t i = 0; !rc && i < made->n && i < 64; i++)
            cut(&made->tensor[i]);
        rsi_made_free(made);
        rsd_recipe_free(recipe);
    }
    free(text);
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}
