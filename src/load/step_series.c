/* SPDX-License-Identifier: Apache-2.0 */
/* A series of checkpoints: entries of a folder whose names have a number. Complete is what can be
 * opened. */
#include "base/mem.h"
#include "base/opts.h"
#include "comm/comm.h"
#include "format/open.h"
#include "store/file.h"

#include <reshard/reshard_folder.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    int64_t step;
    size_t  digits; /* first digit of the name */
    char   *name;
} entry;

struct rsd_series {
    rsd_store *store; /* the caller's; NULL: local */
    char      *path;
    entry     *at; /* [n], by rising step */
    size_t     n, cap;
};

/* ---- names ---- */

/* Where the digits begin; SIZE_MAX: not the name of a step. */
static size_t find_digits(const char *name)
{
    static const char *const before[] = { "",           "step",        "step_",       "step-",
                                          "checkpoint", "checkpoint_", "checkpoint-", "ckpt",
                                          "ckpt_",      "ckpt-",       "global_step", "iter_" };
    size_t                   at = strcspn(name, "0123456789");

    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
        if (strlen(before[i]) == at && strncmp(name, before[i], at) == 0)
            return at;
    return SIZE_MAX;
}

static bool parse_name(const rsd_entry *from, entry *out)
{
    size_t      at = find_digits(from->name), digits;
    const char *rest;

    if (at == SIZE_MAX)
        return false;
    digits = strspn(from->name + at, "0123456789");
    rest = from->name + at + digits;
    if (digits == 0 || digits > 18)
        return false;
    if (from->kind == RSD_ENTRY_FOLDER
            ? *rest != '\0'
            : from->kind != RSD_ENTRY_FILE || (strcmp(rest, ".safetensors") && strcmp(rest, ".pt")))
        return false;
    *out = (entry){ .step = strtoll(from->name + at, NULL, 10), .digits = at };
    return true;
}

static rsd_err add_entry(void *arg, const rsd_entry *from, rsd_error *err)
{
    rsd_series *s = arg;
    entry       e;

    if (!parse_name(from, &e))
        return RSD_OK;
    e.name = rsi_strdup(from->name);
    if (!e.name || !rsi_grow(&s->at, s->n, &s->cap, sizeof(s->at[0]))) {
        rsi_free(e.name);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu steps", s->n + 1);
    }
    s->at[s->n++] = e;
    return RSD_OK;
}

static int by_step(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    return x->step != y->step ? (x->step < y->step ? -1 : 1) : strcmp(x->name, y->name);
}

static void forget(rsd_series *s)
{
    for (size_t i = 0; i < s->n; i++)
        rsi_free(s->at[i].name);
    s->n = 0;
}

/* The store to use, and the folder's name in it; a local folder is opened each time, because it may
 * be created later. RSD_E_NOTFOUND: not yet. */
static rsd_err enter(const rsd_series *s, rsd_store **store, const char **name, rsd_error *err)
{
    *store = s->store;
    *name = s->store ? s->path : "";
    return s->store ? RSD_OK : rsi_file_store_open(s->path, NULL, store, err);
}

static void leave(const rsd_series *s, rsd_store *store)
{
    if (!s->store)
        rsd_store_close(store);
}

rsd_err rsd_series_list(rsd_series *s, rsd_error *err)
{
    rsd_error   why = { .rank = -1 };
    rsd_store  *store;
    const char *name;
    rsd_err     rc;

    if (!s)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: series");
    forget(s);
    rc = enter(s, &store, &name, &why);
    if (!rc) {
        rc = rsi_store_list(store, name, add_entry, s, &why);
        leave(s, store);
    }
    if (rc == RSD_E_NOTFOUND)
        rc = RSD_OK; /* no folder yet */
    if (rc && err)
        *err = why;
    if (s->n)
        qsort(s->at, s->n, sizeof(s->at[0]), by_step);
    return rc ? rsi_while(err, rc, "series \"%s\"", s->path) : RSD_OK;
}

rsd_err rsd_series_open(rsd_store *store, const char *path, rsd_series **out, rsd_error *err)
{
    rsd_series *s;
    rsd_err     rc;

    if (!path || !*path || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: path or output pointer");
    s = rsi_calloc(1, sizeof(*s));
    if (s)
        s->path = rsi_strdup(path);
    if (!s || !s->path) {
        rsi_free(s);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a series");
    }
    s->store = store;
    rc = rsd_series_list(s, err);
    if (rc)
        rsd_series_close(s);
    else
        *out = s;
    return rc;
}

void rsd_series_close(rsd_series *s)
{
    if (!s)
        return;
    forget(s);
    rsi_free(s->at);
    rsi_free(s->path);
    rsi_free(s);
}

size_t rsd_series_count(const rsd_series *s)
{
    return s ? s->n : 0;
}

rsd_err rsd_series_step(const rsd_series *s, size_t i, rsd_step *out, rsd_error *err)
{
    rsd_step step;
    rsd_err  rc = rsi_result_check(out, "rsd_step", err);

    if (rc)
        return rc;
    if (!s || i >= s->n)
        return rsi_fail(err, RSD_E_INVALID, "no entry %zu: the series has %zu", i, s ? s->n : 0);
    step = (rsd_step){ .step = s->at[i].step, .name = s->at[i].name };
    rsi_result_give(out, &step, sizeof(step));
    return RSD_OK;
}

/* Named like the last entry, zeros included: "step_00100" is followed by "step_00200". */
size_t rsd_series_path(const rsd_series *s, int64_t step, char *buf, size_t cap)
{
    const entry *last = s && s->n ? &s->at[s->n - 1] : NULL;
    int          width = 1;

    if (!s)
        return 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].step == step)
            return (size_t)snprintf(buf, cap, "%s/%s", s->path, s->at[i].name);
    if (!last)
        return (size_t)snprintf(buf, cap, "%s/step-%" PRId64, s->path, step);
    if (last->name[last->digits] == '0')
        width = (int)strspn(last->name + last->digits, "0123456789");
    return (size_t)snprintf(
        buf, cap, "%s/%.*s%0*" PRId64 "%s", s->path, (int)last->digits, last->name, width, step,
        last->name + last->digits + strspn(last->name + last->digits, "0123456789"));
}

