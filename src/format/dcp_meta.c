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

rsi_dcp_row rsi_dcp_row_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i)
{
    if (!t->column)
        return meta->row[t->first + i];
    return (rsi_dcp_row){ .file = (uint32_t)rsi_packed_at(&t->column[RSI_DCP_FILE], i),
                          .transforms = (uint32_t)rsi_packed_at(&t->column[RSI_DCP_TRANSFORMS], i),
                          .offset = rsi_packed_at(&t->column[RSI_DCP_OFFSET], i),
                          .length = rsi_packed_at(&t->column[RSI_DCP_LENGTH], i) };
}

void rsi_dcp_box_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i,
                    int64_t box[2 * RSD_MAX_NDIM])
{
    const int n = 2 * t->ndim;

    if (!t->column)
        memcpy(box, rsi_dcp_chunk_offset(meta, t, i), (size_t)n * sizeof(box[0]));
    for (int d = 0; t->column && d < n; d++)
        box[d] = rsi_packed_at(&t->column[RSI_DCP_BOX + d], i);
}
