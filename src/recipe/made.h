/* SPDX-License-Identifier: Apache-2.0 */
/* What a recipe makes of the tensors of a source: target tensors, each a list of terms. A term is a
 * set of nested loops with a stride on both sides, so that any box of a target is a few strided
 * boxes of source tensors. read/made_read.c brings their bytes. */
#ifndef RSI_MADE_H
#define RSI_MADE_H

#include "base/map.h"
#include "recipe/recipe.h"

#define RSI_MADE_NONE SIZE_MAX

typedef struct rsi_made_source {
    const char *name;
    rsd_dtype   dtype;
    int32_t     ndim;
    int64_t     shape[RSD_MAX_NDIM];
    bool        left_out; /* filtered away: the recipe does not see it */
    /* Set by rsi_made_make: */
    int  line;    /* of the rule that uses it; 0: none */
    bool dropped; /* by that rule */
} rsi_made_source;

typedef struct rsi_made_loop {
    int64_t count, to_stride, from_stride;
    int     to_axis, from_axis; /* from_axis -1: repeats */
} rsi_made_loop;

/* Loops sorted by to_axis, then by falling to_stride. */
typedef struct rsi_made_form {
    rsi_made_loop loop[RSD_MAX_NDIM];
    int           n;
} rsi_made_form;

/* Element (to + sum of index * to_stride) of the target is element (from + ...) of the source. */
typedef struct rsi_made_term {
    const rsi_made_form *form;
    size_t               source; /* RSI_MADE_NONE: `value` */
    size_t               scales; /* of a quantised source, or A of LoRA; else RSI_MADE_NONE */
    size_t               low;    /* B of LoRA */
    double               value;
    int64_t              to[RSD_MAX_NDIM], from[RSD_MAX_NDIM];
} rsi_made_term;

typedef struct rsi_made_tensor {
    const char    *name;
    rsd_dtype      dtype;
    int32_t        ndim;
    int64_t        shape[RSD_MAX_NDIM];
    rsi_item_kind  from; /* form of the sources */
    rsi_item_kind  to;   /* FP8, MXFP4: values or scales of the tensor that the terms describe */
    bool           scales;
    double         low_scale;       /* of LoRA */
    bool           affine, inverse; /* x * times + plus, or (x - plus) / times, in float32 */
    float          times, plus;
    bool           tied; /* another name for a tensor that was made before */
    int            line; /* of its rule */
    rsi_made_term *term; /* [nterms] by the first element in the target */
    size_t         nterms;
    int64_t        reach; /* most by which a term's last element is behind its first on axis 0 */
    /* Of the terms: their tensor's shape, which differs from `shape` if it is quantised. */
    int64_t whole[RSD_MAX_NDIM];
    int32_t whole_ndim;
} rsi_made_tensor;

typedef struct rsi_made {
    rsi_made_source *source; /* [nsources] */
    size_t           nsources;
    rsi_made_tensor *tensor; /* [n] */
    size_t           n, cap;
    rsi_map          names; /* of the tensors */
    rsi_arena        mem;
} rsi_made;

/* `source` must outlive *out. */
rsd_err rsi_made_make(const rsd_recipe *recipe, rsi_made_source *source, size_t n, rsi_made **out,
                      rsd_error *err);
void    rsi_made_free(rsi_made *made);

/* Part of a term inside a box. */
typedef struct rsi_made_piece {
    const rsi_made_term *term;
    int64_t              first[RSD_MAX_NDIM], count[RSD_MAX_NDIM]; /* [loop] of its indices */
    int64_t              at[RSD_MAX_NDIM]; /* [axis] first element, counted from the box's */
} rsi_made_piece;

/* Calls visit for pieces that together are `box` of the terms' tensor. Stops at the first result
 * that is not RSD_OK. */
rsd_err rsi_made_pieces(const rsi_made_tensor *tensor, const rsd_box *box,
                        rsd_err (*visit)(void *arg, const rsi_made_piece *piece, rsd_error *err),
                        void *arg, rsd_error *err);

/* True if rows of the target are columns of a source: its bytes should be asked for in large
 * ranges, since each range takes a short piece of every row of the source. */
bool rsi_made_turns(const rsi_made *made, size_t t);
/* True if elements that follow each other in a source do so in another order in the target. */
bool rsi_made_reorders(const rsi_made_tensor *tensor);

/* ---- shared by made.c and made_build.c ---- */

/* Where the numbers of a rule come from. */
struct rsi_sizes;
typedef struct rsi_rule_scope {
    rsi_scope               scope; /* its arg is this */
    const rsd_recipe       *recipe;
    const rsi_recipe_rule  *rule;
    const rsi_captured     *captured;
    uint32_t                captures; /* those that are set */
    const struct rsi_sizes *sizes;    /* may be NULL */
    const rsi_map          *sources;  /* by name */
    rsi_arena              *spare;    /* for names that are looked up */
    bool                    factor;   /* only numbers that may be sizes of factors */
} rsi_rule_scope;
void rsi_rule_scope_begin(rsi_rule_scope *s, const rsd_recipe *recipe, const rsi_recipe_rule *rule,
                          const rsi_captured *captured, uint32_t captures, const rsi_map *sources,
                          rsi_arena *spare);

/* A source tensor in its role for a rule. */
enum { RSI_ROLE_VALUES, RSI_ROLE_SCALES, RSI_ROLE_LOW, RSI_ROLE_TIED };
typedef struct rsi_member {
    size_t       group;
    int          item, role;
    rsi_captured captured;
    size_t       source;
} rsi_member;

/* The members of one use of a rule: those with the same captures in the targets' names. */
typedef struct rsi_rule_group {
    const rsi_recipe_rule *rule;
    rsi_captured           captured;
    const rsi_member      *member; /* [n] sorted by item, role, captures */
    size_t                 n;
} rsi_rule_group;

rsd_err rsi_made_group(rsi_made *made, const rsd_recipe *recipe, const rsi_map *sources,
                       const rsi_rule_group *group, rsd_error *err);
/* First and end of a capture's range; false: it has none. */
rsd_err rsi_rule_range(const rsi_rule_scope *scope, int capture, bool *has, int64_t *first,
                       int64_t *end, rsd_error *err);

#endif
