/* SPDX-License-Identifier: Apache-2.0 */
#include "slow_rank.h"

#include "comm/clock.h"

#include <reshard/reshard_live.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what))                                                                               \
            return rsi_fail(err, RSD_E_BUG, "line %d: not so: %s: %s", __LINE__, #what, err->msg); \
    } while (0)

enum { LIMIT = 512, BLOCKS = 12, STEP = LIMIT / 4, LONG_STEP = LIMIT * 7 / 8 };
enum { BROKEN_MS = 60000 };           /* signs that are lost must fail a test, not hang it */
enum { HOPS = 4, HOP = LIMIT / 256 }; /* of signs, through the tree of up to 7 ranks */

static slow_page            *page;
static int32_t               size;
static _Thread_local int32_t me = -1; /* -1: a worker thread */
static pthread_mutex_t       one = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t      last;       /* looks of the slow rank at the end of its last block */
static _Atomic int32_t       own_blocks; /* of its own thread */
static pid_t                 home;

static int64_t look(void)
{
    if (me >= 0)
        atomic_fetch_add(&page->looks[me], 1);
    return atomic_load(&page->now);
}

void slow_begin(slow_page *shared, rsd_comm *comm)
{
    page = shared;
    size = comm->size;
    me = comm->rank;
    home = getpid();
    last = 0;
    rsi_comm_clock = look;
    rsd_comm_set_timeout(comm, LIMIT, NULL);
}

/* Moves the time on and waits until every other rank has seen it. */
static void pass(int32_t rank, int64_t ms)
{
    uint64_t seen[SLOW_RANKS_MAX];

    atomic_fetch_add(&page->now, ms);
    for (int32_t r = 0; r < size; r++)
        seen[r] = atomic_load(&page->looks[r]);
    for (int32_t r = 0; r < size; r++)
        while (r != rank && atomic_load(&page->looks[r]) < seen[r] + 2 &&
               atomic_load(&page->returned) == 0)
            sched_yield();
}

/* A block of so many ms. Signs of the block before have time to arrive: if it was in a thread or
 * child that works for the rank, the rank itself must have seen it, unless it has a block too. */
static void work_on(int32_t rank, int64_t ms)
{
    int64_t end = rsi_clock_ms() + BROKEN_MS;
    bool    own = me >= 0 && getpid() == home;

    atomic_fetch_add(&own_blocks, own);
    pthread_mutex_lock(&one);
    while (!own && atomic_load(&page->looks[rank]) <= last && atomic_load(&own_blocks) == 0 &&
           rsi_clock_ms() < end)
        sched_yield();
    for (int i = 0; i < HOPS; i++)
        pass(rank, HOP);
    pass(rank, ms - HOPS * HOP);
    last = atomic_load(&page->looks[rank]);
    pthread_mutex_unlock(&one);
    atomic_fetch_sub(&own_blocks, own);
}

/* ---- tensors of which every rank has one element ---- */

typedef struct element {
    int32_t rank, value;
    int32_t slow; /* rank */
    bool    silent;
} element;

static rsd_err get(void *arg, uint64_t off, void *host, size_t len)
{
    const element *e = arg;

    if (e->rank == e->slow && e->silent) { /* one block that takes longer than the limit */
        while (atomic_load(&page->returned) < size - 1) {
            atomic_fetch_add(&page->now, LIMIT);
            sched_yield();
        }
    } else if (e->rank == e->slow) {
        work_on(e->rank, STEP);
    }
    memcpy(host, (const char *)&e->value + off, len);
    return RSD_OK;
}

static rsd_err put(void *arg, uint64_t off, const void *host, size_t len)
{
    element *e = arg;

    if (e->rank == e->slow)
        work_on(e->rank, STEP);
    memcpy((char *)&e->value + off, host, len);
    return RSD_OK;
}

typedef struct bed {
    element     e[BLOCKS];
    rsd_layout *layout; /* each rank has one element */
    rsd_state  *state;
    int64_t     began;
} bed;

static void clear(bed *b)
{
    rsd_state_free(b->state);
    rsd_layout_free(b->layout);
    b->state = NULL;
    b->layout = NULL;
}

/* `slow` -1: none. `plain`: memory, no callbacks. */
static rsd_err make(bed *b, rsd_comm *comm, int32_t slow, bool plain, rsd_error *err)
{
    const int64_t shape[] = { comm->size };
    int32_t       rank[SLOW_RANKS_MAX];
    rsd_err       rc = rsi_barrier(comm, err);

    *b = (bed){ .began = atomic_load(&page->now) };
    if (!rc)
        rc = rsi_barrier(comm, err); /* all have seen the time */
    for (int32_t r = 0; r < comm->size; r++)
        rank[r] = r;
    if (!rc)
        rc = rsd_layout_create_chunked(0, (size_t)comm->size, rank, RSD_I32, 1, shape, &b->layout,
                                       err);
    if (!rc)
        rc = rsd_state_create(&b->state, err);
    for (int i = 0; i < BLOCKS && !rc; i++) {
        rsd_view view = { .get = get, .put = put, .arg = &b->e[i] };
        char     name[16];

        snprintf(name, sizeof(name), "t%02d", i);
        b->e[i] = (element){ .rank = comm->rank, .value = 100 * i + comm->rank, .slow = slow };
        view.data = plain ? &b->e[i].value : NULL;
        view.box = (rsd_box){ .ndim = 1, .off = { comm->rank }, .len = { 1 } };
        rc = rsd_state_tensor(b->state, name, b->layout, RSD_I32, 1, shape, 1, &view, err);
    }
    return rc;
}

