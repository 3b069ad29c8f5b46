/* SPDX-License-Identifier: Apache-2.0 */
/* test_async.c - saves in two steps: async.c, stage.c, outcome.c, snapshot.c. Writes wait
 * at a gate until the tensors have changed, so nothing here depends on who is faster. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "async_case.h"
#include "ckpt_fixture.h"
#include "sys_faults.h"
#include "skip_because.h"

#include <reshard/reshard_folder.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
enum { HAS_SHADOW = 1 }; /* memory of the sanitizer, which is copied too */
#else
enum { HAS_SHADOW = 0 };
#endif

#define CHECK FIX_CHECK

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
    CHECK(!j->cancel || err->rank == (comm ? j->ranks - 1 : -1));
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
        j.text = "canceled by the caller";
        run(&j);
    }
}

/* ---- one process ---- */

typedef struct alone {
    async_bed     bed;
    async_state   s;
    rsd_save_opts opts;
} alone;

static void alone_open(alone *a)
{
    async_bed_open(&a->bed);
    assert_true(async_state_make(&a->s, 0, 1));
    a->opts = (rsd_save_opts){
        .size = sizeof(a->opts), .store = a->bed.store, .threads = 1, .overwrite = true
    };
}

static void alone_close(alone *a)
{
    async_state_free(&a->s);
    async_bed_close(&a->bed);
}

static void refused(alone *a, rsd_comm *comm, const char *text)
{
    rsd_error err = { .rank = -1 };
    rsd_op   *op = NULL;

    assert_int_equal(rsd_save_begin("ck", comm, a->s.state, RSD_STAGE_FORK, &a->opts, &op, &err),
                     RSD_E_UNSUPPORTED);
    assert_null(op);
    assert_non_null(strstr(err.msg, text));
    assert_string_equal(async_list(&a->bed), "");
}

static rsd_err never_called(void *arg, uint64_t off, void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_E_BUG;
}

static void what_a_forked_process_could_not_save_is_refused(void **state)
{
    const int64_t shape[] = { 1024 };
    size_t        bytes = 4096;
    void    *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rsd_view view = fix_whole(1, shape, shared);
    rsd_store *memory = fix_store();
    rsd_comm  *comm;
    alone     *a = calloc(1, sizeof(*a));

    (void)state;
    alone_open(a);
    assert_int_equal(rsd_comm_create_threads(1, &comm, NULL), RSD_OK);
    refused(a, comm, "the ranks are threads of one process");
    rsd_comm_free(comm);
    a->opts.store = memory;
    refused(a, NULL, "stays its own");
    a->opts.store = a->bed.store;
    assert_int_equal(rsd_state_tensor(a->s.state, "m", NULL, RSD_I32, 1, shape, 1, &view, NULL), 0);
    refused(a, NULL, "tensor \"m\" lies in memory that is shared");
    view.data = NULL;
    view.get = never_called;
    assert_int_equal(rsd_state_tensor(a->s.state, "c", NULL, RSD_I32, 1, shape, 1, &view, NULL), 0);
    refused(a, NULL, "tensor \"c\" is read through a callback");
    munmap(shared, bytes);
    rsd_store_close(memory);
    alone_close(a);
    free(a);
}

static void the_next_save_waits_for_the_one_before(void **state)
{
    static const rsd_stage_way how[] = { RSD_STAGE_COPY, RSD_STAGE_FORK };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        alone  *a = calloc(1, sizeof(*a));
        rsd_op *op[2] = { NULL, NULL };
        bool    done = false;

        alone_open(a);
        assert_int_equal(rsd_save_begin("one", NULL, a->s.state, how[i], &a->opts, &op[0], NULL),
                         0);
        async_fill(&a->s, 2);
        assert_int_equal(rsd_save_begin("two", NULL, a->s.state, how[i], &a->opts, &op[1], NULL),
                         0);
        assert_int_equal(rsd_op_test(op[0], RSD_DURABLE, &done, NULL), RSD_OK);
        assert_true(done);
        assert_true(async_saved(&a->bed, "one", 1));
        async_fill(&a->s, 3);
        assert_int_equal(rsd_op_wait(op[1], RSD_DURABLE, NULL), RSD_OK);
        assert_true(async_saved(&a->bed, "two", 2));
        rsd_op_free(op[0]);
        rsd_op_free(op[1]);
        alone_close(a);
        free(a);
    }
}

static void a_save_that_is_freed_before_its_end_leaves_nothing(void **state)
{
    static const rsd_stage_way how[] = { RSD_STAGE_COPY, RSD_STAGE_FORK };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        alone  *a = calloc(1, sizeof(*a));
        rsd_op *op = NULL;

        alone_open(a);
        assert_int_equal(rsd_save_begin("ck", NULL, a->s.state, how[i], &a->opts, &op, NULL), 0);
        rsd_op_free(op);
        assert_string_equal(async_list(&a->bed), "");
        alone_close(a);
        free(a);
    }
}

