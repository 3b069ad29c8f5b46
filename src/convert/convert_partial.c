/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of conversions that are running or were interrupted. The lock is a tree of one file that
 * is never published: the store releases it when its writer dies, and the next run to begin a lock
 * there removes it. So a run that is then alone in the folder may take it. */
#include "convert/convert_partial.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/strings.h"
#include "convert/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MARK    ".partial-"
#define JOURNAL "journal-"
enum { DIGITS = 16, TRIES = 8 };

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a folder");
}

static rsd_err add_name(rsi_strings *list, const char *name, rsd_error *err)
{
    return rsi_strings_add(list, name) ? RSD_OK : no_memory(err);
}

rsd_err rsi_partial_name(rsi_partial *partial, rsd_store *store, const char *target, uint64_t id,
                         rsd_error *err)
{
    char end[sizeof(MARK) + DIGITS];

    *partial = (rsi_partial){ .store = store, .id = id };
    snprintf(end, sizeof(end), MARK "%016" PRIx64, id);
    partial->name = rsi_name_behind(target, end);
    partial->tree = partial->name ? rsi_name_below(partial->name, "tree") : NULL;
    if (partial->tree)
        return RSD_OK;
    rsi_partial_release(partial);
    return no_memory(err);
}

void rsi_partial_release(rsi_partial *partial)
{
    rsi_tree_abort(partial->lock, NULL);
    rsi_free(partial->name);
    rsi_free(partial->tree);
    *partial = (rsi_partial){ 0 };
}

/* ---- locks ---- */

static rsd_err count_locks(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)err;
    *(size_t *)arg += rsi_temp_match(entry->name, "lock");
    return RSD_OK;
}

static rsd_err busy(const char *folder, rsd_error *err)
{
    return rsi_fail(err, RSD_E_EXISTS,
                    "another conversion to it is running; if that one died on another machine, "
                    "remove \"%s\"",
                    folder);
}

/* RSD_E_EXISTS: another run is alive. RSD_E_NOTFOUND: another run removed the folder. */
static rsd_err lock_folder(rsd_store *store, const char *folder, rsi_tree **out, rsd_error *err)
{
    size_t    locks = 0;
    char     *name = rsi_name_below(folder, "lock");
    rsi_tree *lock = NULL;
    rsd_err   rc;

    if (!name)
        return no_memory(err);
    rc = rsi_tree_begin(store, name, RSD_TREE_FILE, &lock, err);
    rsi_free(name);
    if (!rc)
        rc = rsi_store_list(store, folder, count_locks, &locks, err);
    if (!rc && locks > 1)
        rc = busy(folder, err);
    if (rc)
        rsi_tree_abort(lock, NULL);
    else
        *out = lock;
    return rc;
}

/* ---- leftovers of earlier runs ---- */

rsd_err rsi_partial_remove(rsi_partial *partial, rsd_error *err)
{
    size_t  locks = 0;
    rsd_err rc;

    rsi_tree_abort(partial->lock, NULL); /* some systems can't remove an open file (FUSE, NFS) */
    partial->lock = NULL;
    rc = rsi_store_list(partial->store, partial->name, count_locks, &locks, err);
    if (!rc && locks == 0)
        rc = rsi_store_remove(partial->store, partial->name, err);
    return rc;
}

typedef struct sweeping {
    char        stem[RSI_NAME_MAX + 1]; /* of the target's name */
    rsi_strings found;
} sweeping;

static rsd_err note_partial(void *arg, const rsd_entry *entry, rsd_error *err)
{
    sweeping   *s = arg;
    size_t      len = strlen(s->stem), mark = strlen(MARK);
    const char *digits = entry->name + len + mark;

    if (entry->kind != RSD_ENTRY_FOLDER || strncmp(entry->name, s->stem, len) != 0 ||
        strncmp(entry->name + len, MARK, mark) != 0 ||
        strspn(digits, "0123456789abcdef") != DIGITS || digits[DIGITS])
        return RSD_OK;
    return add_name(&s->found, entry->name, err);
}

/* Lists the folders of runs to this target; release s->found. */
static rsd_err list_partials(rsd_store *store, const char *target, sweeping *s, rsd_error *err)
{
    const char *last = rsi_last_part(target);
    size_t      top = (size_t)(last - target);
    char       *folder = rsi_strdup(target);
    rsd_err     rc;

    if (!folder)
        return no_memory(err);
    rsi_name_stem(last, strlen(MARK) + DIGITS, s->stem);
    folder[top ? top - 1 : 0] = '\0';
    rc = rsi_store_list(store, folder, note_partial, s, err);
    rsi_free(folder);
    return rc;
}

