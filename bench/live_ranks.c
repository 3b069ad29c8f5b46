/* SPDX-License-Identifier: Apache-2.0 */
/* live_ranks CASE N ROUNDS: one rank of a live benchmark, started by mpirun through bench_live.c.
 * Moves a float32 matrix of N x N between two layouts: ours, MPI_Alltoallw with subarray types
 * where the layouts allow it, and a memcpy of as many bytes on every rank take turns. Rank 0 prints
 * the medians in seconds of ours, the peer and the memcpy, and the median of the ratios peer / ours
 * and memcpy / ours, 0 for what there is not; the bytes that ranks read from each other's memory,
 * and the span of the middle half of our times in percent. */
#include <reshard/reshard_live.h>
#include <reshard/reshard_mpi.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 31, OURS = 0, PEER, COPY, CONTENDERS };

typedef struct job {
    rsd_comm         *comm;
    int               rank, size, n;
    const rsd_layout *src, *dst;
    rsd_plan         *plan;
    rsd_views         from, to;
    char             *in, *out;
    size_t            in_bytes, out_bytes;
    bool              has_peer;
    MPI_Datatype     *send, *recv; /* [size] */
    int              *ones, *zeros;
    rsd_reshard_stats stats;
} job;

static void die(const char *why)
{
    fprintf(stderr, "live_ranks: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes + 1);

    if (!p)
        die("no memory");
    return p;
}

/* ---- layouts ---- */

static rsd_layout *mesh_layout(const job *j, int a, int b, int32_t first, int32_t second)
{
    const int64_t       sizes[] = { a, b }, shape[] = { j->n, j->n };
    const rsd_placement place[] = { { .kind = a > 1 ? RSD_SHARD : RSD_REPLICATE, .dim = first },
                                    { .kind = RSD_SHARD, .dim = second } };
    rsd_mesh           *mesh = NULL;
    rsd_layout         *out = NULL;
    rsd_error           err;

    if (rsd_mesh_create(2, sizes, NULL, NULL, &mesh, &err) != RSD_OK ||
        rsd_layout_create(mesh, place, RSD_F32, 2, shape, &out, &err) != RSD_OK)
        die(err.msg);
    rsd_mesh_free(mesh);
    return out;
}

/* Blocks of `block` a side dealt out over a grid of 2 x size/2 ranks. */
static rsd_layout *cyclic_layout(const job *j, int64_t block)
{
    int64_t     side = (j->n + block - 1) / block, shape[] = { j->n, j->n };
    size_t      n = (size_t)(side * side);
    rsd_box    *box = room(n * sizeof(box[0]));
    int32_t    *owner = room(n * sizeof(owner[0]));
    rsd_layout *out;
    rsd_error   err;

    for (int64_t i = 0; i < side * side; i++) {
        int64_t row = i / side * block, col = i % side * block;

        box[i] = (rsd_box){ .ndim = 2, .off = { row, col } };
        box[i].len[0] = j->n - row < block ? j->n - row : block;
        box[i].len[1] = j->n - col < block ? j->n - col : block;
        owner[i] = (int32_t)(i / side % 2 * (j->size / 2) + i % side % (j->size / 2));
    }
    if (rsd_layout_create_boxes(RSD_F32, 2, shape, n, owner, box, &out, &err) != RSD_OK)
        die(err.msg);
    free(box);
    free(owner);
    return out;
}

static rsd_views views_of(const job *j, const rsd_layout *layout, void *data)
{
    size_t    n = rsd_layout_boxes(layout, j->rank, NULL, 0);
    rsd_view *view = room(n * sizeof(view[0]));

    rsd_layout_views(layout, j->rank, data, view, n);
    return (rsd_views){ n, view };
}

/* ---- the peer ---- */

static MPI_Datatype part_type(const rsd_box *part, const rsd_box *whole)
{
    MPI_Datatype type;
    int          sizes[2], len[2], off[2];

    for (int d = 0; d < 2; d++) {
        sizes[d] = (int)whole->len[d];
        len[d] = (int)part->len[d];
        off[d] = (int)(part->off[d] - whole->off[d]);
    }
    MPI_Type_create_subarray(2, sizes, len, off, MPI_ORDER_C, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

/* One box a rank on both sides: types for what each pair shares. */
static void make_peer(job *j)
{
    rsd_box mine_in, mine_out;

    j->send = room((size_t)j->size * sizeof(j->send[0]));
    j->recv = room((size_t)j->size * sizeof(j->recv[0]));
    j->ones = room((size_t)j->size * sizeof(int));
    j->zeros = room((size_t)j->size * sizeof(int));
    rsd_layout_boxes(j->src, j->rank, &mine_in, 1);
    rsd_layout_boxes(j->dst, j->rank, &mine_out, 1);
    for (int r = 0; r < j->size; r++) {
        rsd_box theirs, both;

        j->ones[r] = 1;
        j->zeros[r] = 0;
        rsd_layout_boxes(j->dst, r, &theirs, 1);
        if (!rsd_box_intersect(&mine_in, &theirs, &both))
            die("a pair shares nothing");
        j->send[r] = part_type(&both, &mine_in);
        rsd_layout_boxes(j->src, r, &theirs, 1);
        if (!rsd_box_intersect(&mine_out, &theirs, &both))
            die("a pair shares nothing");
        j->recv[r] = part_type(&both, &mine_out);
    }
}

/* ---- turns ---- */

static void work(job *j, int who)
{
    rsd_reshard_opts opts = { .size = sizeof(opts), .stats = &j->stats };
    rsd_error        err;

    j->stats.size = sizeof(j->stats);
    if (who == OURS && rsd_reshard(j->plan, j->comm, &j->from, &j->to, &opts, &err) != RSD_OK)
        die(err.msg);
    if (who == PEER)
        MPI_Alltoallw(j->in, j->ones, j->zeros, j->send, j->out, j->ones, j->zeros, j->recv,
                      MPI_COMM_WORLD);
    if (who == COPY)
        memcpy(j->out, j->in, j->in_bytes < j->out_bytes ? j->in_bytes : j->out_bytes);
}

static double timed(job *j, int who)
{
    double start, mine, all;

    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    work(j, who);
    mine = MPI_Wtime() - start;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(v[0]), by_value);
    return v[n / 2];
}

static void take_turns(job *j, int rounds)
{
    double  time[CONTENDERS][MOST_ROUNDS] = { { 0 } }, peer[MOST_ROUNDS], copy[MOST_ROUNDS], ours;
    int64_t crossed = j->stats.bytes_reached, all = 0;

    for (int r = -1; r < rounds; r++)
        for (int who = 0; who < CONTENDERS; who++) {
            double t = who == PEER && !j->has_peer ? 0 : timed(j, who);

            if (r >= 0)
                time[who][r] = t;
        }
    for (int r = 0; r < rounds; r++) {
        peer[r] = time[PEER][r] / time[OURS][r];
        copy[r] = time[COPY][r] / time[OURS][r];
    }
    crossed = j->stats.bytes_reached;
    MPI_Allreduce(&crossed, &all, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    ours = median(time[OURS], rounds); /* sorts */
    if (j->rank == 0)
        printf("live %g %g %g %g %g %lld %g\n", ours, median(time[PEER], rounds),
               median(time[COPY], rounds), median(peer, rounds), median(copy, rounds),
               (long long)all, 100 * (time[OURS][3 * rounds / 4] - time[OURS][rounds / 4]) / ours);
}

static void take_memory(job *j, bool shared)
{
    rsd_error err;

    j->in_bytes = (size_t)rsd_layout_bytes(j->src, j->rank);
    j->out_bytes = (size_t)rsd_layout_bytes(j->dst, j->rank);
    if (shared && (rsd_comm_alloc(j->comm, j->in_bytes, (void **)&j->in, &err) != RSD_OK ||
                   rsd_comm_alloc(j->comm, j->out_bytes, (void **)&j->out, &err) != RSD_OK))
        die(err.msg);
    if (!shared) {
        j->in = room(j->in_bytes);
        j->out = room(j->out_bytes);
    }
    memset(j->in, 1, j->in_bytes);
    memset(j->out, 2, j->out_bytes);
}

int main(int argc, char **argv)
{
    job       j = { .n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1024 };
    int       rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5;
    rsd_error err;
    bool      cyclic, mesh;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.size);
    if (argc < 2 || rsd_comm_create_mpi(MPI_COMM_WORLD, &j.comm, &err) != RSD_OK)
        die("usage: live_ranks rows|malloc|mesh|cyclic N ROUNDS");
    cyclic = strcmp(argv[1], "cyclic") == 0;
    mesh = strcmp(argv[1], "mesh") == 0;
    if ((cyclic || mesh) && j.size % 2 != 0)
        die("an even number of ranks is needed");
    j.src = cyclic ? cyclic_layout(&j, 128)
                   : mesh_layout(&j, mesh ? 2 : 1, j.size / (mesh ? 2 : 1), 0, mesh);
    j.dst = cyclic ? cyclic_layout(&j, 96)
                   : mesh_layout(&j, mesh ? 2 : 1, j.size / (mesh ? 2 : 1), 1, !mesh);
    j.has_peer = !cyclic && !mesh;
    take_memory(&j, strcmp(argv[1], "malloc") != 0);
    j.from = views_of(&j, j.src, j.in);
    j.to = views_of(&j, j.dst, j.out);
    if (rsd_plan_create(1, &j.src, &j.dst, j.rank, &j.plan, &err) != RSD_OK)
        die(err.msg);
    if (j.has_peer)
        make_peer(&j);
    take_turns(&j, rounds < MOST_ROUNDS ? rounds : MOST_ROUNDS);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
