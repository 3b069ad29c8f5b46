/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a whole checkpoint: compares the metadata with the files. */
#ifndef RSI_VERIFY_H
#define RSI_VERIFY_H

#include "format/ckpt.h"

/* rsd_ckpt_verify */
rsd_err rsi_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                   void (*damage)(void *arg, const rsd_error *what), void *arg, size_t *count,
                   rsd_error *err);

#endif
