/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a checkpoint on several threads and reports what is wrong: the checksum file and sizes
 * first, then every chunk and object in catalogue order, then rows of the checksum file whose bytes
 * have changed. A record in a file that has rows is checked along with them, so that its bytes are
 * read only once. Next: verify_rows.c. */
#include "verify/verify.h"
#include "base/mem.h"
#include "read/check_sums.h"
#include "verify/place_names.h"
#include "verify/verify_core.h"
#include "format/decoded.h"
#include "format/st_dcp.h"
#include "format/torch_archive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void rsi_verify_mark(void *arg, size_t number)
{
    rsi_verifying *v = arg;
    rsd_ckpt      *ckpt = v->ckpt;

    if (!ckpt->health || number >= ckpt->ntensors + ckpt->nobjects)
        return;
    pthread_mutex_lock(&v->progress.lock);
    if (ckpt->health[number] < RSD_DAMAGED)
        ckpt->health[number] = RSD_DAMAGED;
    pthread_mutex_unlock(&v->progress.lock);
}

rsd_err rsi_verify_note(rsi_verifying *v, const rsi_damage *damage, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (damage->kind == RSI_DAMAGE_TENSOR)
        rsi_verify_mark(v, damage->first);
    else if (damage->kind == RSI_DAMAGE_OBJECT)
        rsi_verify_mark(v, v->ckpt->ntensors + damage->first);
    pthread_mutex_lock(&v->progress.lock);
    if (rsi_grow(&v->found, v->n, &v->cap, sizeof(v->found[0])))
        v->found[v->n++] = *damage;
    else
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the list of damages");
    pthread_mutex_unlock(&v->progress.lock);
    return rc;
}

void rsi_verify_name(const rsi_verifying *v, size_t t, size_t i, rsd_error *what)
{
    rsd_tensor_info info;
    rsd_chunk       chunk;
    uint32_t        file;

    v->ckpt->ops->tensor(v->ckpt, t, &info);
    v->ckpt->ops->chunk(v->ckpt, t, i, &chunk, &file);
    rsi_while(what, (rsd_err)what->code, "tensor \"%s\": file \"%s\"", info.name, chunk.file);
}

/* Notes the damage if the checkpoint is at fault, else returns the error. */
static rsd_err note_or_fail(rsi_verifying *v, const rsi_damage *damage, rsd_error *err)
{
    const rsd_err rc = (rsd_err)damage->what.code;

    if (rc == RSD_E_FORMAT || rc == RSD_E_CORRUPT || rc == RSD_E_IO || rc == RSD_E_NOTFOUND ||
        rc == RSD_E_UNSUPPORTED)
        return rsi_verify_note(v, damage, err);
    if (err)
        *err = damage->what;
    return rc;
}

static size_t place_of(const rsi_verifying *v, uint32_t file)
{
    return v->book ? v->ckpt->sums.place[file] : SIZE_MAX;
}

/* Bytes of a chunk if it is read on its own, not with the rows around it. */
static uint64_t bytes_alone(const rsi_verifying *v, const rsi_item *item)
{
    return item->transformed || place_of(v, item->file) == SIZE_MAX ? item->len : 0;
}

static uint64_t bytes_to_read(const rsi_verifying *v)
{
    rsi_items items = { 0 };
    uint64_t  total = 0;

    while (rsi_items_next(v->ckpt, &items) && rsi_item_is_chunk(&items.item))
        total += bytes_alone(v, &items.item);
    for (size_t i = 0; v->book && i < v->book->nfiles; i++)
        total += v->book->file[i].size;
    return total;
}

/* ---- files ---- */

/* Missing items are reported with their file. */
static bool is_there(const rsi_verifying *v, const rsi_item *item)
{
    const rsi_file *f = v->ckpt->files.file[item->file];

    return !v->ckpt->salvage || (!f->missing && item->off + item->len <= f->size);
}

/* A tensor that is incomplete although all its chunks are present has lost a file that nothing
 * names. */
