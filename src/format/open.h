/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint of any format. */
#ifndef RSI_OPEN_H
#define RSI_OPEN_H

#include "format/ckpt.h"

enum { RSI_OPEN_TRIES = 5 }; /* when a checkpoint is replaced while being opened or loaded */

/* `store` NULL: local files. If another checkpoint is published under the name before all files are
 * open, starts over with that one; RSD_E_MISMATCH if that keeps happening. */
rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err);
rsd_err rsi_ckpt_open_with(rsd_store *store, const char *path, const rsd_open_opts *opts,
                           rsd_ckpt **out, rsd_error *err);
void    rsi_ckpt_close(rsd_ckpt *ckpt); /* NULL is fine */

/* True if an error can come from a checkpoint being replaced: one of its files is gone or has
 * changed. */
static inline bool rsi_is_gone(rsd_err rc)
{
    return rc == RSD_E_NOTFOUND || rc == RSD_E_MISMATCH;
}
/* Reports that the last try failed too. */
rsd_err rsi_gave_up(const char *path, rsd_error *err);

#endif
