/* SPDX-License-Identifier: Apache-2.0 */
/* Saving, step by step; after each step the ranks agree, so that they fail together:
 *
 *   image     every rank computes its part alone, rank 0 of DCP the whole, and all check that they
 *             agree on what it is made of
 *   begin     rank 0 creates the temporary tree (C2), the others learn its name (commit.c)
 *   data      every rank writes and syncs its own files (C3, C6)
 *   publish   rank 0 collects what only the writers know (outcome.c), writes what makes the
 *             checkpoint readable (C4), then publishes its name (C1, C5) */
#include "save/save.h"
#include "base/mem.h"
#include "write/image_follow.h"
#include "format/path_format.h"
#include "save/image_cache.h"
#include "commit/outcome.h"
#include "save/replicas.h"
#include "save/states_join.h"
#include "save/states_same.h"
#include "write/write_together.h"
#include "state/stateful.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* True if several ranks write the same files jointly. */
static bool shares_files(const rsi_save_job *s)
{
    return s->commit.comm && rsd_comm_size(s->commit.comm) > 1 &&
           (s->spec.format == RSD_FORMAT_TORCH ||
            (s->spec.format == RSD_FORMAT_SAFETENSORS && !s->spec.distributed));
}

static int32_t ranks(const rsi_save_job *s)
{
    return s->commit.comm ? rsd_comm_size(s->commit.comm) : 1;
}

static rsd_err refuse_missing_values(const rsi_save_job *s, rsd_error *err)
{
    for (size_t i = 0; i < s->state->nvalues; i++)
        if (!s->state->value[i].value)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "value \"%s\" is missing on this rank; a jointly written file needs it "
                            "on every rank",
                            s->state->value[i].spot.name);
    return RSD_OK;
}

/* A part that a layout gives to a rank outside the comm would be written by nobody. */
static rsd_err refuse_absent_ranks(const rsi_save_job *s, rsd_error *err)
{
    for (size_t i = 0; i < s->state->ntensors; i++) {
        const rsi_state_tensor *t = &s->state->tensor[i];

        if (t->layout && rsd_layout_world(t->layout) > ranks(s))
            return rsi_fail(err, RSD_E_MISMATCH,
                            "tensor \"%s\": the layout names rank %" PRId32
                            ", but the comm has only ranks 0 to %" PRId32,
                            t->spot.name, rsd_layout_world(t->layout) - 1, ranks(s) - 1);
    }
    return RSD_OK;
}

/* Checks that all ranks have the same state, or joins their states. `rc` is this rank's result so
 * far. [collective] */
static rsd_err compare_states(rsi_save_job *s, rsd_err rc, rsd_error *err)
{
    if (!s->commit.comm)
        return rc;
    if (s->opts.uneven_keys && ranks(s) > 1) {
        bool own_only = s->commit.apart && !s->opts.check_equal;

        rc = rsi_states_join(s->commit.comm, s->state, own_only, rc, &s->merged, err);
        s->state = rc ? s->state : s->merged;
    } else {
        rc = rc ? rc : refuse_absent_ranks(s, err);
        rc = rsi_states_same(s->commit.comm, s->state, rc, err);
    }
    if (!rc && s->shared && s->merged)
        rc = rsi_commit_agree(&s->commit, refuse_missing_values(s, err), err);
    if (!rc && s->opts.check_equal && ranks(s) > 1)
        rc = rsi_replicas_equal(s->commit.comm, s->state, err);
    return rc;
}

rsd_err rsi_save_plan(rsi_save_job *s, const char *path, rsd_comm *comm, const rsd_state *state,
                      const rsd_save_opts *opts, rsd_error *err)
{
    rsd_err rc;

    *s = (rsi_save_job){ .state = state, .opts = *opts };
    s->commit = (rsi_commit){ .path = path,
                              .comm = comm,
                              .rank = comm ? rsd_comm_rank(comm) : -1,
                              .overwrite = opts->overwrite,
                              .store = opts->store };
    s->spec = (rsi_image_spec){ .format = opts->format,
                                .shard_size = opts->shard_size,
                                .distributed = opts->distributed,
                                .transform = opts->transform,
                                .rank = s->commit.rank };
    s->spec.one_file = rsi_path_format(path, &s->spec.format);
    s->commit.one_file = s->spec.one_file;
    s->shared = shares_files(s);
    s->spec.own_only = comm && !s->shared;
    s->commit.apart = s->spec.own_only && s->spec.format == RSD_FORMAT_DCP;
    if (s->spec.format == RSD_FORMAT_ZERO && ranks(s) > 1)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "several ranks can't save DeepSpeed's universal form: save DCP and convert "
                        "it");
    rc = rsi_commit_want_sums(&s->commit, opts->checksum, err);
    if (!rc)
        rc = rsi_stateful_expand(state, false, &s->expanded, err);
    s->state = s->expanded ? s->expanded : state;
    rc = compare_states(s, rc, err);
    if (rc)
        return rc;
    s->version = s->state->version;
    s->commit.uneven = s->spec.uneven = s->merged != NULL;
    if (!rsi_image_cache_take(s->state, &s->spec, ranks(s), &s->commit.image))
        rc = rsi_image_make(&s->commit.image, s->state, &s->spec, err);
    if (s->shared)
        rc = rsi_image_follow(&s->commit.image, s->state, s->commit.comm, rc, err);
    if (!rc)
        rc = rsi_commit_store(&s->commit, true, err);
    return rsi_commit_agree(&s->commit, rc, err);
}

void rsi_save_how(rsi_save_job *s)
{
    s->commit.flush.sync = s->opts.sync != RSD_NEVER;
    s->commit.flush.threads = s->opts.threads;
    s->commit.flush.staging = s->opts.max_memory;
    s->commit.flush.on_progress = s->opts.on_progress;
    s->commit.flush.arg = s->opts.arg;
}

rsd_err rsi_save_write(rsi_save_job *s, rsd_error *err)
{
    rsi_save_how(s);
    if (s->shared)
        return rsi_write_together(&s->commit.image, s->state, s->commit.comm, s->commit.store,
                                  &s->commit.flush, NULL, err);
    return rsi_write_files(&s->commit.image, s->state, s->commit.rank, s->commit.store,
                           &s->commit.flush, err);
}

rsd_err rsi_save_end(rsi_save_job *s, rsd_err rc, rsd_error *err)
{
    rc = rsi_commit_end(&s->commit, rc, err);
    if (!rc && !s->merged && s->version == s->state->version)
        rsi_image_cache_keep(s->state, &s->spec, ranks(s), &s->commit.image);
    else
        rsi_image_release(&s->commit.image);
    rsd_state_free(s->merged);
    rsd_state_free(s->expanded);
    return rc;
}

rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err)
{
    rsi_save_job job;
    rsd_err      rc = rsi_save_plan(&job, path, comm, state, opts, err);

    if (!rc)
        rc = rsi_commit_open(&job.commit, err);
    if (!rc) {
        rc = rsi_save_write(&job, err);
        if (!rc || !job.shared) /* shared files already fail together */
            rc = rsi_outcome_settle(&job.commit, rc, NULL, NULL, err);
    }
    return rsi_save_end(&job, rc, err);
}
