/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a tensor between ranks from one layout to another, without a checkpoint: rows on four ranks
 * become columns on three of them. The plan is made once, from the two layouts, and can be run any
 * number of times. */
#include <reshard/reshard_live.h>

#include <stdio.h>

enum { RANKS = 4, ROWS = 8, COLS = 9 };

static const int64_t shape[] = { ROWS, COLS };

/* The index of a box's element i in the whole tensor. */
static float number(const rsd_box *box, int64_t i)
{
    const int64_t row = box->off[0] + i / box->len[1], col = box->off[1] + i % box->len[1];

    return (float)(row * COLS + col);
}

static rsd_err reshard(void *arg, rsd_comm *comm, rsd_error *err)
{
    const int32_t     all[] = { 0, 1, 2, 3 }, some[] = { 0, 1, 2 }, rank = rsd_comm_rank(comm);
    rsd_layout       *rows = NULL, *cols = NULL;
    rsd_plan         *plan = NULL;
    float             before[ROWS * COLS], after[ROWS * COLS];
    rsd_view          from, to;
    rsd_views         src = { .view = &from }, dst = { .view = &to };
    rsd_reshard_stats stats = { .size = sizeof(stats) };
    rsd_reshard_opts  opts = { .size = sizeof(opts), .stats = &stats };
    rsd_err           rc = rsd_layout_create_chunked(0, 4, all, RSD_F32, 2, shape, &rows, err);

    (void)arg;
    if (!rc)
        rc = rsd_layout_create_chunked(1, 3, some, RSD_F32, 2, shape, &cols, err);
    if (!rc)
        rc = rsd_plan_create(1, (const rsd_layout *const *)&rows, (const rsd_layout *const *)&cols,
                             rank, &plan, err);
    if (!rc) {
        src.n = rsd_layout_views(rows, rank, before, &from, 1);
        dst.n = rsd_layout_views(cols, rank, after, &to, 1); /* none on rank 3 */
        for (int64_t i = 0; src.n && i < rsd_box_count(&from.box); i++)
            before[i] = number(&from.box, i);
        rc = rsd_reshard(plan, comm, &src, &dst, &opts, err);
    }
    for (int64_t i = 0; !rc && dst.n && i < rsd_box_count(&to.box); i++)
        if (after[i] != number(&to.box, i)) {
            snprintf(err->msg, sizeof(err->msg), "element %d is wrong", (int)i);
            rc = RSD_E_BUG;
        }
    if (!rc)
        printf("rank %d: %d bytes were here, %d came from other ranks\n", (int)rank,
               (int)stats.bytes_local, (int)(stats.bytes_recv + stats.bytes_reached));
    rsd_plan_free(plan);
    rsd_layout_free(rows);
    rsd_layout_free(cols);
    return rc;
}

int main(void)
{
    rsd_error err = { .msg = "" };
    rsd_err   rc = rsd_comm_run_threads(RANKS, reshard, NULL, &err);

    if (rc)
        fprintf(stderr, "05_live: %s\n", err.msg);
    return rc ? 1 : 0;
}
