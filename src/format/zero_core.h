/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the reader of DeepSpeed's ZeRO: zero_open.c opens the files, zero_vectors.c adds what lies
 * in their flat vectors, zero_frozen.c what is not trained, zero_pieces.c makes pieces of both,
 * zero_cut.c says how a parameter is cut over tensor-parallel ranks,
 * zero_pattern.c matches the patterns that name such parameters, zero_experts.c finds experts,
 * zero_rest.c adds the rest. */
#ifndef RSI_ZERO_CORE_H
#define RSI_ZERO_CORE_H

#include "format/torch_core.h"

/* A block of a slice and its place in the parameter. */
typedef struct rsi_zero_block {
    rsd_box local;
    int64_t at[RSD_MAX_NDIM];
    bool    again; /* an earlier rank has the same */
} rsi_zero_block;

/* How the slice of one tensor-parallel rank lies in its parameter. */
typedef struct rsi_zero_cut {
    int32_t         ndim;
    int64_t         slice[RSD_MAX_NDIM]; /* its shape */
    int64_t         shape[RSD_MAX_NDIM]; /* the parameter's */
    rsi_zero_block *block;               /* [n]; NULL: the slice is the parameter */
    size_t          n;
    bool            again; /* without blocks: an earlier rank has the same */
} rsi_zero_cut;

typedef struct rsi_zero {
    rsd_ckpt         *ckpt;
    rsi_torch        *t;
    size_t            pipes;  /* pipeline stages */
    size_t            slices; /* tensor-parallel ranks of a stage */
    size_t            ranks;  /* that divide the vectors of each of these */
    uint32_t         *optim;  /* [pipes * slices * ranks] files with optimizer states */
    uint32_t         *model;  /* the same, model files; before stage 3 all ranks have the same */
    const rsd_value **state;  /* the same, the optimizer_state_dict */
    int               stage;  /* 3, or 1 for both other stages */
    const char       *groups; /* key of the flat vectors */
    const rsd_value  *info;   /* universal_checkpoint_info; NULL: missing */
    bool              apart;  /* experts, which ranks divide in an unknown way: left out */
} rsi_zero;

/* The target of pieces: a tensor, and the slice of it that a file holds. */
typedef struct rsi_zero_target {
    rsi_zero              *z;
    const rsi_zero_cut    *cut;
    const rsi_torch_entry *e;
    rsi_torch_whole        like;
} rsi_zero_target;

/* ---- zero_vectors.c ---- */

/* Adds the trained parameters and the optimizer's state for them. */
rsd_err rsi_zero_add_parameters(rsi_zero *z, rsd_error *err);

/* ---- zero_frozen.c ---- */

/* Adds frozen parameters that are listed; then those of tensor-parallel ranks that are not. */
rsd_err rsi_zero_add_frozen(rsi_zero *z, rsd_error *err);
rsd_err rsi_zero_add_untrained(rsi_zero *z, rsd_error *err);
/* Adds what the files of layers, which pipeline stages leave, have besides trained parameters. */
rsd_err rsi_zero_add_layers(rsi_zero *z, char *const *names, size_t n, rsd_error *err);

/* ---- zero_pieces.c ---- */

/* Names an entry; NULL ends the parts. */
rsd_err rsi_zero_name(rsi_zero *z, const char *const *part, rsi_torch_entry *out, rsd_error *err);
/* The shape that a model file has for a parameter: at most RSD_MAX_NDIM sizes, all checked. */
rsd_err rsi_zero_shape(const rsd_value *size, int32_t *ndim, int64_t *shape, int64_t *elems,
                       rsd_error *err);
/* Dtype and shape of the parameter whose slice has the dtype of `of`. */
rsd_err rsi_zero_like(const rsi_zero_cut *cut, const rsd_value_tensor *of, rsi_torch_whole *out,
                      rsd_error *err);
/* True for one that is dense, so that its storage bounds its length. */
bool rsi_zero_is_vector(const rsd_value_tensor *t);
/* The cut of a parameter, from its shapes on all tensor-parallel ranks of the stage; `shapes`
 * returns those in the model file of a rank. */
rsd_err rsi_zero_cut_of(rsi_zero *z, size_t                                                  rank,
                        const rsd_value *(*shapes)(const rsi_zero *, size_t, size_t), size_t g,
                        const char *name, rsi_zero_cut *out, rsd_error *err);
/* Elements [from, to) of the slice lie in a vector from `offset` on. */
rsd_err rsi_zero_add_range(const rsi_zero_target *t, int64_t from, int64_t to, uint32_t file,
                           const rsd_value_tensor *of, int64_t offset, rsd_error *err);
/* Adds a slice that is a tensor. */
rsd_err rsi_zero_add_slice(const rsi_zero_target *to, uint32_t file, const rsd_value *v,
                           rsd_error *err);

/* ---- zero_cut.c ---- */

/* The cut of parameter `name` on tensor-parallel rank `rank`; slice[r] are the shapes of all n
 * ranks. `info` is the universal_checkpoint_info, whose rules are those of DeepSpeed's converter.
 * Blocks live in `mem`. */
rsd_err rsi_zero_cut_make(const rsd_value *info, const char *name, size_t rank, size_t n,
                          const rsd_box *slice, rsi_arena *mem, rsi_zero_cut *out, rsd_error *err);
/* The same for experts that ranks divide; `layer`: the item of ds_autoep_layers, `rank`: among
 * those that divide them. */
rsd_err rsi_zero_cut_experts(const rsd_value *layer, const char *name, size_t rank,
                             const rsd_box *slice, rsi_arena *mem, rsi_zero_cut *out,
                             rsd_error *err);

/* ---- zero_experts.c ---- */

/* The item of ds_autoep_layers that a parameter belongs to; NULL: none. */
const rsd_value *rsi_zero_layer(const rsi_zero *z, size_t rank, const char *name);
/* The name that expert "..deepspeed_experts.1.weight" of rank `owner` has among all; NULL: it is
 * not the name of an expert. `shapes` has all names of the group. */
rsd_err rsi_zero_name_expert(const rsi_zero *z, const rsd_value *shapes, const char *name,
                             size_t owner, const char **out, rsd_error *err);
/* The ranks that together have the experts of `owner` in group g, by the part that each has. */
rsd_err rsi_zero_expert_team(const rsi_zero *z, size_t g, size_t parts, size_t owner, size_t *rank,
                             rsd_error *err);

/* ---- zero_pattern.c ---- */

/* Sets *out if the pattern matches at the start of `name`, as Python's re.match does. Patterns with
 * groups, alternatives or counts are not supported. */
rsd_err rsi_zero_match(const char *pattern, const char *name, bool *out, rsd_error *err);

#endif
