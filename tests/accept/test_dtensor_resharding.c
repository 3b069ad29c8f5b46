/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of PyTorch's own tests of checkpoint resharding, with their numbers: saved by ranks on
 * threads, loaded by ranks with another layout, another mesh, another number of ranks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "format/transform.h"
#include "rot13.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* elements */

static char folder[] = "/tmp/reshard-accept-XXXXXX";

/* A tensor whose element i is i, on ranks by rules or by explicit boxes. */
typedef struct layout_case {
    const char *rules; /* NULL: the boxes below, one a rank */
    rsd_box     box[4];
    int32_t     ranks;
} layout_case;

typedef struct job {
    const char        *path;
    const layout_case *as;
    int                ndim;
    int64_t            shape[2];
    const char        *transform;
} job;

static rsd_err layout_of(const job *j, rsd_layout **out, rsd_error *err)
{
    static const int32_t owner[] = { 0, 1, 2, 3 };
    rsd_rules           *rules;
    rsd_err              rc;

    if (!j->as->rules)
        return rsd_layout_create_boxes(RSD_F32, j->ndim, j->shape, (size_t)j->as->ranks, owner,
                                       j->as->box, out, err);
    rc = rsd_rules_parse(j->as->rules, &rules, err);
    if (rc)
        return rc;
    rc = rsd_rules_layout(rules, "x", RSD_F32, j->ndim, j->shape, out, err);
    rsd_rules_free(rules);
    return rc;
}

/* The views of a rank's part in `memory`, and the number of each of their elements in `index`. */
static size_t views_of(const rsd_layout *layout, int32_t rank, float *memory, rsd_view *view,
                       int64_t *index, int64_t cols)
{
    size_t n = rsd_layout_boxes(layout, rank, NULL, 0);

    assert_true(n <= 8);
    for (size_t i = 0; i < n; i++) {
        rsd_local local;

        assert_int_equal(rsd_layout_local(layout, rank, i, &local, NULL), RSD_OK);
        view[i] = (rsd_view){ .box = local.box, .data = (char *)memory + local.offset };
        memcpy(view[i].stride, local.stride, sizeof(local.stride));
        for (int64_t e = 0; e < rsd_box_count(&local.box); e++) {
            int64_t last = local.box.ndim > 1 ? local.box.len[1] : 1;
            int64_t row = local.box.off[0] + e / last;
            int64_t col = local.box.ndim > 1 ? local.box.off[1] + e % last : 0;
            int64_t at = local.offset + e / last * local.stride[0] +
                         (local.box.ndim > 1 ? e % last * local.stride[1] : 0);

            index[at / 4] = row * cols + col;
        }
    }
    return n;
}

static rsd_err run(const job *j, rsd_comm *comm, bool save, rsd_error *err)
{
    float    memory[MOST], second[MOST]; /* a second tensor, so that files have several items */
    int64_t  index[MOST], cols = j->ndim > 1 ? j->shape[1] : 1;
    rsd_view view[8];
    rsd_save_opts opts = {
        .size = sizeof(opts), .transform = j->transform, .overwrite = true, .threads = 1
    };
    rsd_layout *layout;
    rsd_state  *state;
    size_t      n;
    rsd_err     rc = layout_of(j, &layout, err);

    if (rc)
        return rc;
    for (int i = 0; i < MOST; i++)
        memory[i] = second[i] = -1, index[i] = -1;
    n = views_of(layout, rsd_comm_rank(comm), memory, view, index, cols);
    for (int i = 0; i < MOST && save; i++)
        memory[i] = (float)index[i], second[i] = (float)index[i] + 100;
    rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, "x", layout, RSD_F32, j->ndim, j->shape, n, view, err);
    for (size_t i = 0; i < n; i++)
        view[i].data = (char *)second + ((char *)view[i].data - (char *)memory);
    if (!rc)
        rc = rsd_state_tensor(state, "y", layout, RSD_F32, j->ndim, j->shape, n, view, err);
    if (!rc)
        rc = save ? rsd_save(j->path, comm, state, &opts, err)
                  : rsd_load(j->path, comm, state, NULL, err);
    for (int i = 0; i < MOST && !rc; i++)
        if (memory[i] != (float)index[i] || (index[i] >= 0 && second[i] != (float)index[i] + 100))
            rc = RSD_E_BUG;
    rsd_state_free(state);
    rsd_layout_free(layout);
    return rc;
}

static rsd_err save_it(void *arg, rsd_comm *comm, rsd_error *err)
{
    return run(arg, comm, true, err);
}

static rsd_err load_it(void *arg, rsd_comm *comm, rsd_error *err)
{
    return run(arg, comm, false, err);
}

