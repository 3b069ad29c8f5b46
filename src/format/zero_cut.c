/* SPDX-License-Identifier: Apache-2.0 */
/* How the tensor-parallel ranks of DeepSpeed cut a parameter. A model file says it under
 * universal_checkpoint_info: by patterns for the names of parameters that are replicated, cut by
 * columns, padded (vocabularies) or made of several parts, or by an affine map of blocks. All other
 * parameters are cut by rows. zero_vectors.c finds the elements. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/zero_core.h"
#include "shape/box.h"

#include <inttypes.h>
#include <string.h>

#define MAP     "affine_map"
#define PARTS   "parameter_with_sub_params"
#define WIDTHS  "sub_param_shard_widths"
#define VERSION "universal_checkpoint_version"

enum { NEWEST_MAP = 1, MOST_BLOCKS = 65536 };

/* What is known when a cut is made. */
typedef struct cutting {
    const rsd_value *info;
    const char      *name;
    size_t           rank, n;
    const rsd_box   *slice; /* [n] */
    rsi_arena       *mem;
    rsi_zero_cut    *out;
    rsd_error       *err;
} cutting;

/* ---- values ---- */

static bool is_list(const rsd_value *v)
{
    return v && (rsd_value_type_of(v) == RSD_VALUE_LIST || rsd_value_type_of(v) == RSD_VALUE_TUPLE);
}

static const rsd_value *item_of(const rsd_value *list, size_t i)
{
    return is_list(list) && i < rsd_value_count(list) ? rsd_value_item(list, i) : NULL;
}

/* A number in a list; -1: missing, or no number of at least 0. */
static int64_t number_of(const rsd_value *list, size_t i)
{
    const rsd_value *v = item_of(list, i);

    return v && rsd_value_type_of(v) == RSD_VALUE_INT ? rsi_max(rsd_value_int(v), -1) : -1;
}

/* The first pattern of a list, or key of a dict, that matches the parameter; NULL: none. */
static rsd_err find_match(const cutting *c, const rsd_value *list, const char **pattern,
                          const rsd_value **value)
{
    const bool dict = list && rsd_value_type_of(list) == RSD_VALUE_DICT;
    bool       found = false;

    *pattern = NULL;
    for (size_t i = 0; (dict || is_list(list)) && i < rsd_value_count(list); i++) {
        const rsd_value *key = dict ? rsd_value_key(list, i) : rsd_value_item(list, i);
        const char      *text = rsd_value_bytes(key, NULL);
        rsd_err          rc = RSD_OK;

        if (text)
            rc = rsi_zero_match(text, c->name, &found, c->err);
        if (rc)
            return rc;
        if (!text || !found)
            continue;
        *pattern = text;
        if (value)
            *value = rsd_value_item(list, i);
        break;
    }
    return RSD_OK;
}

static rsd_err is_among(const cutting *c, const char *key, bool *out)
{
    const char *pattern = NULL;
    rsd_err     rc = find_match(c, rsd_value_get(c->info, key), &pattern, NULL);

    *out = pattern;
    return rc;
}

/* ---- blocks ---- */

static rsd_err bad(const cutting *c, const char *what)
{
    return rsi_fail(c->err, RSD_E_FORMAT, "its slices on %zu ranks don't fit %s", c->n, what);
}

static rsd_err make_blocks(const cutting *c, size_t n)
{
    c->out->block =
        n <= MOST_BLOCKS ? rsi_arena_array(c->mem, n ? n : 1, sizeof(c->out->block[0])) : NULL;
    return c->out->block ? RSD_OK : rsi_torch_no_memory(c->err);
}

/* Adds all of the slice, or `len` of dimension d from `from` on, at `at` of that dimension. */
static void add_block(const cutting *c, int d, int64_t from, int64_t len, int64_t at)
{
    rsi_zero_block *b = &c->out->block[c->out->n++];

    *b = (rsi_zero_block){ .local = c->slice[c->rank] };
    b->local.off[d] = from;
    b->local.len[d] = len;
    b->at[d] = at;
}

