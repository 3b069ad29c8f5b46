/* SPDX-License-Identifier: Apache-2.0 */
#include "state/inner.h"
#include "base/mem.h"
#include "state/nest.h"

#include <string.h>

/* The objects found below a name. */
typedef struct found {
    rsd_ckpt   *ckpt;
    const char *name;
    size_t      depth;  /* parts in the name; 0: nothing was found */
    bool        mixed;  /* the number varies: this is not a single container */
    size_t     *number; /* [n] of the objects */
    rsi_spot   *spot;   /* [n] */
    size_t      n, number_cap, spot_cap;
    rsi_arena   mem;
} found;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the values below a name");
}

/* The number of leading path parts that make up the name; 0: the object does not lie below it. */
static size_t depth_below(const char *name, const char *top, const rsd_path_part *part, size_t n)
{
    size_t len = strlen(top), k = 1;

    if (strncmp(name, top, len) != 0 || name[len] != '.')
        return 0;
    while (k < n && rsi_path_join(part, k, NULL, 0) < len)
        k++;
    return k < n && rsi_path_join(part, k, NULL, 0) == len ? k : 0;
}

static rsd_err look_at(found *f, const char *name, size_t number, rsd_error *err)
{
    size_t         n, depth, len = strlen(f->name);
    rsd_path_part *part;

    if (strncmp(name, f->name, len) != 0 || name[len] != '.')
        return RSD_OK;
    n = f->ckpt->ops->path ? f->ckpt->ops->path(f->ckpt, name, NULL, 0) : 0;
    part = rsi_arena_array(&f->mem, n, sizeof(part[0]));
    if (!part)
        return no_memory(err);
    if (n)
        f->ckpt->ops->path(f->ckpt, name, part, n);
    depth = depth_below(name, f->name, part, n);
    if (!depth)
        return RSD_OK;
    if (!rsi_grow(&f->number, f->n, &f->number_cap, sizeof(f->number[0])) ||
        !rsi_grow(&f->spot, f->n, &f->spot_cap, sizeof(f->spot[0])))
        return no_memory(err);
    f->mixed = f->mixed || (f->depth && f->depth != depth);
    f->depth = depth;
    f->number[f->n] = number;
    f->spot[f->n++] = (rsi_spot){ .name = name, .part = part, .nparts = n };
    return RSD_OK;
}

static rsd_err find_all(found *f, rsd_error *err)
{
    size_t  len = strlen(f->name);
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < f->ckpt->nobjects && !rc; i++) {
        const char *name;

        rc = f->ckpt->ops->object(f->ckpt, i, &name, NULL, NULL, err);
        if (!rc)
            rc = look_at(f, name, i, err);
    }
    if (!rc && (f->n == 0 || f->mixed))
        rc = rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no \"%s\"", f->name);
    for (size_t t = 0; t < f->ckpt->ntensors && !rc; t++) {
        rsd_tensor_info info;

        f->ckpt->ops->tensor(f->ckpt, t, &info);
        if (strncmp(info.name, f->name, len) == 0 && info.name[len] == '.')
            rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                          "\"%s\" has tensors in it: they are loaded by their own names", f->name);
    }
    return rc;
}

rsd_err rsi_inner_value(rsd_ckpt *ckpt, const char *name, rsd_values *owner, const rsd_value **out,
                        rsd_error *err)
{
    found     f = { .ckpt = ckpt, .name = name };
    rsi_leaf *leaf = NULL;
    rsd_err   rc;

    if (ckpt->ops->inner)
        return ckpt->ops->inner(ckpt, name, owner, out, err);
    rc = find_all(&f, err);
    if (!rc && owner) {
        leaf = rsi_calloc(f.n, sizeof(leaf[0]));
        rc = leaf ? RSD_OK : no_memory(err);
    }
    for (size_t i = 0; i < f.n && leaf && !rc; i++) {
        const char *own;

        leaf[i].spot = &f.spot[i];
        rc = ckpt->ops->object(ckpt, f.number[i], &own, owner, &leaf[i].value, err);
    }
    if (!rc && owner)
        rc = rsi_nest(leaf, f.n, f.depth, owner, out, err);
    rsi_free(leaf);
    rsi_free(f.number);
    rsi_free(f.spot);
    rsi_arena_release(&f.mem);
    return rc;
}
