/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json, which lists the file of each tensor: {"metadata": {"total_size":
 * N}, "weight_map": {tensor: file}}. */
#ifndef RSI_ST_INDEX_H
#define RSI_ST_INDEX_H

#include "base/arena.h"
#include "base/error.h"
#include "format/files.h"
#include "format/json_write.h"
#include "format/names.h"

#define RSI_ST_INDEX_NAME "model.safetensors.index.json"

typedef struct rsi_st_weight {
    rsi_name name; /* first, for rsi_names */
    uint32_t file; /* index in `file` */
} rsi_st_weight;

typedef struct rsi_st_index {
    rsi_st_weight *weight; /* [nweights] in the order of the index */
    size_t         nweights;
    const char   **file; /* [nfiles] in the order of first mention; one path component each */
    size_t         nfiles;
    rsi_names      names;
    rsi_arena      mem;  /* texts with escapes */
    char          *text; /* set by rsi_st_index_load, else NULL */
} rsi_st_index;

/* The texts of *out point into `text`, where each gets a NUL after it: `text` must live as long as
 * *out. */
rsd_err rsi_st_index_read(char *text, size_t len, rsi_st_index *out, rsd_error *err);
/* The same for a file of the checkpoint; *number is set to its number. Release *out also after a
 * failure. */
rsd_err rsi_st_index_load(rsi_files *files, const char *name, uint32_t *number, rsi_st_index *out,
                          rsd_error *err);
void    rsi_st_index_release(rsi_st_index *index);
/* True for the name of an index: "model.safetensors.index.json", "..index.fp16.json". */
bool rsi_st_is_index(const char *name);
/* The index to open: the one named instead of the folder, else the one called `usual`, else the
 * only one; *out is NULL if there is none. `is` knows their names. */
rsd_err rsi_st_index_choose(rsi_files *files, bool (*is)(const char *), const char *usual,
                            const char **out, rsd_error *err);
/* NULL if the tensor is not listed. */
const char *rsi_st_index_file(const rsi_st_index *index, const char *name, size_t len);

/* Tensor i, name[i], is in file[of[i]]. Sorted by name and indented by two, as Hugging Face's tools
 * write it; `out` may have a callback, its style is set here. A duplicate name is RSD_E_INVALID,
 * before anything is put. */
rsd_err rsi_st_index_write(size_t n, const char *const *name, const uint32_t *of,
                           const char *const *file, uint64_t total_size, rsi_json_out *out,
                           rsd_error *err);

/* True for a name that can only be a file in the directory itself: not empty, no '/', no NUL, not
 * "." or "..". */
bool rsi_one_component(const char *name, size_t len);

#endif
