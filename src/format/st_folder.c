/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the safetensors files in a folder without an index belong together. */
#include "format/st_folder.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static bool is_safetensors(const char *name)
{
    return rsi_text_ends(name, ".safetensors");
}

/* "model.fp16.safetensors" beside "model.safetensors" is another copy of the same model. */
static const char *variant_of(char **names, size_t n, const char *name)
{
    const size_t stem = strlen(name) - strlen(".safetensors");

    for (size_t i = 0; i < n; i++)
        if (is_safetensors(names[i]) && names[i] != name && strncmp(names[i], name, stem) == 0 &&
            names[i][stem] == '.' && strcmp(names[i] + stem, ".safetensors") != 0)
            return names[i];
    return NULL;
}

bool rsi_st_is_adapter(const char *name)
{
    return strncmp(name, "adapter_", strlen("adapter_")) == 0;
}

/* vLLM's sharded_state: a file for each tensor-parallel rank and part. */
static bool is_sharded_state(const char *name, unsigned *rank, unsigned *part)
{
    int end = 0;

    return sscanf(name, "model-rank-%9u-part-%9u.safetensors%n", rank, part, &end) == 2 &&
           end > 0 && !name[end];
}

/* The files don't say along which dimension a tensor is cut, or whether it is replicated. */
static rsd_err check_sharded_state(const char **kind, char *const *names, size_t n, rsd_error *err)
{
    unsigned rank, part, most = 0, last = 0;
    size_t   found = 0;

    for (size_t i = 0; i < n; i++)
        if (is_sharded_state(names[i], &rank, &part)) {
            found++;
            most = rank > most ? rank : most;
            last = part > last ? part : last;
        }
    if (found)
        *kind = "vLLM sharded_state";
    if (found && most == 0 && found != (size_t)last + 1)
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "it has %zu files of vLLM's sharded_state, of which the last is part %u",
                        found, last);
    if (most == 0)
        return RSD_OK;
    return rsi_fail(
        err, RSD_E_UNSUPPORTED,
        "it is vLLM's sharded_state of %u tensor-parallel ranks, which does not say how "
        "their parts make whole tensors: open the files of one rank",
        most + 1);
}

rsd_err rsi_st_folder_check(char **names, size_t n, const char **kind, bool *all, rsd_error *err)
{
    bool adapters = false, others = false;

    for (size_t i = 0; i < n; i++) {
        const char *other = is_safetensors(names[i]) ? variant_of(names, n, names[i]) : NULL;

        if (other)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "\"%s\" and \"%s\" are two variants of one model: open one of them",
                            names[i], other);
        adapters = adapters || (is_safetensors(names[i]) && rsi_st_is_adapter(names[i]));
        others = others || (is_safetensors(names[i]) && !rsi_st_is_adapter(names[i]));
    }
    *all = !adapters || !others;
    if (!*all)
        *kind = "without the adapter beside it";
    return check_sharded_state(kind, names, n, err);
}
