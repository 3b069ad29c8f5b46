/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the format and lets it open the files. */
#include "format/open.h"
#include "base/mem.h"
#include "format/detect.h"

static rsd_err open_once(rsd_store *store, const char *path, uint32_t flags, rsd_ckpt *ckpt,
                         rsd_error *err)
{
    static rsd_err (*const open[])(rsd_ckpt *, rsd_error *) = {
        [RSD_FORMAT_DCP] = rsi_dcp_open,
        [RSD_FORMAT_SAFETENSORS] = rsi_st_open,
        [RSD_FORMAT_TORCH] = rsi_torch_open,
    };
    rsd_err rc = rsi_files_open_held(&ckpt->files, store, path, flags, err);

    if (rc)
        return rc;
    rc = rsi_detect(&ckpt->files, &ckpt->format, err);
    if (!rc)
        rc = open[ckpt->format](ckpt, err);
    if (!rc)
        rc =
            rsi_guard_find(&ckpt->guard, &ckpt->files, ckpt->format == RSD_FORMAT_SAFETENSORS, err);
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

rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err)
{
    for (int i = 0; i < RSI_OPEN_TRIES; i++) {
        rsd_ckpt *ckpt = rsi_calloc(1, sizeof(*ckpt));
        rsd_err   rc;
        bool      again;

        if (!ckpt)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
        rc = open_once(store, path, i ? RSD_HOLD_FILES : 0, ckpt, err);
        if (!rc) {
            *out = ckpt;
            return RSD_OK;
        }
        again = ckpt->files.held && rsi_store_replaced(ckpt->files.store) != RSD_HELD_CURRENT;
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
    rsi_guard_close(&ckpt->guard);
    rsi_files_close(&ckpt->files);
    rsi_arena_release(&ckpt->mem);
    rsi_free(ckpt);
}
