/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of PyTorch's own tests of checkpoint resharding, with their numbers: saved by some
 * ranks, loaded by ranks with another layout, another mesh, another number of ranks. */
#include "accept_cases.h"
#include "format/transform.h"
#include "rot13.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 }; /* elements */

/* A tensor whose element i is i, on ranks by rules or by explicit boxes. */
typedef struct layout_case {
    const char *rules; /* NULL: the boxes below, one a rank */
    rsd_box     box[4];
    int32_t     ranks;
    bool        shared; /* loads go into memory of the comm, which other ranks may reach */
} layout_case;

typedef struct job {
    const char        *path;
    const layout_case *as;
    int                ndim;
    int64_t            shape[2];
    const char        *transform;
    bool               save;
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

    for (size_t i = 0; i < n && i < 8; i++) {
        rsd_local local;

        rsd_layout_local(layout, rank, i, &local, NULL);
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

static rsd_err save_or_load(const job *j, rsd_comm *comm, rsd_state *state, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts),
                           .transform = j->transform,
                           .overwrite = true,
                           .sync = RSD_NEVER,
                           .threads = 1 };
    rsd_load_opts load = { .size = sizeof(load), .threads = 1 };

    return j->save ? rsd_save(j->path, comm, state, &opts, err)
                   : rsd_load(j->path, comm, state, &load, err);
}

static rsd_err run(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job  *j = arg;
    float       own[2 * MOST], *memory = own, *second; /* tensors: files have several items */
    void       *shared = NULL;
    int64_t     index[MOST], cols = j->ndim > 1 ? j->shape[1] : 1;
    rsd_view    view[8];
    rsd_layout *layout;
    rsd_state  *state = NULL;
    size_t      n;
    rsd_err     rc = layout_of(j, &layout, err);

    if (!rc && !j->save && j->as->shared) {
        rc = rsd_comm_alloc(comm, sizeof(own), &shared, err);
        memory = shared;
    }
    if (rc)
        return rc;
    second = memory + MOST;
    for (int i = 0; i < MOST; i++)
        memory[i] = second[i] = -1, index[i] = -1;
    n = views_of(layout, rsd_comm_rank(comm), memory, view, index, cols);
    for (int i = 0; i < MOST && j->save; i++)
        memory[i] = (float)index[i], second[i] = (float)index[i] + 100;
    rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, "x", layout, RSD_F32, j->ndim, j->shape, n, view, err);
    for (size_t i = 0; i < n; i++)
        view[i].data = (char *)second + ((char *)view[i].data - (char *)memory);
    if (!rc)
        rc = rsd_state_tensor(state, "y", layout, RSD_F32, j->ndim, j->shape, n, view, err);
    if (!rc)
        rc = save_or_load(j, comm, state, err);
    for (int i = 0; i < MOST && !rc; i++)
        if (memory[i] != (float)index[i] || (index[i] >= 0 && second[i] != (float)index[i] + 100))
            rc = rsi_fail(err, RSD_E_BUG, "element %d is wrong", i);
    rsd_state_free(state);
    rsd_layout_free(layout);
    if (j->as->shared && !j->save)
        rsd_comm_dealloc(comm, shared);
    return rc;
}

static const char *text_of(const layout_case *as)
{
    return as->rules ? as->rules : "boxes";
}

/* One step on as many ranks as the layout has. */
static rsd_err step(rsd_comm *comm, job j, const char *path, bool save, rsd_error *err)
{
    rsd_err rc;

    j.path = path;
    j.save = save;
    rc = accept_on(comm, j.as->ranks, run, &j, err);
    return rc ? rsi_while(err, rc, "%s as %s", save ? "save" : "load", text_of(j.as)) : RSD_OK;
}

/* Saves as the one, loads as the other, saves that and loads it as the first again. */
static rsd_err there_and_back(rsd_comm *comm, const char *folder, const layout_case *a,
                              const layout_case *b, int ndim, int64_t rows, int64_t cols,
                              const char *transform, rsd_error *err)
{
    char    first[96], second[96];
    job     one = { .as = a, .ndim = ndim, .shape = { rows, cols }, .transform = transform };
    job     other = one;
    rsd_err rc;

    other.as = b;
    snprintf(first, sizeof(first), "%s/a", folder);
    snprintf(second, sizeof(second), "%s/b", folder);
    rc = step(comm, one, first, true, err);
    if (!rc)
        rc = step(comm, other, first, false, err);
    if (!rc)
        rc = step(comm, other, second, true, err);
    if (!rc)
        rc = step(comm, one, second, false, err);
    return rc;
}

static const layout_case one_d[] = {
    { .rules = "mesh n=4; * replicate", .ranks = 4, .shared = true },
    { .rules = "mesh n=4; * shard(0)@n", .ranks = 4, .shared = true },
};
static const layout_case two_d[] = {
    { .rules = "mesh a=2 b=2; * replicate", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@b", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@a", .ranks = 4 },
    { .rules = "mesh a=2 b=2; * shard(0)@a shard(0)@b", .ranks = 4 },
};

static rsd_err placement_change_on_a_1d_mesh(rsd_comm *comm, const char *folder, rsd_error *err)
{
    static const char *const transforms[] = { NULL, "stream.rot13", "stream.zstd" };
    rsd_err                  rc = rsd_transform_register(rot13(), NULL);

    rc = rc == RSD_E_EXISTS ? RSD_OK : rc;
    for (int t = 0; t < (rsi_transform_zstd(0) ? 3 : 2) && !rc; t++) {
        rc = there_and_back(comm, folder, &one_d[0], &one_d[1], 2, 4, 4, transforms[t], err);
        if (!rc)
            rc = there_and_back(comm, folder, &one_d[1], &one_d[0], 2, 4, 4, transforms[t], err);
    }
    return rc;
}

