/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks load what four have saved: 02_load_other_mesh [PATH], where PATH is the checkpoint that
 * 01_save wrote. Without PATH the program first makes such a checkpoint in memory. The ranks are
 * processes under mpirun -n 2, otherwise threads. */
#include <reshard/reshard.h>

#include <stdio.h>

enum { ROWS = 6, COLS = 8 };

static const int64_t shape[] = { ROWS, COLS };

typedef struct job {
    const char *path;
    rsd_store  *store; /* NULL: local files */
} job;

static rsd_err layout_of(const char *text, rsd_layout **out, rsd_error *err)
{
    rsd_rules *rules;
    rsd_err    rc = rsd_rules_parse(text, &rules, err);

    if (rc)
        return rc;
    rc = rsd_rules_layout(rules, "model.weight", RSD_F32, 2, shape, out, err);
    rsd_rules_free(rules);
    return rc;
}

/* One process may stand for all ranks: the layout says which rank's file each box goes to. */
static rsd_err make_checkpoint(const job *j, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts), .store = j->store };
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    float         all[ROWS * COLS];
    rsd_view      view = { .box = { 2, { 0 }, { ROWS, COLS } }, .data = all };
    rsd_err       rc = layout_of("mesh dp=2 tp=2; * shard(0)@dp shard(1)@tp", &layout, err);

    for (int i = 0; i < ROWS * COLS; i++)
        all[i] = (float)i;
    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, "model.weight", layout, RSD_F32, 2, shape, 1, &view, err);
    if (!rc)
        rc = rsd_save(j->path, NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_layout_free(layout);
    return rc;
}

static rsd_err load(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job    *j = arg;
    rsd_load_opts opts = { .size = sizeof(opts), .store = j->store };
    const int32_t rank = rsd_comm_rank(comm);
    rsd_rules    *rules = NULL;
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    float         part[ROWS * COLS]; /* room for any part */
    rsd_view      view;
    char          box[64];
    size_t        n = 0;
    rsd_err       rc = rsd_rules_parse("mesh tp=2; * shard(1)@tp", &rules, err);

    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_add(state, "model.weight", rules, rank, RSD_F32, 2, shape, part, err);
    if (!rc)
        rc = rsd_rules_layout(rules, "model.weight", RSD_F32, 2, shape, &layout, err);
    if (!rc)
        n = rsd_layout_views(layout, rank, part, &view, 1); /* a part of this mesh is one box */
    if (!rc)
        rc = rsd_load(j->path, comm, state, &opts, err);
    for (int64_t i = 0; !rc && n && i < rsd_box_count(&view.box); i++) {
        const int64_t row = i / view.box.len[1], col = view.box.off[1] + i % view.box.len[1];

        if (part[i] != (float)(row * COLS + col))
            rc = RSD_E_BUG; /* 01_save numbered the elements */
    }
    if (!rc && n) {
        rsd_box_text(&view.box, box, sizeof(box));
        printf("rank %d loaded %s of \"%s\"\n", (int)rank, box, j->path);
    }
    rsd_state_free(state);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

int main(int argc, char **argv)
{
    job       j = { .path = argc > 1 ? argv[1] : "step-1000" };
    rsd_comm *comm = NULL;
    rsd_error err = { .msg = "an element is not what was saved" };
    rsd_err   rc = rsd_comm_create_launched(&comm, &err);

    if (!rc && argc < 2)
        rc = rsd_store_open("mem:", &j.store, &err);
    if (!rc && argc < 2)
        rc = make_checkpoint(&j, &err);
    if (!rc)
        rc = rsd_comm_size(comm) > 1 ? load(&j, comm, &err)
                                     : rsd_comm_run_threads(2, load, &j, &err);
    if (rc)
        fprintf(stderr, "02_load_other_mesh: %s\n", err.msg);
    rsd_store_close(j.store);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
