/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes every file of a checkpoint and publishes the checksum file, and the catalogue of large DCP
 * metadata. Rows are laid out before
 * anything is read: cut where chunks, objects and metadata start, and every 4 MiB from there.
 * Threads then fill in the hashes. */
#include "verify/make_sums.h"
#include "base/mem.h"
#include "commit/replace.h"
#include "format/dcp.h"
#include "format/dcp_catalogue.h"
#include "format/open.h"
#include "verify/place_names.h"
#include "verify/verify_core.h"

#include <stdlib.h>
#include <string.h>

/* A byte where a row starts. */
typedef struct cut {
    uint64_t off;
    uint32_t file;
} cut;

typedef struct making {
    rsd_ckpt                *ckpt;
    const rsd_checksum_opts *opts;
    cut                     *cut;
    size_t                   ncuts, cut_cap;
    rsi_sums                 sums; /* the rows, by file and offset */
    rsi_progress             progress;
} making;

/* ---- where rows start ---- */

static rsd_err add_cut(making *s, uint32_t file, uint64_t off, rsd_error *err)
{
    if (!rsi_grow(&s->cut, s->ncuts, &s->cut_cap, sizeof(s->cut[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu items", s->ncuts + 1);
    s->cut[s->ncuts++] = (cut){ .off = off, .file = file };
    return RSD_OK;
}

static int by_place(const void *left, const void *right)
{
    const cut *a = left, *b = right;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->off > b->off) - (a->off < b->off);
}

/* Files also start and end with a cut. */
static rsd_err find_cuts(making *s, rsd_error *err)
{
    rsi_items items = { 0 };
    rsd_err   rc = RSD_OK;

    for (uint32_t f = 0; f < s->ckpt->files.n && !rc; f++) {
        rc = add_cut(s, f, 0, err);
        if (!rc)
            rc = add_cut(s, f, s->ckpt->files.file[f]->size, err);
        s->progress.total += s->ckpt->files.file[f]->size;
    }
    while (!rc && rsi_items_next(s->ckpt, &items)) {
        const rsi_item *item = &items.item;

        rc = add_cut(s, item->file, item->off, err);
        if (!rc && !rsi_item_is_chunk(item))
            rc = add_cut(s, item->file, item->off + item->len, err);
    }
    if (!rc)
        qsort(s->cut, s->ncuts, sizeof(s->cut[0]), by_place);
    return rc;
}

static rsd_err make_rows(making *s, rsd_error *err)
{
    for (size_t i = 0; i + 1 < s->ncuts; i++) {
        rsi_sum_row row = { .off = s->cut[i].off, .file = s->cut[i].file };
        uint64_t    end = s->cut[i + 1].file == row.file ? s->cut[i + 1].off : 0;

        for (; row.off < end; row.off += row.len) {
            row.len =
                end - row.off < RSI_SUM_ROW_BYTES ? (uint32_t)(end - row.off) : RSI_SUM_ROW_BYTES;
            if (!rsi_grow(&s->sums.row, s->sums.n, &s->sums.cap, sizeof(row)))
                return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", s->sums.n + 1);
            s->sums.row[s->sums.n++] = row;
        }
    }
    return RSD_OK;
}

/* ---- hashing ---- */

/* For rsi_row_work. */
static rsd_err keep_hash(void *arg, size_t i, size_t n, const unsigned char *hash,
                         const rsd_error *why, rsd_error *err)
{
    making *s = arg;

    (void)n;
    if (hash)
        memcpy(s->sums.row[i].hash, hash, RSI_HASH128_BYTES);
    else if (err)
        *err = *why;
    return hash ? RSD_OK : (rsd_err)why->code;
}

static rsd_err hash_all(making *s, rsd_error *err)
{
    rsi_row_work work = { .row = s->sums.row,
                          .n = s->sums.n,
                          .file = s->ckpt->files.file,
                          .progress = &s->progress,
                          .done = keep_hash,
                          .arg = s };
    rsi_workers *workers = NULL;
    rsd_err      rc = rsi_workers_create(s->opts->threads, &workers, err);

    if (!rc)
        rc = rsi_hash_rows(&work, workers, s->opts->max_memory, err);
    rsi_workers_free(workers);
    return rc;
}

/* ---- writing ---- */

static rsd_err write_text(making *s, rsi_file *file, rsd_error *err)
{
    const rsi_files *files = &s->ckpt->files;
    const char     **name = rsi_calloc(files->n, sizeof(name[0]));
    uint64_t        *size = rsi_calloc(files->n, sizeof(size[0]));
    rsi_file_tail    to = { .file = file };
    rsd_err          rc;

    if (name && size) {
        for (uint32_t i = 0; i < files->n; i++) {
            name[i] = rsi_files_name(files, i);
            size[i] = files->file[i]->size;
        }
        rc = rsi_sums_write(&s->sums, files->n, name, size, rsi_file_append, &to, err);
    } else {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", files->n);
    }
    rsi_free(name);
    rsi_free(size);
    return rc;
}

/* Gives the checksum file its name, unless the hashed files were replaced or changed meanwhile: a
 * wrong checksum file would persist. */
static rsd_err give_name(making *s, const char *name, rsi_tree **tree, rsd_error *err)
{
    rsd_store *store = (*tree)->store;
    void      *lock;
    rsd_err    rc = rsi_store_lock(store, name, &lock, err);

    if (rc)
        return rc;
    rc = rsi_files_unchanged(&s->ckpt->files, err);
    if (!rc && rsi_store_replaced(s->ckpt->files.store) != RSD_HELD_CURRENT)
        rc = rsi_fail(err, RSD_E_MISMATCH, "\"%s\" was replaced while it was read",
                      s->ckpt->files.top);
    if (!rc)
        rc = rsi_tree_commit(*tree, err);
    *tree = rc ? *tree : NULL;
    rsi_store_unlock(store, lock);
    return rc;
}

/* C2, C3 and C5 for one file: the checksum file, or a catalogue of these bytes. */
static rsd_err publish(making *s, const char *beside, const rsi_bytes *catalogue, bool overwrite,
                       rsd_error *err)
{
    uint32_t      flags = RSD_TREE_FILE | (overwrite ? RSD_TREE_OVERWRITE : 0);
    char         *name = rsi_files_name_beside(&s->ckpt->files, beside);
    rsi_tree     *tree = NULL;
    rsi_file     *file = NULL;
    rsi_file_tail to;
    rsd_err       rc, rc2;

    if (!name)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
    rc = rsi_replace_check(s->ckpt->files.store, name, true, err);
    if (!rc)
        rc = rsi_tree_begin(s->ckpt->files.store, name, flags, &tree, err);
    if (!rc)
        rc = rsi_file_open(tree->store, tree->temp, RSD_OPEN_WRITE, 0, &file, err);
    to = (rsi_file_tail){ .file = file };
    if (!rc)
        rc = catalogue ? rsi_file_append(&to, catalogue->at, catalogue->len, err)
                       : write_text(s, file, err);
    if (!rc)
        rc = rsi_file_sync(file, err);
    rc2 = rsi_file_close(file, rc ? NULL : err);
    rc = rc ? rc : rc2;
    if (!rc)
        rc = give_name(s, name, &tree, err);
    rsi_tree_abort(tree, NULL);
    rsi_free(name);
    return rc;
}

/* Other metadata left it behind, and these get none. A failure leaves it, void as before. */
static void remove_catalogue(making *s)
{
    char *name = rsi_files_name_beside(&s->ckpt->files, RSI_CATALOGUE_NAME);

    if (name)
        rsi_store_remove(s->ckpt->files.store, name, NULL);
    rsi_free(name);
}

/* It replaces any other: one that belongs to these metadata has the same bytes. */
static rsd_err add_catalogue(making *s, rsd_error *err)
{
    rsi_bytes bytes = { 0 };
    rsd_err   rc = rsi_dcp_make_catalogue(s->ckpt, &bytes, err);

    if (!rc && bytes.len)
        rc = publish(s, RSI_CATALOGUE_NAME, &bytes, true, err);
    else if (!rc && s->ckpt->format == RSD_FORMAT_DCP && !s->ckpt->files.single)
        remove_catalogue(s);
    rsi_free(bytes.at);
    return rc;
}

rsd_err rsi_make_sums(rsd_store *store, const char *path, const rsd_checksum_opts *opts,
                      rsd_error *err)
{
    making  s = { .opts = opts,
                  .progress = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                .call = opts->on_progress,
                                .arg = opts->arg } };
    rsd_err rc;

    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    rc = rsi_ckpt_open(store, path, &s.ckpt, err);
    if (rc)
        return rc;
    if (s.ckpt->files.index)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                      "checkpoint \"%s\": a checksum file is of a whole folder: open that", path);
    else if (s.ckpt->sums.there && !opts->overwrite) /* report this before reading any bytes */
        rc = rsi_fail(err, RSD_E_EXISTS, "checkpoint \"%s\" has a checksum file already", path);
    if (!rc)
        rc = find_cuts(&s, err);
    if (!rc)
        rc = make_rows(&s, err);
    if (!rc)
        rc = hash_all(&s, err);
    if (!rc)
        rc = add_catalogue(&s, err);
    if (!rc)
        rc = publish(&s, s.ckpt->sums.name, NULL, opts->overwrite, err);
    rsi_free(s.cut);
    rsi_sums_release(&s.sums);
    rsi_ckpt_close(s.ckpt);
    return rc;
}
