/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller hands over to be saved or filled: tensors and values under names, with their
 * nesting. */
#ifndef RSI_STATE_H
#define RSI_STATE_H

#include "base/arena.h"
#include "base/map.h"
#include "format/path.h"
#include "format/value.h"
#include "shape/layout.h"
#include "view/views.h"

#include <stdatomic.h>

/* Where something stands. */
typedef struct rsi_spot {
    const char          *name; /* the path's parts, joined by dots */
    const rsd_path_part *part; /* [nparts] */
    size_t               nparts;
} rsi_spot;

typedef struct rsi_state_tensor {
    rsi_spot       spot;
    rsd_layout    *layout; /* NULL: only the views matter */
    rsd_dtype      dtype;
    int32_t        ndim;
    const int64_t *shape; /* [ndim] */
    rsi_views      views;
    /* Not NULL: the bytes come from here, not from views: [off, off + len) of a packed box. Any
     * thread. */
    rsd_err (*pull)(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                    unsigned char *out, rsd_error *err);
    void  *pull_arg;
    size_t number; /* what the tensor is called there */
} rsi_state_tensor;

typedef struct rsi_state_value {
    rsi_spot         spot;
    const rsd_value *value;  /* NULL: only `writer` has it */
    int32_t          writer; /* rank that writes it: the lowest that has it */
} rsi_state_value;

/* What saves keep for the next one of the same state: rsi_kept of image_cache.c, memory of
 * stage.c. */
typedef struct rsi_state_cache {
    _Atomic(void *) kept;
    void (*drop)(void *kept);
    _Atomic(void *) stage;
    void (*drop_stage)(void *stage);
} rsi_state_cache;

/* A value that a load is to make. */
typedef struct rsi_state_want {
    rsi_spot          spot;
    rsd_values       *owner;
    const rsd_value **value;
} rsi_state_want;

/* Something that adds to the state when it is saved or loaded (stateful.c). */
typedef struct rsi_state_object {
    rsd_stateful         object;
    const rsd_path_part *part; /* [nparts] in front of what it adds */
    size_t               nparts;
} rsi_state_object;

struct rsd_state {
    rsi_state_tensor *tensor;
    size_t            ntensors, tensor_cap;
    rsi_state_value  *value;
    size_t            nvalues, value_cap;
    rsi_state_want   *want;
    size_t            nwants, want_cap;
    rsi_state_object *object;
    size_t            nobjects, object_cap;
    rsd_path_part    *stack; /* what was pushed */
    size_t            depth, stack_cap;
    size_t            reached; /* entries of `stack` that were set, also above `depth` */
    rsi_map           names;
    /* Not NULL: makes the layout of tensor t when it is asked for, so that not all of them exist at
     * once. */
    rsd_err (*layout)(void *arg, size_t t, rsd_layout **out, rsd_error *err);
    void            *layout_arg;
    uint64_t         version; /* counts changes */
    rsi_state_cache *cache;   /* changes also in a state that is const */
    rsi_arena        mem;
};

/* All of a tensor. */
rsd_box rsi_tensor_whole(const rsi_state_tensor *tensor);
/* The layout of tensor t, for rsd_layout_free; NULL: it has none. */
rsd_err rsi_state_layout(const rsd_state *state, size_t t, rsd_layout **out, rsd_error *err);
/* A copy of a name or a key, which must be UTF-8 and of a length that readers take. */
rsd_err rsi_state_name(rsd_state *state, const char *name, const char **out, rsd_error *err);

#endif
