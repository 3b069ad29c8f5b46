/* SPDX-License-Identifier: Apache-2.0 */
/* One rank has another option than the others, or calls another function: one error on all ranks,
 * which names the option and the rank. */
#include "ranks_case.h"

#include "comm/facts.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <string.h>

/* ---- saving ---- */

typedef struct save_call {
    const char   *path;
    rsd_stage_way how;
    rsd_save_opts opts;
} save_call;

static void other_path(save_call *c)
{
    c->path = c->opts.store ? "other" : "/tmp/other";
}

static void other_format(save_call *c)
{
    c->opts.format = RSD_FORMAT_SAFETENSORS;
}

static void other_overwrite(save_call *c)
{
    c->opts.overwrite = true;
}

static void other_distributed(save_call *c)
{
    c->opts.distributed = true;
}

static void other_sync(save_call *c)
{
    c->opts.sync = RSD_NEVER;
}

static void other_shard_size(save_call *c)
{
    c->opts.shard_size = 1000;
}

static void other_transform(save_call *c)
{
    c->opts.transform = "stream.zstd";
}

static void other_checksum(save_call *c)
{
    c->opts.checksum = RSD_NEVER;
}

static void other_uneven_keys(save_call *c)
{
    c->opts.uneven_keys = true;
}

static void other_check_equal(save_call *c)
{
    c->opts.check_equal = true;
}

static void other_way(save_call *c)
{
    c->how = c->how == RSD_STAGE_COPY ? RSD_STAGE_FORK : RSD_STAGE_COPY;
}

static void other_store(save_call *c)
{
    c->opts.store = NULL;
}

static const struct {
    const char *text;
    void (*change)(save_call *call);
    bool async, custom; /* async saves only; with a store */
} save_options[] = {
    { "path is \"", other_path, .async = false },
    { "path is \"other\" here, but \"ck\" on rank 0", other_path, .custom = true },
    { "store is none here, but file on rank 0", other_store, .custom = true },
    { "format is safetensors here, but DCP on rank 0", other_format, .async = false },
    { "overwrite is true here, but false on rank 0", other_overwrite, .async = false },
    { "distributed is true here, but false on rank 0", other_distributed, .async = false },
    { "sync is never here, but always on rank 0", other_sync, .async = false },
    { "shard_size is 1000 here, but 0 on rank 0", other_shard_size, .async = false },
    { "transform is \"stream.zstd\" here, but none on rank 0", other_transform, .async = false },
    { "checksum is never here, but always on rank 0", other_checksum, .async = false },
    { "uneven_keys is true here, but false on rank 0", other_uneven_keys, .async = false },
    { "check_equal is true here, but false on rank 0", other_check_equal, .async = false },
    { "the way of staging is ", other_way, .async = true },
};

/* What any rank may have otherwise. */
static int no_progress(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)done, (void)total;
    return 0;
}

static rsd_err save_with(const ranks_bed *bed, const ranks_state *s, size_t i, rsd_stage_way how,
                         rsd_error *err)
{
    rsd_comm *comm = bed->comm;
    int32_t   odd = comm->size - 1;
    save_call call = { .path = bed->path, .how = how };
    rsd_err   rc;

    call.opts = (rsd_save_opts){ .size = sizeof(call.opts), .threads = 1 + comm->rank % 2 };
    call.opts.max_memory = comm->rank % 2 ? (size_t)64 << 20 : 0;
    call.opts.on_progress = comm->rank == odd ? no_progress : NULL;
    if (save_options[i].custom) {
        call.opts.store = bed->store;
        call.path = "ck";
    }
    if (comm->rank == odd)
        save_options[i].change(&call);
    rc = ranks_save(call.path, comm, s->state, call.how, &call.opts, err);
    rc = ranks_failed(comm, rc, RSD_E_MISMATCH, odd, save_options[i].text, err);
    if (!rc && !ranks_bed_empty(bed))
        rc = rsi_fail(err, RSD_E_BUG, "something was left");
    return rc ? rsi_while(err, rc, "option %zu, way %d", i, (int)how) : RSD_OK;
}