static rsd_err note_holes(rsi_verifying *v, rsd_error *err)
{
    rsd_ckpt       *ckpt = v->ckpt;
    rsd_tensor_info info;
    rsd_err         rc = RSD_OK;

    for (size_t t = 0; t < ckpt->ntensors && !rc; t++) {
        rsi_damage damage = { .kind = RSI_DAMAGE_TENSOR, .first = t };
        bool       lost = ckpt->health[t] != RSD_WHOLE;

        ckpt->ops->tensor(ckpt, t, &info);
        for (size_t i = 0; i < info.chunks && lost; i++) {
            rsi_item item = rsi_chunk_item(ckpt, t, i);

            lost = is_there(v, &item);
        }
        if (!lost)
            continue;
        rsi_fail(&damage.what, RSD_E_NOTFOUND,
                 "tensor \"%s\": its parts leave holes or overlap, a file may be missing",
                 info.name);
        rc = rsi_verify_note(v, &damage, err);
    }
    return rc;
}

/* For a checkpoint that was opened despite missing or short files: reports them, unless the
 * checksum file already did. */
static rsd_err note_lost_files(rsi_verifying *v, rsd_error *err)
{
    rsd_ckpt *ckpt = v->ckpt;
    uint64_t *end = rsi_calloc(ckpt->files.n, sizeof(end[0])); /* where items end */
    rsi_items items = { 0 };
    rsd_err   rc = end ? note_holes(v, err) : rsi_fail(err, RSD_E_NOMEM, "no memory for files");

    while (!rc && rsi_items_next(ckpt, &items))
        if (items.item.off + items.item.len > end[items.item.file])
            end[items.item.file] = items.item.off + items.item.len;

    for (size_t i = 0; i < ckpt->files.n && !rc; i++) {
        rsi_damage      damage = { .kind = RSI_DAMAGE_SIDE, .first = i, .what.rank = -1 };
        const rsi_file *file = ckpt->files.file[i];
        const char     *name = rsi_files_name(&ckpt->files, (uint32_t)i);

        if (place_of(v, (uint32_t)i) != SIZE_MAX || (!file->missing && end[i] <= file->size))
            continue;
        if (file->missing)
            rsi_fail(&damage.what, RSD_E_NOTFOUND, "file \"%s\" is missing", name);
        else
            rsi_fail(&damage.what, RSD_E_FORMAT,
                     "file \"%s\" has %" PRIu64 " bytes, %" PRIu64 " are needed", name, file->size,
                     end[i]);
        rc = rsi_verify_note(v, &damage, err);
    }
    rsi_free(end);
    return rc;
}

/* Reports the files that opening could not read. */
static rsd_err note_broken_files(rsi_verifying *v, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < v->ckpt->nbroken && !rc; i++) {
        const rsi_damage damage = { .kind = RSI_DAMAGE_SIDE,
                                    .first = i,
                                    .what = v->ckpt->broken[i] };

        rc = rsi_verify_note(v, &damage, err);
    }
    return rc;
}

/* ---- chunks and objects ---- */

static rsd_err put_off(rsi_verifying *v, const rsi_claim *claim, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&v->progress.lock);
    if (rsi_grow(&v->claim, v->nclaims, &v->claim_cap, sizeof(v->claim[0])))
        v->claim[v->nclaims++] = *claim;
    else
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu records", v->nclaims + 1);
    pthread_mutex_unlock(&v->progress.lock);
    return rc;
}

static rsd_err check_chunk(rsi_verifying *v, const rsi_item *item, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_TENSOR,
                          .first = item->t,
                          .second = item->i,
                          .place = place_of(v, item->file),
                          .off = item->off,
                          .len = item->len,
                          .what.rank = -1 };
    rsi_extent x;
    rsd_err    rc = v->ckpt->ops->locate(v->ckpt, item->t, item->i, true, &x, &damage.what);

    if (!rc && x.decoded) {
        rc = rsi_check_decoded(v->ckpt, item->t, item->i, true, true, &x, &damage.what);
        rsi_decoded_free(x.decoded);
    } else if (!rc && x.has_crc && damage.place != SIZE_MAX) {
        return put_off(v,
                       &(rsi_claim){ .place = damage.place,
                                     .off = x.record,
                                     .len = x.record_bytes,
                                     .crc32 = x.crc32,
                                     .t = item->t,
                                     .i = item->i },
                       err);
    } else if (!rc) {
        rc = rsi_check_crc(v->ckpt->files.file[item->file], &x, &damage.what);
    }
    if (!rc)
        return RSD_OK;
    rsi_verify_name(v, item->t, item->i, &damage.what);
    return note_or_fail(v, &damage, err);
}