static void a_value_that_is_replaced_meanwhile_is_saved_next_time(void **state)
{
    alone           *a = calloc(1, sizeof(*a));
    const rsd_value *v[2], *got = NULL;
    rsd_values      *owner;
    const char      *name;
    rsd_ckpt        *ckpt;

    (void)state;
    alone_open(a);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &v[0], NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 2, &v[1], NULL), RSD_OK);
    assert_int_equal(rsd_state_value(a->s.state, "step", v[0], NULL), RSD_OK);
    for (int64_t i = 0; i < 2; i++) {
        rsd_op *op = NULL;

        assert_int_equal(
            rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_COPY, &a->opts, &op, NULL), RSD_OK);
        assert_int_equal(rsd_state_set_value(a->s.state, "step", v[1], NULL), RSD_OK);
        assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_OK);
        rsd_op_free(op);
        ckpt = fix_open(a->bed.store, "ck");
        assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, owner, &got, NULL), RSD_OK);
        assert_int_equal(rsd_value_int(got), 1 + i);
        rsd_ckpt_close(ckpt);
    }
    alone_close(a);
    rsd_values_free(owner);
    free(a);
}

static void a_tensor_inside_a_value_is_staged_too(void **state)
{
    alone           *a = calloc(1, sizeof(*a));
    int32_t          data[4] = { 1, 1, 1, 1 };
    rsd_value_tensor t = { .dtype = RSD_I32,
                           .ndim = 1,
                           .shape = { 4 },
                           .stride = { 1 },
                           .storage_bytes = sizeof(data),
                           .bytes = (unsigned char *)data };
    const rsd_value *v, *got = NULL;
    rsd_values      *owner;
    const char      *name;
    rsd_ckpt        *ckpt;
    rsd_op          *op = NULL;

    (void)state;
    alone_open(a);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_tensor(owner, &t, &v, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(a->s.state, "rng", v, NULL), RSD_OK);
    async_gate_shut(&a->bed);
    assert_int_equal(rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_COPY, &a->opts, &op, NULL),
                     RSD_OK);
    data[0] = 2;
    async_gate_open(&a->bed);
    assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_OK);
    rsd_op_free(op);
    ckpt = fix_open(a->bed.store, "ck");
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, owner, &got, NULL), RSD_OK);
    assert_non_null(rsd_value_tensor_of(got));
    assert_int_equal(*(const int32_t *)(const void *)rsd_value_tensor_of(got)->bytes, 1);
    rsd_ckpt_close(ckpt);
    alone_close(a);
    rsd_values_free(owner);
    free(a);
}

static void the_memory_of_a_copy_is_kept_for_the_next_one(void **state)
{
    alone  *a = calloc(1, sizeof(*a));
    int64_t before = fix_memory(), kept;
    rsd_op *op = NULL;

    (void)state;
    alone_open(a);
    before = fix_memory();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_COPY, &a->opts, &op, NULL), RSD_OK);
        assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_OK);
        rsd_op_free(op);
        fix_forget_image(a->s.state);
        kept = fix_memory() - before;
        assert_true(kept >= (int64_t)sizeof(a->s.w) && kept < 5 << 20);
    }
    rsd_state_unstage(a->s.state);
    assert_true(fix_memory() - before < (int64_t)sizeof(a->s.w));
    alone_close(a);
    free(a);
}

static void the_memory_of_a_copy_moves_to_another_state(void **state)
{
    alone     *a = calloc(1, sizeof(*a));
    rsd_op    *op = NULL;
    rsd_state *next;
    int64_t    before;

    (void)state;
    alone_open(a);
    assert_int_equal(rsd_state_create(&next, NULL), RSD_OK);
    before = fix_memory();
    assert_int_equal(rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_COPY, &a->opts, &op, NULL),
                     RSD_OK);
    assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_OK);
    rsd_op_free(op);
    fix_forget_image(a->s.state);
    rsd_state_restage(next, a->s.state);
    rsd_state_unstage(a->s.state);
    assert_true(fix_memory() - before >= (int64_t)sizeof(a->s.w));
    rsd_state_free(next);
    assert_true(fix_memory() - before < (int64_t)sizeof(a->s.w));
    alone_close(a);
    free(a);
}

/* ---- what a snapshot costs ---- */

/* Of the one child of this process, in bytes; -1: the system does not tell. */
static int64_t child_private(void)
{
    char  path[64], line[256];
    FILE *f;
    long  pid = 0, kib = -1;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    f = fopen(path, "r");
    if (!f)
        return -1;
    if (fgets(line, sizeof(line), f))
        pid = strtol(line, NULL, 10);
    fclose(f);
    snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", pid);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "Private_Dirty:", 14) == 0)
            kib = strtol(line + 14, NULL, 10);
    if (f)
        fclose(f);
    return kib < 0 ? -1 : (int64_t)kib * 1024;
}

