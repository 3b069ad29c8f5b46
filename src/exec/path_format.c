/* SPDX-License-Identifier: Apache-2.0 */
/* Formats by the ends of paths. */
#include "exec/path_format.h"

#include <string.h>

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);

    return n > k && strcmp(path + n - k, end) == 0;
}

bool rsi_path_format(const char *path, rsd_format *format)
{
    if (ends_in(path, ".safetensors")) {
        *format = *format ? *format : RSD_FORMAT_SAFETENSORS;
        return true;
    }
    if (ends_in(path, ".pt") || ends_in(path, ".pth") || ends_in(path, ".bin")) {
        *format = *format ? *format : RSD_FORMAT_TORCH;
        return true;
    }
    *format = *format ? *format : RSD_FORMAT_DCP;
    return *format == RSD_FORMAT_TORCH;
}
