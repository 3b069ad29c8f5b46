/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format of a checkpoint. */
#include "format/detect.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/ckpt.h"
#include "format/dcp.h"
#include "format/st_index.h"
#include "format/st_nanotron.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BELOW_MAX 3
#define LATEST    "latest_checkpointed_iteration.txt"

static bool is_checkpoint_below(const rsi_files *files, const char *folder)
{
    static const char *const sign[] = { ".metadata", "model.safetensors",
                                        "model.safetensors.index.json" };
    bool                     found = false;

    for (size_t i = 0; i < sizeof(sign) / sizeof(sign[0]) && !found; i++) {
        rsd_entry entry;
        char      path[512];
        char     *name;

        if (snprintf(path, sizeof(path), "%s/%s", folder, sign[i]) >= (int)sizeof(path))
            return false;
        name = rsi_files_name_beside(files, path);
        found = name && !rsi_store_stat(files->store, name, &entry, NULL);
        rsi_free(name);
    }
    return found;
}

void rsi_detect_below(rsi_files *files, char *text)
{
    char **names;
    size_t n, found = 0, len = 0;

    *text = '\0';
    if (rsi_files_list(files, &names, &n, NULL))
        return;
    for (size_t i = 0; i < n && found <= BELOW_MAX; i++) {
        if (strlen(names[i]) > RSI_BELOW_SIZE / (BELOW_MAX + 1) ||
            !is_checkpoint_below(files, names[i]))
            continue;
        found++;
        if (found > BELOW_MAX)
            snprintf(text + len, RSI_BELOW_SIZE - len, ", ...");
        else
            len +=
                (size_t)snprintf(text + len, RSI_BELOW_SIZE - len, "%s\"%s\"",
                                 found == 1 ? "; subfolders with a checkpoint: " : ", ", names[i]);
    }
}

/* Megatron's folder of all iterations names the last one: a number, or "release". */
static rsd_err enter_iteration(rsi_files *files, const char *name, rsd_error *err)
{
    char     text[32] = "", folder[48];
    uint32_t file;
    rsd_err  rc = rsi_files_add(files, name, true, &file, err);

    if (!rc)
        rc = rsi_files_read(files, file, 0, text,
                            files->file[file]->size < sizeof(text) - 1
                                ? (size_t)files->file[file]->size
                                : sizeof(text) - 1,
                            err);
    if (rc)
        return rc;
    text[strcspn(text, " \r\n")] = '\0';
    if (strcmp(text, "release") == 0)
        snprintf(folder, sizeof(folder), "%s", text);
    else if (*text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text))
        snprintf(folder, sizeof(folder), "iter_%07llu", strtoull(text, NULL, 10));
    else
        return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" holds no iteration", name);
    return rsi_files_enter(files, folder, err);
}

/* `entered`: the folder was named by another one. */
static rsd_err detect_folder(rsi_files *files, bool entered, rsd_format *out, rsd_error *err)
{
    char  **names, below[RSI_BELOW_SIZE];
    size_t  n;
    bool    latest = false, zarr = false;
    bool    dcp = false, st = false, temp = false, bins = false, torch = false, zero = false;
    rsd_err rc = rsi_files_list(files, &names, &n, err);

    for (size_t i = 0; !rc && i < n; i++) {
        dcp = dcp || strcmp(names[i], ".metadata") == 0 || rsi_dcp_is_rank_metadata(names[i]);
        st = st || rsi_text_ends(names[i], ".safetensors") || rsi_st_is_index(names[i]);
        temp = temp || strcmp(names[i], ".metadata.tmp") == 0;
        bins = bins || rsi_torch_is_index(names[i]);
        zero = zero || rsi_zero_is_name(names[i]) || rsi_zero_is_latest(names[i]) ||
               strcmp(names[i], "zero") == 0;
        torch = torch || rsi_torch_is_name(names[i]);
        latest = latest || strcmp(names[i], LATEST) == 0;
        zarr = zarr || strcmp(names[i], "metadata.json") == 0;
    }
    if (rc)
        return rc;
    st = st || rsi_nanotron_is(names, n);
    if (dcp || st) {
        *out = dcp ? RSD_FORMAT_DCP : RSD_FORMAT_SAFETENSORS;
        return RSD_OK;
    }
    if (latest && !entered) {
        rc = enter_iteration(files, LATEST, err);
        return rc ? rc : detect_folder(files, true, out, err);
    }
    if (zarr && torch)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "it has Megatron-Core's \"metadata.json\" but no \".metadata\": only its "
                        "format torch_dist is supported, not zarr");
    if (temp)
        return rsi_fail(err, RSD_E_FORMAT,
                        "it has a \".metadata.tmp\" but no \".metadata\": a save that did not end");
    if (bins || zero || torch) {
        *out = bins ? RSD_FORMAT_TORCH : zero ? RSD_FORMAT_ZERO : RSD_FORMAT_RANKS;
        return RSD_OK;
    }
    rsi_detect_below(files, below);
    return rsi_fail(
        err, RSD_E_FORMAT,
        "no checkpoint found in it: neither \".metadata\" nor a \".safetensors\" file%s", below);
}

/* A plausible length, then white space before the header, which safetensors' own readers accept. */
static bool is_spaced(const unsigned char *head)
{
    return memcmp(head + 4, "\0\0\0", 4) == 0 && head[8] && strchr(" \t\r\n", head[8]);
}

static rsd_err detect_file(rsi_files *files, rsd_format *out, rsd_error *err)
{
    unsigned char  head[9] = { 0 };
    const char    *name = rsi_files_name(files, 0);
    const uint64_t size = files->file[0]->size;
    const size_t   len = size < sizeof(head) ? (size_t)size : sizeof(head);
    rsd_err        rc = rsi_files_read(files, 0, 0, head, len, err);

    if (rc)
        return rc;
    if (strcmp(name, ".metadata") == 0 || rsi_text_ends(name, ".distcp"))
        return rsi_fail(err, RSD_E_FORMAT,
                        "it is a part of a DCP checkpoint: the folder that it lies in is one");
    if (rsi_st_is_index(name) || rsi_torch_is_index(name))
        return rsi_fail(err, RSD_E_FORMAT,
                        "it is the index of a checkpoint: open the folder that holds it");
    if (size == 0)
        return rsi_fail(err, RSD_E_FORMAT, "it is an empty file, not a checkpoint");
    if (size < 1024 && memcmp(head, "version h", sizeof(head)) == 0)
        return rsi_fail(
            err, RSD_E_FORMAT,
            "it is what git LFS leaves in place of a file: `git lfs pull` fetches that");
    if ((len >= 4 && memcmp(head, "PK\3\4", 4) == 0) ||
        (len >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5)) /* an archive, or pickles */
        *out = RSD_FORMAT_TORCH;
    else if (len == 9 && (head[8] == '{' || is_spaced(head)))
        *out = RSD_FORMAT_SAFETENSORS;
    else
        return rsi_fail(err, RSD_E_FORMAT,
                        "it is neither a torch.save archive nor a safetensors file");
    return RSD_OK;
}

rsd_err rsi_detect(rsi_files *files, rsd_format *out, rsd_error *err)
{
    return files->single ? detect_file(files, out, err) : detect_folder(files, false, out, err);
}
