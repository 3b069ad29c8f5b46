/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes parts inside a folder (C8), on one rank: claims their files, so that no clean-up
 * removes them any more, checks them against the metadata, writes the checksum file, removes what
 * earlier saves left, and renames the new metadata over the old ones. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "format/dcp_catalogue.h"
#include "save/save_part.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct publishing {
    rsi_folder              folder;
    const rsd_publish_opts *opts;
    size_t                  n;
    rsi_receipt            *told;  /* [n] */
    void                  **claim; /* [n] */
    rsi_dcp_meta           *meta;  /* NULL: the caller's are beyond us */
    const void             *text;  /* the bytes of the metadata */
    size_t                  len;
    rsi_bytes               made;
    rsi_map                 by_name; /* from file to told */
    char                    target[RSI_DATA_NAME];
    rsi_tree               *tree;
    char                   *side; /* the checksum file, once it exists */
    char                   *catalogue;
    rsi_sums                sums;
} publishing;

static bool syncs(const publishing *p)
{
    return p->opts->sync != RSD_NEVER;
}

/* ---- receipts ---- */

static rsd_err take_receipts(publishing *p, const rsd_receipt *receipts, rsd_error *err)
{
    p->told = rsi_calloc(p->n, sizeof(p->told[0]));
    p->claim = rsi_calloc(p->n, sizeof(p->claim[0]));
    if (!p->told || !p->claim)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu parts", p->n);
    for (size_t i = 0; i < p->n; i++) {
        uint64_t number = i;
        bool     was = false;
        rsd_err  rc = rsi_part_told(&receipts[i], &p->told[i], err);

        if (!rc && *p->told[i].file &&
            !rsi_map_add(&p->by_name, p->told[i].file, strlen(p->told[i].file), &number, &was))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu parts", p->n);
        if (!rc && was)
            rc = rsi_fail(err, RSD_E_INVALID, "two receipts of \"%s\"", p->told[i].file);
        if (rc)
            return rsi_while(err, rc, "receipt %zu", i);
    }
    return RSD_OK;
}

/* From here on nobody removes the files, except by force. */
static rsd_err claim_files(publishing *p, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < p->n && !rc; i++) {
        uint64_t size = 0;
        char    *full = NULL;

        if (!*p->told[i].file)
            continue;
        rc = rsi_folder_below(&p->folder, p->told[i].file, &full, err);
        if (!rc)
            rc = rsi_store_claim(p->folder.store, full, RSD_CLAIM_SHARED, &p->claim[i], err);
        if (!rc)
            rc = rsi_store_file_size(p->folder.store, full, &size, err);
        if (!rc && size != p->told[i].bytes)
            rc = rsi_fail(err, RSD_E_MISMATCH,
                          "file \"%s\" has %" PRIu64 " bytes, its writer wrote %" PRIu64,
                          p->told[i].file, size, p->told[i].bytes);
        rsi_free(full);
    }
    return rc;
}

/* ---- metadata ---- */

static rsd_err add_text(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    return rsi_bytes_add(arg, bytes, len) ? RSD_OK
                                          : rsi_fail(err, RSD_E_NOMEM, "no memory for metadata");
}

static rsd_err join_descriptions(publishing *p, rsd_error *err)
{
    rsi_dcp_meta **part = rsi_calloc(p->n, sizeof(part[0]));
    size_t         n = 0;
    rsd_err        rc = part ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for metadata");

    for (size_t i = 0; i < p->n && !rc; i++) {
        rsi_source source = rsi_memory_source(p->told[i].about, p->told[i].about_len, "receipt");

        if (!p->told[i].about)
            rc = rsi_fail(err, RSD_E_INVALID,
                          "receipt %zu has no description to make metadata from", i);
        if (!rc)
            rc = rsi_dcp_meta_read(&source, &part[n], err);
        n += !rc;
    }
    if (!rc)
        rc = rsi_dcp_meta_merge(n, (const rsi_dcp_meta *const *)part, &p->meta, err);
    for (size_t i = 0; i < n; i++)
        rsi_dcp_meta_free(part[i]);
    rsi_free(part);
    return rc;
}

