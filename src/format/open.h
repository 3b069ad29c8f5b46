/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint of any format. */
#ifndef RSI_OPEN_H
#define RSI_OPEN_H

#include "format/ckpt.h"

/* `store` NULL: local files. */
rsd_err rsi_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err);
void    rsi_ckpt_close(rsd_ckpt *ckpt); /* NULL is fine */

#endif
