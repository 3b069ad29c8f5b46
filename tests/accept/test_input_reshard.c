/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's cases of input_reshard: a two-layer MLP, column-parallel then row-parallel, of which
 * only the input is kept, sharded, and the forward is run again before backward. Outputs, gradients
 * and weights equal those of the module that keeps its input whole, bit for bit. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "comm/comm.h"

#include <math.h>
#include <string.h>

enum { BATCH = 5, IN = 6, HIDDEN = 12, OUT = 4, PARAMS = IN * HIDDEN + HIDDEN * OUT };

typedef enum optimizer { SGD, ADAM } optimizer;

typedef struct training {
    int32_t   dp, tp; /* the mesh */
    optimizer how;
    int       steps;
    int32_t   dim;        /* of the stash, */
    bool      with_stash; /* if there is one */
    uint64_t  digest[8];  /* of all outputs, gradients and weights, for each rank */
} training;

typedef struct model {
    rsd_comm  *tp, *dp;
    rsd_stash *stash;                                      /* NULL: the input is kept whole */
    int        cols;                                       /* of the hidden layer, on this rank */
    float      w[PARAMS], g[PARAMS], m[PARAMS], v[PARAMS]; /* w1 [IN][cols], then w2 [cols][OUT] */
    float      hidden[BATCH * HIDDEN];
    uint64_t   digest;
} model;

/* Sums n values over the ranks, in their order. */
static rsd_err sum(rsd_comm *comm, float *x, size_t n, rsd_error *err)
{
    float   all[4 * PARAMS];
    rsd_err rc = rsi_allgather(comm, x, n * sizeof(x[0]), all, err);

    memcpy(x, all, n * sizeof(x[0]));
    for (size_t r = 1; r < (size_t)comm->size; r++)
        for (size_t i = 0; i < n; i++)
            x[i] += all[r * n + i];
    return rc;
}

static void run_hidden(model *net, const float *x)
{
    for (int b = 0; b < BATCH; b++)
        for (int c = 0; c < net->cols; c++) {
            float s = 0;

            for (int i = 0; i < IN; i++)
                s += x[b * IN + i] * net->w[i * net->cols + c];
            net->hidden[b * net->cols + c] = s > 0 ? s : 0;
        }
}

/* Keeps x alone; the hidden layer is forgotten. */
static rsd_err forward(model *net, const float *x, rsd_stashed *kept, float *y, rsd_error *err)
{
    const int64_t shape[] = { BATCH, IN };
    const float  *w2 = net->w + IN * net->cols;
    rsd_err       rc;

    rsd_stash_push(net->stash, NULL);
    rc = rsd_stash_save(NULL, RSD_F32, 2, shape, x, true, kept, err);
    rsd_stash_pop(net->stash, NULL);
    run_hidden(net, x);
    for (int b = 0; b < BATCH; b++)
        for (int o = 0; o < OUT; o++) {
            y[b * OUT + o] = 0;
            for (int c = 0; c < net->cols; c++)
                y[b * OUT + o] += net->hidden[b * net->cols + c] * w2[c * OUT + o];
        }
    memset(net->hidden, 0xff, sizeof(net->hidden));
    return rc ? rc : sum(net->tp, y, BATCH * OUT, err);
}

static rsd_err backward(model *net, const rsd_stashed *kept, const float *gy, rsd_error *err)
{
    float        x[BATCH * IN], gh;
    const float *w2 = net->w + IN * net->cols;
    float       *g2 = net->g + IN * net->cols;
    rsd_err      rc = rsd_stash_take(kept, x, sizeof(x), err);

    if (rc)
        return rc;
    run_hidden(net, x); /* once more */
    memset(net->g, 0, sizeof(net->g));
    for (int b = 0; b < BATCH; b++)
        for (int c = 0; c < net->cols; c++) {
            gh = 0;
            for (int o = 0; o < OUT; o++) {
                g2[c * OUT + o] += net->hidden[b * net->cols + c] * gy[b * OUT + o];
                gh += gy[b * OUT + o] * w2[c * OUT + o];
            }
            if (net->hidden[b * net->cols + c] <= 0)
                continue;
            for (int i = 0; i < IN; i++)
                net->g[i * net->cols + c] += x[b * IN + i] * gh;
        }
    return sum(net->dp, net->g, PARAMS, err);
}