/* Starts the parameter's shape: that of a slice, except for the sum in dimension d. */
static rsd_err join_shapes(const cutting *c, int d)
{
    const rsd_box *mine = &c->slice[c->rank];
    int64_t        sum = 0;

    if (d >= mine->ndim)
        return bad(c, "a cut by columns");
    for (size_t r = 0; r < c->n; r++) {
        for (int i = 0; i < mine->ndim; i++)
            if (i != d && c->slice[r].len[i] != mine->len[i])
                return bad(c, "each other");
        if (!rsi_add(sum, c->slice[r].len[d], &sum))
            return bad(c, "each other");
    }
    memcpy(c->out->shape, mine->len, sizeof(c->out->shape));
    c->out->shape[d] = sum;
    return RSD_OK;
}

/* Elements of dimension d on the ranks before this one. */
static int64_t before(const cutting *c, int d)
{
    int64_t sum = 0;

    for (size_t r = 0; r < c->rank; r++)
        sum += c->slice[r].len[d];
    return sum;
}

static rsd_err cut_once(const cutting *c, int d)
{
    rsd_err rc = join_shapes(c, d);

    rc = rc ? rc : make_blocks(c, 1);
    if (!rc)
        add_block(c, d, 0, c->slice[c->rank].len[d], before(c, d));
    return rc;
}

static rsd_err replicate(const cutting *c)
{
    for (size_t r = 0; r < c->n; r++)
        if (!rsi_box_equal(&c->slice[r], &c->slice[c->rank]))
            return bad(c, "replication");
    memcpy(c->out->shape, c->slice[c->rank].len, sizeof(c->out->shape));
    c->out->again = c->rank > 0;
    return RSD_OK;
}

/* The gate and the projection of an MLP in one parameter: each is cut by rows. */
static rsd_err cut_halves(const cutting *c)
{
    const int64_t half = c->slice[c->rank].len[0] / 2;
    rsd_err       rc = join_shapes(c, 0);

    for (size_t r = 0; !rc && r < c->n; r++)
        if (c->slice[r].len[0] % 2)
            rc = bad(c, "a cut into halves");
    rc = rc ? rc : make_blocks(c, 2);
    if (rc)
        return rc;
    add_block(c, 0, 0, half, before(c, 0) / 2);
    add_block(c, 0, half, half, c->out->shape[0] / 2 + before(c, 0) / 2);
    return RSD_OK;
}

/* ---- parameters made of several ---- */

/* Rows of part k on rank r: in a list for each part, or in equal shares of sizes[k], or of a number
 * of equal parts. -1: unknown. */
static int64_t width_of(const cutting *c, const rsd_value *widths, const rsd_value *sizes, int d,
                        size_t parts, size_t k, size_t r)
{
    const int64_t all = is_list(sizes) ? number_of(sizes, k) : c->out->shape[d] / (int64_t)parts;

    if (widths)
        return number_of(item_of(widths, k), r);
    return all < 0 || all % (int64_t)c->n ? -1 : all / (int64_t)c->n;
}

static rsd_err add_parts(const cutting *c, const rsd_value *widths, const rsd_value *sizes, int d,
                         size_t parts)
{
    int64_t local = 0, whole = 0;
    rsd_err rc = make_blocks(c, parts);

    for (size_t k = 0; k < parts && !rc; k++) {
        int64_t at = whole, width = 0;

        for (size_t r = 0; r < c->n; r++) {
            const int64_t w = width_of(c, widths, sizes, d, parts, k, r);

            if (w < 0 || !rsi_add(whole, w, &whole))
                return bad(c, "the widths of its parts");
            at += r < c->rank ? w : 0;
            width = r == c->rank ? w : width;
        }
        add_block(c, d, local, width, at);
        local += width;
    }
    if (!rc && (local != c->slice[c->rank].len[d] || whole != c->out->shape[d]))
        rc = bad(c, "the widths of its parts");
    return rc;
}

