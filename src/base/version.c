/* SPDX-License-Identifier: Apache-2.0 */
/* The library's version. */
#include <reshard/reshard.h>

#define TEXT_OF(x)      #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

const char *rsd_version(void)
{
    return DOTTED(RSD_VERSION_MAJOR, RSD_VERSION_MINOR, RSD_VERSION_PATCH);
}

int rsd_version_number(void)
{
    return RSD_VERSION_NUMBER;
}
