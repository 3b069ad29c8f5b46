/* SPDX-License-Identifier: Apache-2.0 */
/* The temporary tree of a checkpoint, the files that complete it, and its name. Next: outcome.c. */
#include "commit/commit.h"
#include "base/mem.h"
#include "commit/replace.h"

#include <string.h>

bool rsi_commit_leads(const rsi_commit *c)
{
    return c->rank <= 0;
}

rsd_err rsi_commit_agree(const rsi_commit *c, rsd_err rc, rsd_error *err)
{
    return c->comm ? rsi_agree(c->comm, rc, err) : rc;
}

rsd_err rsi_commit_want_sums(rsi_commit *c, rsd_choice checksum, rsd_error *err)
{
    if (checksum == RSD_ALWAYS && !rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    c->flush.sums = checksum != RSD_NEVER && rsi_sums_available() ? &c->sums : NULL;
    return RSD_OK;
}

rsd_err rsi_commit_store(rsi_commit *c, bool create, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (c->store) {
        c->name = rsi_strdup(c->path);
    } else {
        rc = rsi_store_open_beside(c->path, create, &c->store, &c->name, err);
        c->own_store = !rc;
    }
    return rc || c->name ? rc : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
}

uint32_t rsi_commit_tree_flags(const rsi_commit *c)
{
    return (c->one_file ? RSD_TREE_FILE : 0) | (c->overwrite ? RSD_TREE_OVERWRITE : 0);
}

/* The name of a one-file checkpoint's checksum file; for rsi_free. */
static char *side_name(const rsi_commit *c)
{
    return rsi_name_behind(c->name, RSI_SUMS_NAME);
}

rsd_err rsi_commit_may_replace(const rsi_commit *c, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    char   *side;

    if (c->overwrite)
        rc = rsi_replace_check(c->store, c->name, c->one_file, err);
    if (rc || !c->one_file)
        return rc;
    side = side_name(c);
    rc = side ? rsi_replace_check(c->store, side, true, err)
              : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    rsi_free(side);
    return rc;
}

/* Rank 0 creates the tree; the others attach to it under the name it sends. */
rsd_err rsi_commit_open(rsi_commit *c, rsd_error *err)
{
    char    temp[4096] = { 0 };
    rsd_err rc = RSD_OK;

    if (rsi_commit_leads(c)) {
        rc = rsi_commit_may_replace(c, err);
        if (!rc)
            rc = rsi_tree_begin(c->store, c->name, rsi_commit_tree_flags(c), &c->tree, err);
        if (!rc && strlen(c->tree->temp) >= sizeof(temp))
            rc = rsi_fail(err, RSD_E_UNSUPPORTED, "the temporary name is too long");
        if (!rc)
            memcpy(temp, c->tree->temp, strlen(c->tree->temp));
    }
    rc = rsi_commit_agree(c, rc, err);
    if (!rc && c->comm)
        rc = rsi_broadcast(c->comm, 0, temp, sizeof(temp), err);
    if (rc)
        return rc;
    if (!c->tree)
        rc = rsi_tree_attach(c->store, temp, &c->tree, err);
    rc = rsi_commit_agree(c, rc, err);
    c->flush.top = rc ? NULL : c->tree->temp;
    return rc;
}

/* Writes the checksum file of a one-file checkpoint without publishing it. */
static rsd_err write_side(rsi_commit *c, const char *side, rsi_tree **tree, rsd_error *err)
{
    rsi_write_opts flush = c->flush;
    rsd_err rc = rsi_tree_begin(c->store, side, RSD_TREE_FILE | RSD_TREE_OVERWRITE, tree, err);

    if (rc)
        return rc;
    flush.top = (*tree)->temp;
    flush.file = rsi_last_part(c->name);
    return rsi_write_sums(&c->image, c->store, &flush, 0, NULL, err);
}

/* Removes the checksum file of the file to be replaced; it may not exist. */
static rsd_err remove_side(const rsi_commit *c, const char *side, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = rsi_store_remove(c->store, side, &why);

    if (rc == RSD_E_NOTFOUND)
        return RSD_OK;
    if (rc && err)
        *err = why;
    return rc;
}

/* A file and its checksum file can't change at once: for a moment there is no checksum file, never
 * a wrong one. Meanwhile other writers are locked out and readers wait (file_hold.c). */
static rsd_err publish_file(rsi_commit *c, rsd_error *err)
{
    char     *side = side_name(c);
    rsi_tree *tree = NULL;
    void     *lock = NULL;
    rsd_err   rc = side ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");

    if (!rc && c->flush.sums)
        rc = write_side(c, side, &tree, err);
    if (!rc)
        rc = rsi_store_lock(c->store, c->name, &lock, err);
    if (!rc)
        rc = remove_side(c, side, err);
    if (!rc) {
        rc = rsi_tree_commit(c->tree, err); /* C5 */
        c->tree = rc ? c->tree : NULL;
    }
    if (!rc && tree) {
        rc = rsi_tree_commit(tree, err);
        tree = rc ? tree : NULL;
        if (rc)
            rsi_while(err, rc, "the checkpoint was published, but without its checksums");
    }
    rsi_store_unlock(c->store, lock);
    rsi_tree_abort(tree, NULL);
    rsi_free(side);
    return rc;
}

rsd_err rsi_commit_close(rsi_commit *c, rsd_error *err)
{
    rsd_err rc = rsi_write_metadata(&c->image, c->store, &c->flush, &c->metadata, err);

    if (!rc && c->flush.sums && !c->one_file)
        rc = rsi_write_sums(&c->image, c->store, &c->flush, c->metadata, RSI_SUMS_NAME, err);
    return rc;
}

rsd_err rsi_commit_name(rsi_commit *c, rsd_error *err)
{
    rsd_err rc = rsi_commit_may_replace(c, err); /* it may have changed since the start */

    if (rc)
        return rc;
    if (c->one_file)
        return publish_file(c, err);
    rc = rsi_tree_commit(c->tree, err); /* C5: every rank has confirmed all earlier steps */
    c->tree = rc ? c->tree : NULL;
    return rc;
}

rsd_err rsi_commit_end(rsi_commit *c, rsd_err rc, rsd_error *err)
{
    rsi_tree_abort(c->tree, NULL); /* unpublished work of rank 0; other ranks only detach */
    if (rc)
        rsi_while(err, rc, "checkpoint \"%s\"", c->path);
    rsi_free(c->name);
    if (c->own_store)
        rsd_store_close(c->store);
    rsi_sums_release(&c->sums);
    return rc;
}
