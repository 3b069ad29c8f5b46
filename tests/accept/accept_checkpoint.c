/* SPDX-License-Identifier: Apache-2.0 */
/* The case of PyTorch's own test of saving and loading distributed tensors: a sharded and a
 * replicated one, two on a mesh of even ranks, and an extra state. */
#include "accept_cases.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS = 4 };

/* Element i of tensor t, before it is changed. */
static float value_of(int t, int64_t i)
{
    return t == 0 ? (float)i : t == 1 ? (float)i + 4 : 0;
}

/* One rank's part of everything. */
typedef struct part {
    const char      *path;
    float            memory[TENSORS][8];
    rsd_box          box[TENSORS]; /* ndim 0: nothing */
    float            extra_bytes;
    rsd_values      *values;
    const rsd_value *extra;
} part;

static const int64_t     length[TENSORS] = { 4, 4, 6, 6 };
static const char *const names[TENSORS] = { "sdt", "rdt", "submesh_sdt", "submesh_rdt" };
static const char *const rules[TENSORS] = {
    "mesh n=4; * shard(0)@n",
    "mesh n=4; * replicate",
    "mesh n=2 ranks=0,2; * shard(0)@n",
    "mesh n=2 ranks=0,2; * replicate",
};

static rsd_err add_tensor(rsd_state *state, part *p, int t, int32_t rank, rsd_error *err)
{
    rsd_rules  *parsed;
    rsd_layout *layout;
    rsd_view    view = { .data = p->memory[t] };
    size_t      n;
    rsd_err     rc = rsd_rules_parse(rules[t], &parsed, err);

    if (rc)
        return rc;
    rc = rsd_rules_layout(parsed, names[t], RSD_F32, 1, &length[t], &layout, err);
    rsd_rules_free(parsed);
    if (rc)
        return rc;
    n = rsd_layout_boxes(layout, rank, &view.box, 1);
    p->box[t] = n ? view.box : (rsd_box){ 0 };
    rc = rsd_state_tensor(state, names[t], layout, RSD_F32, 1, &length[t], n, &view, err);
    rsd_layout_free(layout);
    return rc;
}

/* A dict with an int and a tensor of one element. */
static rsd_err make_extra(part *p, int64_t number, rsd_error *err)
{
    rsd_value_tensor tensor = { .dtype = RSD_F32,
                                .ndim = 1,
                                .shape = { 1 },
                                .stride = { 1 },
                                .storage_bytes = 4,
                                .bytes = &p->extra_bytes };
    const rsd_value *item[4];
    rsd_err          rc = rsd_value_create_bytes(p->values, RSD_VALUE_STR, "n", 1, &item[0], err);

    if (!rc)
        rc = rsd_value_create_int(p->values, number, &item[1], err);
    if (!rc)
        rc = rsd_value_create_bytes(p->values, RSD_VALUE_STR, "t", 1, &item[2], err);
    if (!rc)
        rc = rsd_value_create_tensor(p->values, &tensor, &item[3], err);
    return rc ? rc : rsd_value_create_list(p->values, RSD_VALUE_DICT, 2, item, &p->extra, err);
}

static rsd_err check(const part *p, rsd_error *err)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(rsd_value_get(p->extra, "t"));

    for (int k = 0; k < TENSORS; k++)
        for (int64_t i = 0; i < 8; i++) {
            bool  mine = p->box[k].ndim && i < p->box[k].len[0];
            float want = mine ? value_of(k, p->box[k].off[0] + i) : -1;

            if (p->memory[k][i] != want)
                return rsi_fail(err, RSD_E_BUG, "\"%s\" is wrong at %d", names[k], (int)i);
        }
    if (rsd_value_int(rsd_value_get(p->extra, "n")) != 1)
        return rsi_fail(err, RSD_E_BUG, "the extra state's number is wrong");
    if (!t || t->dtype != RSD_F32 || t->shape[0] != 1 || !t->bytes || *(const float *)t->bytes != 0)
        return rsi_fail(err, RSD_E_BUG, "the extra state's tensor is wrong");
    return RSD_OK;
}

static rsd_err save_first(part *p, rsd_comm *comm, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts), .overwrite = true, .sync = RSD_NEVER };
    rsd_state    *state;
    rsd_err       rc = rsd_state_create(&state, err);

    for (int t = 0; t < TENSORS && !rc; t++)
        rc = add_tensor(state, p, t, rsd_comm_rank(comm), err);
    for (int t = 0; t < TENSORS && !rc; t++)
        for (int64_t i = 0; i < 8; i++)
            p->memory[t][i] =
                p->box[t].ndim && i < p->box[t].len[0] ? value_of(t, p->box[t].off[0] + i) : -1;
    if (!rc)
        rc = make_extra(p, 1, err);
    if (!rc)
        rc = rsd_state_value(state, "_extra_state", p->extra, err);
    if (!rc)
        rc = rsd_save(p->path, comm, state, &opts, err);
    rsd_state_free(state);
    return rc;
}

/* Every value is changed, then loaded again. */
static rsd_err load_again(part *p, rsd_comm *comm, rsd_error *err)
{
    rsd_state *state;
    rsd_err    rc = rsd_state_create(&state, err);

    for (int t = 0; t < TENSORS; t++)
        for (int64_t i = 0; p->box[t].ndim && i < p->box[t].len[0]; i++)
            p->memory[t][i] = p->memory[t][i] * 10 + 1;
    p->extra_bytes = 10;
    if (!rc)
        rc = make_extra(p, 10, err);
    for (int t = 0; t < TENSORS && !rc; t++)
        rc = add_tensor(state, p, t, rsd_comm_rank(comm), err);
    if (!rc)
        rc = rsd_state_want(state, "_extra_state", p->values, &p->extra, err);
    if (!rc)
        rc = rsd_load(p->path, comm, state, NULL, err);
    rsd_state_free(state);
    return rc ? rc : check(p, err);
}

static rsd_err save_and_load(void *arg, rsd_comm *comm, rsd_error *err)
{
    part    p = { .path = arg };
    rsd_err rc = rsd_values_create(&p.values, err);

    if (!rc)
        rc = save_first(&p, comm, err);
    if (!rc)
        rc = load_again(&p, comm, err);
    rsd_values_free(p.values);
    return rc;
}

static rsd_err sharded_replicated_submesh_and_extra_state_come_back(rsd_comm   *comm,
                                                                    const char *folder,
                                                                    rsd_error  *err)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/dtensor", folder);
    return accept_on(comm, 4, save_and_load, path, err);
}

const accept_case accept_checkpoint[] = {
    { .name = "sharded_replicated_submesh_and_extra_state_come_back",
      .ranks = 4,
      .run = sharded_replicated_submesh_and_extra_state_come_back },
    { .name = NULL },
};
