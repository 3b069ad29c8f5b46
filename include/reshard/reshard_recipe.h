/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: tensors made of other tensors while loading or converting. A recipe renames, cuts,
 * joins, stacks, permutes, pads, scales and casts; docs/recipes.md describes its text. Every
 * element of the source has exactly one place in the target, and the other way round, unless the
 * recipe says otherwise; this is proved before a byte is read. See reshard.h for the conventions.
 */
#ifndef RESHARD_RECIPE_H
#define RESHARD_RECIPE_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `reverse`: from the right side of each rule to the left. RSD_E_INVALID names line, column and
 * reason. Pass it in rsd_convert_opts or rsd_load_opts. [local] */
RSD_API rsd_err rsd_recipe_parse(const char *text, bool reverse, rsd_recipe **out, rsd_error *err);
RSD_API void    rsd_recipe_free(rsd_recipe *recipe);

/* Gives a number of the recipe its value; the last one counts. [local] */
RSD_API rsd_err rsd_recipe_set(rsd_recipe *recipe, const char *name, double value, rsd_error *err);
/* Gives all numbers and booleans of a model's config.json their values, those of "text_config" too;
 * rsd_recipe_set wins. [local] */
RSD_API rsd_err rsd_recipe_config(rsd_recipe *recipe, const char *json, size_t len, rsd_error *err);

/* A tensor that a recipe makes. */
typedef struct rsd_made {
    size_t             size; /* sizeof(rsd_made) */
    const char        *name;
    rsd_dtype          dtype;
    int32_t            ndim;
    const int64_t     *shape;
    const char *const *from; /* [nfrom] the source tensors that it is made of */
    size_t             nfrom;
    size_t             parts; /* boxes that are copied from them, and constants */
    bool               tied;  /* the same data under another name */
    int32_t            line;  /* of its rule */
    bool reordered; /* elements follow each other in another order: transposed, permuted */
    bool scaled;    /* times, plus, LoRA */
    bool as_is;     /* its only source with all elements in their places: at most renamed */
} rsd_made;

/* Says what a recipe would make of a checkpoint, without reading data: every target tensor, and
 * every source tensor that is dropped. The callbacks may be NULL. Fails like rsd_convert if a
 * tensor has no rule, does not fit its rule, or is missing. [local] */
RSD_API rsd_err rsd_recipe_check(const rsd_recipe *recipe, rsd_ckpt *source,
                                 void (*on_made)(void *arg, const rsd_made *made),
                                 void (*on_dropped)(void *arg, const char *name, int32_t line),
                                 void *arg, rsd_error *err);

/* What a rank would read of one target under a layout. */
typedef struct rsd_made_read {
    size_t      size; /* sizeof(rsd_made_read) */
    const char *target;
    int32_t     rank;
    int64_t     needs; /* bytes of the rank's part of the target */
    int64_t     reads; /* bytes of source tensors that it is made of, without scales and adapters */
    int64_t     pieces; /* boxes of source tensors, each with strides */
} rsd_made_read;

/* Says what each rank would read to load the targets under `rules`, without reading data: a call
 * for every target and every rank that has a part of it, in the order of rsd_recipe_check and of
 * ranks. [local] */
RSD_API rsd_err rsd_recipe_reads(const rsd_recipe *recipe, rsd_ckpt *source, const rsd_rules *rules,
                                 void (*on_read)(void *arg, const rsd_made_read *read), void *arg,
                                 rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