static rsd_err check_tensor(rsi_verifying *v, size_t t, rsd_error *err)
{
    rsd_tensor_info info;
    rsd_err         rc = RSD_OK;

    v->ckpt->ops->tensor(v->ckpt, t, &info);
    for (size_t i = 0; i < info.chunks && !rc; i++) {
        rsi_item item = rsi_chunk_item(v->ckpt, t, i);

        if (is_there(v, &item))
            rc = check_chunk(v, &item, err);
        if (!rc)
            rc = rsi_progress_add(&v->progress, bytes_alone(v, &item), err);
    }
    return rc;
}

/* ---- records of archives ---- */

/* The records of an archive that are to be checked. */
typedef struct records {
    const rsi_archive *a;
    bool              *use; /* [a->zip.n] */
} records;

static int by_data(const void *data, const void *record)
{
    const uint64_t a = *(const uint64_t *)data, b = ((const rsi_zip_record *)record)->data;

    return (a > b) - (a < b);
}

static void use_record(const records *r, uint64_t data)
{
    const rsi_zip        *zip = &r->a->zip;
    const uint64_t        at = data - r->a->source.start;
    const rsi_zip_record *hit =
        zip->n ? bsearch(&at, zip->record, zip->n, sizeof(zip->record[0]), by_data) : NULL;

    if (hit)
        r->use[hit - zip->record] = true;
}

static rsd_err use_storage(void *arg, rsd_value_tensor *tensor, bool opaque, rsd_error *err)
{
    const records    *r = arg;
    rsi_tensor_pickle facts;
    rsi_extent        x;
    rsd_err           rc;

    (void)opaque;
    rsi_torch_tensor_of(tensor, &facts);
    rc = rsi_torch_extent(&r->a->source, &r->a->zip, &facts, &x, err);
    if (!rc)
        use_record(r, x.record);
    return rc;
}

/* Of an archive that is part of the checkpoint: the records that belong to no tensor or object. */
static void use_rest(rsi_verifying *v, records *r)
{
    rsd_ckpt *ckpt = v->ckpt;

    for (size_t t = 0; t < ckpt->ntensors; t++) {
        rsd_tensor_info info;
        rsd_chunk       chunk;
        uint32_t        file;

        ckpt->ops->tensor(ckpt, t, &info);
        for (size_t i = 0; i < info.chunks; i++) {
            ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
            if (file == r->a->file)
                use_record(r, chunk.offset);
        }
    }
    for (size_t i = 0; i < ckpt->nobjects; i++) { /* its damage is reported with the object */
        rsi_archive a;

        if (ckpt->ops->archive(ckpt, i, &a, NULL) == RSD_OK && a.file == r->a->file)
            rsi_torch_each_tensor(a.value, use_storage, r, NULL);
        rsi_archive_close(&a);
    }
    for (size_t k = 0; k < r->a->zip.n; k++)
        r->use[k] = !r->use[k];
}

static rsd_err choose_records(rsi_verifying *v, records *r, rsd_error *err)
{
    if (r->a->owner) { /* a separate archive: all of it */
        memset(r->use, true, r->a->zip.n * sizeof(r->use[0]));
        return rsi_torch_each_tensor(r->a->value, use_storage, r, err);
    }
    if (r->a->value)
        return rsi_torch_each_tensor(r->a->value, use_storage, r, err);
    if (r->a->zip.n > 0)
        use_rest(v, r);
    return RSD_OK;
}

/* The file of archive i. */
static uint32_t archive_file(rsd_ckpt *ckpt, size_t i)
{
    rsi_archive a = { 0 };
    uint32_t    file;

    ckpt->ops->archive(ckpt, i, &a, NULL);
    file = a.file;
    rsi_archive_close(&a);
    return file;
}

/* Notes what is wrong with object i, or with the archive. If the damaged bytes are unknown, those
 * of the span are used. */