/* How a call ended, and that it took longer than two limits. */
static rsd_err ended(bed *b, rsd_comm *comm, rsd_err rc, rsd_error *err)
{
    clear(b);
    if (rc) {
        atomic_fetch_add(&page->returned, 1);
        return rc;
    }
    rc = rsi_barrier(comm, err);
    if (rc)
        return rc;
    CHECK(atomic_load(&page->now) - b->began > 2 * LIMIT);
    return RSD_OK;
}

static rsd_err save(rsd_comm *comm, const char *path, int32_t slow, int32_t threads, rsd_error *err)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER, .threads = threads };
    bed                 b;
    rsd_err             rc = make(&b, comm, slow, false, err);

    return ended(&b, comm, rc ? rc : rsd_save(path, comm, b.state, &opts, err), err);
}

/* ---- cases ---- */

static rsd_err the_last_rank_may_save_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    return save(comm, path, comm->size - 1, 1, err);
}

static rsd_err rank_0_may_save_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    return save(comm, path, 0, 1, err);
}

static rsd_err worker_threads_may_save_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    return save(comm, path, comm->size - 1, 3, err);
}

static rsd_err ranks_that_write_one_file_may_take_long(rsd_comm *comm, const char *path,
                                                       rsd_error *err)
{
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .sync = RSD_NEVER,
                                 .format = RSD_FORMAT_SAFETENSORS };
    bed                 b;
    rsd_err             rc = make(&b, comm, comm->size - 1, false, err);

    return ended(&b, comm, rc ? rc : rsd_save(path, comm, b.state, &opts, err), err);
}

static rsd_err a_rank_may_load_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    bed     b;
    rsd_err rc = make(&b, comm, -1, true, err);

    if (!rc)
        rc = rsd_save(path, comm, b.state, NULL, err);
    clear(&b);
    if (!rc)
        rc = make(&b, comm, comm->size - 1, false, err);
    for (int i = 0; i < BLOCKS; i++)
        b.e[i].value = -1;
    rc = ended(&b, comm, rc ? rc : rsd_load(path, comm, b.state, NULL, err), err);
    for (int i = 0; i < BLOCKS && !rc; i++)
        CHECK(b.e[i].value == 100 * i + comm->rank);
    return rc;
}

typedef struct telling {
    int32_t rank, slow, ms;
} telling;

static int tell(void *arg, int64_t done, int64_t total)
{
    const telling *t = arg;

    (void)done;
    (void)total;
    if (t->rank == t->slow)
        work_on(t->rank, t->ms);
    return 0;
}

static rsd_err a_thread_may_write_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    telling             t = { comm->rank, comm->size - 1, STEP };
    const rsd_save_opts opts = {
        .size = sizeof(opts), .threads = 1, .on_progress = tell, .arg = &t
    };
    bed     b;
    rsd_op *op = NULL;
    rsd_err rc = make(&b, comm, -1, true, err);

    if (!rc)
        rc = rsd_save_begin(path, comm, b.state, RSD_STAGE_COPY, &opts, &op, err);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return ended(&b, comm, rc, err);
}

static rsd_err a_rank_may_convert_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    telling                t = { comm->rank, 0, LONG_STEP };
    const rsd_convert_opts opts = { .size = sizeof(opts),
                                    .format = RSD_FORMAT_SAFETENSORS,
                                    .shard_size = 1, /* a file for each tensor */
                                    .threads = 1,
                                    .on_progress = tell,
                                    .arg = &t };
    char                   to[256];
    rsd_ckpt              *ckpt = NULL;
    bed                    b;
    rsd_err                rc = make(&b, comm, -1, true, err);

    snprintf(to, sizeof(to), "%s-converted", path);
    if (!rc)
        rc = rsd_save(path, comm, b.state, NULL, err);
    if (!rc)
        rc = rsd_ckpt_open(NULL, path, &ckpt, err);
    if (!rc)
        rc = rsd_convert(ckpt, to, comm, &opts, err);
    rsd_ckpt_close(ckpt);
    return ended(&b, comm, rc, err);
}