static rsd_err make_metadata(publishing *p, rsd_error *err)
{
    rsd_err rc = join_descriptions(p, err);

    if (!rc && !p->opts->alone)
        rc = rsi_dcp_check_tensors(p->meta, false, err);
    if (rc)
        return rc;
    p->meta->checkpoint_id = p->opts->checkpoint_id ? p->opts->checkpoint_id : "reshard";
    p->meta->save_id = p->opts->save_id;
    p->meta->version = "1.0.0";
    rc = rsi_dcp_meta_write(p->meta, add_text, &p->made, err);
    p->text = p->made.at;
    p->len = p->made.len;
    return rc;
}

/* The caller's metadata may hold classes that the library does not know and torch does; then their
 * contents can't be checked. */
static rsd_err take_metadata(publishing *p, rsd_error *err)
{
    rsi_source source = rsi_memory_source(p->opts->metadata, p->opts->metadata_len, ".metadata");
    rsd_err    rc;

    if (!p->opts->metadata)
        return make_metadata(p, err);
    p->text = p->opts->metadata;
    p->len = p->opts->metadata_len;
    rc = rsi_dcp_meta_read(&source, &p->meta, err);
    if (rc && p->opts->unread)
        *p->opts->unread = *err;
    if (rc != RSD_E_NOMEM && p->opts->checksum != RSD_ALWAYS)
        return RSD_OK;
    return rc ? rsi_while(err, rc, "metadata") : RSD_OK;
}

static rsd_err check_row(const publishing *p, const rsi_dcp_row *row, rsd_error *err)
{
    const char *file = p->meta->file[row->file];
    uint64_t    i, bytes;

    if (!rsi_map_get(&p->by_name, file, strlen(file), &i))
        return RSD_OK;
    bytes = p->told[i].bytes;
    if ((uint64_t)row->offset > bytes || (uint64_t)row->length > bytes - (uint64_t)row->offset)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "the metadata list an item of %" PRId64 " bytes at byte %" PRId64
                        " of file \"%s\", which has %" PRIu64,
                        row->length, row->offset, file, bytes);
    return RSD_OK;
}

/* Every item lies in its file, and every file is present. */
static rsd_err check_places(const publishing *p, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; p->meta && i < p->meta->nchunks && !rc; i++)
        rc = check_row(p, &p->meta->row[i], err);
    for (size_t i = 0; p->meta && i < p->meta->nitems && !rc; i++)
        rc = check_row(p, &p->meta->item[i].row, err);
    for (size_t i = 0; p->meta && i < p->meta->nfiles && !rc; i++) {
        const char *file = p->meta->file[i];
        uint64_t    size;
        char       *full = NULL;

        if (rsi_map_get(&p->by_name, file, strlen(file), &size))
            continue; /* claimed */
        rc = rsi_folder_below(&p->folder, file, &full, err);
        if (!rc)
            rc = rsi_store_file_size(p->folder.store, full, &size, err);
        rsi_free(full);
    }
    return rc;
}

/* ---- checksums ---- */

/* Whether a checksum file can cover everything. */
static bool has_all_sums(const publishing *p)
{
    bool     all = rsi_sums_available() && p->meta && !p->opts->alone;
    uint64_t t;

    for (size_t i = 0; all && i < p->meta->nfiles; i++)
        all = rsi_map_get(&p->by_name, p->meta->file[i], strlen(p->meta->file[i]), &t) &&
              p->told[t].has_sums;
    return all;
}

/* Numbers of files are those of the metadata, which come last themselves. */
static rsd_err collect_rows(publishing *p, rsd_error *err)
{
    rsd_err  rc = RSD_OK;
    uint64_t t = 0;

    for (size_t i = 0; i < p->meta->nfiles && !rc; i++) {
        size_t first = p->sums.n;

        rsi_map_get(&p->by_name, p->meta->file[i], strlen(p->meta->file[i]), &t);
        for (size_t k = 0; k < p->told[t].nrows && !rc; k++) {
            rsi_sum_row row;

            memcpy(&row, (const char *)p->told[t].row + k * sizeof(row), sizeof(row));
            rc = rsi_sums_join(&p->sums, &row, 1, err);
        }
        for (size_t k = first; k < p->sums.n; k++)
            p->sums.row[k].file = (uint32_t)i;
    }
    if (!rc)
        rc = rsi_sums_begin(&p->sums, (uint32_t)p->meta->nfiles, 0, err);
    if (!rc)
        rc = rsi_sums_feed(&p->sums, p->text, p->len, err);
    return rc ? rc : rsi_sums_end(&p->sums, err);
}