static void update(model *net, optimizer how, int step)
{
    for (int i = 0; i < PARAMS; i++) {
        float g = net->g[i];

        if (how == SGD) {
            net->w[i] -= 0.25f * g;
            continue;
        }
        net->m[i] = 0.9f * net->m[i] + 0.1f * g;
        net->v[i] = 0.999f * net->v[i] + 0.001f * g * g;
        net->w[i] -= 0.01f * (net->m[i] / (1 - powf(0.9f, (float)step))) /
                     (sqrtf(net->v[i] / (1 - powf(0.999f, (float)step))) + 1e-8f);
    }
}

static rsd_err one_step(model *net, optimizer how, int step, int32_t data_rank, rsd_error *err)
{
    float       x[BATCH * IN], y[BATCH * OUT];
    rsd_stashed kept;
    rsd_err     rc;

    for (int i = 0; i < BATCH * IN; i++)
        x[i] = sinf((float)(i + 100 * step + 1000 * data_rank));
    rc = forward(net, x, &kept, y, err);
    memset(x, 0xff, sizeof(x));
    net->digest = rsi_digest(net->digest, y, sizeof(y));
    if (!rc)
        rc = backward(net, &kept, y, err); /* of sum(y * y) / 2 */
    net->digest = rsi_digest(net->digest, net->g, sizeof(net->g));
    update(net, how, step);
    net->digest = rsi_digest(net->digest, net->w, sizeof(net->w));
    return rc;
}

/* A rank's two axes of a (data, tensor) mesh. */
static rsd_err split(const training *t, rsd_comm *comm, model *net, rsd_error *err)
{
    int32_t along_tp[8], along_dp[8];
    int32_t d = comm->rank / t->tp, k = comm->rank % t->tp;
    rsd_err rc;

    for (int32_t i = 0; i < t->tp; i++)
        along_tp[i] = d * t->tp + i;
    for (int32_t i = 0; i < t->dp; i++)
        along_dp[i] = i * t->tp + k;
    rc = rsd_comm_split(comm, t->tp, along_tp, &net->tp, err);
    return rc ? rc : rsd_comm_split(comm, t->dp, along_dp, &net->dp, err);
}

static rsd_err train(void *arg, rsd_comm *comm, rsd_error *err)
{
    training      *t = arg;
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = t->dim, .budget = 4096, .handles = 1 };
    model          net = { 0 };
    rsd_err        rc = split(t, comm, &net, err);

    if (rc)
        return rc;
    net.cols = HIDDEN / t->tp;
    for (int i = 0; i < PARAMS; i++) /* any weights do, others on each tensor rank */
        net.w[i] = 0.3f * cosf((float)(i * 3 + 50 * net.tp->rank));
    if (t->with_stash)
        rc = rsd_stash_create(net.tp, &opts, &net.stash, err);
    for (int step = 1; step <= t->steps && !rc; step++)
        rc = one_step(&net, t->how, step, net.dp->rank, err);
    t->digest[comm->rank] = net.digest;
    rsd_stash_free(net.stash);
    rsd_comm_free(net.tp);
    rsd_comm_free(net.dp);
    return rc;
}

/* With a stash that cuts each dimension, and with one that cuts none, as without. */
static void trains_the_same(int32_t dp, int32_t tp, optimizer how, int steps)
{
    training  plain = { .dp = dp, .tp = tp, .how = how, .steps = steps };
    rsd_error err = { 0 };

    assert_int_equal(rsd_comm_run_threads(dp * tp, train, &plain, &err), RSD_OK);
    assert_true(plain.digest[0] != 0);
    for (int32_t dim = RSD_NO_DIM; dim < 2; dim++) {
        training t = { .dp = dp, .tp = tp, .how = how, .steps = steps, .dim = dim };

        t.with_stash = true;
        if (rsd_comm_run_threads(dp * tp, train, &t, &err))
            fail_msg("%s", err.msg);
        assert_memory_equal(t.digest, plain.digest, sizeof(t.digest));
    }
}

static void an_sgd_step_is_that_of_the_plain_module(void **state)
{
    (void)state;
    trains_the_same(1, 2, SGD, 1);
    trains_the_same(1, 4, SGD, 3);
}

static void five_adam_steps_in_two_dimensions_are_those_of_the_plain_module(void **state)
{
    (void)state;
    trains_the_same(2, 2, ADAM, 5);
    trains_the_same(2, 4, ADAM, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_sgd_step_is_that_of_the_plain_module),
        cmocka_unit_test(five_adam_steps_in_two_dimensions_are_those_of_the_plain_module),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
