/* SPDX-License-Identifier: Apache-2.0 */
/* Saves while training continues: rsd_save_begin returns as soon as the tensors may be changed
 * again, and the bytes reach the disk in the background. The checkpoint holds what the tensors held
 * at the call. Here two ranks are threads and the store is in memory. */
#include <reshard/reshard.h>

#include <stdio.h>

enum { ROWS = 4, COLS = 8 };

/* A step of training. */
static void train(float *part, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        part[i] += 1;
}

static rsd_err train_and_save(void *arg, rsd_comm *comm, rsd_error *err)
{
    const int64_t shape[] = { ROWS, COLS };
    const int32_t ranks[] = { 0, 1 }, rank = rsd_comm_rank(comm);
    rsd_save_opts opts = { .size = sizeof(opts), .store = arg };
    float         part[ROWS * COLS] = { 0 };
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    rsd_op       *op = NULL;
    rsd_view      view;
    bool          done = false;
    int           steps = 0;
    size_t        n = 0;
    rsd_err       rc = rsd_layout_create_chunked(0, 2, ranks, RSD_F32, 2, shape, &layout, err);

    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        n = rsd_layout_views(layout, rank, part, &view, 1);
    if (!rc)
        rc = rsd_state_tensor(state, "weight", layout, RSD_F32, 2, shape, n, &view, err);
    train(part, ROWS * COLS); /* all ones: this is what gets saved */
    if (!rc)
        rc = rsd_save_begin("step-1", comm, state, RSD_STAGE_COPY, &opts, &op, err);
    while (!rc && steps < 10) {
        train(part, ROWS * COLS);
        steps++;
        if (!done) /* advances the save; never waits */
            rc = rsd_op_test(op, RSD_DURABLE, &done, err);
    }
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    if (!rc && rank == 0)
        printf("step 1 was saved while %d more were made\n", steps);
    rsd_op_free(op);
    rsd_state_free(state);
    rsd_layout_free(layout);
    return rc;
}

/* Checks that the elements are those from when the save began. */
static rsd_err check(rsd_store *store, bool *same, rsd_error *err)
{
    float     all[ROWS * COLS];
    rsd_view  view = { .box = { 2, { 0 }, { ROWS, COLS } }, .data = all };
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(store, "step-1", &ckpt, err);

    if (rc)
        return rc;
    rc = rsd_ckpt_read(ckpt, 0, &view, NULL, err);
    *same = true;
    for (int i = 0; !rc && i < ROWS * COLS; i++)
        *same = *same && all[i] == 1;
    rsd_ckpt_close(ckpt);
    return rc;
}

int main(void)
{
    rsd_store *store = NULL;
    rsd_error  err = { .msg = "" };
    bool       same = false;
    rsd_err    rc = rsd_store_open("mem:", &store, &err);

    if (!rc)
        rc = rsd_comm_run_threads(2, train_and_save, store, &err);
    if (!rc)
        rc = check(store, &same, &err);
    if (rc)
        fprintf(stderr, "04_async: %s\n", err.msg);
    else
        printf("the checkpoint has the elements of step 1: %s\n", same ? "yes" : "NO");
    rsd_store_close(store);
    return rc || !same ? 1 : 0;
}
