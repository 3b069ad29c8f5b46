/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files that this library can't read, of 6 bits or of more than 8
 * dimensions: opaque objects of the checkpoint, which name their dtype, shape, bytes and file. */
#include "format/st_listed.h"
#include "base/map.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

rsd_err rsi_st_listed_add(rsi_st_listed *all, const rsi_st_header *header, uint32_t file,
                          rsd_error *err)
{
    for (size_t i = 0; i < header->nlisted; i++) {
        const rsi_st_tensor *tensor = &header->tensor[header->ntensors + i];
        uint64_t             at = all->n;
        bool                 was = false;

        if (!rsi_grow(&all->at, all->n, &all->cap, sizeof(all->at[0])) ||
            !rsi_map_add(&all->names, tensor->name.text, tensor->name.len, &at, &was))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", all->n + 1);
        if (was)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "tensor \"%s\" is in several files, and its dtype or number of "
                            "dimensions is not supported",
                            tensor->name.text);
        all->at[all->n++] = (rsi_st_listed_one){ .header = header, .tensor = tensor, .file = file };
    }
    return RSD_OK;
}

rsd_err rsi_st_listed_value(const rsi_st_listed *all, size_t i, const char *path, rsd_values *owner,
                            const rsd_value **out, rsd_error *err)
{
    const rsi_st_listed_one *one = &all->at[i];
    const size_t             cap = 22 * (size_t)one->tensor->ndim + strlen(path) + 64;
    char                    *text = rsi_calloc(cap, 1);
    size_t                   len;
    rsd_err                  rc;

    if (!text)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the text of an object");
    rsi_st_describe(one->header, one->tensor, text, cap);
    len = strlen(text);
    snprintf(text + len, cap - len, ", %" PRIu64 " bytes in %s",
             one->tensor->end - one->tensor->begin, path);
    rc = rsd_value_create_bytes(owner, RSD_VALUE_OPAQUE, text, strlen(text), out, err);
    rsi_free(text);
    return rc;
}

void rsi_st_listed_span(const rsi_st_listed *all, size_t i, rsi_item *out)
{
    const rsi_st_listed_one *one = &all->at[i];

    *out = (rsi_item){ .file = one->file,
                       .off = one->header->data_start + one->tensor->begin,
                       .len = one->tensor->end - one->tensor->begin,
                       .object = one->tensor->name.text };
}

void rsi_st_listed_release(rsi_st_listed *all)
{
    rsi_free(all->at);
    rsi_map_release(&all->names);
    *all = (rsi_st_listed){ 0 };
}
