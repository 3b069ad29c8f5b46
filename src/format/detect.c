/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format of a checkpoint. */
#include "format/detect.h"
#include "base/mem.h"
#include "base/strings.h"
#include "base/text.h"
#include "format/dcp.h"
#include "format/st_index.h"
#include "format/st_nanotron.h"
#include "format/torch_core.h"
#include "format/weights.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST "latest_checkpointed_iteration.txt"

enum { BELOW_MAX = 3, BELOW_NAME = 120, BELOW_DEPTH = 3, BELOW_FOLDERS = 256 };

/* ---- the names in a folder ---- */

typedef struct signs {
    bool dcp, st, zero, bins, ranks; /* checkpoints of these formats */
    bool adapter_st, adapter_bin;    /* the same, if nothing else is there */
    bool torch, latest, zarr, temp;
} signs;

bool rsi_detect_is_rank(const char *name)
{
    const char *at = strstr(name, "rank");

    if (!at || !rsi_torch_is_name(name) || rsi_text_ends(name, "_states.pt") ||
        strncmp(name, "rng", 3) == 0 || strncmp(name, "random", 6) == 0)
        return false;
    at += strlen("rank");
    return isdigit((unsigned char)at[*at == '_' || *at == '-']);
}

static signs read_signs(char *const *names, size_t n)
{
    signs s = { .st = rsi_nanotron_is(names, n), .ranks = rsi_nanotron_is_optimizer(names, n) };

    for (size_t i = 0; i < n; i++) {
        const char *name = names[i];
        const bool  st = rsi_text_ends(name, ".safetensors"), adapter = rsi_is_adapter(name);

        s.dcp = s.dcp || strcmp(name, ".metadata") == 0 || rsi_dcp_is_rank_metadata(name);
        s.st = s.st || (st && !adapter) || rsi_st_is_index(name);
        s.adapter_st = s.adapter_st || (st && adapter);
        s.bins = s.bins || (rsi_is_bin(name) && !adapter) || rsi_torch_is_index(name);
        s.adapter_bin = s.adapter_bin || (rsi_is_bin(name) && adapter);
        s.zero = s.zero || rsi_zero_is_name(name) || rsi_zero_is_latest(name) ||
                 strcmp(name, "zero") == 0;
        s.ranks = s.ranks || rsi_detect_is_rank(name);
        s.torch = s.torch || rsi_torch_is_name(name);
        s.latest = s.latest || strcmp(name, LATEST) == 0;
        s.zarr = s.zarr || strcmp(name, "metadata.json") == 0;
        s.temp = s.temp || strcmp(name, ".metadata.tmp") == 0;
    }
    return s;
}

/* AUTO: none. A model comes before the state of a training, an adapter last. */
static rsd_format format_of(const signs *s)
{
    return s->dcp           ? RSD_FORMAT_DCP
           : s->st          ? RSD_FORMAT_SAFETENSORS
           : s->bins        ? RSD_FORMAT_TORCH
           : s->zero        ? RSD_FORMAT_ZERO
           : s->ranks       ? RSD_FORMAT_RANKS
           : s->adapter_st  ? RSD_FORMAT_SAFETENSORS
           : s->adapter_bin ? RSD_FORMAT_TORCH
                            : RSD_FORMAT_AUTO;
}

/* ---- checkpoints below a folder ---- */

typedef struct search {
    rsi_files *files;
    rsi_text   text;
    size_t     found, looked;
} search;

typedef struct entries {
    rsi_strings all, folders;
} entries;

