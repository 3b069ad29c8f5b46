/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's reads on all ranks, each with its own list, from a checkpoint that each has opened.
 * read_once.c does what several want, fetch_all.c the rest. load.c is the same for a state, and
 * opens the checkpoint too. */
#include "load/read_together.h"
#include "base/digest.h"
#include "comm/facts.h"
#include "load/read_once.h"

#include <string.h>

static uint64_t add_text(uint64_t digest, const char *text)
{
    return rsi_digest(digest, text, strlen(text));
}

/* Differs between checkpoints that ranks must not read for each other: their files and tensors. */
static uint64_t identity(const rsd_ckpt *ckpt)
{
    uint64_t digest = ckpt->ntensors;

    for (size_t i = 0; i < ckpt->files.n; i++) {
        const rsi_file *file = ckpt->files.file[i];
        const uint64_t  facts[] = { file->size, file->version };

        digest = add_text(digest, rsi_files_name(&ckpt->files, (uint32_t)i));
        digest = rsi_digest(digest, facts, sizeof(facts));
    }
    for (size_t t = 0; t < ckpt->ntensors; t++) {
        rsd_tensor_info info;

        ckpt->ops->tensor(ckpt, t, &info);
        digest = add_text(digest, info.name);
        digest = rsi_digest(digest, info.shape, (size_t)info.ndim * sizeof(info.shape[0]));
        digest = rsi_digest(digest, &info.chunks, sizeof(info.chunks));
    }
    return digest;
}

rsd_err rsi_read_together(rsd_ckpt *ckpt, rsd_comm *comm, size_t n, const rsd_read *reads,
                          const rsd_read_opts *opts, rsd_error *err)
{
    rsd_choice once = opts->verify == RSD_ALWAYS ? RSD_NEVER : RSD_DEFAULT;
    bool       same = true, go = true;
    rsi_reads  list;
    rsd_err    rc = rsi_reads_take(&list, ckpt, n, reads, err);

    rc = rsi_same_digest(comm, identity(ckpt), rc, &same, err);
    if (!rc && !same)
        rc = rsi_fail(err, RSD_E_MISMATCH, "the ranks have different checkpoints open");
    if (!rc)
        rc = rsi_hosts_find(comm, err);
    if (rc)
        goto out;
    rc = rsi_read_once(comm, ckpt, list.want, &list.n, once, opts, &go, err);
    if (go && !rc && list.n)
        rc = rsi_fetch_all(ckpt, list.want, list.n, opts, err);
    rc = rsi_agree(comm, rsi_reads_ended(ckpt, rc, err), err);
out:
    rsi_reads_release(&list);
    return rc;
}
