/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, claims and leftovers of data files. save/save_part.c writes them, save/publish_parts.c
 * publishes them. */
#include "commit/folder.h"
#include "base/mem.h"
#include "base/strings.h"
#include "format/dcp.h"
#include "format/files.h"
#include "format/sums.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    TRIES = 1000, /* each lost try means that another writer took the number at that moment */
    BATCH = 64    /* files claimed at once while removing */
};

/* ---- opening ---- */

static rsd_err open_local(rsi_folder *f, const char *path, rsd_error *err)
{
    rsd_err rc = rsi_files_local(path, &f->store, &f->name, NULL);

    if (rc == RSD_E_NOTFOUND)
        rc = rsi_store_open_beside(path, true, &f->store, &f->name, err);
    else if (rc)
        rc = rsi_files_local(path, &f->store, &f->name, err);
    f->own_store = !rc;
    return rc;
}

rsd_err rsi_folder_open(rsi_folder *f, rsd_store *store, const char *path, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *f = (rsi_folder){ .store = store };
    if (store) {
        f->name = rsi_strdup(path);
        rc = f->name ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    } else {
        rc = open_local(f, path, err);
    }
    if (!rc)
        rc = rsi_store_make_folder(f->store, f->name, err);
    if (rc)
        rsi_folder_close(f);
    return rc;
}

void rsi_folder_close(rsi_folder *f)
{
    rsi_free(f->name);
    if (f->own_store)
        rsd_store_close(f->store);
    *f = (rsi_folder){ 0 };
}

rsd_err rsi_folder_below(const rsi_folder *f, const char *file, char **out, rsd_error *err)
{
    *out = rsi_name_below(f->name, file);
    return *out ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
}

/* ---- claims ---- */

typedef struct highest {
    int32_t rank;
    int64_t number; /* -1: none */
} highest;

static rsd_err find_highest(void *arg, const rsd_entry *entry, rsd_error *err)
{
    highest *h = arg;
    int32_t  rank;
    int64_t  number;

    (void)err;
    if (rsi_dcp_data_name(entry->name, &rank, &number) && rank == h->rank && number > h->number)
        h->number = number;
    return RSD_OK;
}

rsd_err rsi_folder_claim_next(const rsi_folder *f, int32_t rank, char name[RSI_DATA_NAME],
                              char **full, void **claim, rsd_error *err)
{
    highest h = { .rank = rank, .number = -1 };
    rsd_err rc = rsi_store_list(f->store, f->name, find_highest, &h, err);

    for (int i = 0; i < TRIES && !rc; i++) {
        rsd_error why = { .rank = -1 };

        snprintf(name, RSI_DATA_NAME, "__%" PRId32 "_%" PRId64 ".distcp", rank, ++h.number);
        rc = rsi_folder_below(f, name, full, err);
        if (rc)
            return rc;
        rc = rsi_store_claim(f->store, *full, RSD_CLAIM_NEW, claim, &why);
        if (!rc)
            return RSD_OK;
        rsi_free(*full);
        *full = NULL;
        if (rc && err)
            *err = why;
        if (rc == RSD_E_EXISTS && i + 1 < TRIES)
            rc = RSD_OK;
    }
    return rc;
}

/* ---- leftovers ---- */

rsd_err rsi_folder_remove(const rsi_folder *f, const char *full, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = rsi_store_remove(f->store, full, &why);

    if (!rc || (why.sys_errno != EIO && why.sys_errno != ENOSPC && why.sys_errno != EDQUOT))
        return RSD_OK;
    if (err)
        *err = why;
    return rc;
}

/* The data files that some metadata in the folder name. */
typedef struct named {
    rsi_dcp_meta **meta; /* [n] */
    size_t         n, cap;
} named;

static void release_named(named *d)
{
    for (size_t i = 0; i < d->n; i++)
        rsi_dcp_meta_free(d->meta[i]);
    rsi_free(d->meta);
    *d = (named){ 0 };
}

static rsd_err read_source(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    return rsi_file_read(arg, off, buf, len, err);
}

static rsd_err read_meta(const rsi_folder *f, const char *name, rsi_dcp_meta **out)
{
    rsi_source source = { .read = read_source, .name = name };
    rsi_file  *file = NULL;
    char      *full;
    rsd_err    rc = rsi_folder_below(f, name, &full, NULL);

    if (!rc)
        rc = rsi_file_open(f->store, full, RSD_OPEN_READ, 0, &file, NULL);
    if (!rc) {
        source.arg = file;
        source.size = file->size;
        rc = rsi_dcp_meta_read(&source, out, NULL);
    }
    rsi_file_close(file, NULL);
    rsi_free(full);
    return rc;
}

/* Everything of interest in a listing. */
typedef struct listing {
    int32_t     rank;              /* -1: all */
    rsi_strings data, metas, sums; /* data files of `rank`; metadata; checksum files */
    bool        plain;             /* there is a checksum file without a number */
} listing;

static void release_listing(listing *l)
{
    rsi_strings_release(&l->data);
    rsi_strings_release(&l->metas);
    rsi_strings_release(&l->sums);
}

static rsd_err note(void *arg, const rsd_entry *entry, rsd_error *err)
{
    listing *l = arg;
    int32_t  rank;
    int64_t  number;
    bool     ok = true;

    if (entry->kind != RSD_ENTRY_FILE)
        return RSD_OK;
    l->plain = l->plain || strcmp(entry->name, RSI_SUMS_NAME) == 0;
    if (strcmp(entry->name, ".metadata") == 0 || rsi_dcp_is_rank_metadata(entry->name))
        ok = rsi_strings_add(&l->metas, entry->name);
    else if (rsi_dcp_data_name(entry->name, &rank, &number) && (l->rank < 0 || rank == l->rank))
        ok = rsi_strings_add(&l->data, entry->name);
    else if (rsi_sums_key(entry->name, &rank, &number) && (l->rank < 0 || rank == l->rank))
        ok = rsi_strings_add(&l->sums, entry->name);
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
}

