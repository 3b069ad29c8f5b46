/* SPDX-License-Identifier: Apache-2.0 */
/* Four ranks save a matrix, each its own part: 01_save [PATH]. The ranks are processes under
 * mpirun -n 4, otherwise threads. Without PATH the checkpoint goes to a store in memory.
 * 02_load_other_mesh.c loads it on two ranks. */
#include <reshard/reshard.h>

#include <stdio.h>

enum { ROWS = 6, COLS = 8 };

typedef struct job {
    const char *path;
    rsd_store  *store; /* NULL: local files */
} job;

/* What each rank of a trainer would do. */
static rsd_err save(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job       *j = arg;
    const int64_t    shape[] = { ROWS, COLS };
    const int32_t    rank = rsd_comm_rank(comm);
    rsd_save_opts    opts = { .size = sizeof(opts), .store = j->store };
    rsd_rules       *rules = NULL;
    rsd_layout      *layout = NULL;
    rsd_state       *state = NULL;
    rsd_values      *values = NULL;
    const rsd_value *step;
    rsd_box          box;
    float            part[ROWS * COLS];
    rsd_err          rc;

    rc = rsd_rules_parse("mesh dp=2 tp=2; * shard(0)@dp shard(1)@tp", &rules, err);
    if (!rc)
        rc = rsd_rules_layout(rules, "model.weight", RSD_F32, 2, shape, &layout, err);
    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_values_create(&values, err);
    if (!rc && rsd_layout_boxes(layout, rank, &box, 1) == 1) {
        for (int64_t i = 0; i < rsd_box_count(&box); i++) /* each element is its own index */
            part[i] = (float)((box.off[0] + i / box.len[1]) * COLS + box.off[1] + i % box.len[1]);
    }
    if (!rc)
        rc = rsd_state_add(state, "model.weight", rules, rank, RSD_F32, 2, shape, part, err);
    if (!rc)
        rc = rsd_value_create_int(values, 1000, &step, err);
    if (!rc)
        rc = rsd_state_value(state, "step", step, err);
    if (!rc)
        rc = rsd_save(j->path, comm, state, &opts, err);
    rsd_state_free(state);
    rsd_values_free(values);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

int main(int argc, char **argv)
{
    job         j = { .path = argc > 1 ? argv[1] : "step-1000" };
    rsd_comm   *comm = NULL;
    rsd_ckpt   *ckpt = NULL;
    rsd_error   err;
    rsd_err     rc = argc > 1 ? RSD_OK : rsd_store_open("mem:", &j.store, &err);
    const char *how = "four threads";

    if (!rc)
        rc = rsd_comm_create_launched(&comm, &err);
    if (!rc && rsd_comm_size(comm) > 1) {
        how = "the ranks of mpirun";
        rc = save(&j, comm, &err);
    } else if (!rc) {
        rc = rsd_comm_run_threads(4, save, &j, &err);
    }
    if (!rc && rsd_comm_rank(comm) == 0)
        rc = rsd_ckpt_open(j.store, j.path, &ckpt, &err);
    if (ckpt)
        printf("%s saved \"%s\": %zu tensor, %zu value\n", how, j.path, rsd_ckpt_tensors(ckpt),
               rsd_ckpt_objects(ckpt));
    if (!rc && ckpt && (rsd_ckpt_tensors(ckpt) != 1 || rsd_ckpt_objects(ckpt) != 1))
        rc = RSD_E_BUG;
    else if (rc)
        fprintf(stderr, "01_save: %s\n", err.msg);
    rsd_ckpt_close(ckpt);
    rsd_store_close(j.store);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
