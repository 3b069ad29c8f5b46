/* SPDX-License-Identifier: Apache-2.0 */
/* Saving, step by step; after each the ranks agree, so that they fail together:
 *
 *   image     every rank works out the whole checkpoint alone and sees that all mean the same
 *   begin     rank 0 makes the temporary tree (C2), the others learn its name
 *   data      every rank writes and syncs its own files (C3, C6)
 *   share     rank 0 gets what only the writers know: places of compressed items, checksums
 *   publish   rank 0 writes what makes it readable (C4), then gives it its name (C1, C5)
 */
#include "save/save.h"
#include "base/mem.h"
#include "write/image_follow.h"
#include "format/path_format.h"
#include "save/plan_cache.h"
#include "commit/replace.h"
#include "save/replicas.h"
#include "save/states_join.h"
#include "save/states_same.h"
#include "write/shared.h"
#include "state/stateful.h"

#include <stdio.h>
#include <string.h>

enum { TAG_SUMS = 0x100 };

/* All ranks learn how this step went on each. */
static rsd_err agree(const rsi_save_job *s, rsd_err rc, rsd_error *err)
{
    return s->comm ? rsi_agree(s->comm, rc, err) : rc;
}

static bool leads(const rsi_save_job *s)
{
    return s->rank <= 0;
}

/* Are there files that several ranks write together? */
static bool shares_files(const rsi_save_job *s)
{
    return s->comm && rsd_comm_size(s->comm) > 1 &&
           (s->spec.format == RSD_FORMAT_TORCH ||
            (s->spec.format == RSD_FORMAT_SAFETENSORS && !s->spec.distributed));
}

/* Are checksums to be written? */
static rsd_err want_sums(rsi_save_job *s, rsd_error *err)
{
    if (s->opts.checksum == RSD_ALWAYS && !rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    s->flush.sums = s->opts.checksum != RSD_NEVER && rsi_sums_available() ? &s->sums : NULL;
    return RSD_OK;
}

static int32_t ranks(const rsi_save_job *s)
{
    return s->comm ? rsd_comm_size(s->comm) : 1;
}

static rsd_err refuse_missing_values(const rsi_save_job *s, rsd_error *err)
{
    for (size_t i = 0; i < s->state->nvalues; i++)
        if (!s->state->value[i].value)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "has no \"%s\", which a file that ranks write together needs of all",
                            s->state->value[i].spot.name);
    return RSD_OK;
}

/* All ranks mean the same, or put what they have together. `rc` is how it went here so far.
 * [collective] */
static rsd_err compare_states(rsi_save_job *s, rsd_err rc, rsd_error *err)
{
    if (!s->comm)
        return rc;
    if (s->opts.uneven_keys && ranks(s) > 1) {
        rc = rsi_states_join(s->comm, s->state, rc, &s->merged, err);
        s->state = rc ? s->state : s->merged;
    } else {
        rc = rsi_states_same(s->comm, s->state, rc, err);
    }
    if (!rc && s->shared && s->merged)
        rc = agree(s, refuse_missing_values(s, err), err);
    if (!rc && s->opts.check_equal && ranks(s) > 1)
        rc = rsi_replicas_equal(s->comm, s->state, err);
    return rc;
}

rsd_err rsi_save_plan(rsi_save_job *s, const char *path, rsd_comm *comm, const rsd_state *state,
                      const rsd_save_opts *opts, rsd_error *err)
{
    rsd_err rc;

    *s = (rsi_save_job){ .path = path, .comm = comm, .state = state, .opts = *opts };
    s->store = opts->store;
    s->rank = comm ? rsd_comm_rank(comm) : -1;
    s->spec = (rsi_image_spec){ .format = opts->format,
                                .shard_size = opts->shard_size,
                                .distributed = opts->distributed,
                                .transform = opts->transform,
                                .rank = s->rank };
    s->spec.one_file = rsi_path_format(s->path, &s->spec.format);
    s->shared = shares_files(s);
    s->spec.own_only = comm && !s->shared;
    rc = want_sums(s, err);
    if (!rc)
        rc = rsi_stateful_expand(state, false, &s->expanded, err);
    s->state = s->expanded ? s->expanded : state;
    rc = compare_states(s, rc, err);
    if (rc)
        return rc;
    s->version = s->state->version;
    if (!rsi_plan_take(s->state, &s->spec, ranks(s), &s->image))
        rc = rsi_image_make(&s->image, s->state, &s->spec, err);
    if (s->shared)
        rc = rsi_image_follow(&s->image, s->state, s->comm, rc, err);
    if (!rc && !s->store) {
        rc = rsi_store_open_beside(s->path, true, &s->store, &s->name, err);
        s->own_store = !rc;
    } else if (!rc) {
        s->name = rsi_strdup(s->path);
        rc = s->name ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    }
    return agree(s, rc, err);
}

