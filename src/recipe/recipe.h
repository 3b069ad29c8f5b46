/* SPDX-License-Identifier: Apache-2.0 */
/* A parsed recipe: rules that say of which boxes of which source tensors each target tensor is
 * made. A rule lists tensors on two sides, each with its axes as products and sums of named
 * factors:
 *
 *     q[(g r d) h], k[(g d) h], v[(g d) h] <-> qkv[(g (r d + d + d)) h]
 *
 * A sum has one branch for each summand. The branches of one side, in the order written, are those
 * of the other; a factor is the same loop on both. So every element of a side has exactly one place
 * on the other, by construction. recipe_parse.c reads the text; next: made.h, what a recipe makes
 * of the tensors of a source. */
#ifndef RSI_RECIPE_H
#define RSI_RECIPE_H

#include "base/arena.h"
#include "base/error.h"

#include <reshard/reshard_recipe.h>

enum {
    RSI_CAPTURES = 4,      /* most in one name */
    RSI_SIDE_MOST = 64,    /* tensors on one side of a rule */
    RSI_RECIPE_DEPTH = 32, /* of nested expressions, axes and definitions */
    RSI_TERMS_MOST = 256,  /* numbers and operators of an expression */
    RSI_RECIPE_WORD = 64,  /* longest name of a number, with its NUL */
};

typedef struct rsi_spotted { /* a place in the text */
    int line, column;
} rsi_spotted;

/* ---- numbers (recipe_expr.c) ---- */

struct rsi_name_text;

typedef struct rsi_expr {
    char op; /* 'n' number, 'v' variable, 'h' has(NAME), 'u' up(a, b), 'm' min(a, b), 's' sqrt(a),
                '+' '-' '*' '/'
                '%' '<' '>' 'l' <=, 'g' >=, '=' ==, '!' !=, '&' and, '|' or */
    double                      value;
    const char                 *name;
    const struct rsi_name_text *has;
    const struct rsi_expr      *a, *b;
    rsi_spotted                 at;
} rsi_expr;

/* Where the values of variables come from. */
typedef struct rsi_scope {
    /* RSD_E_NOTFOUND: not known. */
    rsd_err (*get)(const struct rsi_scope *scope, const char *name, double *out, rsd_error *err);
    bool (*has)(const struct rsi_scope *scope, const struct rsi_name_text *name);
    const void *arg;
    int         depth; /* of definitions that use others */
} rsi_scope;

/* RSD_E_NOTFOUND if a variable is not known. Errors name the place. */
rsd_err rsi_expr_value(const rsi_expr *e, const rsi_scope *scope, double *out, rsd_error *err);
/* The same for whole numbers of at most 2^53. */
rsd_err rsi_expr_whole(const rsi_expr *e, const rsi_scope *scope, int64_t *out, rsd_error *err);

/* ---- names (recipe_name.c) ---- */

/* Text followed by a capture. */
typedef struct rsi_name_part {
    const char     *text;
    size_t          len;
    int             capture; /* number in the rule; -1: none follows */
    const rsi_expr *plus;    /* "{i+E}": added to the capture's value; NULL: nothing */
    bool            minus;   /* subtracted instead */
} rsi_name_part;

typedef struct rsi_name_text {
    const char          *text; /* as written */
    const rsi_name_part *part; /* [n] */
    size_t               n;
    uint32_t             captures; /* bit c: the name contains capture c */
} rsi_name_text;

/* What the captures of a rule stand for. */
typedef struct rsi_captured {
    const char *text[RSI_CAPTURES]; /* "{*x}": not terminated */
    size_t      len[RSI_CAPTURES];
    int64_t     number[RSI_CAPTURES]; /* "{i}" */
} rsi_captured;

struct rsi_recipe_rule;
/* True, and the name's captures set, if `name` fits. */
bool rsi_name_fits(const rsi_name_text *t, const struct rsi_recipe_rule *rule,
                   const rsi_scope *scope, const char *name, rsi_captured *out);
/* The name for these captures; NULL: no memory, or a number would be negative or unknown. */
char *rsi_name_make(const rsi_name_text *t, const struct rsi_recipe_rule *rule,
                    const rsi_scope *scope, const rsi_captured *c, rsi_arena *mem);

/* ---- axes (recipe_axes.c) ---- */