static rsd_err another_option_of_a_save_is_named_on_all_ranks(rsd_comm *comm, rsd_error *err)
{
    size_t        n = sizeof(save_options) / sizeof(save_options[0]);
    rsd_save_opts good = { .size = sizeof(good), .sync = RSD_NEVER };
    rsd_stage_way how;
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, true, err);
    for (int way = 0; ranks_way(comm, way, &how) && !rc; way++)
        for (size_t i = 0; i < n && !rc; i++)
            if (how || !save_options[i].async)
                rc = save_with(&bed, &s, i, how, err);
    if (!rc) /* and then it works */
        rc = rsd_save(bed.path, comm, s.state, &good, err);
    if (!rc && comm->rank == 0)
        rc = ranks_saved(bed.path, NULL, err);
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* The path of rank 0 is the odd one: then it is rank 1 that differs. */
static rsd_err the_odd_one_may_be_rank_0(rsd_comm *comm, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts), .overwrite = comm->rank == 0 };
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, false, err);
    if (!rc)
        rc = rsd_save(bed.path, comm, s.state, &opts, err);
    rc = ranks_failed(comm, rc, RSD_E_MISMATCH, 1, "overwrite is false here, but true on rank 0",
                      err);
    if (!rc && err->nfailed != comm->size - 1)
        rc = rsi_fail(err, RSD_E_BUG, "%d ranks are said to differ", (int)err->nfailed);
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* ---- loading ---- */

static rsd_err load(const char *path, rsd_comm *comm, const rsd_load_opts *opts, rsd_error *err)
{
    ranks_state s;
    rsd_err     rc = ranks_state_make(&s, comm, false, err);

    memset(s.w, 0, sizeof(s.w));
    if (!rc)
        rc = rsd_load(path, comm, s.state, opts, err);
    if (!rc && comm->rank == 0 && (s.w[1] != 1.0F || s.b[1] != 101.0F))
        rc = rsi_fail(err, RSD_E_BUG, "another tensor was loaded");
    ranks_state_free(&s);
    return rc;
}

static rsd_err ranks_load_one_checkpoint_each_in_its_own_way(rsd_comm *comm, rsd_error *err)
{
    rsd_save_opts save = { .size = sizeof(save), .sync = RSD_NEVER };
    rsd_load_opts opts = { .size = sizeof(opts) };
    bool          odd = comm->rank == comm->size - 1;
    char          other[128];
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, false, err);
    if (!rc)
        rc = rsd_save(bed.path, comm, s.state, &save, err);
    snprintf(other, sizeof(other), "%s/../%s/ck", bed.top, strrchr(bed.top, '/') + 1);
    if (!rc)
        rc = load(odd ? other : bed.path, comm, &opts, err);
    rc = ranks_failed(comm, rc, RSD_E_MISMATCH, comm->size - 1, "path is \"", err);
    opts.store = odd ? bed.store : NULL;
    if (!rc) {
        rc = load(bed.path, comm, &opts, err);
        rc = ranks_failed(comm, rc, RSD_E_MISMATCH, comm->size - 1,
                          "store is file here, but none on rank 0", err);
    }
    opts = (rsd_load_opts){ .size = sizeof(opts),
                            .verify = odd ? RSD_ALWAYS : RSD_NEVER,
                            .cooperate = odd ? RSD_ALWAYS : RSD_NEVER,
                            .allow_partial = odd,
                            .cast = odd,
                            .prefix = odd ? "" : NULL,
                            .threads = 1 + odd };
    if (!rc)
        rc = load(bed.path, comm, &opts, err);
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* ---- converting ---- */

static void convert_path(rsd_convert_opts *o)
{
    (void)o; /* of the call */
}

static void convert_format(rsd_convert_opts *o)
{
    o->format = RSD_FORMAT_SAFETENSORS;
}

static void convert_include(rsd_convert_opts *o)
{
    static const char *const pattern[] = { "w" };

    o->include = pattern;
    o->ninclude = 1;
}

static void convert_cast(rsd_convert_opts *o)
{
    static const rsd_cast cast[] = { { "w", RSD_BF16 } };

    o->casts = cast;
    o->ncasts = 1;
}

static void convert_exclude(rsd_convert_opts *o)
{
    static const char *const pattern[] = { "w" };

    o->exclude = pattern;
    o->nexclude = 1;
}