/* Best effort, as in the store: a folder that can't be removed must not prevent a conversion. */
static rsd_err remove_ended(rsd_store *store, const char *target, rsd_error *err)
{
    sweeping s = { .found = { 0 } };
    size_t   top = (size_t)(rsi_last_part(target) - target);
    rsd_err  rc = list_partials(store, target, &s, err);

    for (size_t i = 0; i < s.found.n && !rc; i++) {
        size_t    len = top + strlen(s.found.at[i]) + 1;
        char     *name = rsi_calloc(len, 1);
        rsi_tree *lock = NULL;

        if (name) {
            snprintf(name, len, "%.*s%s", (int)top, target, s.found.at[i]);
            if (lock_folder(store, name, &lock, NULL) == RSD_OK) {
                rsi_partial ended = { .store = store, .name = name, .lock = lock };

                rsi_partial_remove(&ended, NULL);
            }
        }
        rsi_free(name);
    }
    rsi_strings_release(&s.found);
    return rc;
}

rsd_err rsi_partial_look(const rsi_partial *partial, const char *target, rsi_partial_unfit unfit,
                         void *arg, rsd_error *err)
{
    sweeping s = { .found = { 0 } };
    bool     own = false;
    rsd_err  rc = list_partials(partial->store, target, &s, err);

    for (size_t i = 0; i < s.found.n; i++)
        own = own || strcmp(s.found.at[i], rsi_last_part(partial->name)) == 0;
    for (size_t i = 0; i < s.found.n && !own && !rc; i++)
        unfit(arg, s.found.at[i],
              "it belongs to another source or other options, so this run starts over");
    rsi_strings_release(&s.found);
    return rc;
}

rsd_err rsi_partial_begin(rsi_partial *partial, const char *target, bool resume, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = resume ? RSD_OK : remove_ended(partial->store, target, err);

    if (rc)
        return rc;
    for (int i = 0; i < TRIES; i++) { /* two runs that start at once may see each other's lock */
        rc = rsi_store_make_private(partial->store, partial->name, &why);
        if (rc)
            break;
        rc = lock_folder(partial->store, partial->name, &partial->lock, &why);
        if (rc != RSD_E_EXISTS && rc != RSD_E_NOTFOUND)
            break;
    }
    if (rc == RSD_E_NOTFOUND)
        rc = busy(partial->name, &why);
    if (rc && err)
        *err = why;
    return rc;
}

/* ---- leftovers in the tree ---- */

typedef struct tidying {
    const rsi_image *image;
    rsi_map          file; /* by name; folders of files are nfiles */
    rsi_strings      stale, folders;
    const char      *below; /* the folder being listed; NULL: the tree itself */
} tidying;

/* Keeps folders of files, and a file of the image that is no longer than planned: its blocks are
 * checked one by one. */
static rsd_err note_stale(void *arg, const rsd_entry *entry, rsd_error *err)
{
    tidying *t = arg;
    char    *name = t->below ? rsi_name_below(t->below, entry->name) : rsi_strdup(entry->name);
    uint64_t f;
    bool     known = name && rsi_map_get(&t->file, name, strlen(name), &f);
    rsd_err  rc = name ? RSD_OK : no_memory(err);

    if (known && f == t->image->nfiles && entry->kind == RSD_ENTRY_FOLDER)
        rc = add_name(&t->folders, name, err);
    else if (!rc && !(known && f < t->image->nfiles && entry->kind == RSD_ENTRY_FILE &&
                      entry->size <= t->image->file[f].bytes))
        rc = add_name(&t->stale, name, err);
    rsi_free(name);
    return rc;
}

/* Adds a file and the folders that lead to it. */
static bool know_file(tidying *t, uint64_t f)
{
    const char *name = t->image->file[f].name;
    uint64_t    place = f, folder = t->image->nfiles;
    bool        ok = rsi_map_add(&t->file, name, strlen(name), &place, NULL);

    for (const char *end = strchr(name, '/'); end && ok; end = strchr(end + 1, '/'))
        ok = rsi_map_add(&t->file, name, (size_t)(end - name), &folder, NULL);
    return ok;
}