static rsd_err cut_parts(const cutting *c, const rsd_value *rule, const char *pattern)
{
    const rsd_value *shape = rsd_value_get(rule, "shape");
    const rsd_value *dim = rsd_value_get(rule, "partition_dim");
    const rsd_value *version = rsd_value_get(c->info, VERSION);
    const rsd_value *widths = rsd_value_get(c->info, WIDTHS), *sizes = NULL;
    const int64_t    d = dim && rsd_value_type_of(dim) == RSD_VALUE_INT ? rsd_value_int(dim) : -1;
    int64_t          parts;
    rsd_err          rc;

    if (d >= 0 && d < c->slice[c->rank].ndim && is_list(shape) &&
        rsd_value_count(shape) == (size_t)c->slice[c->rank].ndim)
        sizes = rsd_value_item(shape, (size_t)d);
    if (!sizes)
        return rsi_fail(c->err, RSD_E_UNSUPPORTED, "the shape of its parts is not understood");
    rc = join_shapes(c, (int)d);
    if (rc)
        return rc;
    widths = widths ? rsd_value_get(widths, pattern) : NULL;
    if (!widths && version && rsd_value_float(version) >= 0.4)
        return rsi_fail(c->err, RSD_E_FORMAT, "the widths of its parts are missing");
    parts = is_list(sizes) ? (int64_t)rsd_value_count(sizes) : rsd_value_int(sizes);
    if (parts <= 0 || parts > MOST_BLOCKS || (!is_list(sizes) && c->out->shape[d] % parts))
        return bad(c, "the number of its parts");
    return add_parts(c, widths, sizes, (int)d, (size_t)parts);
}

/* ---- affine maps ---- */

/* A block that starts at element `offset` of a row-major tensor. */
static bool place_block(int ndim, const int64_t *shape, const rsd_value *pair, const int64_t *len,
                        int64_t *off)
{
    const rsd_value *strides = item_of(pair, 1);
    int64_t          rest = number_of(pair, 0), dense[RSD_MAX_NDIM];

    rsi_strides(ndim, shape, 1, dense);
    if (rest < 0 || !is_list(strides) || rsd_value_count(strides) != (size_t)ndim)
        return false;
    for (int d = 0; d < ndim; d++) {
        if (number_of(strides, (size_t)d) != dense[d] || dense[d] == 0)
            return false;
        off[d] = rest / dense[d];
        rest %= dense[d];
        if (off[d] > shape[d] || len[d] > shape[d] - off[d])
            return false;
    }
    return rest == 0;
}

static rsd_err add_mapped(const cutting *c, const rsd_value *piece)
{
    const rsd_value *shape = rsd_value_get(piece, "shape"), *scale = rsd_value_get(piece, "scale");
    const rsd_value *ranks = rsd_value_get(piece, "locations");
    rsi_zero_cut    *out = c->out;
    rsi_zero_block   b = { .local.ndim = out->ndim };

    if (scale)
        return rsi_fail(c->err, RSD_E_UNSUPPORTED,
                        "its ranks hold multiples of the parameter, which can't be joined by "
                        "copying");
    for (int d = 0; d < out->ndim; d++)
        b.local.len[d] = number_of(shape, (size_t)d);
    for (int d = 0; d < out->ndim; d++)
        if (b.local.len[d] < 0)
            return bad(c, "a block of its affine map");
    if (rsd_box_count(&b.local) == 0)
        return RSD_OK;
    if (!place_block(out->ndim, out->shape, rsd_value_get(piece, "source"), b.local.len, b.at) ||
        !place_block(out->ndim, out->slice, rsd_value_get(piece, "dest"), b.local.len, b.local.off))
        return bad(c, "a block of its affine map");
    b.again = is_list(ranks) && number_of(ranks, 0) >= 0 && number_of(ranks, 0) < (int64_t)c->rank;
    out->block[out->n++] = b;
    return RSD_OK;
}

