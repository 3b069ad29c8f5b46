/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opts.h"

#include <string.h>

#define SIZE_MOST ((size_t)64 << 10) /* a size that nobody set can be any number */

rsd_err rsi_opts_take(void *known, size_t bytes, const void *opts, const char *name, rsd_error *err)
{
    const unsigned char *from = opts;
    size_t               size;

    if (!opts)
        return RSD_OK;
    memcpy(&size, opts, sizeof(size));
    if (size < sizeof(size) || size > SIZE_MOST)
        return rsi_fail(err, RSD_E_INVALID, "%s.size is %zu: set it to sizeof(%s)", name, size,
                        name);
    for (size_t i = bytes; i < size; i++)
        if (from[i])
            return rsi_fail(err, RSD_E_INVALID,
                            "%s has %zu bytes, %zu are known to reshard %s, and what is unknown is "
                            "not zero",
                            name, size, bytes, rsd_version());
    memcpy(known, opts, size < bytes ? size : bytes);
    memcpy(known, &bytes, sizeof(bytes));
    return RSD_OK;
}
