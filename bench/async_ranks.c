/* SPDX-License-Identifier: Apache-2.0 */
/* async_ranks: one rank of the async benchmarks, started by mpirun through bench_async.c. Each has
 * its part of 2 GiB of bfloat16 in 16 tensors. Rank 0 reads commands and answers with seconds, from
 * a barrier until the last rank may change its tensors; the save is waited for, not measured:
 *
 *   fork PATH   RSD_STAGE_FORK
 *   copy PATH   RSD_STAGE_COPY
 */
#include <reshard/reshard.h>
#include <reshard/reshard_mpi.h>

#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 16, SIDE = 8192, LINE = 4096 };

static void die(const char *why)
{
    fprintf(stderr, "async_ranks: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* As bench_ckpt.c and its peer have it. */
static rsd_state *make_state(int rank, int size)
{
    const int64_t shape[] = { SIDE, SIDE };
    size_t        part = (size_t)SIDE * SIDE * 2 / (size_t)size;
    char         *memory = malloc(part * TENSORS), text[64];
    rsd_rules    *rules;
    rsd_layout   *layout;
    rsd_state    *state;
    rsd_error     err = { 0 };

    snprintf(text, sizeof(text), "mesh dp=%d; * shard(0)@dp", size);
    if (!memory || rsd_rules_parse(text, &rules, &err) ||
        rsd_rules_layout(rules, "t", RSD_BF16, 2, shape, &layout, &err) ||
        rsd_state_create(&state, &err))
        die(err.msg);
    memset(memory, rank + 1, part * TENSORS);
    for (int t = 0; t < TENSORS; t++) {
        rsd_view view = { .data = memory + part * (size_t)t };

        snprintf(text, sizeof(text), "model.t%d", t);
        rsd_layout_boxes(layout, rank, &view.box, 1);
        if (rsd_state_tensor(state, text, layout, RSD_BF16, 2, shape, 1, &view, &err))
            die(err.msg);
    }
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return state;
}

static double stall(rsd_comm *comm, rsd_state *state, rsd_stage_way how, const char *path)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .overwrite = true };
    rsd_error           err = { 0 };
    rsd_op             *op = NULL;
    double              start, took, most = 0;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (rsd_save_begin(path, comm, state, how, &opts, &op, &err))
        die(err.msg);
    took = MPI_Wtime() - start;
    if (rsd_op_wait(op, RSD_DURABLE, &err))
        die(err.msg);
    rsd_op_free(op);
    MPI_Allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    char       line[LINE];
    rsd_comm  *comm;
    rsd_state *state;
    rsd_error  err = { 0 };
    int        rank, size;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rsd_comm_create_mpi(MPI_COMM_WORLD, &comm, &err))
        die(err.msg);
    state = make_state(rank, size);
    for (;;) {
        rsd_stage_way how;
        double        seconds;

        memset(line, 0, sizeof(line));
        if (rank == 0 && !fgets(line, sizeof(line), stdin))
            line[0] = '\0';
        MPI_Bcast(line, sizeof(line), MPI_CHAR, 0, MPI_COMM_WORLD);
        line[strcspn(line, "\n")] = '\0';
        if (strlen(line) < 6)
            break;
        how = strncmp(line, "fork ", 5) == 0 ? RSD_STAGE_FORK : RSD_STAGE_COPY;
        seconds = stall(comm, state, how, line + 5);
        if (rank == 0) {
            printf("%.6f\n", seconds);
            fflush(stdout);
        }
    }
    rsd_state_free(state);
    rsd_comm_free(comm);
    MPI_Finalize();
    return 0;
}
