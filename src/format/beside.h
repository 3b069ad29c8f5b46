/* SPDX-License-Identifier: Apache-2.0 */
/* What else lies in the folder of an opened checkpoint. */
#ifndef RSI_BESIDE_H
#define RSI_BESIDE_H

#include "format/ckpt.h"

/* Adds to ckpt->kind which other checkpoints there are among the n names of its folder, so that a
 * conversion of one of them does not pass for all. */
rsd_err rsi_beside(rsd_ckpt *ckpt, char *const *names, size_t n, rsd_error *err);

#endif
