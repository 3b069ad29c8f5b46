/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of test_costs.c. The store counts through the table of sys_faults.h, messages are
 * counted on their way to the threads comm. */
#include "cost_case.h"

#include "comm/comm.h"
#include "comm/comm_threads.h"
#include "store/file.h"
#include "sys_faults.h"

#include <reshard/reshard_live.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 6, SMALL = 300, LARGE_ROWS = 384, SMALL_ROWS = 8, ROUNDS = 3 };

typedef struct cost_bed {
    const cost_case *c;
    rsd_store       *store;
    rsd_ckpt        *from; /* of a conversion */
} cost_bed;

/* ---- counting ---- */

static atomic_llong sent, messages;

static rsd_err counted_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    if (tag != RSI_TAG_SIGN && tag != RSI_TAG_ROLLCALL) { /* depend on time */
        sent += (long long)bytes;
        messages++;
    }
    return rsi_threads_ops.send(self, to, tag, data, bytes, request, err);
}

static void watch_comm(rsd_comm *comm, const cost_case *c)
{
    if (!comm)
        return;
    comm->ops.send = counted_send;
    if (c->messages) {
        comm->ops.expose = NULL;
        comm->ops.reach = NULL;
        comm->ops.flags &= ~RSD_COMM_THREADS;
    }
}

/* ---- what a rank holds ---- */

static int tensors_of(const cost_case *c)
{
    return c->small ? SMALL : LARGE;
}

static void tensor_of(const cost_case *c, int i, char name[64], int64_t shape[2])
{
    snprintf(name, 64, i == 0 ? "model.norm.weight" : "model.layers.%d.weight", i);
    shape[0] = c->small ? SMALL_ROWS : LARGE_ROWS;
    shape[1] = i == 0 ? 8 : c->small ? SMALL_ROWS : LARGE_ROWS / 2;
}

/* A state with this rank's parts; memory[i] is of tensor i. */
static rsd_err state_of(const cost_case *c, const rsd_rules *rules, int32_t rank, void **memory,
                        rsd_state **out, rsd_error *err)
{
    const rsd_dtype dtype = c->what == COST_LOAD && c->cast ? RSD_BF16 : RSD_F32;
    rsd_err         rc = rsd_state_create(out, err);

    for (int i = 0; !rc && i < tensors_of(c); i++) {
        char    name[64];
        int64_t shape[2], bytes = 0;

        tensor_of(c, i, name, shape);
        rc = rsd_rules_bytes(rules, name, dtype, 2, shape, rank, &bytes, err);
        memory[i] = calloc(1, (size_t)bytes + 1);
        for (int64_t b = 0; !rc && b < bytes; b++)
            ((unsigned char *)memory[i])[b] = (unsigned char)(b * 7 + i + rank);
        /* replicas are equal */
        if (i == 0)
            memset(memory[i], 1, (size_t)bytes);
        if (!rc)
            rc = rsd_state_add(*out, name, rules, rank, dtype, 2, shape, memory[i], err);
    }
    return rc;
}

/* ---- jobs; everything below `measured` is counted by tools/costs as instructions ---- */

rsd_err __attribute__((noinline))
measured(cost_bed *bed, rsd_comm *comm, rsd_state *state, rsd_error *err);

static rsd_err converted(cost_bed *bed, rsd_comm *comm, rsd_error *err)
{
    const cost_case *c = bed->c;
    rsd_cast         cast = { .dtype = RSD_BF16 };
    rsd_convert_opts opts = { .size = sizeof(opts),
                              .store = bed->store,
                              .threads = 1,
                              .shard_size = c->shard_size,
                              .casts = &cast,
                              .ncasts = c->cast };
    rsd_rules       *rules = NULL;
    rsd_err          rc = c->rules ? rsd_rules_parse(c->rules, &rules, err) : RSD_OK;

    opts.rules = rules;
    if (!rc)
        rc = rsd_convert(bed->from, c->path, comm, &opts, err);
    rsd_rules_free(rules);
    return rc;
}