/* The name of the side file of a checkpoint that is one file; for rsi_free. */
static char *side_name(const rsi_save_job *s)
{
    return rsi_name_behind(s->name, RSI_SUMS_NAME);
}

rsd_err rsi_save_may_replace(const rsi_save_job *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    char   *side;

    if (s->opts.overwrite)
        rc = rsi_replace_check(s->store, s->name, s->spec.one_file, err);
    if (rc || !s->spec.one_file)
        return rc;
    side = side_name(s);
    rc = side ? rsi_replace_check(s->store, side, true, err)
              : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    rsi_free(side);
    return rc;
}

/* Rank 0 begins the tree; the others attach to it under the name they are told. */
rsd_err rsi_save_open(rsi_save_job *s, rsd_error *err)
{
    uint32_t flags =
        (s->spec.one_file ? RSD_TREE_FILE : 0) | (s->opts.overwrite ? RSD_TREE_OVERWRITE : 0);
    uint64_t len = 0;
    char    *temp = NULL;
    rsd_err  rc = RSD_OK;

    if (leads(s)) {
        rc = rsi_save_may_replace(s, err);
        if (!rc)
            rc = rsi_tree_begin(s->store, s->name, flags, &s->tree, err);
    }
    rc = agree(s, rc, err);
    if (rc || !s->comm)
        return rc;
    if (s->tree)
        len = strlen(s->tree->temp) + 1;
    rc = rsi_broadcast(s->comm, 0, &len, sizeof(len), err);
    if (rc)
        return rc;
    temp = rsi_calloc((size_t)len, 1);
    rc = agree(s, temp ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path"), err);
    if (!rc && s->tree)
        memcpy(temp, s->tree->temp, (size_t)len);
    if (!rc)
        rc = rsi_broadcast(s->comm, 0, temp, (size_t)len, err);
    if (!rc && !s->tree)
        rc = agree(s, rsi_tree_attach(s->store, temp, &s->tree, err), err);
    else if (!rc)
        rc = agree(s, RSD_OK, err);
    rsi_free(temp);
    return rc;
}

/* What a rank wrote where: sizes of transformed items, and of values that only some ranks have, are
 * known only to who wrote them. */
static rsd_err share_rows(rsi_save_job *s, rsd_error *err)
{
    rsi_dcp_meta *meta = s->image.meta;
    size_t        n = meta ? meta->nchunks + meta->nitems : 0;
    int64_t      *place;
    rsd_err       rc;

    if (!s->comm || !(s->image.transform || s->merged) || n == 0)
        return RSD_OK;
    place = rsi_calloc(n, 2 * sizeof(place[0]));
    rc = agree(s, place ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu items", n), err);
    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_dcp_row *row =
            i < meta->nchunks ? &meta->row[i] : &meta->item[i - meta->nchunks].row;

        if (s->image.file[row->file].owner != s->rank)
            continue; /* 0 where another rank wrote */
        place[2 * i] = row->offset;
        place[2 * i + 1] = row->length;
    }
    if (!rc)
        rc = rsi_allreduce(s->comm, RSI_OP_SUM, place, 2 * n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        rsi_dcp_row *row = i < meta->nchunks ? &meta->row[i] : &meta->item[i - meta->nchunks].row;

        row->offset = place[2 * i];
        row->length = place[2 * i + 1];
    }
    rsi_free(place);
    return rc;
}

void rsi_save_how(rsi_save_job *s)
{
    s->flush.sync = s->opts.sync != RSD_NEVER;
    s->flush.threads = s->opts.threads;
    s->flush.staging = s->opts.staging;
    s->flush.top = s->tree->temp;
    s->flush.on_progress = s->opts.on_progress;
    s->flush.arg = s->opts.arg;
}

rsd_err rsi_save_write(rsi_save_job *s, rsd_error *err)
{
    rsi_save_how(s);
    if (s->shared)
        return rsi_shared_flush(&s->image, s->state, s->comm, s->store, &s->flush, err);
    return rsi_flush_files(&s->image, s->state, s->rank, s->store, &s->flush, err);
}

/* Rank 0 gets the rows of `count[r]` of each rank behind its own. */
static rsd_err take_sums(rsi_save_job *s, const uint64_t *count, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t r = 1; r < rsd_comm_size(s->comm) && !rc; r++) {
        void *request = NULL;

        if (count[r] == 0)
            continue;
        rc = rsi_recv(s->comm, r, TAG_SUMS, s->sums.row + s->sums.n,
                      (size_t)count[r] * sizeof(s->sums.row[0]), &request, err);
        if (!rc)
            rc = rsi_wait_all(s->comm, 1, &request, &r, "checksums", err);
        if (rc)
            rsi_drop(s->comm, 1, &request);
        s->sums.n += rc ? 0 : (size_t)count[r];
    }
    return rc;
}