static rsd_err list_stale(const rsi_partial *partial, tidying *t, rsd_error *err)
{
    rsd_err rc;

    for (uint64_t f = 0; f < t->image->nfiles; f++)
        if (!know_file(t, f))
            return no_memory(err);
    rc = rsi_store_list(partial->store, partial->tree, note_stale, t, err);
    for (size_t i = 0; i < t->folders.n && !rc; i++) {
        char *path = rsi_name_below(partial->tree, t->folders.at[i]);

        t->below = t->folders.at[i];
        rc = path ? rsi_store_list(partial->store, path, note_stale, t, err) : no_memory(err);
        rsi_free(path);
    }
    return rc;
}

static rsd_err remove_stale(const rsi_partial *partial, const tidying *t, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < t->stale.n && !rc; i++) {
        char *name = rsi_name_below(partial->tree, t->stale.at[i]);

        if (!name)
            return no_memory(err);
        rc = rsi_store_remove(partial->store, name, err);
        rsi_free(name);
    }
    return rc;
}

rsd_err rsi_partial_tidy(const rsi_partial *partial, const rsi_image *image, rsd_error *err)
{
    tidying   t = { .image = image };
    bool      one_file = image->nfiles == 1 && !image->file[0].name;
    rsd_entry entry;
    rsd_error why = { .rank = -1 };
    rsd_err   rc = rsi_store_stat(partial->store, partial->tree, &entry, &why);

    if (rc == RSD_E_NOTFOUND)
        return RSD_OK;
    if (rc) {
        if (err)
            *err = why;
        return rc;
    }
    if (entry.kind != (one_file ? RSD_ENTRY_FILE : RSD_ENTRY_FOLDER) ||
        (one_file && entry.size > image->file[0].bytes))
        return rsi_store_remove(partial->store, partial->tree, err);
    if (one_file)
        return RSD_OK;
    rc = list_stale(partial, &t, err);
    if (!rc)
        rc = remove_stale(partial, &t, err);
    rsi_map_release(&t.file);
    rsi_strings_release(&t.stale);
    rsi_strings_release(&t.folders);
    return rc;
}

/* ---- journals ---- */

char *rsi_partial_journal(const rsi_partial *partial, int32_t rank)
{
    char name[sizeof(JOURNAL) + 16];

    snprintf(name, sizeof(name), JOURNAL "%" PRId32, rank);
    return rsi_name_below(partial->name, name);
}

static rsd_err note_journal(void *arg, const rsd_entry *entry, rsd_error *err)
{
    if (strncmp(entry->name, JOURNAL, strlen(JOURNAL)) != 0)
        return RSD_OK;
    return add_name(arg, entry->name, err);
}

/* Lists the journals' names in the store; for rsi_strings_release. */
static rsd_err list_journals(const rsi_partial *partial, rsi_strings *out, rsd_error *err)
{
    rsi_strings s = { 0 };
    rsd_err     rc = rsi_store_list(partial->store, partial->name, note_journal, &s, err);

    for (size_t i = 0; i < s.n && !rc; i++) {
        char *name = rsi_name_below(partial->name, s.at[i]);

        rc = name ? add_name(out, name, err) : no_memory(err);
        rsi_free(name);
    }
    rsi_strings_release(&s);
    return rc;
}

rsd_err rsi_partial_read(const rsi_partial *partial, rsi_convert_blocks *cuts, rsd_error *err)
{
    rsi_strings s = { 0 };
    rsd_err     rc = list_journals(partial, &s, err);

    for (size_t i = 0; i < s.n && !rc; i++)
        rc = rsi_journal_read(partial->store, s.at[i], partial->id, cuts, err);
    rsi_strings_release(&s);
    return rc;
}

rsd_err rsi_partial_compare(const rsi_partial *partial, rsi_partial_unfit unfit, void *arg,
                            rsd_error *err)
{
    rsi_strings s = { 0 };
    rsd_entry   entry;
    bool        fits = true;
    rsd_err     rc = list_journals(partial, &s, err);

    for (size_t i = 0; i < s.n && !rc && fits; i++)
        rc = rsi_journal_fits(partial->store, s.at[i], partial->id, &fits, err);
    if (!rc && !fits)
        unfit(arg, rsi_last_part(partial->name),
              "the source has been changed since that run, so this one starts over");
    if (!rc && !fits && rsi_store_stat(partial->store, partial->tree, &entry, NULL) == RSD_OK)
        rc = rsi_store_remove(partial->store, partial->tree, err);
    for (size_t i = 0; i < s.n && !rc && !fits; i++)
        rc = rsi_store_remove(partial->store, s.at[i], err);
    rsi_strings_release(&s);
    return rc;
}