/* Syncs and closes a file that was written. Returns the first error. */
static rsd_err finish_file(const publishing *p, rsi_file *file, rsd_err rc, rsd_error *err)
{
    rsd_err closed;

    if (!rc && syncs(p))
        rc = rsi_file_sync(file, err);
    closed = rsi_file_close(file, rc ? NULL : err);
    return rc ? rc : closed;
}

static rsd_err write_rows(publishing *p, rsi_file *file, rsd_error *err)
{
    size_t        n = p->meta->nfiles + 1;
    const char  **name = rsi_calloc(n, sizeof(name[0]));
    uint64_t     *size = rsi_calloc(n, sizeof(size[0])), t = 0;
    rsi_file_tail to = { .file = file };
    rsd_err       rc = name && size ? collect_rows(p, err)
                                    : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", n);

    for (size_t i = 0; !rc && i < n; i++) {
        bool last = i + 1 == n;

        name[i] = last ? ".metadata" : p->meta->file[i];
        if (!last)
            rsi_map_get(&p->by_name, name[i], strlen(name[i]), &t);
        size[i] = last ? p->len : p->told[t].bytes;
    }
    if (!rc)
        rc = rsi_sums_write(&p->sums, n, name, size, rsi_file_append, &to, err);
    rsi_free(name);
    rsi_free(size);
    return rc;
}

/* No published metadata refer to this name yet, so the file needs no temporary one; an earlier
 * attempt may have left it. */
static rsd_err write_sums(publishing *p, rsd_error *err)
{
    char      name[RSI_SUMS_BOUND];
    rsi_file *file = NULL;
    int32_t   rank = 0;
    int64_t   number = 0;
    rsd_err   rc;

    if (!rsi_dcp_key_file(p->meta, &rank, &number))
        return RSD_OK; /* no data at all */
    rsi_sums_bound(rank, number, name);
    rc = rsi_folder_below(&p->folder, name, &p->side, err);
    if (rc)
        return rc;
    rc = rsi_folder_remove(&p->folder, p->side, err);
    if (!rc)
        rc = rsi_file_open(p->folder.store, p->side, RSD_OPEN_CREATE, 0, &file, err);
    if (rc) {
        rsi_free(p->side); /* someone else's */
        p->side = NULL;
        return rc;
    }
    return finish_file(p, file, write_rows(p, file, err), err);
}

/* ---- the name ---- */

static rsd_err begin(publishing *p, rsd_error *err)
{
    uint32_t flags = RSD_TREE_FILE | (p->opts->overwrite ? RSD_TREE_OVERWRITE : 0);
    char    *full = NULL;
    rsd_err  rc;

    snprintf(p->target, sizeof(p->target), ".metadata");
    if (p->opts->alone)
        snprintf(p->target, sizeof(p->target), "__%" PRId32 ".metadata", p->opts->rank);
    rc = rsi_folder_below(&p->folder, p->target, &full, err);
    if (!rc)
        rc = rsi_tree_begin(p->folder.store, full, flags, &p->tree, err);
    rsi_free(full);
    return rc == RSD_E_EXISTS ? rsi_while(err, rc, "\"%s\"", p->target) : rc;
}

/* The names of all data files and of the checksum file are durable before the metadata name
 * them. The catalogue of the old metadata goes first: a writer that is killed in between leaves
 * none, which only makes opening slower, and not one that `verify` would report. */