static rsd_err give_sums(rsi_save_job *s, rsd_error *err)
{
    const int32_t to = 0;
    void         *request = NULL;
    rsd_err       rc;

    if (s->sums.n == 0)
        return RSD_OK;
    rc = rsi_send(s->comm, to, TAG_SUMS, s->sums.row, s->sums.n * sizeof(s->sums.row[0]), &request,
                  err);
    if (!rc)
        rc = rsi_wait_all(s->comm, 1, &request, &to, "checksums", err);
    if (rc)
        rsi_drop(s->comm, 1, &request);
    return rc;
}

/* Room for the rows of all ranks. */
static rsd_err make_room(rsi_save_job *s, const uint64_t *count, rsd_error *err)
{
    uint64_t     n = 0;
    rsi_sum_row *grown;

    for (int32_t r = 0; r < rsd_comm_size(s->comm); r++)
        n += count[r];
    grown = rsi_realloc(s->sums.row, (size_t)n + 1, sizeof(s->sums.row[0]));
    if (!grown)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", (size_t)n);
    s->sums.row = grown;
    s->sums.cap = (size_t)n + 1;
    return RSD_OK;
}

/* The rows of all ranks go to rank 0, straight to their place. */
static rsd_err share_sums(rsi_save_job *s, rsd_error *err)
{
    uint64_t *count = NULL, mine = s->sums.n;
    rsd_err   rc = RSD_OK;

    if (!s->comm || !s->flush.sums || rsd_comm_size(s->comm) == 1)
        return RSD_OK;
    if (leads(s)) {
        count = rsi_calloc((size_t)rsd_comm_size(s->comm), sizeof(count[0]));
        rc = count ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for checksums");
    }
    rc = agree(s, rc, err);
    if (!rc)
        rc = rsi_gather(s->comm, 0, &mine, sizeof(mine), count, err);
    if (!rc)
        rc = agree(s, leads(s) ? make_room(s, count, err) : RSD_OK, err);
    if (!rc) {
        rc = leads(s) ? take_sums(s, count, err) : give_sums(s, err);
        rc = rsi_break(s->comm, rc, err);
    }
    rsi_free(count);
    return rc;
}

rsd_err rsi_save_share(rsi_save_job *s, rsd_err mine, rsd_error *err)
{
    rsd_err rc = s->shared ? mine : agree(s, mine, err); /* those agreed already */

    if (!rc)
        rc = share_rows(s, err);
    if (!rc)
        rc = share_sums(s, err);
    return rc;
}

/* ---- publishing ---- */