static rsd_err note_object(rsi_verifying *v, size_t i, rsi_damage *damage, rsd_error *err)
{
    const char *name = NULL;
    rsi_item    span;

    if (i < v->ckpt->nobjects)
        v->ckpt->ops->object(v->ckpt, i, &name, NULL, NULL, NULL);
    for (size_t k = 0; name && !damage->len && v->ckpt->ops->span(v->ckpt, k, &span); k++)
        if (span.object && strcmp(span.object, name) == 0) {
            damage->place = place_of(v, span.file);
            damage->off = span.off;
            damage->len = span.len;
        }
    if (name)
        rsi_while(&damage->what, (rsd_err)damage->what.code, "object \"%s\"", name);
    else
        rsi_while(&damage->what, (rsd_err)damage->what.code, "file \"%s\"",
                  rsi_files_name(&v->ckpt->files, archive_file(v->ckpt, i)));
    return note_or_fail(v, damage, err);
}

static rsd_err check_records(rsi_verifying *v, size_t i, const records *r, rsd_error *err)
{
    const rsi_archive *a = r->a;
    rsd_err            rc = RSD_OK;

    for (size_t k = 0; k < a->zip.n && !rc; k++) {
        rsi_damage damage = { .kind = RSI_DAMAGE_OBJECT, .first = i, .second = k, .what.rank = -1 };

        if (!r->use[k] || !rsi_torch_check_record(&a->source, &a->zip.record[k], &damage.what))
            continue;
        if (!a->decoded) {
            damage.place = place_of(v, a->file);
            damage.off = a->source.start + a->zip.record[k].data;
            damage.len = a->zip.record[k].size;
        }
        rc = note_object(v, i, &damage, err);
    }
    return rc;
}

/* Checks every record of object i; i >= nobjects: the records of an archive that belong to no
 * tensor or object. */
static rsd_err check_object(rsi_verifying *v, size_t i, rsd_error *err)
{
    rsi_damage  damage = { .kind = RSI_DAMAGE_OBJECT, .first = i, .what.rank = -1 };
    rsi_archive a;
    records     r = { .a = &a };
    rsd_err     rc;

    if (v->ckpt->salvage && i < v->ckpt->nobjects &&
        v->ckpt->health[v->ckpt->ntensors + i] != RSD_WHOLE)
        return RSD_OK; /* reported with its file */
    rc = v->ckpt->ops->archive(v->ckpt, i, &a, &damage.what);
    r.use = rc ? NULL : rsi_calloc(a.zip.n, sizeof(r.use[0]));
    if (!rc && !r.use)
        rc = rsi_fail(&damage.what, RSD_E_NOMEM, "no memory for %zu records", a.zip.n);
    if (!rc)
        rc = choose_records(v, &r, &damage.what);
    rc = rc ? note_object(v, i, &damage, err) : check_records(v, i, &r, err);
    rsi_free(r.use);
    rsi_archive_close(&a);
    return rc;
}

/* If several files hold the same data, one is loaded; the others must equal it. */
static rsd_err check_replica(rsi_verifying *v, size_t k, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_OBJECT,
                          .first = v->ckpt->nobjects + v->ckpt->narchives + k,
                          .what.rank = -1 };

    return v->ckpt->ops->replica(v->ckpt, k, &damage.what) ? note_or_fail(v, &damage, err) : RSD_OK;
}

static rsd_err check_one(void *arg, size_t i, rsd_error *err)
{
    rsi_verifying *v = arg;

    return i < v->ckpt->ntensors ? check_tensor(v, i, err)
           : i < v->ckpt->ntensors + v->ckpt->nobjects + v->ckpt->narchives
               ? check_object(v, i - v->ckpt->ntensors, err)
               : check_replica(v, i - v->ckpt->ntensors - v->ckpt->nobjects - v->ckpt->narchives,
                               err);
}

/* ---- the checksum file ---- */

static rsd_err note_opening(void *arg, const rsi_sum_row *row, const rsd_error *what,
                            rsd_error *err)
{
    rsi_damage damage = {
        .kind = RSI_DAMAGE_ROW, .first = row->file, .second = row->off, .what = *what
    };

    return note_or_fail(arg, &damage, err);
}

/* Reads the checksum file and compares the sizes of the checkpoint's files. An unusable checksum
 * file is reported once; the other checks continue without it. */