static void convert_other_exclude(rsd_convert_opts *o)
{
    static const char *const pattern[] = { "b" };

    o->exclude = pattern;
    o->nexclude = 1;
}

static void convert_cast_pattern(rsd_convert_opts *o)
{
    static const rsd_cast cast[] = { { "b", RSD_BF16 } };

    o->casts = cast;
}

static void convert_cast_dtype(rsd_convert_opts *o)
{
    static const rsd_cast cast[] = { { "w", RSD_F64 } };

    o->casts = cast;
}

static void convert_layout(rsd_convert_opts *o)
{
    (void)o; /* made for the call */
}

static void convert_store(rsd_convert_opts *o)
{
    (void)o; /* of the bed */
}

static void convert_shard_size(rsd_convert_opts *o)
{
    o->shard_size = 1000;
}

static void convert_keep(rsd_convert_opts *o)
{
    o->keep = true;
}

static void convert_overwrite(rsd_convert_opts *o)
{
    o->overwrite = true;
}

static void convert_resume(rsd_convert_opts *o)
{
    o->resume = true;
}

static void convert_sync(rsd_convert_opts *o)
{
    o->sync = RSD_ALWAYS;
}

static void convert_checksum(rsd_convert_opts *o)
{
    o->checksum = RSD_NEVER;
}

static void convert_verify(rsd_convert_opts *o)
{
    o->verify = RSD_NEVER;
}

static void convert_dry_run(rsd_convert_opts *o)
{
    o->dry_run = true;
}

static void convert_carry(rsd_convert_opts *o)
{
    o->carry = RSD_NEVER;
}

static void convert_salvage(rsd_convert_opts *o)
{
    o->salvage = true;
}

static void convert_transform(rsd_convert_opts *o)
{
    o->transform = "stream.zstd";
}

static const struct {
    const char *text;
    void (*change)(rsd_convert_opts *opts);
    void (*all)(rsd_convert_opts *opts); /* what all ranks have before; NULL: nothing */
} convert_options[] = {
    { "path is \"", convert_path, NULL },
    { "format is safetensors here, but DCP on rank 0", convert_format, NULL },
    { "ninclude is 1 here, but 0 on rank 0", convert_include, NULL },
    { "ncasts is 1 here, but 0 on rank 0", convert_cast, NULL },
    { "overwrite is true here, but false on rank 0", convert_overwrite, NULL },
    { "keep is true here, but false on rank 0", convert_resume, NULL },
    { "sync is always here, but never on rank 0", convert_sync, NULL },
    { "checksum is never here, but always on rank 0", convert_checksum, NULL },
    { "verify is never here, but always on rank 0", convert_verify, NULL },
    { "transform is \"stream.zstd\" here, but none on rank 0", convert_transform, NULL },
    { "dry_run is true here, but false on rank 0", convert_dry_run, NULL },
    { "carry is never here, but always on rank 0", convert_carry, NULL },
    { "salvage is true here, but false on rank 0", convert_salvage, NULL },
    { "layout is \"", convert_layout, NULL },
    { "store is file here, but none on rank 0", convert_store, NULL },
    { "nexclude is 1 here, but 0 on rank 0", convert_exclude, NULL },
    { "exclude is \"b\" here, but \"w\" on rank 0", convert_other_exclude, convert_exclude },
    { "the pattern of a cast is \"b\" here, but \"w\"", convert_cast_pattern, convert_cast },
    { "the dtype of a cast is float64 here, but bfloat16", convert_cast_dtype, convert_cast },
    { "shard_size is 1000 here, but 0 on rank 0", convert_shard_size, NULL },
    { "resume is true here, but false on rank 0", convert_resume, convert_keep },
};