/* Each rank's element goes to the next rank. */
static rsd_err a_rank_may_move_tensors_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    const int64_t     shape[] = { comm->size };
    int32_t           from[SLOW_RANKS_MAX], to[SLOW_RANKS_MAX], got[BLOCKS];
    const rsd_layout *src[BLOCKS], *dst[BLOCKS];
    rsd_view          in[BLOCKS], out[BLOCKS];
    rsd_views         ins[BLOCKS], outs[BLOCKS];
    rsd_layout       *a = NULL, *z = NULL;
    rsd_plan         *plan = NULL;
    size_t            n = (size_t)comm->size;
    bed               b;
    rsd_err           rc = make(&b, comm, comm->size - 1, false, err);

    (void)path;
    for (int32_t r = 0; r < comm->size; r++) {
        from[r] = r;
        to[r] = (r + 1) % comm->size;
    }
    if (!rc)
        rc = rsd_layout_create_chunked(0, n, from, RSD_I32, 1, shape, &a, err);
    if (!rc)
        rc = rsd_layout_create_chunked(0, n, to, RSD_I32, 1, shape, &z, err);
    for (int i = 0; i < BLOCKS; i++) {
        src[i] = a;
        dst[i] = z;
        ins[i] = (rsd_views){ 1, &in[i] };
        outs[i] = (rsd_views){ 1, &out[i] };
        if (!rc)
            rsd_layout_views(z, comm->rank, &got[i], &out[i], 1);
        in[i] = (rsd_view){ .get = get, .arg = &b.e[i] };
        in[i].box = (rsd_box){ .ndim = 1, .off = { comm->rank }, .len = { 1 } };
    }
    if (!rc)
        rc = rsd_plan_create(BLOCKS, src, dst, comm->rank, &plan, err);
    if (!rc)
        rc = rsd_reshard(plan, comm, ins, outs, NULL, err);
    rsd_plan_free(plan);
    rsd_layout_free(a);
    rsd_layout_free(z);
    rc = ended(&b, comm, rc, err);
    for (int i = 0; i < BLOCKS && !rc; i++)
        CHECK(got[i] == 100 * i + (comm->rank + comm->size - 1) % comm->size);
    return rc;
}

/* ---- a child that writes: what it does between blocks is a transform ---- */

static char a_stream;

static rsd_err begin_stream(void *arg, bool encode, void **stream, rsd_error *err)
{
    (void)arg, (void)encode, (void)err;
    *stream = &a_stream;
    return RSD_OK;
}

static rsd_err feed_stream(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                           size_t out_cap, size_t *made, rsd_error *err)
{
    size_t n = in_len < out_cap ? in_len : out_cap;

    (void)stream, (void)err;
    memcpy(out, in, n);
    *used = *made = n;
    return RSD_OK;
}

static rsd_err end_stream(void *stream, void *out, size_t cap, size_t *made, bool *done,
                          rsd_error *err)
{
    (void)stream, (void)out, (void)cap, (void)err;
    if (me == size - 1)
        work_on(me, STEP);
    *made = 0;
    *done = true;
    return RSD_OK;
}

static void free_stream(void *stream)
{
    (void)stream;
}

static rsd_err a_child_may_write_for_long(rsd_comm *comm, const char *path, rsd_error *err)
{
    static const rsd_transform slow = { .size = sizeof(slow),
                                        .name = "stream.slow",
                                        .version = "1",
                                        .begin = begin_stream,
                                        .feed = feed_stream,
                                        .end = end_stream,
                                        .free = free_stream };
    const rsd_save_opts        opts = { .size = sizeof(opts), .transform = "stream.slow" };
    bed                        b;
    rsd_op                    *op = NULL;
    rsd_err                    rc = rsi_agree(comm, rsd_transform_register(&slow, err), err);

    if (rc)
        return rc;
    rc = make(&b, comm, -1, true, err);
    if (!rc)
        rc = rsd_save_begin(path, comm, b.state, RSD_STAGE_FORK, &opts, &op, err);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return ended(&b, comm, rc, err);
}

/* ---- silence ---- */

static rsd_err one_block_longer_than_the_limit_is_silence(rsd_comm *comm, const char *path,
                                                          rsd_error *err)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .threads = 1 };
    int32_t             slow = comm->size - 1;
    char                text[32];
    bed                 b;
    rsd_err             rc = make(&b, comm, slow, false, err);

    if (rc)
        return rc;
    for (int i = 0; i < BLOCKS; i++)
        b.e[i].silent = true;
    comm->grace_ms = 60000;
    comm->present = comm->size - 1;
    rc = rsd_save(path, comm, b.state, &opts, err);
    clear(&b);
    atomic_fetch_add(&page->returned, 1);
    snprintf(text, sizeof(text), "rank %d did not come", (int)slow);
    CHECK(rc == RSD_E_TIMEOUT);
    CHECK(err->rank == slow && strstr(err->msg, text));
    return RSD_OK;
}

#define CASE(name) #name, name
const slow_case slow_cases[] = {
    { CASE(the_last_rank_may_save_for_long), false, false },
    { CASE(rank_0_may_save_for_long), false, false },
    { CASE(worker_threads_may_save_for_long), false, false },
    { CASE(ranks_that_write_one_file_may_take_long), false, false },
    { CASE(a_rank_may_load_for_long), false, false },
    { CASE(a_thread_may_write_for_long), false, false },
    { CASE(a_rank_may_convert_for_long), false, false },
    { CASE(a_rank_may_move_tensors_for_long), false, false },
    { CASE(a_child_may_write_for_long), true, false },
    { CASE(one_block_longer_than_the_limit_is_silence), false, true },
    { NULL, NULL, false, false },
};