/* ---- complete ones ---- */

static bool is_complete(const rsd_series *s, const entry *e, rsd_err *rc, rsd_error *err)
{
    char     *path = rsi_name_below(s->path, e->name);
    rsd_ckpt *ckpt = NULL;

    *rc = path ? rsi_ckpt_open(s->store, path, &ckpt, err)
               : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    rsi_ckpt_close(ckpt);
    rsi_free(path);
    if (*rc == RSD_E_NOMEM)
        return false;
    if (*rc) { /* whatever is wrong with it, an earlier one may be complete */
        *rc = RSD_OK;
        return false;
    }
    return true;
}

static rsd_err find_latest(rsd_series *s, int64_t *out, rsd_error *err)
{
    rsd_err rc = rsd_series_list(s, err);

    for (size_t i = s->n; i-- > 0 && !rc;)
        if (is_complete(s, &s->at[i], &rc, err)) {
            *out = s->at[i].step;
            return RSD_OK;
        }
    return rc ? rc
              : rsi_fail(err, RSD_E_NOTFOUND, "series \"%s\" has no complete checkpoint", s->path);
}

rsd_err rsd_series_latest(rsd_series *s, rsd_comm *comm, int64_t *out, rsd_error *err)
{
    int64_t step = 0;
    rsd_err rc = s && out
                     ? RSD_OK
                     : rsi_fail(err, RSD_E_INVALID, "missing argument: series or output pointer");

    if (!rc && (!comm || rsd_comm_rank(comm) == 0))
        rc = find_latest(s, &step, err);
    if (comm)
        rc = rsi_agree(comm, rc, err);
    if (!rc && comm && rsd_comm_rank(comm) > 0) /* names of steps saved meanwhile */
        rsd_series_list(s, NULL);
    if (!rc && comm)
        rc = rsi_broadcast(comm, 0, &step, sizeof(step), err);
    if (!rc)
        *out = step;
    return rc;
}

/* ---- removing ---- */

static rsd_err remove_entry(const rsd_series *s, const entry *e, const rsd_prune_opts *opts,
                            rsd_error *err)
{
    rsd_step    step = { .size = sizeof(step), .step = e->step, .name = e->name };
    rsd_store  *store;
    const char *name;
    char       *full;
    rsd_err     rc;

    if (opts->on_remove && opts->on_remove(opts->arg, &step))
        return rsi_fail(err, RSD_E_CANCELED, "canceled by the caller");
    if (opts->dry_run)
        return RSD_OK;
    rc = enter(s, &store, &name, err);
    if (rc)
        return rc;
    full = *name ? rsi_name_below(name, e->name) : rsi_strdup(e->name);
    rc = full ? rsi_store_remove(store, full, err)
              : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    rsi_free(full);
    leave(s, store);
    return rc;
}

static rsd_err prune(rsd_series *s, const rsd_prune_opts *opts, rsd_error *err)
{
    int64_t complete = 0;
    rsd_err rc = rsd_series_list(s, err);

    for (size_t i = s->n; i-- > 0 && !rc;) {
        const entry *e = &s->at[i];
        bool         keep = opts->every > 0 && e->step % opts->every == 0;

        if (keep && complete >= opts->last)
            continue;
        if (!is_complete(s, e, &rc, err))
            continue;
        complete++;
        if (complete > opts->last && !keep)
            rc = remove_entry(s, e, opts, err);
    }
    return rc;
}

rsd_err rsd_series_prune(rsd_series *s, rsd_comm *comm, const rsd_prune_opts *opts, rsd_error *err)
{
    rsd_prune_opts known = { .size = sizeof(known) };
    rsd_err        rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_prune_opts", err);

    if (!rc && (!s || known.last < 1 || known.every < 0))
        rc = rsi_fail(err, RSD_E_INVALID,
                      "missing argument: series or a number of checkpoints to keep");
    if (!rc && (!comm || rsd_comm_rank(comm) == 0))
        rc = prune(s, &known, err);
    if (comm)
        rc = rsi_agree(comm, rc, err);
    if (!rc && !known.dry_run)
        rc = rsd_series_list(s, err);
    return rc;
}
