/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks_case.h"

#include "ckpt_walk.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the folder ---- */

rsd_err ranks_bed_open(ranks_bed *bed, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *bed = (ranks_bed){ .comm = comm, .top = "/tmp/reshard-ranks-XXXXXX" };
    if (comm->rank == 0 && !mkdtemp(bed->top))
        rc = rsi_fail(err, RSD_E_IO, "could not create \"%s\"", bed->top);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_broadcast(comm, 0, bed->top, sizeof(bed->top), err);
    if (!rc)
        rc = rsi_agree(comm, rsd_store_open(bed->top, &bed->store, err), err);
    ranks_bed_name(bed, "ck");
    return rc;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

rsd_err ranks_bed_close(ranks_bed *bed, rsd_error *err)
{
    rsd_err rc = rsi_barrier(bed->comm, err);

    rsd_store_close(bed->store);
    if (bed->comm->rank == 0)
        nftw(bed->top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}

static rsd_err no_entry(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)arg;
    return rsi_fail(err, RSD_E_EXISTS, "there is \"%s\"", entry->name);
}

bool ranks_bed_empty(const ranks_bed *bed)
{
    return rsi_store_list(bed->store, "", no_entry, NULL, NULL) == RSD_OK;
}

const char *ranks_bed_name(ranks_bed *bed, const char *name)
{
    snprintf(bed->path, sizeof(bed->path), "%s/%s", bed->top, name);
    return bed->path;
}

/* ---- values ---- */

const char *const ranks_value_name[RANKS_VALUES] = { "host", "step",   "rng",
                                                     "list", "loader", "extra" };

static rsd_err text_value(rsd_values *owner, const char *text, const rsd_value **out,
                          rsd_error *err)
{
    return rsd_value_create_bytes(owner, RSD_VALUE_STR, text, strlen(text), out, err);
}

/* n different numbers, from `first` on. */
static rsd_err list_value(rsd_values *owner, int32_t n, int64_t first, const rsd_value **out,
                          rsd_error *err)
{
    const rsd_value *item[64] = { NULL };
    rsd_err          rc = RSD_OK;

    for (int32_t i = 0; i < n && i < 64 && !rc; i++)
        rc = rsd_value_create_int(owner, first + i, &item[i], err);
    return rc ? rc : rsd_value_create_list(owner, RSD_VALUE_LIST, (size_t)n, item, out, err);
}

/* Keys that no other rank has, and one that all have. */
static rsd_err dict_value(rsd_values *owner, int32_t rank, const rsd_value **out, rsd_error *err)
{
    const rsd_value *pair[64] = { NULL };
    size_t           n = 0;
    rsd_err          rc = text_value(owner, "epoch", &pair[n++], err);

    if (!rc)
        rc = list_value(owner, rank + 1, rank, &pair[n++], err);
    for (int32_t i = 0; i < rank + 1 && n < 60 && !rc; i++) {
        char key[32];

        snprintf(key, sizeof(key), "shard-%" PRId32 "-%" PRId32, rank, i);
        rc = text_value(owner, key, &pair[n++], err);
        if (!rc)
            rc = rsd_value_create_int(owner, i, &pair[n++], err);
    }
    return rc ? rc : rsd_value_create_list(owner, RSD_VALUE_DICT, n / 2, pair, out, err);
}

/* A tensor of rank + 1 bytes in a list. */
static rsd_err tensor_value(rsd_values *owner, int32_t rank, const rsd_value **out, rsd_error *err)
{
    static const unsigned char bytes[64] = { 5, 4, 3, 2, 1 };
    const rsd_value           *item;
    rsd_value_tensor           t = { .dtype = RSD_U8, .ndim = 1, .bytes = bytes };
    rsd_err                    rc;

    t.shape[0] = t.storage_bytes = rank + 1;
    t.stride[0] = 1;
    rc = rsd_value_create_tensor(owner, &t, &item, err);
    return rc ? rc : rsd_value_create_list(owner, RSD_VALUE_LIST, 1, &item, out, err);
}

rsd_err ranks_value(size_t i, int32_t rank, rsd_values *owner, const rsd_value **out,
                    rsd_error *err)
{
    char text[512];

    memset(text, 'a' + rank % 26, sizeof(text));
    text[7 + 31 * (rank % 16)] = 0;
    switch (i) {
    case 0:
        return text_value(owner, text, out, err);
    case 1:
        return rsd_value_create_int(owner, INT64_C(1) << (rank * 9 % 60), out, err);
    case 2:
        return rsd_value_create_bytes(owner, RSD_VALUE_BYTES, text, strlen(text), out, err);
    case 3:
        return list_value(owner, 2 * rank + 1, 1000 * rank, out, err);
    case 4:
        return dict_value(owner, rank, out, err);
    default:
        return tensor_value(owner, rank, out, err);
    }
}

/* ---- the state ---- */

static const int64_t rows[] = { 64 }, few[] = { 8 };

rsd_err ranks_state_make(ranks_state *s, const rsd_comm *comm, bool values, rsd_error *err)
{
    int64_t     n = comm->size, each = (rows[0] + n - 1) / n, at = each * comm->rank;
    rsd_view    view = { .box = { .ndim = 1 }, .data = s->w };
    rsd_mesh   *mesh = NULL;
    rsd_layout *layout[2] = { NULL, NULL };
    rsd_err     rc = rsd_values_create(&s->owner, err);

    s->state = NULL;
    at = at < rows[0] ? at : rows[0];
    for (int64_t i = 0; i < 64; i++)
        s->w[i] = (float)(at + i);
    for (int64_t i = 0; i < 8; i++)
        s->b[i] = (float)(100 + i);
    if (!rc)
        rc = rsd_state_create(&s->state, err);
    if (!rc)
        rc = rsd_mesh_create(1, &n, NULL, NULL, &mesh, err);
    for (int i = 0; i < 2 && !rc; i++) {
        rsd_placement place = { .kind = i ? RSD_REPLICATE : RSD_SHARD };

        rc = rsd_layout_create(mesh, &place, RSD_F32, 1, i ? few : rows, &layout[i], err);
    }
    view.box.off[0] = at;
    view.box.len[0] = at + each < rows[0] ? each : rows[0] - at;
    if (!rc)
        rc = rsd_state_tensor(s->state, "w", layout[0], RSD_F32, 1, rows, view.box.len[0] > 0,
                              &view, err);
    view = (rsd_view){ .box = { .ndim = 1, .len = { 8 } }, .data = s->b };
    if (!rc)
        rc = rsd_state_tensor(s->state, "b", layout[1], RSD_F32, 1, few, 1, &view, err);
    for (size_t i = 0; i < RANKS_VALUES && values && !rc; i++) {
        const rsd_value *v;

        rc = ranks_value(i, comm->rank, s->owner, &v, err);
        if (!rc)
            rc = rsd_state_value(s->state, ranks_value_name[i], v, err);
    }
    rsd_layout_free(layout[0]);
    rsd_layout_free(layout[1]);
    rsd_mesh_free(mesh);
    return rc;
}

void ranks_state_free(ranks_state *s)
{
    rsd_state_free(s->state);
    rsd_values_free(s->owner);
}

/* ---- saving ---- */

bool ranks_way(const rsd_comm *comm, int i, rsd_stage_way *out)
{
    *out = (rsd_stage_way)i;
    return i <= (comm->ops.flags & RSD_COMM_THREADS ? RSD_STAGE_COPY : RSD_STAGE_FORK);
}

rsd_err ranks_save(const char *path, rsd_comm *comm, rsd_state *state, rsd_stage_way how,
                   const rsd_save_opts *opts, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc;

    if (!how)
        return rsd_save(path, comm, state, opts, err);
    rc = rsd_save_begin(path, comm, state, how, opts, &op, err);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

rsd_err ranks_failed(rsd_comm *comm, rsd_err rc, rsd_err want, int32_t rank, const char *text,
                     rsd_error *err)
{
    rsd_error said = *err;
    rsd_err   mine = RSD_OK;

    if (rc != want || (rc && (said.rank != rank || !strstr(said.msg, text))))
        mine = rsi_fail(err, RSD_E_BUG,
                        "%s of rank %" PRId32 " with \"%s\", not %s of %" PRId32 " with \"%s\"",
                        rsd_err_name(rc), rc ? said.rank : -1, rc ? said.msg : "",
                        rsd_err_name(want), rank, text);
    return rsi_agree(comm, mine, err);
}

static rsd_err check_tensor(rsd_ckpt *ckpt, const char *name, int64_t n, float first,
                            rsd_error *err)
{
    float    data[64];
    rsd_view view = { .box = { .ndim = 1, .len = { n } }, .data = data };
    size_t   t;

    COMM_CHECK(!rsd_ckpt_find(ckpt, name, &t, err));
    COMM_CHECK(!rsd_ckpt_read(ckpt, t, &view, NULL, err));
    for (int64_t i = 0; i < n; i++)
        COMM_CHECK(data[i] == first + (float)i);
    return RSD_OK;
}

/* Value i is that of the rank. It is asked for by its name: some formats keep what is in it. */
static rsd_err check_value(const char *path, size_t i, int32_t rank, rsd_values *owner,
                           rsd_error *err)
{
    char             want[4096], got[4096];
    const rsd_value *value = NULL;
    rsd_state       *state;
    rsd_err          rc;

    COMM_CHECK(!rsd_state_create(&state, err));
    rc = rsd_state_want(state, ranks_value_name[i], owner, &value, err);
    if (!rc)
        rc = rsd_load(path, NULL, state, NULL, err);
    rsd_state_free(state);
    if (rc)
        return rc;
    rsd_value_json(value, got, sizeof(got));
    COMM_CHECK(!ranks_value(i, rank, owner, &value, err));
    rsd_value_json(value, want, sizeof(want));
    COMM_CHECK(strcmp(got, want) == 0);
    return RSD_OK;
}

rsd_err ranks_saved(const char *path, const int32_t *value_of, rsd_error *err)
{
    rsd_values *owner;
    ckpt_walk   walk;
    rsd_ckpt   *ckpt;
    rsd_err     rc;

    ckpt_walk_run(NULL, path, INT64_MAX, &walk);
    if (ckpt_walk_noticed(&walk))
        return rsi_fail(err, RSD_E_BUG, "the checkpoint is damaged: %s",
                        walk.damages ? walk.damage[0].msg : walk.error.msg);
    COMM_CHECK(!rsd_ckpt_open(NULL, path, &ckpt, err));
    rc = rsd_values_create(&owner, err);
    if (!rc)
        rc = check_tensor(ckpt, "w", 64, 0, err);
    if (!rc)
        rc = check_tensor(ckpt, "b", 8, 100, err);
    for (size_t i = 0; i < RANKS_VALUES && !rc; i++)
        if (!value_of || value_of[i] >= 0)
            rc = check_value(path, i, value_of ? value_of[i] : 0, owner, err);
    rsd_values_free(owner);
    rsd_ckpt_close(ckpt);
    return rc;
}