/* Fails if the metadata can't all be read: then nothing may be removed. */
static rsd_err read_named(const rsi_folder *f, const rsi_strings *metas, named *out)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < metas->n && !rc; i++) {
        if (!rsi_grow(&out->meta, out->n, &out->cap, sizeof(out->meta[0])))
            rc = RSD_E_NOMEM;
        if (!rc)
            rc = read_meta(f, metas->at[i], &out->meta[out->n]);
        out->n += !rc;
    }
    return rc;
}

/* *old: published metadata name a later file of this rank, or none of it. */
static bool is_named(const named *d, const char *name, bool *old)
{
    int32_t rank, other;
    int64_t number, its;
    bool    later = false, any = false;

    rsi_dcp_data_name(name, &rank, &number);
    for (size_t m = 0; m < d->n; m++)
        for (size_t i = 0; i < d->meta[m]->nfiles; i++) {
            if (strcmp(d->meta[m]->file[i], name) == 0)
                return true;
            if (!rsi_dcp_data_name(d->meta[m]->file[i], &other, &its) || other != rank)
                continue;
            any = true;
            later = later || its > number;
        }
    *old = later || (d->n > 0 && !any);
    return false;
}

/* Claims up to BATCH files that look like leftovers, and only then reads the metadata that decide:
 * a writer that published one of them meanwhile had claimed it until after that. */
static rsd_err sweep_batch(const rsi_folder *f, rsi_strings *data, size_t first,
                           const named *before, rsd_error *err)
{
    void   *claim[BATCH] = { 0 };
    char   *full[BATCH] = { 0 };
    listing l = { .rank = -1 };
    named   now = { 0 };
    bool    old;
    size_t  n = data->n - first < BATCH ? data->n - first : BATCH, claims = 0;
    rsd_err rc = RSD_OK, bad = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        if (is_named(before, data->at[first + i], &old))
            continue;
        rc = rsi_folder_below(f, data->at[first + i], &full[i], NULL);
        if (!rc && rsi_store_claim(f->store, full[i], old ? RSD_CLAIM_OLD : RSD_CLAIM_ALONE,
                                   &claim[i], NULL) == RSD_OK)
            claims++;
    }
    if (!rc && claims)
        rc = rsi_store_list(f->store, f->name, note, &l, NULL);
    if (!rc && claims)
        rc = read_named(f, &l.metas, &now);
    for (size_t i = 0; i < n; i++) {
        if (!rc && !bad && claim[i] && !is_named(&now, data->at[first + i], &old))
            bad = rsi_folder_remove(f, full[i], err);
        rsi_store_unclaim(f->store, claim[i]);
        rsi_free(full[i]);
    }
    release_named(&now);
    release_listing(&l);
    return bad;
}

/* Checksum files are named after a data file and go with it. */
static rsd_err sweep_sums(const rsi_folder *f, const rsi_strings *sums, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < sums->n && !rc; i++) {
        char      data[RSI_DATA_NAME], *full = NULL, *side = NULL;
        rsd_entry entry;
        int32_t   rank;
        int64_t   number;

        rsi_sums_key(sums->at[i], &rank, &number);
        snprintf(data, sizeof(data), "__%" PRId32 "_%" PRId64 ".distcp", rank, number);
        if (rsi_folder_below(f, data, &full, NULL) == RSD_OK &&
            rsi_folder_below(f, sums->at[i], &side, NULL) == RSD_OK &&
            rsi_store_stat(f->store, full, &entry, NULL) == RSD_E_NOTFOUND)
            rc = rsi_folder_remove(f, side, err);
        rsi_free(full);
        rsi_free(side);
    }
    return rc;
}

/* The plain one belongs to a data file with the number 0. */
static rsd_err sweep_plain(const rsi_folder *f, const listing *l, rsd_error *err)
{
    int32_t rank;
    int64_t number;
    char   *full = NULL;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < l->data.n; i++)
        if (rsi_dcp_data_name(l->data.at[i], &rank, &number) && number == 0)
            return RSD_OK;
    if (l->plain && l->rank < 0 && l->data.n && l->metas.n &&
        rsi_folder_below(f, RSI_SUMS_NAME, &full, NULL) == RSD_OK)
        rc = rsi_folder_remove(f, full, err);
    rsi_free(full);
    return rc;
}

rsd_err rsi_folder_sweep(const rsi_folder *f, int32_t rank, bool sync, rsd_error *err)
{
    listing l = { .rank = rank };
    named   before = { 0 };
    size_t  left = 0;
    bool    old, can;
    rsd_err rc = RSD_OK;

    can = rsi_store_list(f->store, f->name, note, &l, NULL) == RSD_OK;
    if (can && l.data.n)
        can = read_named(f, &l.metas, &before) == RSD_OK;
    for (size_t i = 0; can && i < l.data.n; i++)
        left += !is_named(&before, l.data.at[i], &old);
    if (left && sync)
        rc = rsi_store_sync_names(f->store, f->name, err);
    for (size_t i = 0; left && i < l.data.n && !rc; i += BATCH)
        rc = sweep_batch(f, &l.data, i, &before, err);
    if (can && !rc)
        rc = sweep_sums(f, &l.sums, err);
    if (can && !rc)
        rc = sweep_plain(f, &l, err);
    release_named(&before);
    release_listing(&l);
    return rc;
}
