/* SPDX-License-Identifier: Apache-2.0 */
/* The axes of a rule's tensors as numbers: sizes of factors, and the branches of their sums. */
#ifndef RSI_AXES_H
#define RSI_AXES_H

#include "recipe/recipe.h"

enum { RSI_SIZES_MOST = 64 };

/* Sizes of factors as far as they are known. */
typedef struct rsi_sizes {
    const rsi_scope *scope; /* asked first, for numbers of the whole recipe; may be NULL */
    const char      *name[RSI_SIZES_MOST];
    int64_t          size[RSI_SIZES_MOST];
    size_t           n;
    int              rest;  /* axes that "..." stands for */
    bool             blank; /* every size is 1: only the structure matters */
} rsi_sizes;

/* A factor of a branch: index * stride is added to the index on `axis`. */
typedef struct rsi_factor {
    const char *name;
    int64_t     size, stride;
    int         axis;
    bool        repeat;
} rsi_factor;

typedef struct rsi_branch {
    rsi_factor factor[RSD_MAX_NDIM];
    int        n;
    int64_t    off[RSD_MAX_NDIM]; /* [axis] */
    bool       filled;            /* no other tensor has it */
    double     value;
} rsi_branch;

/* Number of axes; "..." counts as sizes->rest. */
int rsi_item_ndim(const rsi_recipe_item *item, const rsi_sizes *sizes);
/* Number of branches. */
int64_t rsi_item_branches(const rsi_recipe_item *item);
/* RSD_E_NOTFOUND if a size is not known. */
rsd_err rsi_item_shape(const rsi_recipe_item *item, const rsi_sizes *sizes, int64_t *shape,
                       rsd_error *err);
rsd_err rsi_item_branch(const rsi_recipe_item *item, const rsi_sizes *sizes, int64_t b,
                        rsi_branch *out, rsd_error *err);
/* Learns sizes from a tensor's shape; *learned is set if there were any. RSD_E_MISMATCH, naming the
 * axis, if the shape does not fit. */
rsd_err rsi_item_learn(const rsi_recipe_item *item, rsi_sizes *sizes, int ndim,
                       const int64_t *shape, bool *learned, rsd_error *err);
bool    rsi_sizes_add(rsi_sizes *sizes, const char *name, int64_t size);
bool    rsi_sizes_get(const rsi_sizes *sizes, const char *name, int64_t *out);

#endif
