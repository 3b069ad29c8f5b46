/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a Hugging Face folder of torch.save files: pytorch_model.bin, or several files, of which an
 * index such as pytorch_model.bin.index.json gives the file of each tensor. A file may contain more
 * than the index lists, but every listed tensor must exist. */
#include "base/text.h"
#include "format/st_index.h"
#include "format/torch_core.h"
#include "format/weights.h"

#include <string.h>

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

static rsd_err add_files(rsd_ckpt *ckpt, char *const *names, size_t n, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        rc = rsi_torch_add_file(ckpt, names[i], err);
        if (!rc)
            rc = rsi_torch_flatten(ckpt->self, (uint32_t)i, NULL, rsi_torch_add, ckpt->self, err);
    }
    return rc;
}

static rsd_err open_indexed(rsd_ckpt *ckpt, const char *name, rsd_error *err)
{
    rsi_st_index index = { 0 };
    uint32_t     number;
    rsd_err      rc = rsi_st_index_load(&ckpt->files, name, &number, &index, err);

    if (!rc)
        rc = add_files(ckpt, (char *const *)index.file, index.nfiles, err);
    if (!rc)
        rc = check_index(ckpt, &index, err);
    rsi_st_index_release(&index);
    return rc;
}

rsd_err rsi_bins_open(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_torch  *self;
    const char *index = NULL;
    char      **names;
    size_t      n;
    rsd_err     rc = rsi_files_list(&ckpt->files, &names, &n, err);

    if (!rc)
        rc = rsi_st_index_choose(&ckpt->files, rsi_torch_is_index, "pytorch_model.bin.index.json",
                                 &index, err);
    if (!rc)
        rc = rsi_torch_begin(ckpt, &self, err);
    if (!rc && !index)
        rc = rsi_weights_choose(names, n, ".bin", &ckpt->mem, &names, &n, &ckpt->kind, err);
    if (!rc)
        rc = index ? open_indexed(ckpt, index, err) : add_files(ckpt, names, n, err);
    if (!rc)
        rc = rsi_torch_end(ckpt, err);
    ckpt->kind = "Hugging Face folder";
    return rc;
}
