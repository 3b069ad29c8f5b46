/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one checkpoint: opened once, found by number. Formats name files, readers read from
 * them; any thread. */
#ifndef RSI_FILES_H
#define RSI_FILES_H

#include "base/arena.h"
#include "base/map.h"
#include "format/source.h"
#include "store/store.h"

typedef struct rsi_files {
    rsd_store  *store;     /* everything is read through it */
    rsd_store  *base;      /* the store that the checkpoint is in */
    bool        own_store; /* `base` was opened here */
    bool        held;      /* `store` holds the checkpoint as it was found, and was made here */
    const char *top;       /* the checkpoint's name in the store; "" if it is the store itself */
    bool        single;    /* that is a file, not a folder */
    bool        salvage;   /* a file that is missing is one without bytes */
    rsi_file  **file;      /* [n] */
    size_t      n, cap;
    rsi_map     by_name;
    rsi_map     seen; /* versions by name, as the folder was listed */
    char      **name; /* [nnames] in the folder, sorted; NULL: it was not listed */
    size_t      nnames;
    rsi_arena   mem;
} rsi_files;

/* `store` NULL: `path` is that of a local file or folder, symbolic links in it are followed.
 * Otherwise it is a name in the store. RSD_E_NOTFOUND if nothing is there. A single file is opened
 * as file 0. From here on it is one checkpoint, where the store can hold it: one that is published
 * under the same name meanwhile is not seen; with RSD_HOLD_FILES more is done to hold it. */
rsd_err rsi_files_open_held(rsi_files *files, rsd_store *store, const char *path, uint32_t flags,
                            rsd_error *err);
void    rsi_files_close(rsi_files *files);
/* RSD_E_MISMATCH if a file was changed after it was opened and has been read. */
rsd_err rsi_files_unchanged(const rsi_files *files, rsd_error *err);

/* RSD_E_NOTFOUND if another checkpoint has the name by now, so that a file that is missing may have
 * been there. Where that can't be told, it is not so. */
rsd_err rsi_files_there(const rsi_files *files, rsd_error *err);

/* A local path as a store at the folder that it is in, symbolic links in it followed, and a name
 * there, freed with rsi_free. */
rsd_err rsi_files_local(const char *path, rsd_store **store, char **name, rsd_error *err);

/* Opens the file `name` of the folder, or finds it if it is open. `name` is one component.
 * `follow`: it may be a symbolic link, as in Hugging Face's cache. RSD_E_MISMATCH if it was changed
 * since the folder was listed. */
rsd_err rsi_files_add(rsi_files *files, const char *name, bool follow, uint32_t *out,
                      rsd_error *err);
/* Opens a file that is not one of the checkpoint's: in its folder, or, if the checkpoint is one
 * file, the one whose name has `name` behind it. The caller closes it. Any thread. */
rsd_err rsi_files_open_beside(const rsi_files *files, const char *name, bool follow, rsi_file **out,
                              rsd_error *err);
/* That name in the store; for rsi_free. NULL: no memory. */
char *rsi_files_name_beside(const rsi_files *files, const char *name);
/* Names of what is in the folder, sorted. Listed once, so that the answer stays the same while
 * somebody else replaces or removes the folder. */
rsd_err rsi_files_list(rsi_files *files, char ***names, size_t *n, rsd_error *err);
/* From here on the folder `name` in it is the checkpoint. */
rsd_err rsi_files_enter(rsi_files *files, const char *name, rsd_error *err);
/* Exactly `len` bytes. */
rsd_err rsi_files_read(const rsi_files *files, uint32_t file, uint64_t off, void *buf, size_t len,
                       rsd_error *err);
/* Bytes [start, start + size) of a file, which it has. Lives as long as the files. */
rsi_source rsi_files_source(const rsi_files *files, uint32_t file, uint64_t start, uint64_t size);
/* The name of a file below the checkpoint. */
const char *rsi_files_name(const rsi_files *files, uint32_t file);

#endif
