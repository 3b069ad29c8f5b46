/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps activations sharded between forward and backward. The ranks of a tensor-parallel group hold
 * equal inputs, so each keeps a quarter; before backward the whole tensor comes back, one layer
 * ahead of its use. tp_mlp_train.c uses the stash in a training loop. */
#include <reshard/reshard_live.h>

#include <stdio.h>

enum { RANKS = 4, LAYERS = 6, ROWS = 32, COLS = 16, BYTES = ROWS * COLS * sizeof(float) };

static const int64_t shape[] = { ROWS, COLS };

/* The input of a layer: the same on every rank. */
static void forward(int layer, float *x)
{
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(1000 * layer + i);
}

static bool backward(int layer, const float *x)
{
    for (int i = 0; i < ROWS * COLS; i++)
        if (x[i] != (float)(1000 * layer + i))
            return false;
    return true;
}

static rsd_err step(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_stash_opts  opts = { .size = sizeof(opts), .dim = 0, .budget = 1 << 20, .handles = LAYERS };
    rsd_stash      *stash = NULL;
    rsd_stashed     kept[LAYERS];
    rsd_stash_stats stats = { .size = sizeof(stats) };
    float           x[2][ROWS * COLS]; /* the current layer and the one being fetched */
    rsd_err         rc = rsd_stash_create(comm, &opts, &stash, err);

    (void)arg;
    if (rc)
        return rc;
    for (int i = 0; !rc && i < LAYERS; i++) {
        forward(i, x[0]);
        rc = rsd_stash_save(stash, RSD_F32, 2, shape, x[0], true, &kept[i], err);
    }
    rsd_stash_stats_get(stash, &stats, NULL);
    if (!rc)
        rc = rsd_stash_prefetch(&kept[LAYERS - 1], x[(LAYERS - 1) % 2], BYTES, err);
    for (int i = LAYERS - 1; !rc && i >= 0; i--) {
        if (i > 0)
            rc = rsd_stash_prefetch(&kept[i - 1], x[(i - 1) % 2], BYTES, err);
        if (!rc)
            rc = rsd_stash_take(&kept[i], x[i % 2], BYTES, err);
        if (!rc && !backward(i, x[i % 2])) {
            snprintf(err->msg, sizeof(err->msg), "layer %d came back wrong", i);
            rc = RSD_E_BUG;
        }
    }
    if (!rc)
        printf("rank %d kept %d of %d bytes\n", (int)rsd_comm_rank(comm), (int)stats.bytes_held,
               (int)stats.bytes_saved);
    rsd_stash_free(stash);
    return rc;
}

int main(void)
{
    rsd_error err = { .msg = "" };
    rsd_err   rc = rsd_comm_run_threads(RANKS, step, NULL, &err);

    if (rc)
        fprintf(stderr, "06_stash: %s\n", err.msg);
    return rc ? 1 : 0;
}
