/* SPDX-License-Identifier: Apache-2.0 */
/* Tells from the end of a path which kind of checkpoint to write there. */
#ifndef RSI_PATH_FORMAT_H
#define RSI_PATH_FORMAT_H

#include "base/error.h"

/* True: a single file, else a folder. An AUTO *format is set from the path; any other is kept. */
bool rsi_path_format(const char *path, rsd_format *format);

#endif
