/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a stack of tensor-parallel MLPs (column-parallel, then row-parallel) with and without
 * activation recomputation, with and without the stash, and shows that losses, gradients and
 * weights stay the same bit for bit while the kept activations shrink:
 *
 *     tp_mlp_train [RANKS]                  ranks are threads (4 by default)
 *     mpirun -n 4 tp_mlp_train              ranks are processes
 *
 * y = relu(x A) B for each layer; rank r has some columns of A and the matching rows of B, so x and
 * the gradients at layer boundaries are equal on all ranks, and products with B are summed over
 * the ranks. */
#include <reshard/reshard_live.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, ROWS = 24, WIDTH = 32, HIDDEN = 48, STEPS = 5 };
#define RATE 0.25f

typedef struct job {
    rsd_comm  *comm;
    int        rank, ranks, cols; /* of A on this rank */
    rsd_stash *wire;              /* sums between ranks go through it */
    rsd_stash *stash;             /* NULL: activations are kept whole */
    int        recompute;
    float     *a[LAYERS], *b[LAYERS]; /* [WIDTH][cols], [cols][WIDTH] */
    float     *sums;                  /* [ranks][ROWS * WIDTH] */
    size_t     kept, peak;            /* bytes of activations; peak: between the passes */
    uint64_t   digest;                /* of losses, gradients and weights */
    double     loss;
    rsd_error *err;
} job;

/* ---- arithmetic, always in the same order ---- */

/* c[n][m] (+)= a[n][k] b[k][m]; ta, tb: the factor is stored transposed. */
static void multiply(float *c, const float *a, int ta, const float *b, int tb, int n, int k, int m)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            float sum = 0;

            for (int l = 0; l < k; l++)
                sum += (ta ? a[l * n + i] : a[i * k + l]) * (tb ? b[j * k + l] : b[l * m + j]);
            c[i * m + j] = sum;
        }
}

static void digest(job *j, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < bytes; i++)
        j->digest = (j->digest ^ p[i]) * UINT64_C(0x100000001b3);
}

/* The sum of all ranks' x [ROWS][WIDTH], in rank order. A stash returns row r as rank r saved it,
 * so each rank puts its part into its own row. */
static rsd_err sum_over_ranks(job *j, float *x)
{
    const int64_t shape[] = { j->ranks, ROWS * WIDTH };
    size_t        n = ROWS * WIDTH, bytes = (size_t)j->ranks * n * sizeof(float);
    rsd_stashed   parts;
    rsd_err       rc;

    memcpy(j->sums + (size_t)j->rank * n, x, n * sizeof(float));
    rc = rsd_stash_save(j->wire, RSD_F32, 2, shape, j->sums, true, &parts, j->err);
    if (!rc)
        rc = rsd_stash_take(&parts, j->sums, bytes, j->err);
    memcpy(x, j->sums, n * sizeof(float));
    for (size_t r = 1; r < (size_t)j->ranks && !rc; r++)
        for (size_t i = 0; i < n; i++)
            x[i] += j->sums[r * n + i];
    return rc;
}

/* ---- one layer ---- */

typedef struct kept {
    rsd_stashed x;                /* equal on all ranks: a stash keeps a part of it */
    float       h[ROWS * HIDDEN]; /* this rank's own, unless it is recomputed */
} kept;

static void hidden(const job *j, int layer, const float *x, float *h)
{
    multiply(h, x, 0, j->a[layer], 0, ROWS, WIDTH, j->cols);
    for (int i = 0; i < ROWS * j->cols; i++)
        h[i] = h[i] > 0 ? h[i] : 0;
}

