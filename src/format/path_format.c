/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the ends of paths to formats. */
#include "format/path_format.h"
#include "base/text.h"

#include <string.h>

bool rsi_path_format(const char *path, rsd_format *format)
{
    if (rsi_text_ends(path, ".safetensors")) {
        *format = *format ? *format : RSD_FORMAT_SAFETENSORS;
        return true;
    }
    if (rsi_text_ends(path, ".pt") || rsi_text_ends(path, ".pth") || rsi_text_ends(path, ".bin")) {
        *format = *format ? *format : RSD_FORMAT_TORCH;
        return true;
    }
    *format = *format ? *format : RSD_FORMAT_DCP;
    return *format == RSD_FORMAT_TORCH;
}
