/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the files of a checkpoint with Megatron-Core's integrity.json, which has the SHA-256 of
 * each: {"algorithm": "sha256", "files": {"common.pt": "9f86..", ...}}. */
#include "base/mem.h"
#include "base/sha256.h"
#include "format/json.h"
#include "verify/verify_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LIST_NAME  "integrity.json"
#define MOST_BYTES ((uint64_t)64 << 20)
enum { STEP = 1 << 20 };

typedef struct entry {
    const char *name, *hash;
    size_t      hash_len;
} entry;

typedef struct list {
    rsi_verifying *v;
    char          *json;
    size_t         len;
    entry         *at; /* [n] */
    size_t         n, cap;
    rsi_arena      mem;
} list;

static rsd_err read_files(list *l, rsi_json *json, rsd_error *err)
{
    rsi_json_token token;
    rsd_err        rc = rsi_json_want(json, RSI_JSON_OBJECT, "an object of files", &token, err);

    while (rsi_json_each(json, &token, &rc, err)) {
        rsi_name       name;
        rsi_json_token hash;

        rc = rsi_json_name(json, &token, &name, err);
        if (!rc)
            rc = rsi_json_want(json, RSI_JSON_STRING, "a SHA-256", &hash, err);
        if (!rc && (hash.len != 2 * (size_t)RSI_SHA256_BYTES || strchr(name.text, '/')))
            rc = rsi_fail(err, RSD_E_FORMAT, "file \"%.120s\" has no SHA-256", name.text);
        if (!rc && !rsi_grow(&l->at, l->n, &l->cap, sizeof(l->at[0])))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
        if (!rc)
            l->at[l->n++] = (entry){ .name = name.text, .hash = hash.text, .hash_len = hash.len };
    }
    return rc;
}

static rsd_err read_list(list *l, rsd_error *err)
{
    rsi_json       json;
    rsi_json_token token;
    bool           files = false;
    rsd_err        rc;

    rsi_json_begin(&json, l->json, l->len, 0, &l->mem);
    rc = rsi_json_want(&json, RSI_JSON_OBJECT, "an object", &token, err);
    while (rsi_json_each(&json, &token, &rc, err)) {
        rsi_json_token value;

        if (rsi_json_is(&token, "files") && !files) {
            files = true;
            rc = read_files(l, &json, err);
            continue;
        }
        if (!rsi_json_is(&token, "algorithm")) {
            rc = rsi_json_next(&json, &value, err);
            rc = rc ? rc : rsi_json_skip(&json, &value, err);
            continue;
        }
        rc = rsi_json_want(&json, RSI_JSON_STRING, "the name of an algorithm", &value, err);
        if (!rc && !rsi_json_is(&value, "sha256"))
            rc = rsi_fail(err, RSD_E_UNSUPPORTED, "its algorithm is not \"sha256\"");
    }
    if (!rc)
        rc = rsi_json_want(&json, RSI_JSON_END, "the end", &token, err);
    if (!rc && !files)
        rc = rsi_fail(err, RSD_E_FORMAT, "it has no \"files\"");
    return rc;
}

static rsd_err hash_file(list *l, rsi_file *file, char hex[2 * RSI_SHA256_BYTES + 1],
                         rsd_error *err)
{
    unsigned char *buf = rsi_calloc(STEP, 1), sum[RSI_SHA256_BYTES];
    rsi_sha256     s;
    rsd_err        rc = buf ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to read a file");

    rsi_sha256_begin(&s);
    for (uint64_t at = 0; at < file->size && !rc;) {
        size_t n = file->size - at < STEP ? (size_t)(file->size - at) : STEP;

        rc = rsi_file_read(file, at, buf, n, err);
        if (!rc) {
            rsi_sha256_add(&s, buf, n);
            at += n;
            rc = rsi_progress_add(&l->v->progress, n, err);
        }
    }
    rsi_sha256_end(&s, sum);
    for (int i = 0; i < RSI_SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    rsi_free(buf);
    return rc;
}

static rsd_err check_entry(void *arg, size_t i, rsd_error *err)
{
    list      *l = arg;
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .first = i, .second = 1, .what.rank = -1 };
    rsd_error *what = &damage.what;
    rsi_file  *file = NULL;
    char       hex[2 * RSI_SHA256_BYTES + 1] = "";
    rsd_err    rc = rsi_files_open_beside(&l->v->ckpt->files, l->at[i].name, true, &file, what);

    if (!rc)
        rc = hash_file(l, file, hex, what);
    rsi_file_close(file, NULL);
    if (rc == RSD_E_CANCELED || rc == RSD_E_NOMEM) {
        if (err)
            *err = *what;
        return rc;
    }
    if (!rc && memcmp(hex, l->at[i].hash, l->at[i].hash_len) != 0)
        rc = rsi_fail(what, RSD_E_CORRUPT,
                      "file \"%s\": its SHA-256 is not that of \"" LIST_NAME "\"", l->at[i].name);
    return rc ? rsi_verify_note(l->v, &damage, err) : RSD_OK;
}

static rsd_err load(list *l, rsd_error *err)
{
    rsi_file *file = NULL;
    rsd_err   rc = rsi_files_open_beside(&l->v->ckpt->files, LIST_NAME, true, &file, err);

    if (!rc && file->size > MOST_BYTES)
        rc = rsi_fail(err, RSD_E_FORMAT, "it has more than %" PRIu64 " bytes", MOST_BYTES);
    if (!rc) {
        l->len = (size_t)file->size;
        l->json = rsi_calloc(l->len + 1, 1);
        rc = l->json ? rsi_file_read(file, 0, l->json, l->len, err)
                     : rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    }
    rsi_file_close(file, NULL);
    return rc ? rc : read_list(l, err);
}

/* Adds the sizes of the listed files to the progress. */
static void add_total(list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        char     *name = rsi_files_name_beside(&l->v->ckpt->files, l->at[i].name);
        rsd_entry found = { 0 };

        if (name && rsi_store_stat(l->v->ckpt->files.store, name, &found, NULL) == RSD_OK)
            l->v->progress.total += found.size;
        rsi_free(name);
    }
}

rsd_err rsi_verify_integrity(rsi_verifying *v, rsd_error *err)
{
    list       l = { .v = v };
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .second = 1, .what.rank = -1 };
    char     **names;
    size_t     n = 0;
    bool       there = false;
    rsd_err    rc = RSD_OK;

    if (v->ckpt->format == RSD_FORMAT_DCP)
        rc = rsi_files_list(&v->ckpt->files, &names, &n, err);
    for (size_t i = 0; i < n && !rc; i++)
        there = there || strcmp(names[i], LIST_NAME) == 0;
    if (rc || !there)
        return rc;
    rc = load(&l, &damage.what);
    if (rc && rc != RSD_E_NOMEM) {
        rsi_while(&damage.what, rc, "file \"" LIST_NAME "\"");
        rc = rsi_verify_note(v, &damage, err);
    } else if (rc) {
        rsi_while(err, rc, "no memory for \"" LIST_NAME "\"");
    } else {
        add_total(&l);
        rc = rsi_workers_run(v->workers, l.n, check_entry, &l, err);
    }
    rsi_free(l.json);
    rsi_free(l.at);
    rsi_arena_release(&l.mem);
    return rc;
}
