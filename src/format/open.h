/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint of any format. */
#ifndef RSI_OPEN_H
#define RSI_OPEN_H

#include "format/ckpt.h"

enum { RSI_OPEN_TRIES = 5 }; /* of a checkpoint that is replaced while it is opened or loaded */

/* `store` NULL: local files. Where another one is published under the name before all files are
 * open, it is begun again with that; RSD_E_MISMATCH if that happens again and again. */
rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err);
/* `salvage`: files that are missing or short are no reason to fail; see rsd_open_opts. */
rsd_err rsi_ckpt_open_with(rsd_store *store, const char *path, bool salvage, rsd_ckpt **out,
                           rsd_error *err);
void    rsi_ckpt_close(rsd_ckpt *ckpt); /* NULL is fine */

/* True if an error can come from a checkpoint that is being replaced: a file of it is gone, or is
 * another one. */
static inline bool rsi_is_gone(rsd_err rc)
{
    return rc == RSD_E_NOTFOUND || rc == RSD_E_MISMATCH;
}
/* Says that the last try failed too. */
rsd_err rsi_gave_up(const char *path, rsd_error *err);

#endif