/* {"logical_shape": .., "ranks": {rank: {"shard_shape": .., "pieces": [..]}}} */
static rsd_err cut_mapped(const cutting *c, const rsd_value *map)
{
    const rsd_value *shape = rsd_value_get(map, "logical_shape");
    const rsd_value *ranks = rsd_value_get(map, "ranks"), *mine = NULL, *pieces;
    rsd_err          rc = RSD_OK;

    if (!is_list(shape) || rsd_value_count(shape) != (size_t)c->out->ndim)
        return bad(c, "its affine map");
    for (size_t d = 0; d < rsd_value_count(shape); d++) {
        c->out->shape[d] = number_of(shape, d);
        if (c->out->shape[d] < 0)
            return bad(c, "its affine map");
    }
    for (size_t i = 0;
         ranks && rsd_value_type_of(ranks) == RSD_VALUE_DICT && i < rsd_value_count(ranks); i++)
        if (rsd_value_type_of(rsd_value_key(ranks, i)) == RSD_VALUE_INT &&
            rsd_value_int(rsd_value_key(ranks, i)) == (int64_t)c->rank)
            mine = rsd_value_item(ranks, i);
    pieces = mine ? rsd_value_get(mine, "pieces") : NULL;
    if (!is_list(pieces))
        return bad(c, "its affine map");
    rc = rsi_shape_check(RSD_U8, c->out->ndim, c->out->shape, &(int64_t){ 0 }, c->err);
    rc = rc ? RSD_E_FORMAT : make_blocks(c, rsd_value_count(pieces));
    for (size_t i = 0; i < rsd_value_count(pieces) && !rc; i++)
        rc = add_mapped(c, rsd_value_item(pieces, i));
    return rc;
}

static rsd_err newest_map(const cutting *c, const rsd_value *maps)
{
    const rsd_value *version = maps ? rsd_value_get(maps, "version") : NULL;

    if (version && rsd_value_int(version) > NEWEST_MAP)
        return rsi_fail(c->err, RSD_E_UNSUPPORTED, "its affine maps have version %" PRId64,
                        rsd_value_int(version));
    return RSD_OK;
}

static rsd_err find_map(const cutting *c, const rsd_value *maps, const rsd_value **out)
{
    const char *pattern;
    rsd_err     rc = newest_map(c, maps);

    *out = NULL;
    return rc || !maps ? rc : find_match(c, rsd_value_get(maps, "params"), &pattern, out);
}

/* ---- the rules ---- */

/* Removes the rows that fill a vocabulary up to a size that the ranks divide. */
static rsd_err strip(const cutting *c)
{
    const rsd_value *v = rsd_value_get(c->info, "original_vocab_size");
    const int64_t    rows = v && rsd_value_type_of(v) == RSD_VALUE_INT ? rsd_value_int(v) : -1;
    rsi_zero_cut    *out = c->out;

    if (rows < 0 || out->ndim == 0)
        return rsi_fail(c->err, RSD_E_FORMAT, "the size of its vocabulary is missing");
    out->shape[0] = rsi_min(out->shape[0], rows);
    for (size_t i = 0; i < out->n; i++)
        out->block[i].local.len[0] =
            rsi_max(0, rsi_min(out->block[i].local.len[0], rows - out->block[i].at[0]));
    if (!out->block && rows < out->slice[0]) { /* replicated */
        rsd_err rc = make_blocks(c, 1);

        if (rc)
            return rc;
        add_block(c, 0, 0, rows, 0);
        out->block[0].again = out->again;
    }
    return RSD_OK;
}

static rsd_err refuse_unsupported(const cutting *c)
{
    const rsd_value *why = NULL;
    const char      *pattern;
    const rsd_value *all = rsd_value_get(c->info, "autotp_unsupported_parameter_patterns");
    rsd_err          rc = find_match(c, all, &pattern, &why);

    if (rc || !pattern)
        return rc;
    return rsi_fail(c->err, RSD_E_UNSUPPORTED, "DeepSpeed says that its slices can't be joined: %s",
                    why && rsd_value_bytes(why, NULL) ? rsd_value_bytes(why, NULL) : "no reason");
}

