/* SPDX-License-Identifier: Apache-2.0 */
/* Two jobs that meet: a trainer on four ranks gives its weights to a rollout engine on two, which
 * cuts them differently, without a checkpoint and without MPI. Both jobs join one comm over UCX:
 *
 *     09_two_jobs FOLDER trainer 0     (to 3)     on any machines that see FOLDER
 *     09_two_jobs FOLDER rollout 0     (and 1)
 *
 * Without arguments it starts all six on this machine. */
#include <reshard/reshard_live.h>
#include <reshard/reshard_plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRAINERS = 4, ROLLOUTS = 2, ROWS = 8, COLS = 6 };

static const int64_t shape[] = { ROWS, COLS };

/* The index of a box's element i in the whole tensor. */
static float number(const rsd_box *box, int64_t i)
{
    const int64_t row = box->off[0] + i / box->len[1], col = box->off[1] + i % box->len[1];

    return (float)(row * COLS + col);
}

/* The same on all ranks of both jobs: the plan tells each what to send and to receive. */
static rsd_err hand_over(rsd_comm *comm, rsd_error *err)
{
    const int32_t trainer[] = { 0, 1, 2, 3 }, rollout[] = { 4, 5 }, rank = rsd_comm_rank(comm);
    rsd_layout   *rows = NULL, *cols = NULL;
    rsd_plan     *plan = NULL;
    float         before[ROWS * COLS], after[ROWS * COLS];
    rsd_view      from, to;
    rsd_views     src = { .view = &from }, dst = { .view = &to };
    rsd_err       rc;

    rc = rsd_layout_create_chunked(0, TRAINERS, trainer, RSD_F32, 2, shape, &rows, err);
    if (!rc)
        rc = rsd_layout_create_chunked(1, ROLLOUTS, rollout, RSD_F32, 2, shape, &cols, err);
    if (!rc)
        rc = rsd_plan_create(1, (const rsd_layout *const *)&rows, (const rsd_layout *const *)&cols,
                             rank, &plan, err);
    if (!rc) {
        src.n = rsd_layout_views(rows, rank, before, &from, 1); /* none in the rollout */
        dst.n = rsd_layout_views(cols, rank, after, &to, 1);    /* none in the trainer */
        for (int64_t i = 0; src.n && i < rsd_box_count(&from.box); i++)
            before[i] = number(&from.box, i);
        rc = rsd_reshard(plan, comm, &src, &dst, NULL, err);
    }
    for (int64_t i = 0; !rc && dst.n && i < rsd_box_count(&to.box); i++)
        if (after[i] != number(&to.box, i)) {
            snprintf(err->msg, sizeof(err->msg), "element %d is wrong", (int)i);
            rc = RSD_E_BUG;
        }
    if (!rc && dst.n)
        printf("rollout rank %d has columns %d to %d\n", (int)rank - TRAINERS, (int)to.box.off[1],
               (int)(to.box.off[1] + to.box.len[1] - 1));
    rsd_plan_free(plan);
    rsd_layout_free(rows);
    rsd_layout_free(cols);
    return rc;
}

/* Returns what main returns. */
static int join(const char *folder, const char *job, int rank)
{
    const int   all = strcmp(job, "rollout") == 0 ? TRAINERS + rank : rank;
    rsd_meeting with = { .size = sizeof(with) };
    rsd_error   err = { .msg = "" };
    rsd_comm   *comm = NULL;
    rsd_err     rc = rsd_meeting_in_folder(folder, &with, &err);

    if (!rc) {
        rc = rsd_comm_create_ucx(all, TRAINERS + ROLLOUTS, &with, &comm, &err);
        if (rc)
            with.hangup(with.arg, true);
    }
    if (!rc)
        rc = hand_over(comm, &err);
    rsd_comm_free(comm);
    if (rc)
        fprintf(stderr, "%s %d: %s\n", job, rank, err.msg);
    fflush(stdout);
    return rc ? 1 : 0;
}

static int start_both(void)
{
    char folder[] = "/tmp/two-jobs-XXXXXX";
    int  failed = 0, status;

    if (!mkdtemp(folder))
        return 1;
    for (int r = 0; r < TRAINERS + ROLLOUTS; r++)
        if (fork() == 0)
            _exit(r < TRAINERS ? join(folder, "trainer", r)
                               : join(folder, "rollout", r - TRAINERS));
    while (wait(&status) > 0)
        failed += status != 0;
    rmdir(folder);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return start_both();
    if (argc != 4) {
        fprintf(stderr, "usage: 09_two_jobs [FOLDER trainer|rollout RANK]\n");
        return 2;
    }
    return join(argv[1], argv[2], (int)strtol(argv[3], NULL, 10));
}
