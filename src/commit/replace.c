/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what currently has the name of a checkpoint to be overwritten: when a save begins, so that
 * it fails before any work, and again right before publishing. */
#include "commit/replace.h"
#include "base/mem.h"
#include "base/strings.h"
#include "format/ckpt_sums.h"
#include "format/dcp_catalogue.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 16, DEEPEST = 4 };

/* Entries of a folder whose names are not those of checkpoint files. */
typedef struct strange {
    rsi_strings files, folders, others;
    size_t      entries; /* total */
} strange;

bool rsi_replace_is_ours(const char *name)
{
    static const char *const pattern[] = { ".metadata",     ".metadata.tmp",
                                           "__*.metadata",  "*.distcp",
                                           "*.safetensors", "*.safetensors.index.json",
                                           RSI_SUMS_NAME,   RSI_CATALOGUE_NAME };
    int32_t                  rank;
    int64_t                  number;

    for (size_t i = 0; i < sizeof(pattern) / sizeof(pattern[0]); i++)
        if (fnmatch(pattern[i], name, 0) == 0)
            return true;
    /* left by a writer that died; of a save inside the folder */
    return rsi_temp_match(name, RSI_SUMS_NAME) || rsi_temp_match(name, ".metadata") ||
           rsi_temp_match(name, RSI_CATALOGUE_NAME) || rsi_sums_key(name, &rank, &number);
}

/* A file whose name alone marks it as part of a checkpoint. Other names are ambiguous: a folder may
 * hold several models, each a file of its own. */
static bool is_told_by_name(const char *name)
{
    return rsi_replace_is_ours(name) &&
           (fnmatch("*.safetensors", name, 0) != 0 || fnmatch("*-of-*.safetensors", name, 0) == 0 ||
            strcmp(name, "model.safetensors") == 0);
}

static rsd_err note(void *arg, const rsd_entry *entry, rsd_error *err)
{
    strange     *s = arg;
    rsi_strings *list = &s->others;

    s->entries++;
    if (entry->kind == RSD_ENTRY_FILE && is_told_by_name(entry->name))
        return RSD_OK;
    if (entry->kind == RSD_ENTRY_FILE)
        list = &s->files;
    else if (entry->kind == RSD_ENTRY_FOLDER)
        list = &s->folders;
    return rsi_strings_add(list, entry->name) ? RSD_OK
                                              : rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
}

static void release(strange *s)
{
    rsi_strings_release(&s->files);
    rsi_strings_release(&s->folders);
    rsi_strings_release(&s->others);
}

static rsd_err refuse(const char *entry, rsd_error *err)
{
    return rsi_fail(err, RSD_E_EXISTS,
                    "holds \"%s\", which is not part of a checkpoint and would be removed by "
                    "overwriting it",
                    entry);
}

/* Reads a folder's checksum file; *book stays NULL, so nothing counts as listed, if none is
 * readable. */
static rsd_err read_book(rsd_store *store, const char *folder, rsi_sums_book **book, rsd_error *err)
{
    char     *name = rsi_name_below(folder, RSI_SUMS_NAME);
    rsi_file *side = NULL;
    rsd_err   rc = name ? RSD_OK : RSD_E_NOMEM;

    if (!rc && rsi_file_open(store, name, RSD_OPEN_READ, 0, &side, NULL) == RSD_OK)
        rc = rsi_sums_load(side, true, book, NULL);
    rsi_file_close(side, NULL);
    rsi_free(name);
    return rc == RSD_E_NOMEM ? rsi_fail(err, rc, "no memory for checksums") : RSD_OK;
}

static bool lists(const rsi_sums_book *book, const char *file)
{
    return book && rsi_sums_find(book, file) != SIZE_MAX;
}

/* A subfolder passes if it has at least one file or folder, and all its files are listed. */
static rsd_err check_folder(rsd_store *store, const char *top, const char *folder, int depth,
                            const rsi_sums_book *book, rsd_error *err)
{
    char   *path = rsi_name_below(top, folder);
    strange s = { .entries = 0 };
    rsd_err rc = path ? rsi_store_list(store, path, note, &s, err)
                      : rsi_fail(err, RSD_E_NOMEM, "no memory for a name");

    if (!rc &&
        (depth == DEEPEST || s.others.n || s.files.n + s.folders.n != s.entries || s.entries == 0))
        rc = refuse(folder, err);
    for (size_t i = 0; i < s.files.n && !rc; i++) {
        char *file = rsi_name_below(folder, s.files.at[i]);

        if (!file)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
        else if (!lists(book, file))
            rc = refuse(file, err);
        rsi_free(file);
    }
    for (size_t i = 0; i < s.folders.n && !rc; i++) {
        char *below = rsi_name_below(folder, s.folders.at[i]);

        rc = below ? check_folder(store, top, below, depth + 1, book, err)
                   : rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
        rsi_free(below);
    }
    release(&s);
    rsi_free(path);
    return rc;
}

static rsd_err check_strange(rsd_store *store, const char *name, const strange *s, rsd_error *err)
{
    rsi_sums_book *book = NULL;
    rsd_err        rc;

    if (s->others.n)
        return refuse(s->others.at[0], err);
    if (s->files.n == 0 && s->folders.n == 0)
        return RSD_OK;
    rc = read_book(store, name, &book, err);
    for (size_t i = 0; i < s->files.n && !rc; i++)
        if (!lists(book, s->files.at[i]))
            rc = refuse(s->files.at[i], err);
    for (size_t i = 0; i < s->folders.n && !rc; i++)
        rc = check_folder(store, name, s->folders.at[i], 0, book, err);
    rsi_sums_book_free(book);
    return rc;
}

/* Checks a folder and its checksum file, both from one writer and held. *again: another writer
 * replaced them meanwhile. */
static rsd_err check_entries(rsd_store *store, const char *name, bool *again, rsd_error *err)
{
    strange    s = { .entries = 0 };
    rsd_store *held, *from;
    rsd_err    rc = rsi_store_hold(store, name, RSI_SUMS_NAME, 0, &held, err);

    if (rc)
        return rc;
    from = held ? held : store;
    rc = rsi_store_list(from, name, note, &s, err);
    if (!rc)
        rc = check_strange(from, name, &s, err);
    *again = rsi_store_replaced(from) != RSD_HELD_CURRENT;
    rsd_store_close(held);
    release(&s);
    return rc;
}

static rsd_err look(rsd_store *store, const char *name, bool one_file, bool *again, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_entry entry;
    rsd_err   rc = rsi_store_stat(store, name, &entry, &why);

    if (rc == RSD_E_NOTFOUND)
        return RSD_OK;
    if (rc && err)
        *err = why;
    if (rc)
        return rc;
    if (entry.kind == RSD_ENTRY_OTHER)
        return rsi_fail(err, RSD_E_EXISTS,
                        "\"%s\" is neither a file nor a folder and is not replaced", name);
    if (one_file != (entry.kind == RSD_ENTRY_FILE))
        return rsi_fail(err, RSD_E_EXISTS, "\"%s\" is a %s and is not replaced by a %s", name,
                        one_file ? "folder" : "file", one_file ? "file" : "folder");
    return one_file ? RSD_OK : check_entries(store, name, again, err);
}

rsd_err rsi_replace_check(rsd_store *store, const char *name, bool one_file, rsd_error *err)
{
    bool    again = true;
    rsd_err rc = RSD_OK;

    for (int i = 0; i < TRIES && again; i++) {
        again = false;
        rc = look(store, name, one_file, &again, err);
        again = again || rc == RSD_E_NOTFOUND; /* another writer is replacing it */
    }
    return rc;
}