static rsd_err publish(publishing *p, rsd_error *err)
{
    rsi_file *file = NULL;
    rsd_err   rc = rsi_file_open(p->folder.store, p->tree->temp, RSD_OPEN_WRITE, 0, &file, err);

    if (rc)
        return rc;
    rc = p->len ? rsi_file_write(file, 0, p->text, p->len, err) : RSD_OK;
    rc = finish_file(p, file, rc, err);
    if (!rc && syncs(p))
        rc = rsi_store_sync_names(p->folder.store, p->folder.name, err);
    if (!rc && !p->opts->alone)
        rsi_store_remove(p->folder.store, p->catalogue, NULL);
    if (!rc)
        rc = rsi_tree_commit(p->tree, err);
    if (!rc)
        p->tree = NULL;
    return rc;
}

/* The catalogue of the published metadata. The checkpoint is whole without: a failure leaves
 * none. */
static void give_catalogue(const publishing *p)
{
    rsi_meta_id id = { .bytes = p->len };
    rsi_bytes   bytes = { 0 };
    rsi_tree   *tree = NULL;
    rsi_file   *file = NULL;
    rsd_err     rc;

    if (p->opts->alone || !p->meta || !rsi_catalogue_worth(p->meta, p->len))
        return;
    rsi_hash128(p->text, p->len, id.hash);
    rc = rsi_catalogue_make(p->meta, &id, &bytes) ? RSD_OK : RSD_E_NOMEM;
    if (!rc)
        rc = rsi_tree_begin(p->folder.store, p->catalogue, RSD_TREE_FILE | RSD_TREE_OVERWRITE,
                            &tree, NULL);
    if (!rc)
        rc = rsi_file_open(p->folder.store, tree->temp, RSD_OPEN_WRITE, 0, &file, NULL);
    if (!rc)
        rc = finish_file(p, file, rsi_file_write(file, 0, bytes.at, bytes.len, NULL), NULL);
    if (!rc)
        rc = rsi_tree_commit(tree, NULL);
    if (rc)
        rsi_tree_abort(tree, NULL);
    rsi_free(bytes.at);
}

static rsd_err run(publishing *p, rsd_error *err)
{
    bool    sums;
    rsd_err rc = claim_files(p, err);

    if (!rc)
        rc = take_metadata(p, err);
    if (!rc)
        rc = check_places(p, err);
    if (!rc)
        rc = begin(p, err);
    if (rc)
        return rc;
    sums = p->opts->checksum != RSD_NEVER && has_all_sums(p);
    if (!sums && p->opts->checksum == RSD_ALWAYS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "not all files have checksums");
    rc = sums ? write_sums(p, err) : RSD_OK;
    if (!rc)
        rc = rsi_folder_sweep(&p->folder, p->opts->alone ? p->opts->rank : -1, syncs(p), err);
    if (!rc)
        rc = publish(p, err);
    if (!rc)
        give_catalogue(p);
    return rc;
}

rsd_err rsi_parts_publish(const char *path, size_t n, const rsd_receipt *receipts,
                          const rsd_publish_opts *opts, rsd_error *err)
{
    publishing p = { .opts = opts, .n = n };
    rsd_err    rc = rsi_folder_open(&p.folder, opts->store, path, err);

    if (!rc)
        rc = rsi_folder_below(&p.folder, RSI_CATALOGUE_NAME, &p.catalogue, err);
    if (!rc)
        rc = take_receipts(&p, receipts, err);
    if (!rc)
        rc = run(&p, err);
    if (rc && p.side)
        rsi_store_remove(p.folder.store, p.side, NULL);
    rsi_tree_abort(p.tree, NULL);
    for (size_t i = 0; p.claim && i < n; i++)
        rsi_store_unclaim(p.folder.store, p.claim[i]);
    rsi_dcp_meta_free(p.meta);
    rsi_map_release(&p.by_name);
    rsi_sums_release(&p.sums);
    rsi_free(p.made.at);
    rsi_free(p.catalogue);
    rsi_free(p.side);
    rsi_free(p.told);
    rsi_free(p.claim);
    rsi_folder_close(&p.folder);
    return rc ? rsi_while(err, rc, "checkpoint \"%s\"", path) : RSD_OK;
}
