/* SPDX-License-Identifier: Apache-2.0 */
/* rsd_save: an image of the state, its files, then the name (C1 to C5). */
#include "base/mem.h"
#include "exec/flush.h"

#include <string.h>

static rsd_save_opts known_opts(const rsd_save_opts *opts)
{
    rsd_save_opts known = { .size = sizeof(known) };

    if (opts)
        memcpy(&known, opts, opts->size < sizeof(known) ? opts->size : sizeof(known));
    return known;
}

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);

    return n > k && strcmp(path + n - k, end) == 0;
}

/* What the end of a path says: one file of a kind, or a folder. */
static bool names_a_file(const char *path, rsd_format *format)
{
    if (ends_in(path, ".safetensors")) {
        *format = *format ? *format : RSD_FORMAT_SAFETENSORS;
        return true;
    }
    if (ends_in(path, ".pt") || ends_in(path, ".pth") || ends_in(path, ".bin")) {
        *format = *format ? *format : RSD_FORMAT_TORCH;
        return true;
    }
    *format = *format ? *format : RSD_FORMAT_DCP;
    return *format == RSD_FORMAT_TORCH;
}

/* Writes into the temporary tree and publishes it; on failure the tree is gone. */
static rsd_err write_tree(rsi_image *image, const rsd_state *state, rsd_store *store,
                          rsi_tree *tree, const rsd_save_opts *opts, rsd_error *err)
{
    rsi_flush_opts flush = { .sync = opts->sync != RSD_NEVER,
                             .threads = opts->threads,
                             .top = tree->temp,
                             .on_progress = opts->on_progress,
                             .arg = opts->arg };
    rsd_err        rc = rsi_flush_files(image, state, -1, store, &flush, err);

    if (!rc)
        rc = rsi_flush_metadata(image, store, &flush, err); /* C4 */
    if (!rc)
        rc = rsi_tree_commit(tree, err); /* C5 */
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}

rsd_err rsd_save(const char *path, const rsd_state *state, const rsd_save_opts *opts,
                 rsd_error *err)
{
    rsd_save_opts  known = known_opts(opts);
    rsi_image_spec spec = { .format = known.format,
                            .shard_size = known.shard_size,
                            .distributed = known.distributed,
                            .transform = known.transform };
    rsd_store     *store = known.store;
    char          *name = NULL;
    rsi_image      image;
    rsi_tree      *tree;
    rsd_err        rc;

    if (!path || !*path || !state)
        return rsi_fail(err, RSD_E_INVALID, "a path and a state are needed");
    spec.one_file = names_a_file(path, &spec.format);
    rc = rsi_image_make(&image, state, &spec, err);
    if (rc)
        return rsi_while(err, rc, "checkpoint \"%s\"", path);
    if (!store)
        rc = rsi_store_open_beside(path, true, &store, &name, err);
    if (!rc) {
        rc = rsi_tree_begin(store, name ? name : path,
                            (spec.one_file ? RSD_TREE_FILE : 0) |
                                (known.overwrite ? RSD_TREE_OVERWRITE : 0),
                            &tree, err);
        if (!rc)
            rc = write_tree(&image, state, store, tree, &known, err);
        if (rc)
            rsi_while(err, rc, "checkpoint \"%s\"", path);
    }
    rsi_free(name);
    if (!known.store)
        rsd_store_free(store);
    rsi_image_release(&image);
    return rc;
}