static rsd_err placement_change_on_a_2d_mesh(rsd_comm *comm, const char *folder, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4 && !rc; b++)
            if (a != b)
                rc = there_and_back(comm, folder, &two_d[a], &two_d[b], 2, 4, 4, NULL, err);
    return rc;
}

static rsd_err mesh_change_between_1d_and_2d(rsd_comm *comm, const char *folder, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 4 && !rc; b++)
            rc = there_and_back(comm, folder, &one_d[a], &two_d[b], 2, 4, 4, NULL, err);
    return rc;
}

static rsd_err one_element_leaves_all_ranks_but_one_empty(rsd_comm *comm, const char *folder,
                                                          rsd_error *err)
{
    return there_and_back(comm, folder, &one_d[1], &two_d[3], 1, 1, 1, NULL, err);
}

static rsd_err fourteen_rows_on_four_ranks_load_as_a_plain_tensor(rsd_comm   *comm,
                                                                  const char *folder,
                                                                  rsd_error  *err)
{
    return there_and_back(comm, folder, &one_d[1], &one_d[0], 2, 14, 1, NULL, err);
}

/* 16 x 1: (offset, rows) of each rank. */
#define ROWS(at, rows)                                                                             \
    {                                                                                              \
        .ndim = 2, .off = { at, 0 }, .len = { rows, 1 }                                            \
    }

static rsd_err explicit_uneven_boxes_change_to_others(rsd_comm *comm, const char *folder,
                                                      rsd_error *err)
{
    static const layout_case from = { .box = { ROWS(0, 4), ROWS(4, 3), ROWS(7, 4), ROWS(11, 5) },
                                      .ranks = 4 };
    static const layout_case to[] = {
        { .box = { ROWS(0, 2), ROWS(2, 4), ROWS(6, 6), ROWS(12, 4) }, .ranks = 4 },
        { .box = { ROWS(0, 6), ROWS(6, 2), ROWS(8, 1), ROWS(9, 7) }, .ranks = 4 },
    };
    rsd_err rc = there_and_back(comm, folder, &from, &to[0], 2, 16, 1, NULL, err);

    return rc ? rc : there_and_back(comm, folder, &from, &to[1], 2, 16, 1, NULL, err);
}

/* ---- another number of ranks ---- */

enum { COUNTS = 6, PLACES = 6 };
static const int32_t     counts[COUNTS] = { 1, 2, 3, 4, 6, 8 };
static const char *const places[PLACES] = {
    "mesh n=%d; * replicate",      "mesh n=%d; * shard(0)@n",
    "mesh n=%d; * shard(1)@n",     "mesh a=2 b=%d; * shard(0)@b",
    "mesh a=2 b=%d; * shard(0)@a", "mesh a=2 b=%d; * shard(0)@a shard(0)@b",
};

/* Placement p on `n` ranks; false: there is no such mesh. */
static bool place_on(int p, int32_t n, char *text, size_t cap, layout_case *out)
{
    if (p > 2 && (n < 4 || n % 2))
        return false;
    snprintf(text, cap, places[p], (int)(p > 2 ? n / 2 : n));
    *out = (layout_case){ .rules = text, .ranks = n };
    return true;
}

/* `first` moves which are left out. */
static rsd_err load_by_all(rsd_comm *comm, const char *path, int first, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int c = 0; c < COUNTS && counts[c] <= comm->size; c++)
        for (int p = 0; p < PLACES && !rc; p++) {
            char        text[64];
            layout_case as;
            job         j = { .as = &as, .ndim = 2, .shape = { 4, 4 } };

            if ((first + c + p) % accept_every == 0 &&
                place_on(p, counts[c], text, sizeof(text), &as))
                rc = step(comm, j, path, false, err);
        }
    return rc;
}

static rsd_err any_number_of_ranks_loads_what_any_other_saved(rsd_comm *comm, const char *folder,
                                                              rsd_error *err)
{
    char    path[96];
    rsd_err rc = RSD_OK;

    snprintf(path, sizeof(path), "%s/world", folder);
    for (int c = 0; c < COUNTS && counts[c] <= comm->size; c++)
        for (int p = 0; p < PLACES && !rc; p++) {
            char        text[64];
            layout_case as;
            job         j = { .as = &as, .ndim = 2, .shape = { 4, 4 } };

            if (!place_on(p, counts[c], text, sizeof(text), &as))
                continue;
            rc = step(comm, j, path, true, err);
            if (!rc)
                rc = load_by_all(comm, path, c + p, err);
            if (rc)
                return rsi_while(err, rc, "saved as %s", text);
        }
    return rc;
}

#define ON(ranks_, name_)                                                                          \
    {                                                                                              \
        .name = #name_, .ranks = (ranks_), .run = name_                                            \
    }
const accept_case accept_resharding[] = {
    ON(4, placement_change_on_a_1d_mesh),
    ON(4, placement_change_on_a_2d_mesh),
    ON(4, mesh_change_between_1d_and_2d),
    ON(4, one_element_leaves_all_ranks_but_one_empty),
    ON(4, fourteen_rows_on_four_ranks_load_as_a_plain_tensor),
    ON(4, explicit_uneven_boxes_change_to_others),
    ON(1, any_number_of_ranks_loads_what_any_other_saved),
    { .name = NULL },
};