static rsd_err opened(cost_bed *bed, rsd_error *err)
{
    rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    rsd_ckpt     *ckpt = NULL;
    size_t        findings = 0;
    rsd_err       rc = rsd_ckpt_open(bed->store, bed->c->path, &ckpt, err);

    if (!rc && bed->c->what == COST_VERIFY)
        rc = rsd_ckpt_verify(ckpt, &opts, NULL, NULL, &findings, err);
    if (!rc && findings)
        rc = rsi_fail(err, RSD_E_CORRUPT, "the checkpoint of a case is damaged");
    rsd_ckpt_close(ckpt);
    return rc;
}

static rsd_err stashed(const cost_case *c, rsd_comm *comm, rsd_error *err)
{
    const int64_t  shape[] = { LARGE_ROWS, LARGE_ROWS };
    const size_t   bytes = sizeof(float) * LARGE_ROWS * LARGE_ROWS;
    rsd_stash_opts opts = {
        .size = sizeof(opts), .dim = c->dim, .budget = 8 * bytes, .handles = 8
    };
    rsd_stash  *stash = NULL;
    rsd_stashed kept[ROUNDS];
    float      *data = calloc(1, bytes);
    rsd_err     rc = rsd_stash_create(comm, &opts, &stash, err);

    for (int i = 0; !rc && i < ROUNDS; i++)
        rc = rsd_stash_save(stash, RSD_F32, 2, shape, data, true, &kept[i], err);
    for (int i = ROUNDS - 1; !rc && i >= 0; i--)
        rc = rsd_stash_take(&kept[i], data, bytes, err);
    rsd_stash_free(stash);
    free(data);
    return rc;
}

static rsd_err moved(const cost_case *c, rsd_comm *comm, rsd_error *err)
{
    const char      *text[] = { c->source, c->rules };
    const int64_t    shape[] = { LARGE_ROWS, LARGE_ROWS };
    const int32_t    rank = rsd_comm_rank(comm);
    rsd_reshard_opts opts = { .size = sizeof(opts),
                              .direct = c->messages ? RSD_NEVER : RSD_DEFAULT };
    rsd_layout      *layout[2] = { NULL, NULL };
    void            *memory[2] = { NULL, NULL };
    rsd_view        *view[2] = { NULL, NULL };
    rsd_views        views[2];
    rsd_plan        *plan = NULL;
    rsd_err          rc = RSD_OK;

    for (int i = 0; !rc && i < 2; i++) {
        rsd_rules *rules = NULL;

        rc = rsd_rules_parse(text[i], &rules, err);
        if (!rc)
            rc = rsd_rules_layout(rules, "w", RSD_F32, 2, shape, &layout[i], err);
        rsd_rules_free(rules);
        if (rc)
            break;
        memory[i] = calloc(1, (size_t)rsd_layout_bytes(layout[i], rank) + 1);
        views[i].n = rsd_layout_views(layout[i], rank, memory[i], NULL, 0);
        view[i] = calloc(views[i].n + 1, sizeof(rsd_view));
        rsd_layout_views(layout[i], rank, memory[i], view[i], views[i].n);
        views[i].view = view[i];
    }
    if (!rc)
        rc = rsd_plan_create(1, (const rsd_layout *const *)&layout[0],
                             (const rsd_layout *const *)&layout[1], rank, &plan, err);
    for (int i = 0; !rc && i < ROUNDS; i++)
        rc = rsd_reshard(plan, comm, &views[0], &views[1], &opts, err);
    rsd_plan_free(plan);
    for (int i = 0; i < 2; i++) {
        rsd_layout_free(layout[i]);
        free(memory[i]);
        free(view[i]);
    }
    return rc;
}

