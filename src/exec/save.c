/* SPDX-License-Identifier: Apache-2.0 */
/* Saving, step by step; after each the ranks agree, so that they fail together:
 *
 *   image     every rank works out the whole checkpoint alone and sees that all mean the same
 *   begin     rank 0 makes the temporary tree (C2), the others learn its name
 *   data      every rank writes and syncs its own files (C3, C6)
 *   metadata  rank 0 writes what makes it readable (C4)
 *   publish   rank 0 gives it its name (C1, C5)
 */
#include "exec/save.h"
#include "base/mem.h"
#include "exec/flush.h"
#include "exec/same.h"

#include <string.h>

typedef struct saving {
    const char          *path;
    rsd_comm            *comm; /* NULL: alone */
    int32_t              rank; /* -1: all of them */
    const rsd_state     *state;
    const rsd_save_opts *opts;
    rsi_image_spec       spec;
    rsi_image            image;
    rsd_store           *store;
    char                *name; /* of the checkpoint in the store */
    bool                 own_store;
    rsi_tree            *tree;
    rsi_flush_opts       flush;
    uint64_t             metadata; /* bytes of it */
} saving;

/* All ranks learn how this step went on each. */
static rsd_err agree(const saving *s, rsd_err rc, rsd_error *err)
{
    return s->comm ? rsi_agree(s->comm, rc, err) : rc;
}

static bool leads(const saving *s)
{
    return s->rank <= 0;
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);

    return n > k && strcmp(path + n - k, end) == 0;
}

/* What the end of a path says: one file of a kind, or a folder. */
static bool names_a_file(const char *path, rsd_format *format)
{
    if (ends_in(path, ".safetensors")) {
        *format = *format ? *format : RSD_FORMAT_SAFETENSORS;
        return true;
    }
    if (ends_in(path, ".pt") || ends_in(path, ".pth") || ends_in(path, ".bin")) {
        *format = *format ? *format : RSD_FORMAT_TORCH;
        return true;
    }
    *format = *format ? *format : RSD_FORMAT_DCP;
    return *format == RSD_FORMAT_TORCH;
}

/* A file that several ranks would have to write together. */
static rsd_err refuse_shared_files(const saving *s, rsd_error *err)
{
    if (!s->comm || rsd_comm_size(s->comm) == 1)
        return RSD_OK;
    if (s->spec.format == RSD_FORMAT_DCP ||
        (s->spec.format == RSD_FORMAT_SAFETENSORS && s->spec.distributed))
        return RSD_OK;
    return rsi_fail(
        err, RSD_E_UNSUPPORTED,
        "several ranks can write DCP and distributed safetensors, not one file together");
}

static rsd_err plan(saving *s, rsd_error *err)
{
    rsd_err rc;

    s->spec.one_file = names_a_file(s->path, &s->spec.format);
    rc = refuse_shared_files(s, err);
    if (!rc)
        rc = rsi_image_make(&s->image, s->state, &s->spec, err);
    if (!rc && !s->store) {
        rc = rsi_store_open_beside(s->path, true, &s->store, &s->name, err);
        s->own_store = !rc;
    } else if (!rc) {
        s->name = rsi_strdup(s->path);
        rc = s->name ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    }
    rc = agree(s, rc, err);
    if (!rc && s->comm)
        rc = rsi_same_state(s->comm, s->state, err);
    return rc;
}

/* Rank 0 begins the tree; the others attach to it under the name they are told. */
static rsd_err begin(saving *s, rsd_error *err)
{
    uint32_t flags =
        (s->spec.one_file ? RSD_TREE_FILE : 0) | (s->opts->overwrite ? RSD_TREE_OVERWRITE : 0);
    uint64_t len = 0;
    char    *temp = NULL;
    rsd_err  rc = RSD_OK;

    if (leads(s))
        rc = rsi_tree_begin(s->store, s->name, flags, &s->tree, err);
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

/* What a rank wrote where: sizes of transformed items are known only to who wrote them. */
static rsd_err share_rows(saving *s, rsd_error *err)
{
    rsi_dcp_meta *meta = s->image.meta;
    size_t        n = meta ? meta->nchunks + meta->nitems : 0;
    int64_t      *place;
    rsd_err       rc;

    if (!s->comm || !s->image.transform || n == 0)
        return RSD_OK;
    place = rsi_calloc(n, 2 * sizeof(place[0]));
    rc = agree(s, place ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu items", n), err);
    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_dcp_row *row =
            i < meta->nchunks ? &meta->row[i] : &meta->item[i - meta->nchunks].row;

        place[2 * i] = row->offset;
        place[2 * i + 1] = row->length; /* 0 where another rank wrote */
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

static rsd_err write_all(saving *s, rsd_error *err)
{
    rsd_err rc;

    s->flush = (rsi_flush_opts){ .sync = s->opts->sync != RSD_NEVER,
                                 .threads = s->opts->threads,
                                 .staging = s->opts->staging,
                                 .top = s->tree->temp,
                                 .on_progress = s->opts->on_progress,
                                 .arg = s->opts->arg };
    rc = agree(s, rsi_flush_files(&s->image, s->state, s->rank, s->store, &s->flush, err), err);
    if (!rc)
        rc = share_rows(s, err);
    if (!rc)
        rc = agree(s,
                   leads(s) ? rsi_flush_metadata(&s->image, s->store, &s->flush, &s->metadata, err)
                            : RSD_OK,
                   err); /* C4 */
    return rc;
}

/* C5: only when every rank has said yes to all that came before. */
static rsd_err publish(saving *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (leads(s)) {
        rc = rsi_tree_commit(s->tree, err);
        s->tree = rc ? s->tree : NULL;
    }
    return agree(s, rc, err);
}

rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err)
{
    saving  s = { .path = path, .comm = comm, .state = state, .opts = opts, .store = opts->store };
    rsd_err rc;

    s.rank = comm ? rsd_comm_rank(comm) : -1;
    s.spec = (rsi_image_spec){ .format = opts->format,
                               .shard_size = opts->shard_size,
                               .distributed = opts->distributed,
                               .transform = opts->transform,
                               .own_only = comm != NULL,
                               .rank = s.rank };
    rc = plan(&s, err);
    if (!rc)
        rc = begin(&s, err);
    if (!rc)
        rc = write_all(&s, err);
    if (!rc)
        rc = publish(&s, err);
    rsi_tree_abort(s.tree, NULL); /* what rank 0 began and did not publish; others only let go */
    if (rc)
        rsi_while(err, rc, "checkpoint \"%s\"", path);
    rsi_free(s.name);
    if (s.own_store)
        rsd_store_free(s.store);
    rsi_image_release(&s.image);
    return rc;
}