/* The side file of a checkpoint that is one file, written but not published. */
static rsd_err write_side(rsi_save_job *s, const char *side, rsi_tree **tree, rsd_error *err)
{
    rsi_flush_opts flush = s->flush;
    rsd_err rc = rsi_tree_begin(s->store, side, RSD_TREE_FILE | RSD_TREE_OVERWRITE, tree, err);

    if (rc)
        return rc;
    flush.top = (*tree)->temp;
    flush.file = rsi_last_part(s->name);
    return rsi_flush_sums(&s->image, s->store, &flush, 0, NULL, err);
}

/* That of the file which will be replaced; it may not be there. */
static rsd_err remove_side(const rsi_save_job *s, const char *side, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = rsi_store_remove(s->store, side, &why);

    if (rc == RSD_E_NOTFOUND)
        return RSD_OK;
    if (rc && err)
        *err = why;
    return rc;
}

/* One file and its side file can't change at once: for a moment there is none, never a wrong one.
 * Other writers are locked out meanwhile, and readers wait (file_hold.c). */
static rsd_err publish_file(rsi_save_job *s, rsd_error *err)
{
    char     *side = side_name(s);
    rsi_tree *tree = NULL;
    void     *lock = NULL;
    rsd_err   rc = side ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");

    if (!rc && s->flush.sums)
        rc = write_side(s, side, &tree, err);
    if (!rc)
        rc = rsi_store_lock(s->store, s->name, &lock, err);
    if (!rc)
        rc = remove_side(s, side, err);
    if (!rc) {
        rc = rsi_tree_commit(s->tree, err); /* C5 */
        s->tree = rc ? s->tree : NULL;
    }
    if (!rc && tree) {
        rc = rsi_tree_commit(tree, err);
        tree = rc ? tree : NULL;
        if (rc)
            rsi_while(err, rc, "the checkpoint is there, its checksums are not");
    }
    rsi_store_unlock(s->store, lock);
    rsi_tree_abort(tree, NULL);
    rsi_free(side);
    return rc;
}

rsd_err rsi_save_rest(rsi_save_job *s, rsd_error *err)
{
    rsd_err rc = rsi_flush_metadata(&s->image, s->store, &s->flush, &s->metadata, err);

    if (!rc && s->flush.sums && !s->spec.one_file)
        rc = rsi_flush_sums(&s->image, s->store, &s->flush, s->metadata, RSI_SUMS_NAME, err);
    return rc;
}

rsd_err rsi_save_name(rsi_save_job *s, rsd_error *err)
{
    rsd_err rc = rsi_save_may_replace(s, err); /* it may have changed since the beginning */

    if (rc)
        return rc;
    if (s->spec.one_file)
        return publish_file(s, err);
    rc = rsi_tree_commit(s->tree, err); /* C5: every rank has said yes to all that came before */
    s->tree = rc ? s->tree : NULL;
    return rc;
}

rsd_err rsi_save_publish(rsi_save_job *s, rsd_error *err)
{
    rsd_err rc = agree(s, leads(s) ? rsi_save_rest(s, err) : RSD_OK, err);

    if (rc)
        return rc;
    return agree(s, leads(s) ? rsi_save_name(s, err) : RSD_OK, err);
}

rsd_err rsi_save_end(rsi_save_job *s, rsd_err rc, rsd_error *err)
{
    rsi_tree_abort(s->tree, NULL); /* what rank 0 began and did not publish; others only let go */
    if (rc)
        rsi_while(err, rc, "checkpoint \"%s\"", s->path);
    rsi_free(s->name);
    if (s->own_store)
        rsd_store_free(s->store);
    rsi_sums_release(&s->sums);
    if (!rc && !s->merged && s->version == s->state->version)
        rsi_plan_keep(s->state, &s->spec, ranks(s), &s->image);
    else
        rsi_image_release(&s->image);
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
        rc = rsi_save_open(&job, err);
    if (!rc)
        rc = rsi_save_share(&job, rsi_save_write(&job, err), err);
    if (!rc)
        rc = rsi_save_publish(&job, err);
    return rsi_save_end(&job, rc, err);
}
