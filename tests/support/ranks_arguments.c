/* SPDX-License-Identifier: Apache-2.0 */
/* An argument of one rank is missing or makes no sense: all ranks fail with that rank's error, and
 * the comm stays whole. */
#include "ranks_case.h"

#include <reshard/reshard_live.h>
#include <string.h>

/* All that the calls below need; `bad` is true on one rank. */
typedef struct calls {
    ranks_bed         bed;
    ranks_state       s;
    rsd_ckpt         *ckpt;
    const rsd_layout *layout;
    rsd_plan         *plan;
    rsd_views         none;
    bool              bad;
} calls;

static rsd_err save_path(calls *c, rsd_error *err)
{
    return rsd_save(c->bad ? NULL : c->bed.path, c->bed.comm, c->s.state, NULL, err);
}

static rsd_err save_empty_path(calls *c, rsd_error *err)
{
    return rsd_save(c->bad ? "" : c->bed.path, c->bed.comm, c->s.state, NULL, err);
}

static rsd_err save_state(calls *c, rsd_error *err)
{
    return rsd_save(c->bed.path, c->bed.comm, c->bad ? NULL : c->s.state, NULL, err);
}

static rsd_err save_size(calls *c, rsd_error *err)
{
    const rsd_save_opts opts = { .size = c->bad ? 0 : sizeof(opts) };

    return rsd_save(c->bed.path, c->bed.comm, c->s.state, &opts, err);
}

static rsd_err begin_with(calls *c, const char *path, rsd_state *state, int how, bool place,
                          rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc =
        rsd_save_begin(path, c->bed.comm, state, (rsd_stage_way)how, NULL, place ? &op : NULL, err);

    rsd_op_free(op);
    return rc;
}

static rsd_err begin_path(calls *c, rsd_error *err)
{
    return begin_with(c, c->bad ? NULL : c->bed.path, c->s.state, RSD_STAGE_COPY, true, err);
}

static rsd_err begin_state(calls *c, rsd_error *err)
{
    return begin_with(c, c->bed.path, c->bad ? NULL : c->s.state, RSD_STAGE_COPY, true, err);
}

static rsd_err begin_way(calls *c, rsd_error *err)
{
    return begin_with(c, c->bed.path, c->s.state, c->bad ? 7 : RSD_STAGE_COPY, true, err);
}

static rsd_err begin_place(calls *c, rsd_error *err)
{
    return begin_with(c, c->bed.path, c->s.state, RSD_STAGE_COPY, !c->bad, err);
}

static rsd_err load_path(calls *c, rsd_error *err)
{
    return rsd_load(c->bad ? NULL : c->bed.path, c->bed.comm, c->s.state, NULL, err);
}

static rsd_err load_state(calls *c, rsd_error *err)
{
    return rsd_load(c->bed.path, c->bed.comm, c->bad ? NULL : c->s.state, NULL, err);
}

static rsd_err load_size(calls *c, rsd_error *err)
{
    const rsd_load_opts opts = { .size = c->bad ? 0 : sizeof(opts) };

    return rsd_load(c->bed.path, c->bed.comm, c->s.state, &opts, err);
}

static rsd_err leave_out(void *arg, const rsd_tensor_info *info, rsd_view *out)
{
    (void)arg, (void)info, (void)out;
    return RSD_OK;
}

static rsd_err below_alloc(calls *c, rsd_error *err)
{
    return rsd_load_below(c->bed.path, c->bed.comm, 0, NULL, c->bad ? NULL : leave_out, NULL, NULL,
                          err);
}

static rsd_err below_name(calls *c, rsd_error *err)
{
    const char *const name[] = { c->bad ? NULL : "w" };

    return rsd_load_below(c->bed.path, c->bed.comm, 1, name, leave_out, NULL, NULL, err);
}

static rsd_err convert_source(calls *c, rsd_error *err)
{
    return rsd_convert(c->bad ? NULL : c->ckpt, "to", c->bed.comm, NULL, err);
}

static rsd_err convert_path(calls *c, rsd_error *err)
{
    return rsd_convert(c->ckpt, c->bad ? NULL : "to", c->bed.comm, NULL, err);
}

static rsd_err convert_pattern(calls *c, rsd_error *err)
{
    const char *const      pattern[] = { c->bad ? NULL : "w" };
    const rsd_convert_opts opts = { .size = sizeof(opts), .include = pattern, .ninclude = 1 };

    return rsd_convert(c->ckpt, "to", c->bed.comm, &opts, err);
}

static rsd_err reshard_plan(calls *c, rsd_error *err)
{
    return rsd_reshard(c->bad ? NULL : c->plan, c->bed.comm, &c->none, &c->none, NULL, err);
}

static rsd_err reshard_size(calls *c, rsd_error *err)
{
    const rsd_reshard_opts opts = { .size = c->bad ? 0 : sizeof(opts) };

    return rsd_reshard(c->plan, c->bed.comm, &c->none, &c->none, &opts, err);
}

static rsd_err reshard_views(calls *c, rsd_error *err)
{
    return rsd_reshard(c->plan, c->bed.comm, c->bad ? NULL : &c->none, &c->none, NULL, err);
}

static rsd_err reshard_place(calls *c, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc =
        rsd_reshard_begin(c->plan, c->bed.comm, &c->none, &c->none, NULL, c->bad ? NULL : &op, err);

    rsd_op_free(op);
    return rc;
}

static rsd_err stash_opts(calls *c, rsd_error *err)
{
    const rsd_stash_opts opts = { .size = sizeof(opts), .budget = 64, .handles = 1 };
    rsd_stash           *stash = NULL;
    rsd_err              rc = rsd_stash_create(c->bed.comm, c->bad ? NULL : &opts, &stash, err);

    rsd_stash_free(stash);
    return rc;
}

