/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one rank's items to a data file of its own inside a folder (C8). Next: receipt.c. */
#include "save/save_part.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

rsd_err rsi_part_create(const char *path, int32_t rank, const rsd_part_opts *opts, rsd_part **out,
                        rsd_error *err)
{
    rsd_part *p = rsi_calloc(1, sizeof(*p));
    rsd_err   rc;

    if (!p)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a part");
    p->rank = rank;
    p->opts = *opts;
    p->sums_wanted = opts->checksum != RSD_NEVER && rsi_sums_available();
    rc = opts->checksum == RSD_ALWAYS && !p->sums_wanted
             ? rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with")
             : rsd_state_create(&p->state, err);
    if (!rc && opts->transform) {
        p->opts.transform = rsi_arena_text(&p->mem, opts->transform, strlen(opts->transform));
        if (!p->opts.transform)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a part");
    }
    if (!rc)
        rc = rsi_folder_open(&p->folder, opts->store, path, err);
    if (rc)
        rsi_part_free(p);
    else
        *out = p;
    return rc ? rsi_while(err, rc, "checkpoint \"%s\"", path) : RSD_OK;
}

void rsi_part_free(rsd_part *p)
{
    if (!p)
        return;
    rsi_store_unclaim(p->folder.store, p->claim);
    rsi_folder_close(&p->folder);
    rsd_state_free(p->state);
    rsi_image_release(&p->image);
    rsi_sums_release(&p->sums);
    rsi_free(p->item);
    rsi_free(p->receipt.at);
    rsi_arena_release(&p->mem);
    rsi_free(p);
}

/* ---- items ---- */

static rsd_err add_item(rsd_part *p, const rsi_part_item *item, rsd_error *err)
{
    const char *name;
    rsd_err     rc;

    if (p->tried)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" comes too late: the part has been written",
                        item->name);
    if (!rsi_grow(&p->item, p->n, &p->cap, sizeof(p->item[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu items", p->n + 1);
    rc = rsi_state_name(p->state, item->name, &name, err);
    if (rc)
        return rc;
    p->item[p->n] = *item;
    p->item[p->n++].name = name;
    return RSD_OK;
}

rsd_err rsi_part_tensor(rsd_part *p, const char *name, rsd_dtype dtype, int ndim,
                        const int64_t *shape, const rsd_view *view, rsd_error *err)
{
    rsi_part_item item = { .name = name, .tensor = p->state->ntensors };
    char          number[24]; /* names in the state are unique */
    rsd_err       rc = add_item(p, &item, err);

    if (rc)
        return rc;
    snprintf(number, sizeof(number), "%zu", item.tensor);
    rc = rsd_state_tensor(p->state, number, NULL, dtype, ndim, shape, 1, view, err);
    if (rc) {
        p->n--;
        return rsi_while(err, rc, "item \"%s\"", name);
    }
    p->state->tensor[item.tensor].spot.name = p->item[p->n - 1].name; /* for messages */
    return RSD_OK;
}

rsd_err rsi_part_object(rsd_part *p, const char *name, const void *bytes, size_t len,
                        rsd_error *err)
{
    rsi_part_item item = { .name = name, .tensor = SIZE_MAX, .bytes = bytes, .len = len };

    return add_item(p, &item, err);
}

/* ---- writing ---- */

static rsd_err write_file(rsd_part *p, const char *full, rsd_error *err)
{
    rsi_write_opts flush = { .sync = p->opts.sync != RSD_NEVER,
                             .threads = p->opts.threads,
                             .staging = p->opts.max_memory,
                             .top = full,
                             .file = p->file,
                             .sums = p->sums_wanted ? &p->sums : NULL,
                             .on_progress = p->opts.on_progress,
                             .arg = p->opts.arg };
    rsd_err        rc = rsi_image_items(&p->image, p->state, p->n, p->item, p->opts.transform, err);

    if (!rc)
        rc = rsi_write_files(&p->image, p->state, -1, p->folder.store, &flush, err);
    if (!rc)
        p->bytes = p->image.file[0].bytes;
    if (!rc && flush.sync) /* C3 */
        rc = rsi_store_sync_names(p->folder.store, p->folder.name, err);
    return rc;
}

/* Removes obsolete files first, so that two checkpoints need space, not three. The number is chosen
 * before that: it must be above theirs. */
rsd_err rsi_part_write(rsd_part *p, rsd_error *err)
{
    char   *full = NULL;
    rsd_err rc = RSD_OK;

    if (p->tried)
        return rsi_fail(err, RSD_E_INVALID, "a part is written once");
    p->tried = true;
    if (p->n > 0)
        rc = rsi_folder_claim_next(&p->folder, p->rank, p->file, &full, &p->claim, err);
    if (!rc)
        rc = rsi_folder_sweep(&p->folder, p->rank, p->opts.sync != RSD_NEVER, err);
    if (!rc && p->n > 0)
        rc = write_file(p, full, err);
    if (rc && p->claim) {
        rsi_store_remove(p->folder.store, full, NULL); /* if it fails, a later save removes it */
        rsi_store_unclaim(p->folder.store, p->claim);
        p->claim = NULL;
    }
    rsi_free(full);
    p->written = !rc;
    return rc ? rsi_while(err, rc, "part of rank %" PRId32, p->rank) : RSD_OK;
}