static rsd_err note_entry(void *arg, const rsd_entry *entry, rsd_error *err)
{
    entries *f = arg;

    if (!rsi_strings_add(&f->all, entry->name) ||
        (entry->kind == RSD_ENTRY_FOLDER && entry->name[0] != '.' &&
         !rsi_strings_add(&f->folders, entry->name)))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the names in a folder");
    return RSD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Looks into `name`, a path below the checkpoint's folder; "" for that itself. */
static void look_below(search *b, const char *name, int depth)
{
    char   *full = rsi_files_name_beside(b->files, name);
    entries f = { 0 };
    char    path[BELOW_NAME + 1];
    signs   s;
    rsd_err rc = RSD_E_NOMEM;

    if (full && !*name && strlen(full) > 1)
        full[strlen(full) - 1] = '\0'; /* the slash behind the folder */
    if (full)
        rc = rsi_store_list(b->files->store, full, note_entry, &f, NULL);
    s = read_signs(f.all.at, f.all.n);
    if (!rc && depth > 0 && (s.latest || format_of(&s))) {
        b->found++;
        if (b->found > BELOW_MAX)
            rsi_text_add(&b->text, ", ...");
        else
            rsi_text_add(&b->text, "%s\"%s\"",
                         b->found == 1 ? "; subfolders with a checkpoint: " : ", ", name);
    } else if (!rc && depth < BELOW_DEPTH) {
        if (f.folders.n)
            qsort(f.folders.at, f.folders.n, sizeof(f.folders.at[0]), by_name);
        for (size_t i = 0; i < f.folders.n && b->found <= BELOW_MAX; i++)
            if (b->looked++ < BELOW_FOLDERS &&
                snprintf(path, sizeof(path), "%s%s%s", name, *name ? "/" : "", f.folders.at[i]) <
                    (int)sizeof(path))
                look_below(b, path, depth + 1);
    }
    rsi_strings_release(&f.all);
    rsi_strings_release(&f.folders);
    rsi_free(full);
}

void rsi_detect_below(rsi_files *files, char *text)
{
    search b = { .files = files, .text = rsi_text_begin(text, RSI_BELOW_SIZE) };

    *text = '\0';
    look_below(&b, "", 0);
}

/* ---- a folder ---- */

/* Megatron's folder of all iterations names the last one: a number, or "release". */
static rsd_err enter_iteration(rsi_files *files, const char *name, rsd_error *err)
{
    char      text[32] = "", folder[48], below[RSI_BELOW_SIZE], *full;
    rsd_entry entry;
    uint32_t  file;
    rsd_err   rc = rsi_files_add(files, name, true, &file, err);

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
    full = rsi_files_name_beside(files, folder);
    rc = full ? rsi_store_stat(files->store, full, &entry, err)
              : rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a folder");
    rsi_free(full);
    if (rc == RSD_E_NOTFOUND) { /* verl has folders of its own beside such a file */
        rsi_detect_below(files, below);
        return rsi_fail(err, rc, "file \"%s\" names \"%s\", which is missing%s", name, folder,
                        below);
    }
    return rc ? rc : rsi_files_enter(files, folder, err);
}

/* `entered`: the folder was named by another one. */
static rsd_err detect_folder(rsi_files *files, bool entered, rsd_format *out, rsd_error *err)
{
    char  **names, below[RSI_BELOW_SIZE];
    size_t  n;
    signs   s;
    rsd_err rc = rsi_files_list(files, &names, &n, err);

    if (rc)
        return rc;
    s = read_signs(names, n);
    if (!s.dcp && !s.st && s.latest && !entered) {
        rc = enter_iteration(files, LATEST, err);
        return rc ? rc : detect_folder(files, true, out, err);
    }
    if (!s.dcp && !s.st && s.zarr && s.torch)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "it has Megatron-Core's \"metadata.json\" but no \".metadata\": only its "
                        "format torch_dist is supported, not zarr");
    if (!s.dcp && !s.st && s.temp)
        return rsi_fail(err, RSD_E_FORMAT,
                        "it has a \".metadata.tmp\" but no \".metadata\": a save that did not end");
    if (format_of(&s) || s.torch) {
        *out = format_of(&s) ? format_of(&s) : RSD_FORMAT_RANKS;
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
    if (files->single)
        return detect_file(files, out, err);
    if (!files->index)
        return detect_folder(files, false, out, err);
    *out = rsi_st_is_index(files->index) ? RSD_FORMAT_SAFETENSORS : RSD_FORMAT_TORCH;
    return RSD_OK;
}