static rsd_err stash_place(calls *c, rsd_error *err)
{
    const rsd_stash_opts opts = { .size = sizeof(opts), .budget = 64, .handles = 1 };
    rsd_stash           *stash = NULL;
    rsd_err              rc = rsd_stash_create(c->bed.comm, &opts, c->bad ? NULL : &stash, err);

    rsd_stash_free(stash);
    return rc;
}

static rsd_err layout_boxes(calls *c, rsd_error *err)
{
    const int64_t size = c->bed.comm->size;
    rsd_layout   *layout = NULL;
    rsd_box       box = { .ndim = 1, .off = { c->bed.comm->rank }, .len = { 1 } };
    rsd_err rc = rsd_layout_create_local(c->bed.comm, RSD_F32, 1, &size, 1, c->bad ? NULL : &box,
                                         &layout, err);

    rsd_layout_free(layout);
    return rc;
}

static rsd_err split_place(calls *c, rsd_error *err)
{
    rsd_comm *group;

    return rsd_comm_split(c->bed.comm, 0, NULL, c->bad ? NULL : &group, err);
}

static rsd_err alloc_place(calls *c, rsd_error *err)
{
    void *memory;

    return rsd_comm_alloc(c->bed.comm, 64, c->bad ? NULL : &memory, err);
}

static const struct {
    const char *name;
    rsd_err (*call)(calls *c, rsd_error *err);
    const char *text;
} list[] = {
    { "save_path", save_path, "missing argument: path or state" },
    { "save_empty_path", save_empty_path, "missing argument: path or state" },
    { "save_state", save_state, "missing argument: path or state" },
    { "save_size", save_size, "rsd_save_opts.size is 0: set it to sizeof(rsd_save_opts)" },
    { "begin_path", begin_path, "missing argument: path, state or output pointer" },
    { "begin_state", begin_state, "missing argument: path, state or output pointer" },
    { "begin_way", begin_way, "7 is not a way of staging" },
    { "begin_place", begin_place, "missing argument: path, state or output pointer" },
    { "load_path", load_path, "missing argument: path or state" },
    { "load_state", load_state, "missing argument: path or state" },
    { "load_size", load_size, "rsd_load_opts.size is 0" },
    { "below_alloc", below_alloc, "missing argument: path, alloc or the 0 names" },
    { "below_name", below_name, "name 0 is missing" },
    { "convert_source", convert_source, "missing argument: checkpoint or path" },
    { "convert_path", convert_path, "missing argument: checkpoint or path" },
    { "convert_pattern", convert_pattern, "pattern 0 to include is missing" },
    { "reshard_plan", reshard_plan, "missing argument: plan or comm" },
    { "reshard_size", reshard_size, "rsd_reshard_opts.size is 0" },
    { "reshard_views", reshard_views, "a plan of 1 tensors needs as many views" },
    { "reshard_place", reshard_place, "missing argument: output pointer for the operation" },
    { "stash_opts", stash_opts, "missing argument: options or output pointer" },
    { "stash_place", stash_place, "missing argument: options or output pointer" },
    { "layout_boxes", layout_boxes, "missing argument: comm, output pointer or the 1 boxes" },
    { "split_place", split_place, "missing argument: comm or output pointer" },
    { "alloc_place", alloc_place, "missing argument: comm or output pointer" },
};

/* A checkpoint, and a plan that moves nothing. */
static rsd_err prepare(calls *c, rsd_comm *comm, rsd_error *err)
{
    const int64_t       zero[] = { 0 };
    const rsd_save_opts save = { .size = sizeof(save), .sync = RSD_NEVER };
    rsd_placement       place = { .kind = RSD_SHARD };
    int64_t             n = comm->size;
    rsd_mesh           *mesh = NULL;
    rsd_layout         *layout = NULL;
    rsd_err             rc = ranks_bed_open(&c->bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&c->s, comm, false, err);
    if (!rc)
        rc = rsd_save(c->bed.path, comm, c->s.state, &save, err);
    if (!rc)
        rc = rsd_ckpt_open(NULL, c->bed.path, &c->ckpt, err);
    if (!rc)
        rc = rsd_mesh_create(1, &n, NULL, NULL, &mesh, err);
    if (!rc)
        rc = rsd_layout_create(mesh, &place, RSD_F32, 1, zero, &layout, err);
    c->layout = layout;
    if (!rc)
        rc = rsd_plan_create(1, &c->layout, &c->layout, comm->rank, &c->plan, err);
    rsd_layout_free(layout);
    rsd_mesh_free(mesh);
    return rsi_agree(comm, rc, err);
}

static rsd_err a_bad_argument_of_one_rank_is_everybody_s_error(rsd_comm *comm, rsd_error *err)
{
    calls   c = { .ckpt = NULL };
    rsd_err rc = prepare(&c, comm, err);

    for (int32_t odd = 0; odd < comm->size && !rc; odd += comm->size - 1) {
        c.bad = comm->rank == odd;
        for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !rc; i++) {
            rc = ranks_failed(comm, list[i].call(&c, err), RSD_E_INVALID, odd, list[i].text, err);
            if (rc)
                rsi_while(err, rc, "%s", list[i].name);
        }
    }
    rsd_plan_free(c.plan);
    rsd_ckpt_close(c.ckpt);
    ranks_state_free(&c.s);
    ranks_bed_close(&c.bed, NULL);
    return rc;
}

const comm_case ranks_arguments[] = {
    { COMM_CASE(a_bad_argument_of_one_rank_is_everybody_s_error), .min_ranks = 2 },
    { .name = NULL },
};