static void a_snapshot_takes_the_memory_of_the_pages_that_change(void **state)
{
    const int64_t shape[] = { 128 << 20 };
    size_t        bytes = (size_t)shape[0];
    char         *data = calloc(1, bytes);
    rsd_view      view = fix_whole(1, shape, data);
    alone        *a = calloc(1, sizeof(*a));
    int64_t       before, after;
    rsd_op       *op = NULL;

    (void)state;
    assert_non_null(data);
    memset(data, 1, bytes);
    alone_open(a);
    assert_int_equal(rsd_state_tensor(a->s.state, "big", NULL, RSD_U8, 1, shape, 1, &view, NULL),
                     RSD_OK);
    async_gate_shut(&a->bed);
    assert_int_equal(rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_FORK, &a->opts, &op, NULL),
                     RSD_OK);
    before = child_private();
    memset(data, 2, bytes / 4);
    after = child_private();
    rsd_op_cancel(op);
    async_gate_open(&a->bed);
    assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_E_CANCELED);
    rsd_op_free(op);
    alone_close(a);
    free(a);
    free(data);
    if (HAS_SHADOW || before < 0 || after < 0)
        skip_because("memory in use can't be measured here");
    print_message("a quarter changed: %.3f of the tensor\n", (double)after / (double)bytes);
    assert_true(after - before >= (int64_t)bytes / 5); /* or it was not measured */
    assert_true(after <= (int64_t)(0.30 * (double)bytes));
}

/* ---- canceled before each call ---- */

static struct {
    _Atomic(rsd_op *) op;
    atomic_int        left;
} canceling;

static void cancel_at(void)
{
    rsd_op *op = atomic_load(&canceling.op);

    if (op && atomic_fetch_sub(&canceling.left, 1) == 1)
        rsd_op_cancel(op);
}

static void a_save_can_be_canceled_before_every_system_call(void **state)
{
    alone *a = calloc(1, sizeof(*a));
    int    n = 0, canceled = 0;
    bool   more = true;

    (void)state;
    alone_open(a);
    a->opts.store = a->bed.store;
    assert_int_equal(rsd_save("ck", NULL, a->s.state, &a->opts, NULL), RSD_OK);
    async_fill(&a->s, 2);
    while (more) {
        rsd_op *op = NULL;
        rsd_err rc;

        a->bed.also = cancel_at;
        async_gate_shut(&a->bed); /* so that the op is known before the first write */
        assert_int_equal(
            rsd_save_begin("ck", NULL, a->s.state, RSD_STAGE_COPY, &a->opts, &op, NULL), RSD_OK);
        atomic_store(&canceling.left, ++n);
        atomic_store(&canceling.op, op);
        async_gate_open(&a->bed);
        rc = rsd_op_wait(op, RSD_DURABLE, NULL);
        atomic_store(&canceling.op, NULL);
        faults.watch = NULL;
        more = atomic_load(&canceling.left) <= 0;
        assert_true(rc == RSD_OK || rc == RSD_E_CANCELED);
        canceled += rc == RSD_E_CANCELED;
        assert_true(async_saved(&a->bed, "ck", rc ? 1 : 2));
        assert_string_equal(async_list(&a->bed), "ck");
        rsd_op_free(op);
        close(a->bed.gate[0]);
        close(a->bed.gate[1]);
        a->bed.gate[0] = -1;
        if (!rc && more) { /* it was too late for that one */
            async_fill(&a->s, 1);
            assert_int_equal(rsd_save("ck", NULL, a->s.state, &a->opts, NULL), RSD_OK);
            async_fill(&a->s, 2);
        }
    }
    assert_true(canceled > 5);
    alone_close(a);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_what_was_there_at_the_call),
        cmocka_unit_test(a_canceled_save_leaves_nothing_and_says_so_on_all_ranks),
        cmocka_unit_test(what_a_forked_process_could_not_save_is_refused),
        cmocka_unit_test(the_next_save_waits_for_the_one_before),
        cmocka_unit_test(a_save_that_is_freed_before_its_end_leaves_nothing),
        cmocka_unit_test(a_value_that_is_replaced_meanwhile_is_saved_next_time),
        cmocka_unit_test(a_tensor_inside_a_value_is_staged_too),
        cmocka_unit_test(the_memory_of_a_copy_is_kept_for_the_next_one),
        cmocka_unit_test(the_memory_of_a_copy_moves_to_another_state),
        cmocka_unit_test(a_snapshot_takes_the_memory_of_the_pages_that_change),
        cmocka_unit_test(a_save_can_be_canceled_before_every_system_call),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
