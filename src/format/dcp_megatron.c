/* SPDX-License-Identifier: Apache-2.0 */
/* Describes DCP checkpoints of Megatron-Core. `torch_dist` has common.pt and metadata.json beside
 * the DCP files; common.pt names the form of the optimizer's state. `fsdp_dtensor` is plain DCP
 * with the trainer's arguments as an object. Nothing here is needed to read tensors, so a common.pt
 * that is missing or can't be read is no failure: the description says so, and verify reports it.
 */
#include "base/mem.h"
#include "base/text.h"
#include "format/dcp.h"
#include "format/torch_archive.h"

#include <inttypes.h>
#include <string.h>

#define COMMON_MOST ((uint64_t)64 << 20) /* bytes of a common.pt to look into */
enum { CONFIG_MOST = 4096 };             /* bytes of a metadata.json to look into */

/* What the forms of the optimizer's state mean for a reader. */
static const char *const forms[][2] = {
    { "fully_sharded_model_space", "whole tensors" },
    { "fully_reshardable", "whole tensors" },
    { "fsdp_dtensor", "whole tensors" },
    { "dp_reshardable", "flat buckets that lack the parameters' names, left as stored" },
    { "fully_sharded_bucket_space",
      "flat buckets that lack the parameters' names, left as stored" },
    { "dp_zero_gather_scatter", "flat buckets that lack the parameters' names, left as stored" },
};

static const char *text_at(const rsd_value *v, const char *first, const char *second)
{
    v = v ? rsd_value_get(v, first) : NULL;
    v = v && second ? rsd_value_get(v, second) : v;
    return v && rsd_value_type_of(v) == RSD_VALUE_STR ? rsd_value_bytes(v, NULL) : NULL;
}

static void describe_common(const rsd_value *root, rsi_text *text)
{
    const rsd_value *iteration = rsd_value_get(root, "iteration");
    const char      *form = text_at(root, "content_metadata", "distrib_optim_sharding_type");

    if (iteration && rsd_value_type_of(iteration) == RSD_VALUE_INT)
        rsi_text_add(text, ", iteration %" PRId64, rsd_value_int(iteration));
    if (!form)
        form = text_at(root, "optimizer", "param_state_sharding_type");
    if (!form || strspn(form, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(form))
        return;
    rsi_text_add(text, "; optimizer state %.64s", form);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(form, forms[i][0]) == 0)
            rsi_text_add(text, ": %s", forms[i][1]);
}

static rsd_err look_into(rsi_file *file, rsi_text *text, rsd_error *err)
{
    const rsi_source source = rsi_files_source_of(file, "common.pt");
    rsi_arena        mem = { 0 };
    rsd_values      *values = NULL;
    rsi_zip          zip = { 0 };
    rsi_value_pickle pickle;
    rsd_err          rc = rsd_values_create(&values, err);

    if (!rc)
        rc = rsi_zip_read(&source, &mem, &zip, err);
    if (!rc)
        rc = rsi_torch_value(&source, &zip, values, &pickle, err);
    if (!rc)
        describe_common(pickle.root, text);
    rsd_values_free(values);
    rsi_arena_release(&mem);
    return rc;
}

static bool has_item(const rsi_dcp_meta *meta, const char *name)
{
    for (size_t i = 0; i < meta->nitems; i++)
        if (strcmp(meta->item[i].name, name) == 0)
            return true;
    return false;
}

/* True if metadata.json is Megatron-Core's: it names the backend of the folder. */
static bool is_torch_dist(const rsi_files *files)
{
    char      text[CONFIG_MOST + 1] = "";
    rsi_file *file = NULL;
    bool      is = false;

    if (rsi_files_open_beside(files, "metadata.json", false, &file, NULL) == RSD_OK &&
        file->size <= CONFIG_MOST &&
        rsi_file_read(file, 0, text, (size_t)file->size, NULL) == RSD_OK)
        is = strstr(text, "\"sharded_backend\"") && strstr(text, "\"torch_dist\"");
    rsi_file_close(file, NULL);
    return is;
}

/* Looks into common.pt; `why` says what is wrong with it. */
static rsd_err describe_file(rsd_ckpt *ckpt, rsi_text *text, rsd_error *why)
{
    rsi_file *file = NULL;
    rsd_err   rc = rsi_files_open_beside(&ckpt->files, "common.pt", false, &file, why);

    if (!rc && file->size <= COMMON_MOST)
        rc = look_into(file, text, why);
    if (rc)
        rsi_text_add(text, ", common.pt can't be read");
    rsi_file_close(file, NULL);
    return rc ? rsi_while(why, rc, "file \"common.pt\"") : RSD_OK;
}

rsd_err rsi_dcp_describe(rsd_ckpt *ckpt, rsd_error *err)
{
    const rsi_dcp *dcp = ckpt->self;
    char         **names, buf[320];
    size_t         n;
    bool           common = false, config = false;
    rsi_text       text = rsi_text_begin(buf, sizeof(buf));
    rsd_error      why = { .rank = -1 };
    rsd_err        rc = rsi_files_list(&ckpt->files, &names, &n, err);

    for (size_t i = 0; i < n && !rc; i++) {
        common = common || strcmp(names[i], "common.pt") == 0;
        config = config || strcmp(names[i], "metadata.json") == 0;
    }
    if (rc)
        return rc;
    if (!common && has_item(dcp->meta, "args") && has_item(dcp->meta, "checkpoint_version"))
        ckpt->kind = "Megatron-Core fsdp_dtensor";
    if (!config || (!common && !is_torch_dist(&ckpt->files)))
        return RSD_OK;
    rsi_text_add(&text, "Megatron-Core torch_dist%s", common ? "" : ", common.pt is missing");
    rc = common ? describe_file(ckpt, &text, &why)
                : rsi_fail(&why, RSD_E_NOTFOUND, "file \"common.pt\" is missing");
    ckpt->kind = rsi_arena_text(&ckpt->mem, buf, strlen(buf));
    ckpt->broken = rc ? rsi_arena_array(&ckpt->mem, 1, sizeof(ckpt->broken[0])) : NULL;
    if (!ckpt->kind || (rc && !ckpt->broken))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a description");
    if (rc)
        ckpt->broken[ckpt->nbroken++] = why;
    return RSD_OK;
}
