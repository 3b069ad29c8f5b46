/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the format and lets it open the files. */
#include "format/open.h"
#include "base/mem.h"
#include "format/detect.h"

rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err)
{
    static rsd_err (*const open[])(rsd_ckpt *, rsd_error *) = {
        [RSD_FORMAT_DCP] = rsi_dcp_open,
        [RSD_FORMAT_SAFETENSORS] = rsi_st_open,
        [RSD_FORMAT_TORCH] = rsi_torch_open,
    };
    rsd_ckpt *ckpt = rsi_calloc(1, sizeof(*ckpt));
    rsd_err   rc;

    if (!ckpt)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    rc = rsi_files_open(&ckpt->files, store, path, err);
    if (!rc) {
        rc = rsi_detect(&ckpt->files, &ckpt->format, err);
        if (!rc)
            rc = open[ckpt->format](ckpt, err);
        if (!rc)
            rc = rsi_guard_find(&ckpt->guard, &ckpt->files, ckpt->format == RSD_FORMAT_SAFETENSORS,
                                err);
        if (rc)
            rsi_while(err, rc, "checkpoint \"%s\"", path);
    }
    if (rc) {
        rsi_ckpt_close(ckpt);
        return rc;
    }
    *out = ckpt;
    return RSD_OK;
}

void rsi_ckpt_close(rsd_ckpt *ckpt)
{
    if (!ckpt)
        return;
    if (ckpt->ops)
        ckpt->ops->close(ckpt);
    rsi_guard_close(&ckpt->guard);
    rsi_files_close(&ckpt->files);
    rsi_arena_release(&ckpt->mem);
    rsi_free(ckpt);
}