static rsd_err check_side_file(rsi_verifying *v, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .what.rank = -1 };
    rsd_ckpt  *ckpt = v->ckpt;
    rsd_err    rc = rsi_ckpt_sums_all(&ckpt->sums, &ckpt->files, &v->book, &damage.what);

    if (!rc)
        rc = rsi_check_foreign(ckpt, &damage.what);
    if (rc)
        v->book = NULL;
    if (!v->book)
        return rc ? note_or_fail(v, &damage, err) : RSD_OK;
    for (uint32_t i = 0; i < ckpt->files.n && !rc; i++) {
        damage.first = i;
        rc = rsi_check_size(ckpt, i, &damage.what);
        if (ckpt->sums.place[i] == SIZE_MAX)
            rc = rsi_fail(&damage.what, RSD_E_CORRUPT,
                          "file \"%s\" of the checkpoint is not listed in checksum file \"%s\"",
                          rsi_files_name(&ckpt->files, i), ckpt->sums.file->name);
        rc = rc ? rsi_verify_note(v, &damage, err) : RSD_OK;
    }
    return rc;
}

/* Rank files give a tensor's shape only together: if one is missing, the tensor may have been
 * larger. */
static void mark_cut(rsi_verifying *v)
{
    rsd_ckpt *ckpt = v->ckpt;
    int64_t   shard, nth, files;

    for (size_t t = 0; t < ckpt->ntensors; t++) {
        rsd_chunk chunk;
        uint32_t  file;

        ckpt->ops->chunk(ckpt, t, 0, &chunk, &file);
        if (rsi_st_shard_parse(chunk.file, &shard, &nth, &files))
            rsi_verify_mark(v, t);
    }
}

/* ---- reporting ---- */

static int by_order(const void *left, const void *right)
{
    const rsi_damage *a = left, *b = right;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    return strcmp(a->what.msg, b->what.msg);
}

void rsi_verify_sort(rsi_verifying *v)
{
    if (v->n)
        qsort(v->found, v->n, sizeof(v->found[0]), by_order);
}

/* The findings are void if the files changed meanwhile, or were removed because another checkpoint
 * has taken the name. */
static rsd_err still_the_same(const rsi_verifying *v, rsd_error *err)
{
    const rsi_files *files = &v->ckpt->files;
    rsd_err          rc = rsi_files_unchanged(files, err);

    if (!rc && v->n && rsi_files_there(files, err))
        rc = rsi_while(err, RSD_E_MISMATCH, "could not check all of it");
    return rc;
}

rsd_err rsi_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                   void (*damage)(void *arg, const rsd_error *what), void *arg, size_t *count,
                   rsd_error *err)
{
    rsi_verifying v = { .ckpt = ckpt,
                        .opts = opts,
                        .progress = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                      .call = opts->on_progress,
                                      .arg = opts->arg } };
    size_t        told = 0;
    rsd_err       rc = rsi_workers_create(opts->threads, &v.workers, err);

    if (!rc)
        rc = check_side_file(&v, err);
    if (!rc && ckpt->salvage)
        rc = note_lost_files(&v, err);
    if (!rc)
        rc = note_broken_files(&v, err);
    if (!rc && v.book && rsi_check_lost(ckpt))
        mark_cut(&v);
    if (!rc && opts->quick) {
        if (v.book)
            rc = rsi_check_opening(ckpt, note_opening, &v, err);
    } else if (!rc) {
        v.progress.total = bytes_to_read(&v);
        rc = rsi_workers_run(v.workers,
                             ckpt->ntensors + ckpt->nobjects + ckpt->narchives + ckpt->nreplicas,
                             check_one, &v, err);
        if (!rc)
            rc = rsi_verify_integrity(&v, err);
        if (!rc)
            rc = rsi_verify_catalogue(&v, err);
    }
    if (!rc && v.book)
        rc = rsi_verify_rows(&v, err);
    if (!rc)
        rc = still_the_same(&v, err);
    rsi_verify_sort(&v);
    for (size_t i = 0; i < v.n && !rc; i++) {
        if (!v.found[i].gone && damage)
            damage(arg, &v.found[i].what);
        told += !v.found[i].gone;
    }
    if (!rc && count)
        *count = told;
    rsi_workers_free(v.workers);
    rsi_free(v.found);
    rsi_free(v.claim);
    return rc;
}
