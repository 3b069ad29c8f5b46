/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor by rules and a pointer, added in one call: saved from one mesh and loaded on another,
 * also where a rank holds several boxes or none, and under keys that were pushed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <reshard/reshard.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, COLS = 8 };
static const int64_t shape[] = { ROWS, COLS };

typedef struct job {
    rsd_store  *store;
    const char *rules;
    bool        save;
} job;

/* What rank's memory holds: the elements' numbers, box by box. */
static rsd_err check_or_fill(const rsd_layout *layout, int32_t rank, int32_t *data, bool fill)
{
    rsd_view view[64];
    size_t   n = rsd_layout_views(layout, rank, data, view, 64);

    assert_true(n <= 64);
    for (size_t v = 0; v < n; v++)
        for (int64_t i = 0; i < rsd_box_count(&view[v].box); i++) {
            const rsd_box *b = &view[v].box;
            const int64_t  row = i / b->len[1], col = i % b->len[1];
            int32_t       *at = (int32_t *)(void *)((char *)view[v].data + row * view[v].stride[0] +
                                              col * view[v].stride[1]);
            int32_t        want = (int32_t)((b->off[0] + row) * COLS + b->off[1] + col);

            if (fill)
                *at = want;
            else if (*at != want)
                return RSD_E_BUG;
        }
    return RSD_OK;
}

static rsd_err each_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job    *j = arg;
    const int32_t rank = rsd_comm_rank(comm);
    rsd_save_opts save = { .size = sizeof(save), .store = j->store, .overwrite = true };
    rsd_load_opts load = { .size = sizeof(load), .store = j->store };
    rsd_rules    *rules = NULL;
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    int32_t      *part = NULL;
    int64_t       bytes = -1;
    rsd_err       rc = rsd_rules_parse(j->rules, &rules, err);

    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_rules_layout(rules, "model.w", RSD_I32, 2, shape, &layout, err);
    if (!rc)
        rc = rsd_rules_bytes(rules, "model.w", RSD_I32, 2, shape, rank, &bytes, err);
    if (!rc) {
        assert_int_equal(bytes, rsd_layout_bytes(layout, rank));
        part = bytes ? calloc(1, (size_t)bytes) : NULL;
        if (j->save)
            rc = check_or_fill(layout, rank, part, true);
    }
    if (!rc)
        rc = rsd_state_push(state, "model", err);
    if (!rc)
        rc = rsd_state_add(state, "w", rules, rank, RSD_I32, 2, shape, part, err);
    if (!rc)
        rc = rsd_state_pop(state, err);
    if (!rc)
        rc = j->save ? rsd_save("ck", comm, state, &save, err)
                     : rsd_load("ck", comm, state, &load, err);
    if (!rc && !j->save)
        rc = check_or_fill(layout, rank, part, false);
    free(part);
    rsd_state_free(state);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

static void saved_on_one_mesh_and_loaded_on_another(void **state)
{
    /* Rows in rising chunks, several boxes a rank (strided), a rank with nothing (5 rows on 4). */
    static const struct {
        const char *rules;
        int32_t     ranks;
    } mesh[] = { { "mesh a=4; model.* shard(0)@a", 4 },
                 { "mesh a=2 b=2; model.* shard(0)@a shard(1)@b", 4 },
                 { "mesh a=2; model.* strided(1,2)@a", 2 },
                 { "mesh a=3; model.* replicate", 3 } };
    rsd_error err = { .msg = "" };
    job       j = { .store = NULL };

    (void)state;
    assert_int_equal(rsd_store_open("mem:", &j.store, NULL), RSD_OK);
    for (size_t from = 0; from < 4; from++)
        for (size_t to = 0; to < 4; to++) {
            j.save = true;
            j.rules = mesh[from].rules;
            if (rsd_comm_run_threads(mesh[from].ranks, each_rank, &j, &err))
                fail_msg("saving %s: %s", j.rules, err.msg);
            j.save = false;
            j.rules = mesh[to].rules;
            if (rsd_comm_run_threads(mesh[to].ranks, each_rank, &j, &err))
                fail_msg("loading %s: %s", j.rules, err.msg);
        }
    rsd_store_close(j.store);
}

static void refusals_name_the_tensor(void **state)
{
    rsd_error  err = { .msg = "" };
    rsd_rules *rules;
    rsd_state *s;
    int64_t    bytes;
    float      data[ROWS * COLS];

    (void)state;
    assert_int_equal(rsd_rules_parse("mesh a=2; w* shard(0)@a", &rules, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&s, NULL), RSD_OK);
    assert_int_equal(rsd_state_add(s, "x", rules, 0, RSD_F32, 2, shape, data, &err),
                     RSD_E_NOTFOUND);
    assert_non_null(strstr(err.msg, "\"x\""));
    assert_int_equal(rsd_state_add(s, "w", rules, 1, RSD_F32, 2, shape, NULL, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"w\": rank 1 holds 64 bytes, but data is NULL");
    assert_int_equal(rsd_state_add(s, "w", rules, 2, RSD_F32, 2, shape, NULL, &err), RSD_OK);
    assert_int_equal(rsd_state_add(s, "w", rules, 2, RSD_F32, 2, shape, NULL, &err), RSD_E_EXISTS);
    assert_int_equal(rsd_state_add(s, NULL, rules, 0, RSD_F32, 2, shape, data, &err),
                     RSD_E_INVALID);
    assert_int_equal(rsd_state_add(s, "w2", rules, -1, RSD_F32, 2, shape, data, &err),
                     RSD_E_INVALID);
    assert_int_equal(rsd_rules_bytes(rules, "w", RSD_F32, 2, shape, 0, &bytes, NULL), RSD_OK);
    assert_int_equal(bytes, 3 * COLS * 4);
    rsd_state_free(s);
    rsd_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_on_one_mesh_and_loaded_on_another),
        cmocka_unit_test(refusals_name_the_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
