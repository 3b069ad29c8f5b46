/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format and has its reader open the files. */
#include "format/open.h"
#include "base/mem.h"
#include "format/beside.h"
#include "format/detect.h"
#include "format/st_index.h"

#include <string.h>

/* How many of bytes [off, off + len) of a file exist: all, some or none? */
static rsd_health bytes_health(const rsd_ckpt *ckpt, uint32_t file, uint64_t off, uint64_t len)
{
    const rsi_file *f = ckpt->files.file[file];

    if (!f->missing && off <= f->size && len <= f->size - off)
        return RSD_WHOLE;
    return f->missing || off >= f->size ? RSD_GONE : RSD_DAMAGED;
}

static rsd_health tensor_health(const rsd_ckpt *ckpt, size_t t)
{
    rsd_tensor_info info;
    rsd_chunk       chunk;
    uint32_t        file;
    size_t          whole = 0, gone = 0;

    ckpt->ops->tensor(ckpt, t, &info);
    for (size_t i = 0; i < info.chunks; i++) {
        rsd_health part;

        ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
        part = bytes_health(ckpt, file, chunk.offset, chunk.length);
        whole += part == RSD_WHOLE;
        gone += part == RSD_GONE;
    }
    return whole == info.chunks ? RSD_WHOLE : gone == info.chunks ? RSD_GONE : RSD_DAMAGED;
}

/* Notes what is lost to missing and short files. */
static rsd_err take_stock(rsd_ckpt *ckpt, rsd_error *err)
{
    size_t   n = ckpt->ntensors + ckpt->nobjects, at = ckpt->ntensors;
    rsi_item span;

    if (!ckpt->health)
        ckpt->health = rsi_arena_array(&ckpt->mem, n, sizeof(ckpt->health[0]));
    if (!ckpt->health)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", n);
    if (ckpt->inside)
        return RSD_OK;
    for (size_t t = 0; t < ckpt->ntensors; t++) {
        rsd_health now = tensor_health(ckpt, t);

        if (now > ckpt->health[t])
            ckpt->health[t] = (uint8_t)now;
    }
    for (size_t k = 0; at < n && ckpt->ops->span(ckpt, k, &span); k++)
        if (span.object) /* spans name the objects in order */
            ckpt->health[at++] = (uint8_t)bytes_health(ckpt, span.file, span.off, span.len);
    return RSD_OK;
}

/* An index stands for the folder that holds it. */
static rsd_err open_files(rsi_files *files, rsd_store *store, const char *path, uint32_t flags,
                          rsd_error *err)
{
    const char  *name = rsi_last_part(path);
    const size_t len = (size_t)(name - path);
    rsi_arena    mem = { 0 };
    char        *folder;
    rsd_err      rc;

    if (!rsi_st_is_index(name) && !rsi_torch_is_index(name))
        return rsi_files_open_held(files, store, path, flags, err);
    folder = rsi_arena_text(&mem, len || store ? path : ".", len ? len : !store);
    if (folder && len > 1)
        folder[len - 1] = '\0';
    rc = folder ? rsi_files_open_held(files, store, folder, flags, err) : RSD_E_NOMEM;
    if (!rc)
        files->index = rsi_arena_text(&files->mem, name, strlen(name));
    rsi_arena_release(&mem);
    return !folder || (!rc && !files->index) ? rsi_fail(err, RSD_E_NOMEM, "no memory for a path")
                                             : rc;
}

static rsd_err open_once(rsd_store *store, const char *path, uint32_t flags, rsd_ckpt *ckpt,
                         rsd_error *err)
{
    static rsd_err (*const open[])(rsd_ckpt *, rsd_error *) = {
        [RSD_FORMAT_DCP] = rsi_dcp_open,     [RSD_FORMAT_SAFETENSORS] = rsi_st_open,
        [RSD_FORMAT_TORCH] = rsi_torch_open, [RSD_FORMAT_RANKS] = rsi_ranks_open,
        [RSD_FORMAT_ZERO] = rsi_zero_open,
    };
    char  **names = NULL;
    size_t  n = 0;
    rsd_err rc = open_files(&ckpt->files, store, path, flags, err);

    if (rc)
        return rc;
    ckpt->files.salvage = ckpt->salvage;
    rc = rsi_detect(&ckpt->files, &ckpt->format, err);
    if (!rc && !ckpt->files.single) /* before the format enters another folder */
        rc = rsi_files_list(&ckpt->files, &names, &n, err);
    if (!rc && ckpt->alone && ckpt->format != RSD_FORMAT_DCP)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "rank %d has no metadata of its own here",
                      (int)ckpt->rank);
    if (!rc)
        rc = open[ckpt->format](ckpt, err);
    if (!rc)
        rc = rsi_beside(ckpt, names, n, err);
    if (!rc && ckpt->salvage)
        rc = take_stock(ckpt, err);
    if (!rc)
        rc = rsi_ckpt_sums_find(&ckpt->sums, &ckpt->files, ckpt->format == RSD_FORMAT_SAFETENSORS,
                                err);
    if (rc)
        rsi_while(err, rc, "checkpoint \"%s\"", path);
    return rc;
}

rsd_err rsi_gave_up(const char *path, rsd_error *err)
{
    return rsi_fail(err, RSD_E_MISMATCH,
                    "checkpoint \"%s\" was replaced while it was read, %d times in a row", path,
                    RSI_OPEN_TRIES);
}

static bool has_lost(const rsd_ckpt *ckpt)
{
    bool lost = ckpt->nlost > 0;

    for (size_t i = 0; i < ckpt->files.n; i++)
        lost = lost || ckpt->files.file[i]->missing;
    return lost;
}

rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err)
{
    const rsd_open_opts opts = { .size = sizeof(opts) };

    return rsi_ckpt_open_with(store, path, &opts, out, err);
}

rsd_err rsi_ckpt_open_with(rsd_store *store, const char *path, const rsd_open_opts *opts,
                           rsd_ckpt **out, rsd_error *err)
{
    for (int i = 0; i < RSI_OPEN_TRIES; i++) {
        rsd_ckpt *ckpt = rsi_calloc(1, sizeof(*ckpt));
        rsd_err   rc;
        bool      again;

        if (!ckpt)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
        ckpt->salvage = opts->salvage;
        ckpt->alone = opts->alone;
        ckpt->rank = opts->rank;
        rc = open_once(store, path, i ? RSD_HOLD_FILES : 0, ckpt, err);
        again = (rc || has_lost(ckpt)) && ckpt->files.held &&
                (rsi_store_replaced(ckpt->files.store) != RSD_HELD_CURRENT ||
                 rsi_files_republished(&ckpt->files));
        if (!rc && !again) {
            *out = ckpt;
            return RSD_OK;
        }
        rsi_ckpt_close(ckpt);
        if (!again)
            return rc;
    }
    return rsi_gave_up(path, err);
}

void rsi_ckpt_close(rsd_ckpt *ckpt)
{
    if (!ckpt)
        return;
    if (ckpt->ops)
        ckpt->ops->close(ckpt);
    rsi_ckpt_sums_close(&ckpt->sums);
    rsi_files_close(&ckpt->files);
    rsi_arena_release(&ckpt->mem);
    rsi_free(ckpt);
}
