/* SPDX-License-Identifier: Apache-2.0 */
#include "state/nest.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory to nest values");
}

static int by_path(const void *a, const void *b)
{
    const rsi_leaf *x = a, *y = b;
    size_t          n = x->spot->nparts < y->spot->nparts ? x->spot->nparts : y->spot->nparts;

    for (size_t i = 0; i < n; i++) {
        const rsd_path_part *p = &x->spot->part[i], *q = &y->spot->part[i];
        int                  order;

        if (!p->key != !q->key)
            return p->key ? 1 : -1;
        if (p->key && !(p->number && q->number))
            order = strcmp(p->key, q->key);
        else
            order = (p->index > q->index) - (p->index < q->index);
        if (order)
            return order;
    }
    return (x->spot->nparts > y->spot->nparts) - (x->spot->nparts < y->spot->nparts);
}

typedef struct nesting {
    rsi_leaf   *leaf; /* sorted by path: the leaves of one container are adjacent */
    size_t      n;
    rsd_values *owner;
} nesting;

static bool same_part(const rsd_path_part *p, const rsd_path_part *q)
{
    if (!p->key || !q->key)
        return !p->key && !q->key && p->index == q->index;
    return strcmp(p->key, q->key) == 0;
}

static rsd_err make_key(rsd_values *owner, const rsd_path_part *part, const rsd_value **out,
                        rsd_error *err)
{
    if (part->other) {
        *out = part->other;
        return RSD_OK;
    }
    if (part->number)
        return rsd_value_create_int(owner, part->index, out, err);
    return rsd_value_create_bytes(owner, RSD_VALUE_STR, part->key, strlen(part->key), out, err);
}

/* The container of leaves [lo, hi), whose first `depth` parts are equal. */
static rsd_err nest(const nesting *all, size_t lo, size_t hi, size_t depth, const rsd_value **out,
                    rsd_error *err)
{
    bool              list = !all->leaf[lo].spot->part[depth].key;
    size_t            count = 0;
    const rsd_value **item = rsi_calloc(2 * (hi - lo), sizeof(item[0]));
    rsd_err           rc = item ? RSD_OK : no_memory(err);

    for (size_t i = lo, end; i < hi && !rc; i = end) {
        const rsi_spot      *spot = all->leaf[i].spot;
        const rsd_path_part *part = &spot->part[depth];

        for (end = i + 1; end < hi && same_part(&all->leaf[end].spot->part[depth], part);)
            end++;
        if (!part->key != list)
            rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" lies in a dict and in a list", spot->name);
        else if (spot->nparts == depth + 1 && end > i + 1)
            rc = rsi_fail(err, RSD_E_INVALID, "\"%s\" is a value and has others in it", spot->name);
        else if (list && part->index != (int64_t)count)
            rc = rsi_fail(err, RSD_E_INVALID, "the list of \"%s\" has no index %zu", spot->name,
                          count);
        if (!rc && !list)
            rc = make_key(all->owner, part, &item[2 * count], err);
        if (!rc && spot->nparts == depth + 1)
            item[list ? count : 2 * count + 1] = all->leaf[i].value;
        else if (!rc)
            rc = nest(all, i, end, depth + 1, &item[list ? count : 2 * count + 1], err);
        count++;
    }
    if (!rc)
        rc = rsd_value_create_list(all->owner, list ? RSD_VALUE_LIST : RSD_VALUE_DICT, count, item,
                                   out, err);
    rsi_free(item);
    return rc;
}

rsd_err rsi_nest(rsi_leaf *leaf, size_t n, size_t depth, rsd_values *owner, const rsd_value **out,
                 rsd_error *err)
{
    nesting all = { .leaf = leaf, .n = n, .owner = owner };

    if (n == 0)
        return rsd_value_create_list(owner, RSD_VALUE_DICT, 0, NULL, out, err);
    qsort(leaf, n, sizeof(leaf[0]), by_path);
    return nest(&all, 0, n, depth, out, err);
}