/* x becomes y. */
static rsd_err forward(job *j, int layer, float *x, kept *k)
{
    static const int64_t shape[] = { ROWS, WIDTH };
    rsd_err              rc;

    /* This module's scope: without a stash on the stack x is kept whole. */
    rc = rsd_stash_push(j->stash, j->err);
    if (!rc)
        rc = rsd_stash_save(NULL, RSD_F32, 2, shape, x, true, &k->x, j->err);
    if (!rc)
        rc = rsd_stash_pop(j->stash, j->err);
    hidden(j, layer, x, k->h);
    multiply(x, k->h, 0, j->b[layer], 0, ROWS, j->cols, WIDTH);
    if (!j->recompute)
        j->kept += (size_t)(ROWS * j->cols) * sizeof(float);
    else
        memset(k->h, 0xff, sizeof(k->h));
    return rc ? rc : sum_over_ranks(j, x);
}

/* g, the gradient at the output, becomes the gradient at the input. */
static rsd_err backward(job *j, int layer, float *g, kept *k)
{
    float   x[ROWS * WIDTH], gh[ROWS * HIDDEN], ga[WIDTH * HIDDEN], gb[HIDDEN * WIDTH];
    rsd_err rc = rsd_stash_take(&k->x, x, sizeof(x), j->err);

    if (rc)
        return rc;
    if (j->recompute)
        hidden(j, layer, x, k->h);
    else
        j->kept -= (size_t)(ROWS * j->cols) * sizeof(float);
    multiply(gb, k->h, 1, g, 0, j->cols, ROWS, WIDTH);
    multiply(gh, g, 0, j->b[layer], 1, ROWS, WIDTH, j->cols);
    for (int i = 0; i < ROWS * j->cols; i++)
        gh[i] = k->h[i] > 0 ? gh[i] : 0;
    multiply(ga, x, 1, gh, 0, WIDTH, ROWS, j->cols);
    multiply(g, gh, 0, j->a[layer], 1, ROWS, j->cols, WIDTH);
    digest(j, ga, (size_t)(WIDTH * j->cols) * sizeof(float));
    digest(j, gb, (size_t)(WIDTH * j->cols) * sizeof(float));
    for (int i = 0; i < WIDTH * j->cols; i++) {
        j->a[layer][i] -= RATE * ga[i];
        j->b[layer][i] -= RATE * gb[i];
    }
    return sum_over_ranks(j, g);
}

/* ---- training ---- */

static rsd_err step(job *j, kept *keep, int number)
{
    float           x[ROWS * WIDTH], g[ROWS * WIDTH];
    rsd_stash_stats stats = { .size = sizeof(stats) };
    rsd_err         rc = RSD_OK;

    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = sinf((float)(i * 7 + number));
    for (int l = 0; l < LAYERS && !rc; l++)
        rc = forward(j, l, x, &keep[l]);
    if (rc)
        return rc;
    rsd_stash_stats_get(j->stash, &stats, NULL);
    j->peak = j->kept + (size_t)stats.bytes_held; /* the peak is here */
    j->loss = 0;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        float off = x[i] - cosf((float)i);

        j->loss += (double)off * off / (ROWS * WIDTH);
        g[i] = 2 * off / (ROWS * WIDTH);
    }
    digest(j, &j->loss, sizeof(j->loss));
    for (int l = LAYERS - 1; l >= 0 && !rc; l--)
        rc = backward(j, l, g, &keep[l]);
    return rc;
}

/* Weights depend on their place in the whole matrix, not on the number of ranks. */
static void set_weights(job *j)
{
    int first = j->rank * j->cols;

    for (int l = 0; l < LAYERS; l++)
        for (int w = 0; w < WIDTH; w++)
            for (int c = 0; c < j->cols; c++) {
                int at = (l * WIDTH + w) * HIDDEN + first + c;

                j->a[l][w * j->cols + c] = 0.2f * sinf((float)at * 1.3f);
                j->b[l][c * WIDTH + w] = 0.2f * cosf((float)at * 0.7f);
            }
}

