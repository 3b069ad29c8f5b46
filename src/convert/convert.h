/* SPDX-License-Identifier: Apache-2.0 */
/* Converts a checkpoint into another one, in one pass and in bounded memory. */
#ifndef RSI_CONVERT_H
#define RSI_CONVERT_H

#include "comm/comm.h"
#include "format/ckpt.h"

/* rsd_convert; the arguments have been checked. */
rsd_err rsi_convert(rsd_ckpt *source, const char *path, rsd_comm *comm,
                    const rsd_convert_opts *opts, rsd_error *err);

#endif
