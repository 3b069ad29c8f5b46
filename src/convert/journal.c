/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and reads journals: a header and records of 32 bytes, each with its own CRC, because the
 * last one may be half written. */
#include "convert/journal.h"
#include "base/crc32.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

typedef struct head {
    char     text[16]; /* "reshard journal\n" */
    uint64_t version, id;
} head;

typedef struct record {
    uint64_t      block;
    uint32_t      len; /* of the block */
    uint32_t      crc; /* of the record with 0 here */
    unsigned char hash[RSI_HASH128_BYTES];
} record;

enum { BATCH = 128 }; /* records written or read at once */

struct rsi_journal {
    rsi_file       *file;
    uint64_t        at; /* where the next record goes */
    pthread_mutex_t lock;
};

static head head_of(uint64_t id)
{
    head h = { .version = 1, .id = id };

    memcpy(h.text, "reshard journal\n", sizeof(h.text));
    return h;
}

static uint32_t sum(const record *r)
{
    record whole = *r;

    whole.crc = 0;
    return rsi_crc32(0, &whole, sizeof(whole));
}

/* Opens an existing journal: appends to it, or starts it over if it belongs to something else. */
static rsd_err open_again(rsd_store *store, const char *name, const head *want, rsi_file **out,
                          rsd_error *err)
{
    head     h = { .version = 0 };
    uint64_t size;
    rsd_err  rc = rsi_store_file_size(store, name, &size, err);

    if (!rc && size >= sizeof(h))
        rc = rsi_store_read_all(store, name, 0, &h, sizeof(h), err);
    if (rc)
        return rc;
    if (memcmp(&h, want, sizeof(h)) == 0)
        return rsi_file_open(store, name, RSD_OPEN_WRITE, 0, out, err);
    rc = rsi_store_remove(store, name, err);
    return rc ? rc : rsi_file_open(store, name, RSD_OPEN_CREATE, 0, out, err);
}

rsd_err rsi_journal_open(rsd_store *store, const char *name, uint64_t id, rsi_journal **out,
                         rsd_error *err)
{
    rsi_journal *j = rsi_calloc(1, sizeof(*j));
    head         h = head_of(id);
    rsd_error    why;
    rsd_err      rc;

    if (!j)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a journal");
    rc = rsi_file_open(store, name, RSD_OPEN_CREATE, 0, &j->file, &why);
    if (rc == RSD_E_EXISTS)
        rc = open_again(store, name, &h, &j->file, err);
    else if (rc && err)
        *err = why;
    if (!rc)
        rc = rsi_file_write(j->file, 0, &h, sizeof(h), err);
    if (rc) {
        rsi_file_close(j->file, NULL);
        rsi_free(j);
        return rc;
    }
    j->at = j->file->size > sizeof(h) ? j->file->size : sizeof(h);
    j->at -= j->at % sizeof(record); /* a truncated record is overwritten */
    pthread_mutex_init(&j->lock, NULL);
    *out = j;
    return RSD_OK;
}

void rsi_journal_close(rsi_journal *j)
{
    if (!j)
        return;
    rsi_file_close(j->file, NULL); /* an incomplete journal is fine */
    pthread_mutex_destroy(&j->lock);
    rsi_free(j);
}

rsd_err rsi_journal_add(rsi_journal *j, const rsi_convert_blocks *cuts, size_t first, size_t n,
                        rsd_error *err)
{
    record  r[BATCH];
    rsd_err rc = RSD_OK;

    for (size_t done = 0; done < n && !rc;) {
        size_t k = 0;

        for (; k < BATCH && done < n; k++, done++) {
            const rsi_convert_block *cut = &cuts->at[first + done];

            r[k] = (record){ .block = first + done, .len = cut->len };
            memcpy(r[k].hash, cut->hash, sizeof(r[k].hash));
            r[k].crc = sum(&r[k]);
        }
        pthread_mutex_lock(&j->lock);
        rc = rsi_file_write(j->file, j->at, r, k * sizeof(r[0]), err);
        j->at += k * sizeof(r[0]);
        pthread_mutex_unlock(&j->lock);
    }
    return rc;
}

rsd_err rsi_journal_fits(rsd_store *store, const char *name, uint64_t id, bool *out, rsd_error *err)
{
    head     want = head_of(id), h;
    uint64_t size;
    rsd_err  rc = rsi_store_file_size(store, name, &size, err);

    *out = rc || size < sizeof(h); /* nothing written to it yet */
    if (*out)
        return rc;
    rc = rsi_store_read_all(store, name, 0, &h, sizeof(h), err);
    *out = !rc && memcmp(&h, &want, sizeof(h)) == 0;
    return rc;
}

static void mark(rsi_convert_blocks *cuts, const record *r)
{
    if (r->crc != sum(r) || r->block >= cuts->n || r->len != cuts->at[r->block].len)
        return;
    cuts->at[r->block].done = true;
    memcpy(cuts->at[r->block].hash, r->hash, sizeof(r->hash));
}

rsd_err rsi_journal_read(rsd_store *store, const char *name, uint64_t id, rsi_convert_blocks *cuts,
                         rsd_error *err)
{
    rsi_file *file;
    head      want = head_of(id), h;
    rsd_err   rc = rsi_file_open(store, name, RSD_OPEN_READ, 0, &file, err);

    if (rc)
        return rc;
    if (file->size >= sizeof(h))
        rc = rsi_file_read(file, 0, &h, sizeof(h), err);
    if (file->size < sizeof(h) || rc || memcmp(&h, &want, sizeof(h)) != 0)
        goto out;
    for (uint64_t at = sizeof(h); file->size - at >= sizeof(record) && !rc;) {
        uint64_t left = (file->size - at) / sizeof(record);
        size_t   n = left < BATCH ? (size_t)left : BATCH;
        record   r[BATCH];

        rc = rsi_file_read(file, at, r, n * sizeof(r[0]), err);
        for (size_t k = 0; k < n && !rc; k++)
            mark(cuts, &r[k]);
        at += n * sizeof(r[0]);
    }
out:
    rsi_file_close(file, NULL);
    return rc;
}