static rsd_err train(job *j, int with_stash)
{
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = 0, .handles = LAYERS };
    kept          *keep = calloc(LAYERS, sizeof(*keep));
    rsd_err        rc = RSD_OK;

    opts.budget = LAYERS * ROWS * WIDTH * sizeof(float);
    j->stash = NULL;
    j->kept = j->peak = 0;
    j->digest = UINT64_C(0xcbf29ce484222325);
    set_weights(j);
    if (with_stash)
        rc = rsd_stash_create(j->comm, &opts, &j->stash, j->err);
    for (int i = 0; i < STEPS && keep && !rc; i++)
        rc = step(j, keep, i);
    for (int l = 0; l < LAYERS; l++) {
        digest(j, j->a[l], (size_t)(WIDTH * j->cols) * sizeof(float));
        digest(j, j->b[l], (size_t)(WIDTH * j->cols) * sizeof(float));
    }
    rsd_stash_free(j->stash);
    free(keep);
    return rc;
}

/* The four ways of training, on one rank. */
static rsd_err compare(job *j)
{
    uint64_t first = 0;
    rsd_err  rc = RSD_OK;

    if (j->rank == 0)
        printf(
            "%d ranks, %d layers, %d steps; a tensor in flight takes %zu B\n%-12s %-6s %22s %16s\n",
            j->ranks, LAYERS, STEPS, ROWS * WIDTH * sizeof(float), "recompute", "stash",
            "activations kept, B", "last loss");
    for (int way = 0; way < 4 && !rc; way++) {
        j->recompute = way / 2;
        rc = train(j, way % 2);
        first = way ? first : j->digest;
        if (!rc && j->rank == 0)
            printf("%-12s %-6s %22zu %16.9f%s\n", way / 2 ? "yes" : "no", way % 2 ? "yes" : "no",
                   j->peak, j->loss, j->digest == first ? "  the same bits" : "  DIFFERENT");
        if (!rc && j->digest != first) {
            snprintf(j->err->msg, sizeof(j->err->msg), "rank %d: the bits differ", j->rank);
            rc = RSD_E_BUG;
        }
    }
    return rc;
}

static rsd_err run(void *arg, rsd_comm *comm, rsd_error *err)
{
    job            j = { .comm = comm, .rank = rsd_comm_rank(comm), .ranks = rsd_comm_size(comm) };
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = 0, .handles = 1 };
    rsd_err        rc;

    (void)arg;
    j.err = err;
    if (HIDDEN % j.ranks != 0) {
        snprintf(err->msg, sizeof(err->msg), "%d columns don't divide over %d ranks", HIDDEN,
                 j.ranks);
        return RSD_E_INVALID;
    }
    j.cols = HIDDEN / j.ranks;
    opts.budget = ROWS * WIDTH * sizeof(float);
    j.sums = calloc((size_t)j.ranks * ROWS * WIDTH, sizeof(float));
    for (int l = 0; l < LAYERS; l++) {
        j.a[l] = calloc(WIDTH * HIDDEN, sizeof(float));
        j.b[l] = calloc(WIDTH * HIDDEN, sizeof(float));
    }
    rc = rsd_stash_create(comm, &opts, &j.wire, err);
    if (!rc)
        rc = compare(&j);
    rsd_stash_free(j.wire);
    for (int l = 0; l < LAYERS; l++) {
        free(j.a[l]);
        free(j.b[l]);
    }
    free(j.sums);
    return rc;
}

int main(int argc, char **argv)
{
    int       ranks = argc > 1 ? atoi(argv[1]) : 4;
    rsd_comm *comm = NULL;
    rsd_error err = { 0 };
    rsd_err   rc = rsd_comm_create_launched(&comm, &err);

    if (!rc && rsd_comm_size(comm) > 1)
        rc = run(NULL, comm, &err);
    else if (!rc)
        rc = rsd_comm_run_threads(ranks, run, NULL, &err);
    if (rc)
        fprintf(stderr, "tp_mlp_train: %s\n", err.msg);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
