/* SPDX-License-Identifier: Apache-2.0 */
/* test_async.c - saves in two steps: async.c, stage.c, capture.c, ballot.c, snapshot.c. Writes wait
 * at a gate until the tensors have changed, so nothing here depends on who is faster. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "async_case.h"
#include "base/mem.h"
#include "ckpt_fixture.h"
#include "comm/comm.h"
#include "exec/plan_cache.h"
#include "sys_faults.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Ranks are threads, where cmocka's asserts can't be used: they return an error instead. */
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return rsi_fail(err, RSD_E_BUG, "%s:%d: %s: %s", __FILE__, __LINE__, #x, err->msg);    \
    } while (0)

typedef struct job {
    async_bed         bed;
    const char       *path;
    rsd_save_opts     opts;
    rsd_stage_way     how;
    int32_t           ranks;
    bool              cancel;  /* on the last rank, before the gate is opened */
    rsd_err           want;    /* of the wait */
    const char       *text;    /* in its error */
    pthread_barrier_t changed; /* all ranks have changed their tensors */
} job;

static rsd_err save_and_change(void *arg, rsd_comm *comm, rsd_error *err)
{
    job          *j = arg;
    rsd_save_opts opts = j->opts;
    int32_t       rank = comm ? rsd_comm_rank(comm) : 0;
    async_state  *s = calloc(1, sizeof(*s));
    rsd_op       *op = NULL;
    bool          done = true;
    rsd_err       rc;

    opts.size = sizeof(opts);
    opts.store = j->bed.store;
    opts.threads = 1;
    CHECK(s && async_state_make(s, rank, j->ranks));
    CHECK(!rsd_save_begin(j->path, comm, s->state, j->how, &opts, &op, err));
    async_fill(s, 2);
    CHECK(!rsd_op_test(op, RSD_STAGED, &done, err) && done);
    CHECK(!rsd_op_wait(op, RSD_STAGED, err));
    CHECK(!rsd_op_test(op, RSD_DURABLE, &done, err) && !done);
    if (j->cancel && rank == j->ranks - 1)
        rsd_op_cancel(op);
    if (comm)
        pthread_barrier_wait(&j->changed);
    if (rank == 0)
        async_gate_open(&j->bed);
    rc = rsd_op_wait(op, RSD_DURABLE, err);
    CHECK(rc == j->want);
    CHECK(!j->text || strstr(err->msg, j->text));
    CHECK(rsd_op_test(op, RSD_DURABLE, &done, err) == j->want && done);
    rsd_op_free(op);
    async_state_free(s);
    free(s);
    return RSD_OK;
}

static void run(job *j)
{
    rsd_error err = { .rank = -1 };
    rsd_err   rc;

    async_bed_open(&j->bed);
    async_gate_shut(&j->bed);
    pthread_barrier_init(&j->changed, NULL, (unsigned)j->ranks);
    rc = j->ranks > 1 ? rsd_comm_run_threads(j->ranks, save_and_change, j, &err)
                      : save_and_change(j, NULL, &err);
    if (rc)
        print_message("%s\n", err.msg);
    assert_int_equal(rc, RSD_OK);
    if (j->want)
        assert_string_equal(async_list(&j->bed), "");
    else
        assert_true(async_saved(&j->bed, j->path, 1));
    pthread_barrier_destroy(&j->changed);
    async_bed_close(&j->bed);
}

static void what_is_saved_is_what_was_there_at_the_call(void **state)
{
    static const struct {
        const char   *path, *transform;
        rsd_format    format;
        rsd_stage_way how;
        int32_t       ranks;
    } way[] = { { "ck", NULL, RSD_FORMAT_DCP, RSD_STAGE_COPY, 1 },
                { "ck", NULL, RSD_FORMAT_DCP, RSD_STAGE_COPY, 4 },
                { "ck", "stream.zstd", RSD_FORMAT_DCP, RSD_STAGE_COPY, 4 },
                { "ck", NULL, RSD_FORMAT_SAFETENSORS, RSD_STAGE_COPY, 4 },
                { "ck.safetensors", NULL, RSD_FORMAT_AUTO, RSD_STAGE_COPY, 1 },
                { "ck.safetensors", NULL, RSD_FORMAT_AUTO, RSD_STAGE_COPY, 4 },
                { "ck.pt", NULL, RSD_FORMAT_AUTO, RSD_STAGE_COPY, 4 },
                { "ck", NULL, RSD_FORMAT_DCP, RSD_STAGE_FORK, 1 },
                { "ck", "stream.zstd", RSD_FORMAT_DCP, RSD_STAGE_FORK, 1 },
                { "ck.pt", NULL, RSD_FORMAT_AUTO, RSD_STAGE_FORK, 1 },
                { "ck.safetensors", NULL, RSD_FORMAT_AUTO, RSD_STAGE_FORK, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        job j = { .path = way[i].path, .how = way[i].how, .ranks = way[i].ranks };

        j.opts.format = way[i].format;
        j.opts.transform = way[i].transform;
        j.opts.distributed = way[i].format == RSD_FORMAT_SAFETENSORS;
        run(&j);
    }
}

static void a_canceled_save_leaves_nothing_and_says_so_on_all_ranks(void **state)
{
    static const struct {
        const char   *path;
        rsd_stage_way how;
        int32_t       ranks;
    } way[] = { { "ck", RSD_STAGE_COPY, 1 },
                { "ck", RSD_STAGE_COPY, 4 },
                { "ck.safetensors", RSD_STAGE_COPY, 4 },
                { "ck", RSD_STAGE_FORK, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        job j = { .path = way[i].path, .how = way[i].how, .ranks = way[i].ranks };

        j.cancel = true;
        j.want = RSD_E_CANCELED;
        j.text = way[i].ranks > 1 ? "rank 3: canceled by the caller" : "canceled by the caller";
        run(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_what_was_there_at_the_call),
        cmocka_unit_test(a_canceled_save_leaves_nothing_and_says_so_on_all_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