typedef enum rsi_axis_kind {
    RSI_AXIS_FACTOR,
    RSI_AXIS_PRODUCT,
    RSI_AXIS_SUM,
    RSI_AXIS_REST, /* "...": the other axes of the tensor, one by one */
} rsi_axis_kind;

typedef struct rsi_axis {
    rsi_axis_kind          kind;
    const char            *name;    /* of a factor */
    int64_t                literal; /* its size if it is a number; else -1 */
    bool                   repeat;  /* "*r": all of its copies are equal */
    bool                   filled;  /* "p:0": constants, which no tensor of the other side has */
    double                 value;   /* of these */
    const struct rsi_axis *in;      /* [n] of a product or sum */
    int                    n;
    rsi_spotted            at;
} rsi_axis;

/* ---- rules ---- */

typedef enum rsi_item_kind {
    RSI_ITEM_PLAIN,
    RSI_ITEM_FP8,   /* name: values; with: scales for blocks of 128 x 128 */
    RSI_ITEM_MXFP4, /* name: pairs of 4-bit floats; with: exponents for 32 of them */
    RSI_ITEM_LORA,  /* name: W [o, i]; with: A [r, i]; low: B [o, r]; W + scale * B A */
    RSI_ITEM_VALUE, /* a constant */
} rsi_item_kind;

typedef struct rsi_recipe_item {
    rsi_item_kind        kind;
    rsi_name_text        name, with, low;
    const rsi_expr      *scale; /* of LORA */
    const rsi_name_text *tied;  /* [ntied] further names of the same tensor */
    size_t               ntied;
    double               value;
    const rsi_axis      *axis; /* [naxes] */
    int                  naxes;
    bool                 has_axes;
    rsi_spotted          at;
} rsi_recipe_item;

typedef struct rsi_rule_side {
    const rsi_recipe_item *item; /* [n] 0 of them: drop */
    size_t                 n;
} rsi_rule_side;

typedef struct rsi_where {
    const char     *name;
    const rsi_expr *expr, *other; /* `other`: if a variable of `expr` is not known */
    rsi_spotted     at;
} rsi_where;

typedef struct rsi_recipe_range {
    int             capture;
    const rsi_expr *first, *end;
} rsi_recipe_range;

typedef struct rsi_recipe_rule {
    rsi_spotted             at;
    rsi_rule_side           from, to;          /* in the recipe's direction */
    bool                    forward, backward; /* as written */
    const char             *capture[RSI_CAPTURES];
    bool                    is_text[RSI_CAPTURES]; /* "{*x}" */
    int                     ncaptures;
    rsd_dtype               as; /* of the targets, from left to right; 0: as the sources */
    const rsi_expr         *times, *plus;
    const rsi_where        *where; /* [nwhere] */
    size_t                  nwhere;
    const rsi_recipe_range *range; /* [nranges] */
    size_t                  nranges;
    const rsi_expr         *guard;
    bool                    required;
} rsi_recipe_rule;

typedef struct rsi_recipe_number {
    const char *name;
    double      value;
    bool        config; /* not the size of a factor, unless a `let` says so */
} rsi_recipe_number;

struct rsd_recipe {
    bool               reverse;
    rsi_recipe_rule   *rule; /* [n] only those of its direction */
    size_t             n, cap;
    rsi_where         *let; /* [nlets] */
    size_t             nlets, lets_cap;
    rsi_recipe_number *number; /* [nnumbers] later ones win */
    size_t             nnumbers, numbers_cap;
    const char       **layout; /* [nlayouts] lines of layout rules, as written */
    size_t             nlayouts, layouts_cap;
    uint64_t           digest; /* of text, direction and numbers */
    rsi_arena          mem;
};

rsd_err rsi_recipe_parse(const char *text, bool reverse, rsd_recipe **out, rsd_error *err);
/* `config`: from a model's config. */
rsd_err rsi_recipe_set(rsd_recipe *recipe, const char *name, double value, bool config,
                       rsd_error *err);
/* A variable of the recipe: set, or a `let`. `factor`: numbers of the config don't count. */
rsd_err rsi_recipe_get(const rsd_recipe *recipe, const rsi_scope *scope, const char *name,
                       bool factor, double *out, rsd_error *err);
bool    rsi_is_word(const char *text, size_t len);
/* The layout that the recipe's `layout` lines give its targets; NULL: it has none. For
 * rsd_rules_free. */
rsd_err rsi_recipe_layout(const rsd_recipe *recipe, rsd_rules **out, rsd_error *err);

#endif
