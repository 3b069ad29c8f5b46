/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a path says about the checkpoint that is to be written there. */
#ifndef RSI_PATH_FORMAT_H
#define RSI_PATH_FORMAT_H

#include "base/error.h"

/* True: one file, else a folder. *format AUTO becomes what the path says; another stays. */
bool rsi_path_format(const char *path, rsd_format *format);

#endif
