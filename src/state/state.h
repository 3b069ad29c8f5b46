/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a caller passes to a save or load: named tensors and values with their nesting. */
#ifndef RSI_STATE_H
#define RSI_STATE_H

#include "base/arena.h"
#include "base/map.h"
#include "format/path.h"
#include "format/value.h"
#include "shape/layout.h"
#include "view/views.h"

#include <stdatomic.h>

/* A position in the state. */
typedef struct rsi_spot {
    const char          *name; /* the path's parts joined by dots */
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
    /* If not NULL, supplies the bytes [off, off + len) of a packed box instead of the views. Any
     * thread. */
    rsd_err (*pull)(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                    unsigned char *out, rsd_error *err);
    void  *pull_arg;
    size_t number; /* the tensor's number in that source */
    /* If not NULL, the boxes that this rank writes, as rank 0 determined (states_join.c); there is
     * no layout then. */
    const rsd_box *stored;
    size_t         nstored;
} rsi_state_tensor;

typedef struct rsi_state_value {
    rsi_spot         spot;
    const rsd_value *value;  /* NULL: only `writer` has the value */
    int32_t          writer; /* rank that writes it: the lowest that has the value */
    /* The archive that another DCP checkpoint has for it, written as it is; NULL: `value` says it
     * all. Owned as the value is. */
    const unsigned char *raw;
    size_t               raw_len;
} rsi_state_value;

/* Kept by a save for the next one of the same state: rsi_kept of image_cache.c, memory of
 * stage.c. */
typedef struct rsi_state_cache {
    _Atomic(void *) kept;
    void (*drop)(void *kept);
    _Atomic(void *) stage;
    void (*drop_stage)(void *stage);
} rsi_state_cache;

/* A value that a load must produce. */
typedef struct rsi_state_want {
    rsi_spot          spot;
    rsd_values       *owner;
    const rsd_value **value;
    /* Gets the stored bytes of a value that is not plain; may be NULL. */
    rsd_err (*put)(void *arg, const void *bytes, size_t len);
    void *arg;
} rsi_state_want;

/* An object that adds to the state when it is saved or loaded (stateful.c). */
typedef struct rsi_state_object {
    rsd_stateful         object;
    const rsd_path_part *part; /* [nparts] prefix of the names it adds */
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
    rsd_path_part    *stack; /* the pushed parts */
    size_t            depth, stack_cap;
    size_t            reached; /* entries of `stack` ever set, including those above `depth` */
    rsi_map           names;
    /* If not NULL, makes the layout of tensor t on demand, so that not all layouts exist at
     * once. */
    rsd_err (*layout)(void *arg, size_t t, rsd_layout **out, rsd_error *err);
    void            *layout_arg;
    uint64_t         version; /* counts changes */
    rsi_state_cache *cache;   /* changes even in a const state */
    rsi_arena        mem;
};

/* The box of the whole tensor. */
rsd_box rsi_tensor_whole(const rsi_state_tensor *tensor);
/* The layout of tensor t, for rsd_layout_free; NULL if it has none. */
rsd_err rsi_state_layout(const rsd_state *state, size_t t, rsd_layout **out, rsd_error *err);
/* Pushes a part of a checkpoint's path; its `other` must outlive the state. */
rsd_err rsi_state_push_part(rsd_state *state, const rsd_path_part *part, rsd_error *err);
/* A copy of a name or key, which must be UTF-8 and no longer than readers accept. */
rsd_err rsi_state_name(rsd_state *state, const char *name, const char **out, rsd_error *err);

#endif
