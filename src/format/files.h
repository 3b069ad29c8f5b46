/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one checkpoint: opened once, found by number. Formats name files, readers read from
 * them. Any thread. */
#ifndef RSI_FILES_H
#define RSI_FILES_H

#include "base/arena.h"
#include "base/map.h"
#include "format/source.h"
#include "store/store.h"

typedef struct rsi_files {
    rsd_store  *store;     /* everything is read through it */
    rsd_store  *base;      /* the store that contains the checkpoint */
    bool        own_store; /* `base` was opened here */
    bool        held;      /* `store` was made here and holds the checkpoint as found */
    const char *top;       /* the checkpoint's name in the store; "" if it is the store itself */
    bool        single;    /* `top` is a file, not a folder */
    bool        salvage;   /* treat a missing file as empty */
    const char *index;     /* the one that was named instead of its folder; NULL: none */
    rsi_file  **file;      /* [n] */
    size_t      n, cap;
    rsi_map     by_name;
    rsi_map     seen; /* versions by name, from the listing of the folder */
    char      **name; /* [nnames] in the folder, sorted; NULL: not listed yet */
    size_t      nnames;
    rsi_arena   mem;
} rsi_files;

/* `store` NULL: `path` is a local file or folder, in which symbolic links are followed. Otherwise
 * it is a name in the store. RSD_E_NOTFOUND if nothing has this name. A single file is opened as
 * file 0. From here on the same checkpoint is read, if the store can hold it: one published later
 * under the same name is not seen. RSD_HOLD_FILES does more to hold it. */
rsd_err rsi_files_open_held(rsi_files *files, rsd_store *store, const char *path, uint32_t flags,
                            rsd_error *err);
void    rsi_files_close(rsi_files *files);
/* RSD_E_MISMATCH if a file that has been read changed after it was opened. */
rsd_err rsi_files_unchanged(const rsi_files *files, rsd_error *err);

/* RSD_E_NOTFOUND if another checkpoint has taken the name, so that a missing file may have existed
 * before. Success if the store can't tell. */
rsd_err rsi_files_there(const rsi_files *files, rsd_error *err);

/* True if the folder's `.metadata` was replaced since the folder was listed: a save inside the
 * folder published another checkpoint, and files of the listed one may be gone. */
bool rsi_files_republished(const rsi_files *files);

/* Splits a local path into a store at its folder, with symbolic links followed, and a name in it,
 * freed with rsi_free. */
rsd_err rsi_files_local(const char *path, rsd_store **store, char **name, rsd_error *err);

/* Opens the file `name` of the folder, or finds it if already open. `name` is one component.
 * `follow`: it may be a symbolic link, as in Hugging Face's cache. RSD_E_MISMATCH if it changed
 * since the folder was listed. */
rsd_err rsi_files_add(rsi_files *files, const char *name, bool follow, uint32_t *out,
                      rsd_error *err);
/* Opens a file that is not part of the checkpoint: `name` in its folder or, if the checkpoint is a
 * single file, that file's name followed by `name`. The caller closes it. Any thread. */
rsd_err rsi_files_open_beside(const rsi_files *files, const char *name, bool follow, rsi_file **out,
                              rsd_error *err);
/* The name of that file in the store; freed with rsi_free. NULL: no memory. */
char *rsi_files_name_beside(const rsi_files *files, const char *name);
/* The names in the folder, sorted. Listed once, so that the answer stays the same while another
 * process replaces or removes the folder. */
rsd_err rsi_files_list(rsi_files *files, char ***names, size_t *n, rsd_error *err);
/* From here on, the checkpoint is the subfolder `name`. */
rsd_err rsi_files_enter(rsi_files *files, const char *name, rsd_error *err);
/* Exactly `len` bytes. */
rsd_err rsi_files_read(const rsi_files *files, uint32_t file, uint64_t off, void *buf, size_t len,
                       rsd_error *err);
/* Bytes [start, start + size) of a file, which must have them. Lives as long as `files`. */
rsi_source rsi_files_source(const rsi_files *files, uint32_t file, uint64_t start, uint64_t size);
/* All of a file that is not part of the checkpoint. */
rsi_source rsi_files_source_of(rsi_file *file, const char *name);
/* A file's name, relative to the checkpoint. */
const char *rsi_files_name(const rsi_files *files, uint32_t file);

#endif