static rsd_err convert_with(ranks_bed *bed, rsd_ckpt *source, size_t i, rsd_error *err)
{
    rsd_comm        *comm = bed->comm;
    int32_t          odd = comm->size - 1;
    rsd_convert_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER, .threads = 1 };
    rsd_rules       *rules = NULL;
    rsd_err          rc;

    ranks_bed_name(bed, "to");
    if (convert_options[i].all)
        convert_options[i].all(&opts);
    if (comm->rank == odd && convert_options[i].change == convert_layout)
        rsd_rules_parse("mesh x=2; * shard(0)@x", &rules, NULL);
    if (comm->rank == odd && convert_options[i].change == convert_store)
        opts.store = bed->store;
    opts.rules = rules;
    if (comm->rank == odd && convert_options[i].change == convert_path)
        ranks_bed_name(bed, "other");
    if (comm->rank == odd)
        convert_options[i].change(&opts);
    rc = rsd_convert(source, bed->path, comm, &opts, err);
    rsd_rules_free(rules);
    rc = ranks_failed(comm, rc, RSD_E_MISMATCH, odd, convert_options[i].text, err);
    return rc ? rsi_while(err, rc, "option %zu", i) : RSD_OK;
}

static rsd_err another_option_of_a_conversion_is_named_on_all_ranks(rsd_comm *comm, rsd_error *err)
{
    size_t           n = sizeof(convert_options) / sizeof(convert_options[0]);
    rsd_save_opts    save = { .size = sizeof(save), .sync = RSD_NEVER };
    rsd_convert_opts good = { .size = sizeof(good), .sync = RSD_NEVER };
    rsd_ckpt        *source = NULL;
    ranks_state      s;
    ranks_bed        bed;
    rsd_err          rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, true, err);
    if (!rc)
        rc = rsd_save(bed.path, comm, s.state, &save, err);
    if (!rc)
        rc = rsi_agree(comm, rsd_ckpt_open(NULL, bed.path, &source, err), err);
    for (size_t i = 0; i < n && !rc; i++)
        rc = convert_with(&bed, source, i, err);
    ranks_bed_name(&bed, "to");
    good.max_memory = comm->rank ? (size_t)32 << 20 : 0;
    good.threads = 1 + comm->rank % 2;
    if (!rc)
        rc = rsd_convert(source, bed.path, comm, &good, err);
    if (!rc && comm->rank == 0)
        rc = ranks_saved(bed.path, NULL, err);
    rsd_ckpt_close(source);
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* ---- stash, and other functions ---- */

static rsd_err another_option_of_a_stash_is_named_on_all_ranks(rsd_comm *comm, rsd_error *err)
{
    static const char *const text[] = { "dim is 1 here, but 0 on rank 0",
                                        "dim is none here, but 0 on rank 0",
                                        "budget is 2048 here, but 1024 on rank 0",
                                        "handles is 9 here, but 8 on rank 0" };
    int32_t                  odd = comm->size - 1;
    rsd_err                  rc = RSD_OK;

    for (size_t i = 0; i < 4 && !rc; i++) {
        rsd_stash_opts opts = { .size = sizeof(opts), .budget = 1024, .handles = 8 };
        rsd_stash     *stash = NULL;

        if (comm->rank == odd) {
            opts.dim = i == 0 ? 1 : i == 1 ? RSD_NO_DIM : 0;
            opts.budget = i == 2 ? 2048 : 1024;
            opts.handles = i == 3 ? 9 : 8;
        }
        rc = rsd_stash_create(comm, &opts, &stash, err);
        rc = ranks_failed(comm, rc, RSD_E_MISMATCH, odd, text[i], err);
        rsd_stash_free(stash);
    }
    return rc;
}

static rsd_err make_stash(rsd_comm *comm, rsd_error *err)
{
    rsd_stash_opts opts = { .size = sizeof(opts), .budget = 1024, .handles = 8 };
    rsd_stash     *stash = NULL;

    return rsd_stash_create(comm, &opts, &stash, err);
}

static rsd_err make_layout(rsd_comm *comm, rsd_error *err)
{
    const int64_t eight[] = { 8 };
    rsd_layout   *layout;

    return rsd_layout_create_local(comm, RSD_F32, 1, eight, 0, NULL, &layout, err);
}

static rsd_err make_group(rsd_comm *comm, rsd_error *err)
{
    rsd_comm *group;

    return rsd_comm_split(comm, 0, NULL, &group, err);
}

static rsd_err make_memory(rsd_comm *comm, rsd_error *err)
{
    void *memory;

    return rsd_comm_alloc(comm, 64, &memory, err);
}