/* Saves as the one, loads as the other, saves that and loads it as the first again. */
static void there_and_back(const layout_case *a, const layout_case *b, int ndim, int64_t rows,
                           int64_t cols, const char *transform)
{
    char      first[64], second[64];
    job       one = { first, a, ndim, { rows, cols }, transform };
    job       other = { second, b, ndim, { rows, cols }, transform };
    rsd_error err = { 0 };

    snprintf(first, sizeof(first), "%s/a", folder);
    snprintf(second, sizeof(second), "%s/b", folder);
    for (int way = 0; way < 2; way++) {
        job to = way ? one : other;

        if (rsd_comm_run_threads((way ? b : a)->ranks, save_it, way ? &other : &one, &err))
            fail_msg("save as %s: %s", (way ? b : a)->rules ? (way ? b : a)->rules : "boxes",
                     err.msg);
        to.path = way ? second : first;
        if (rsd_comm_run_threads((way ? a : b)->ranks, load_it, &to, &err))
            fail_msg("load as %s: %s", (way ? a : b)->rules ? (way ? a : b)->rules : "boxes",
                     err.msg);
    }
}

static const layout_case one_d[] = { { .rules = "mesh n=4; * replicate", .ranks = 4 },
                                     { .rules = "mesh n=4; * shard(0)@n", .ranks = 4 } };
static const layout_case two_d[] = {
    { .rules = "mesh a=2 b=2; * replicate", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@b", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@a", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@a shard(0)@b", .ranks = 4 },
};

static void placement_change_on_a_1d_mesh(void **state)
{
    static const char *const transforms[] = { NULL, "stream.rot13", "stream.zstd" };
    bool                     zstd = *state != NULL;

    for (int t = 0; t < (zstd ? 3 : 2); t++) {
        there_and_back(&one_d[0], &one_d[1], 2, 4, 4, transforms[t]);
        there_and_back(&one_d[1], &one_d[0], 2, 4, 4, transforms[t]);
    }
}

static void placement_change_on_a_2d_mesh(void **state)
{
    (void)state;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b)
                there_and_back(&two_d[a], &two_d[b], 2, 4, 4, NULL);
}

static void mesh_change_between_1d_and_2d(void **state)
{
    (void)state;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 4; b++)
            there_and_back(&one_d[a], &two_d[b], 2, 4, 4, NULL);
}

static void one_element_leaves_all_ranks_but_one_empty(void **state)
{
    (void)state;
    there_and_back(&one_d[1], &two_d[3], 1, 1, 1, NULL);
}

static void fourteen_rows_on_four_ranks_load_as_a_plain_tensor(void **state)
{
    (void)state;
    there_and_back(&one_d[1], &one_d[0], 2, 14, 1, NULL);
}

/* 16 x 1: (offset, rows) of each rank. */
#define ROWS(at, rows)                                                                             \
    {                                                                                              \
        .ndim = 2, .off = { at, 0 }, .len = { rows, 1 }                                            \
    }

static void explicit_uneven_boxes_change_to_others(void **state)
{
    static const layout_case from = { .box = { ROWS(0, 4), ROWS(4, 3), ROWS(7, 4), ROWS(11, 5) },
                                      .ranks = 4 };
    static const layout_case to[] = {
        { .box = { ROWS(0, 2), ROWS(2, 4), ROWS(6, 6), ROWS(12, 4) }, .ranks = 4 },
        { .box = { ROWS(0, 6), ROWS(6, 2), ROWS(8, 1), ROWS(9, 7) }, .ranks = 4 },
    };

    (void)state;
    there_and_back(&from, &to[0], 2, 16, 1, NULL);
    there_and_back(&from, &to[1], 2, 16, 1, NULL);
}

static void any_number_of_ranks_loads_what_any_other_saved(void **state)
{
    static const int32_t     counts[] = { 1, 2, 3, 4, 6, 8 };
    static const char *const places[] = { "replicate", "shard(0)@n", "shard(1)@n" };

    (void)state;
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++) {
            char        from[48], to[48];
            layout_case x = { .rules = from, .ranks = counts[a] };
            layout_case y = { .rules = to, .ranks = counts[b] };

            snprintf(from, sizeof(from), "mesh n=%d; * %s", counts[a], places[(a + b) % 3]);
            snprintf(to, sizeof(to), "mesh n=%d; * %s", counts[b], places[(a + 2 * b + 1) % 3]);
            there_and_back(&x, &y, 2, 4, 4, NULL);
        }
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && rsd_transform_register(rot13(), NULL) == RSD_OK ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    static char             has_zstd[] = "zstd";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(placement_change_on_a_1d_mesh,
                                  rsi_transform_zstd() ? has_zstd : NULL),
        cmocka_unit_test(placement_change_on_a_2d_mesh),
        cmocka_unit_test(mesh_change_between_1d_and_2d),
        cmocka_unit_test(one_element_leaves_all_ranks_but_one_empty),
        cmocka_unit_test(fourteen_rows_on_four_ranks_load_as_a_plain_tensor),
        cmocka_unit_test(explicit_uneven_boxes_change_to_others),
        cmocka_unit_test(any_number_of_ranks_loads_what_any_other_saved),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
