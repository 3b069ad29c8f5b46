/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by reading, joining and writing DCP metadata. dcp_meta.h describes the flow. */
#include "base/mem.h"
#include "format/dcp_meta.h"

void rsi_dcp_meta_free(rsi_dcp_meta *meta)
{
    if (!meta)
        return;
    rsi_arena_release(&meta->mem);
    rsi_free(meta);
}

rsd_err rsi_dcp_file_check(const char *name, size_t len, rsd_error *err)
{
    const char *why = NULL;

    if (len == 0)
        why = "it is empty";
    else if (memchr(name, '\0', len))
        why = "it contains a NUL";
    else if (name[0] == '/')
        why = "it is absolute";
    else if (memchr(name, '/', len))
        why = "it has more than one component";
    else if ((len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
        why = "it is a directory";
    else if (len > 255)
        why = "it is longer than 255 bytes";
    if (why)
        return rsi_fail(err, RSD_E_FORMAT, "the file name \"%s\" is refused: %s", name, why);
    return RSD_OK;
}