static rsd_err ranks_that_call_different_functions_are_told_so(rsd_comm *comm, rsd_error *err)
{
    static const struct {
        const char *name;
        rsd_err (*call)(rsd_comm *comm, rsd_error *err);
    } other[] = { { "rsd_stash_create", make_stash },
                  { "rsd_layout_create_local", make_layout },
                  { "rsd_comm_split", make_group },
                  { "rsd_comm_alloc", make_memory } };
    int32_t       odd = comm->size - 1;
    rsd_save_opts opts = { .size = sizeof(opts) };
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, false, err);
    for (size_t i = 0; i < 4 && !rc; i++) {
        char text[128];

        snprintf(text, sizeof(text), "the call is %s here, but rsd_save on rank 0", other[i].name);
        rc = comm->rank == odd ? other[i].call(comm, err)
                               : rsd_save(bed.path, comm, s.state, &opts, err);
        rc = ranks_failed(comm, rc, RSD_E_MISMATCH, odd, text, err);
    }
    if (!rc) {
        rc = comm->rank == odd ? rsd_load(bed.path, comm, s.state, NULL, err)
                               : ranks_save(bed.path, comm, s.state, RSD_STAGE_COPY, &opts, err);
        rc = ranks_failed(comm, rc, RSD_E_MISMATCH, odd,
                          "the call is rsd_load here, but rsd_save_begin on rank 0", err);
    }
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* A custom transport may have any name. */
static rsd_err threads_can_t_fork_whatever_their_comm_is_called(rsd_comm *comm, rsd_error *err)
{
    const char   *name = comm->ops.name;
    rsd_save_opts opts = { .size = sizeof(opts) };
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, false, err);
    comm->ops.name = "custom";
    if (!rc)
        rc = ranks_save(bed.path, comm, s.state, RSD_STAGE_FORK, &opts, err);
    comm->ops.name = name;
    if (comm->ops.flags & RSD_COMM_THREADS)
        rc = ranks_failed(comm, rc, RSD_E_UNSUPPORTED, 0, "the ranks are threads of one process",
                          err);
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

/* ---- what it takes ---- */

static _Thread_local struct {
    rsd_comm_ops real;
    int          sent;
} counted;

static rsd_err counted_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    counted.sent += tag != RSI_TAG_SIGN; /* heartbeats depend on time */
    return counted.real.send(self, to, tag, data, bytes, request, err);
}

static void tell_two(rsi_facts *facts, const void *path)
{
    rsi_fact_word(facts, "the call", "rsd_save");
    rsi_fact_text(facts, "path", path);
}

static rsd_err comparing_takes_no_message_more_than_agreeing(rsd_comm *comm, rsd_error *err)
{
    int     agreeing;
    rsd_err rc;

    counted.real = comm->ops;
    counted.sent = 0;
    comm->ops.send = counted_send;
    rc = rsi_agree(comm, RSD_OK, err);
    agreeing = counted.sent;
    if (!rc)
        rc = rsi_same_facts(comm, tell_two, "/a/long/path/of/a/checkpoint", RSD_OK, err);
    comm->ops = counted.real;
    if (!rc && counted.sent != 2 * agreeing)
        rc = rsi_fail(err, RSD_E_BUG, "%d messages, and %d to agree", counted.sent - agreeing,
                      agreeing);
    return rsi_agree(comm, rc, err);
}

const comm_case ranks_options[] = {
    { COMM_CASE(another_option_of_a_save_is_named_on_all_ranks), .min_ranks = 2 },
    { COMM_CASE(the_odd_one_may_be_rank_0), .min_ranks = 2 },
    { COMM_CASE(ranks_load_one_checkpoint_each_in_its_own_way), .min_ranks = 2 },
    { COMM_CASE(another_option_of_a_conversion_is_named_on_all_ranks), .min_ranks = 2 },
    { COMM_CASE(another_option_of_a_stash_is_named_on_all_ranks), .min_ranks = 2 },
    { COMM_CASE(ranks_that_call_different_functions_are_told_so), .min_ranks = 2 },
    { COMM_CASE(threads_can_t_fork_whatever_their_comm_is_called), .min_ranks = 2 },
    { COMM_CASE(comparing_takes_no_message_more_than_agreeing), .min_ranks = 2 },
    { .name = NULL },
};
