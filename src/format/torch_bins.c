/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a Hugging Face folder of torch.save files: an index such as pytorch_model.bin.index.json
 * gives the file of each tensor. A file may contain more than the index lists, but every listed
 * tensor must exist. */
#include "base/text.h"
#include "format/st_index.h"
#include "format/torch_core.h"

#include <string.h>

static rsd_err find_index(rsd_ckpt *ckpt, const char **out, rsd_error *err)
{
    char  **names;
    size_t  n;
    rsd_err rc = rsi_files_list(&ckpt->files, &names, &n, err);

    *out = NULL;
    for (size_t i = 0; i < n && !rc; i++) {
        if (!rsi_torch_is_index(names[i]))
            continue;
        if (*out)
            rc = rsi_fail(
                err, RSD_E_UNSUPPORTED,
                "it has two indexes, \"%s\" and \"%s\": put the files of one into a folder", *out,
                names[i]);
        *out = names[i];
    }
    return rc;
}

static rsd_err check_index(const rsd_ckpt *ckpt, const rsi_st_index *index, rsd_error *err)
{
    const rsi_torch *self = ckpt->self;

    for (size_t i = 0; i < index->nweights; i++) {
        const rsi_st_weight *w = &index->weight[i];
        uint64_t             number;
        bool there = rsi_map_get(&self->names, w->name.text, w->name.len, &number) &&
                     number < self->tensors.n;

        if (!there || self->tensors.at[number].file != w->file)
            return rsi_fail(err, RSD_E_FORMAT,
                            "the index says that tensor \"%s\" is in file \"%s\", but it is not",
                            w->name.text, index->file[w->file]);
    }
    return RSD_OK;
}

bool rsi_torch_is_index(const char *name)
{
    const char *at = strstr(name, ".bin.index.");

    return at && rsi_text_ends(at, ".json");
}

rsd_err rsi_bins_open(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_torch   *self = NULL;
    rsi_st_index index = { 0 };
    const char  *name = NULL;
    uint32_t     number;
    rsd_err      rc = find_index(ckpt, &name, err);

    if (!rc)
        rc = rsi_torch_begin(ckpt, &self, err);
    if (!rc)
        rc = rsi_st_index_load(&ckpt->files, name, &number, &index, err);
    for (size_t i = 0; i < index.nfiles && !rc; i++) {
        rc = rsi_torch_add_file(ckpt, index.file[i], err);
        if (!rc)
            rc = rsi_torch_flatten(self, (uint32_t)i, NULL, rsi_torch_add, self, err);
    }
    if (!rc)
        rc = check_index(ckpt, &index, err);
    if (!rc)
        rc = rsi_torch_end(ckpt, err);
    ckpt->kind = "Hugging Face folder";
    rsi_st_index_release(&index);
    return rc;
}