/* The rule for a parameter made of several; NULL: none. */
static rsd_err find_parts(const cutting *c, const rsd_value **rule, const char **pattern)
{
    const rsd_value *all = rsd_value_get(c->info, PARTS);
    rsd_err          rc = RSD_OK;

    *pattern = NULL;
    for (size_t i = 0; is_list(all) && i < rsd_value_count(all) && !rc && !*pattern; i++) {
        *rule = rsd_value_item(all, i);
        if (rsd_value_type_of(*rule) != RSD_VALUE_DICT)
            return rsi_fail(c->err, RSD_E_UNSUPPORTED, "a rule of " PARTS " is not a dict");
        rc = find_match(c, rsd_value_get(*rule, "patterns"), pattern, NULL);
    }
    return rc;
}

static rsd_err cut(const cutting *c)
{
    const rsd_value *map = NULL, *rule = NULL;
    const char      *pattern = NULL;
    bool             same = false, average = false, halves = false, columns = false, padded = false;
    rsd_err          rc = refuse_unsupported(c);

    rc = rc ? rc : find_map(c, rsd_value_get(c->info, MAP), &map);
    rc = rc ? rc : is_among(c, "tp_replicated_parameter_patterns", &same);
    rc = rc ? rc : is_among(c, "parameter_to_average_patterns", &average);
    rc = rc ? rc : is_among(c, "parameter_with_2_sub_params_cat_dim_0", &halves);
    rc = rc ? rc : is_among(c, "parameter_with_row_parallelism_patterns", &columns);
    rc = rc ? rc : is_among(c, "vocabulary_parameter_patterns", &padded);
    rc = rc ? rc : find_parts(c, &rule, &pattern);
    if (rc)
        return rc;
    if (map)
        rc = cut_mapped(c, map);
    else if (same || average) /* ranks hold the same: verify compares them */
        rc = replicate(c);
    else if (halves)
        rc = cut_halves(c);
    else
        rc = pattern ? cut_parts(c, rule, pattern) : cut_once(c, columns ? 1 : 0);
    return rc || !padded ? rc : strip(c);
}

rsd_err rsi_zero_cut_make(const rsd_value *info, const char *name, size_t rank, size_t n,
                          const rsd_box *slice, rsi_arena *mem, rsi_zero_cut *out, rsd_error *err)
{
    const cutting c = { info, name, rank, n, slice, mem, out, err };

    *out = (rsi_zero_cut){ .ndim = slice[rank].ndim };
    memcpy(out->slice, slice[rank].len, sizeof(out->slice));
    memcpy(out->shape, slice[rank].len, sizeof(out->shape));
    if (n == 1)
        return RSD_OK;
    for (size_t r = 0; r < n; r++)
        if (slice[r].ndim != out->ndim || out->ndim == 0)
            return out->ndim ? bad(&c, "each other") : replicate(&c);
    return cut(&c);
}

rsd_err rsi_zero_cut_experts(const rsd_value *layer, const char *name, size_t rank,
                             const rsd_box *slice, rsi_arena *mem, rsi_zero_cut *out,
                             rsd_error *err)
{
    const cutting    c = { layer, name, rank, rank + 1, NULL, mem, out, err };
    const rsd_value *maps = rsd_value_get(layer, "affine_maps"), *all, *map = NULL;
    const rsd_value *count = rsd_value_get(layer, "num_experts");
    const rsd_value *local = rsd_value_get(layer, "num_local_experts");
    rsd_err          rc = newest_map(&c, maps);

    *out = (rsi_zero_cut){ .ndim = slice->ndim };
    memcpy(out->slice, slice->len, sizeof(out->slice));
    memcpy(out->shape, slice->len, sizeof(out->shape));
    all = maps ? rsd_value_get(maps, "params") : NULL;
    map = all ? rsd_value_get(all, name) : NULL;
    if (rc || map)
        return rc ? rc : cut_mapped(&c, map);
    rc = make_blocks(&c, 1);
    if (rc)
        return rc;
    if (out->ndim == 0 || !count || !local || rsd_value_int(local) != slice->len[0] ||
        !rsi_mul((int64_t)rank, slice->len[0], &out->block[0].at[0]))
        return bad(&c, "the number of its experts");
    out->block[0].local = *slice;
    out->shape[0] = rsd_value_int(count);
    out->n = 1;
    return RSD_OK;
}