rsd_err measured(cost_bed *bed, rsd_comm *comm, rsd_state *state, rsd_error *err)
{
    const cost_case *c = bed->c;
    const rsd_choice sums = c->no_checksums ? RSD_NEVER : RSD_DEFAULT;
    rsd_save_opts    save = { .size = sizeof(save),
                              .store = bed->store,
                              .threads = 1,
                              .distributed = c->distributed,
                              .shard_size = c->shard_size,
                              .overwrite = c->overwrite,
                              .checksum = sums };
    rsd_load_opts    load = {
           .size = sizeof(load), .store = bed->store, .threads = 1, .cast = c->cast, .verify = sums
    };

    switch (c->what) {
    case COST_SAVE:
        if (c->distributed || c->shard_size)
            save.format = RSD_FORMAT_SAFETENSORS;
        return rsd_save(c->path, comm, state, &save, err);
    case COST_LOAD:
        return rsd_load(c->path, comm, state, &load, err);
    case COST_CONVERT:
        return converted(bed, comm, err);
    case COST_OPEN:
    case COST_VERIFY:
        return opened(bed, err);
    case COST_LIVE:
        return moved(c, comm, err);
    case COST_STASH:
        return stashed(c, comm, err);
    }
    return RSD_E_BUG;
}

static rsd_err each_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    cost_bed        *bed = arg;
    const cost_case *c = bed->c;
    rsd_rules       *rules = NULL;
    rsd_state       *state = NULL;
    void            *memory[SMALL] = { NULL };
    rsd_err          rc = RSD_OK;

    watch_comm(comm, c);
    if (c->what == COST_SAVE || c->what == COST_LOAD) {
        rc = rsd_rules_parse(c->rules, &rules, err);
        if (!rc)
            rc = state_of(c, rules, comm ? rsd_comm_rank(comm) : 0, memory, &state, err);
    }
    if (!rc)
        rc = measured(bed, comm, state, err);
    rsd_state_free(state);
    rsd_rules_free(rules);
    for (int i = 0; i < SMALL; i++)
        free(memory[i]);
    return rc;
}

static rsd_err run_ranks(cost_bed *bed, const cost_case *c, rsd_error *err)
{
    bed->c = c;
    return c->ranks ? rsd_comm_run_threads(c->ranks, each_rank, bed, err)
                    : each_rank(bed, NULL, err);
}

static const cost_case *case_of(const cost_case *all, const char *name)
{
    while (all->name && strcmp(all->name, name) != 0)
        all++;
    return all->name ? all : NULL;
}

static bool has_source(const cost_case *c)
{
    return c->source && c->what != COST_LIVE;
}

rsd_err cost_run(const cost_case *c, const cost_case *all, cost_count *out, rsd_error *err)
{
    const rsi_file_opts how = {
        .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1, .direct_min = SIZE_MAX
    };
    const cost_case *source = has_source(c) ? case_of(all, c->source) : NULL;
    cost_bed         bed = { .c = c };
    char             top[] = "/dev/shm/reshard-costs-XXXXXX", other[] = "/tmp/reshard-costs-XXXXXX";
    char            *folder = mkdtemp(top) ? top : mkdtemp(other), command[96];
    rsd_err          rc;

    if (!folder)
        return rsi_fail(err, RSD_E_IO, "could not create a folder in /dev/shm or /tmp");
    memset(&faults, 0, sizeof(faults));
    rc = rsi_file_store_open(folder, &how, &bed.store, err);
    if (!rc && source)
        rc = run_ranks(&bed, source, err);
    if (!rc && c->what == COST_CONVERT)
        rc = rsd_ckpt_open(bed.store, source->path, &bed.from, err);
    faults.calls = 0;
    faults.bytes_read = faults.bytes_written = 0;
    sent = messages = 0;
    if (!rc)
        rc = run_ranks(&bed, c, err);
    *out = (cost_count){ faults.bytes_read, faults.bytes_written, sent, messages, faults.calls };
    rsd_ckpt_close(bed.from);
    rsd_store_close(bed.store);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command) == 0 ? rc : rsi_fail(err, RSD_E_IO, "could not remove %s", folder);
}
