/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of __metadata__ of one or several safetensors files. */
#include "format/st_meta.h"
#include "format/st_dcp.h"

#include <string.h>

static bool is_own_key(const char *key)
{
    return strcmp(key, RSI_ST_DCP_INFO) == 0 || strcmp(key, RSI_ST_DCP_VERSION_KEY) == 0;
}

rsd_err rsi_st_meta_add(rsd_ckpt *ckpt, const rsi_st_header *header, rsi_map *known, rsd_error *err)
{
    for (size_t i = 0; i < header->nmeta; i++) {
        const rsi_st_meta *line = &header->meta[i];
        uint64_t           at = ckpt->nmeta;
        bool               was;
        rsd_meta          *first;

        if (is_own_key(line->key.text))
            continue;
        if (!rsi_map_add(known, line->key.text, line->key.len, &at, &was))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for metadata");
        first = &ckpt->meta[at];
        if (was) {
            first->differs = first->differs || first->value_len != line->value_len ||
                             memcmp(first->value, line->value, line->value_len) != 0;
            continue;
        }
        *first =
            (rsd_meta){ .key = line->key.text, .value = line->value, .value_len = line->value_len };
        ckpt->nmeta++;
    }
    return RSD_OK;
}
