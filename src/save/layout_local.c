/* SPDX-License-Identifier: Apache-2.0 */
/* A layout from what each rank knows of itself. */
#include "base/mem.h"
#include "comm/alike.h"
#include "shape/box.h"
#include "shape/layout.h"

#include <inttypes.h>
#include <string.h>

/* What a rank says; its boxes follow. */
typedef struct said {
    int64_t dtype, ndim, shape[RSD_MAX_NDIM];
} said;

static rsd_err build(const rsd_comm *comm, const rsi_gathered *all, rsd_layout **out,
                     rsd_error *err)
{
    size_t   n = 0, most = all->first[comm->size] / sizeof(rsd_box);
    int32_t *owner = rsi_calloc(most, sizeof(owner[0]));
    rsd_box *box = rsi_calloc(most, sizeof(box[0]));
    said     first, mine;
    rsd_err  rc =
        owner && box ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", most);

    memcpy(&first, all->data, sizeof(first));
    for (int32_t r = 0; r < comm->size && !rc; r++) {
        size_t at = all->first[r] + sizeof(mine), end = all->first[r + 1];

        memcpy(&mine, all->data + all->first[r], sizeof(mine));
        if (memcmp(&mine, &first, sizeof(mine)) != 0)
            rc = rsi_fail(err, RSD_E_MISMATCH,
                          "rank %" PRId32 " has another dtype or shape than rank 0", r);
        for (; at < end && !rc; at += sizeof(box[0]), n++) {
            memcpy(&box[n], all->data + at, sizeof(box[0]));
            owner[n] = r;
        }
    }
    if (!rc)
        rc = rsd_layout_create_boxes((rsd_dtype)first.dtype, (int)first.ndim, first.shape, n, owner,
                                     box, out, err);
    rsi_free(owner);
    rsi_free(box);
    return rc;
}

rsd_err rsd_layout_create_local(rsd_comm *comm, rsd_dtype dtype, int ndim, const int64_t *shape,
                                size_t n, const rsd_box *box, rsd_layout **out, rsd_error *err)
{
    said           mine = { .dtype = (int64_t)dtype, .ndim = ndim };
    unsigned char *words = NULL;
    rsi_gathered   all = { 0 };
    rsd_layout    *made = NULL;
    int64_t        elems;
    rsi_terms      terms = { 0 };
    rsd_err        rc = RSD_OK;

    if (!comm || !out || (n > 0 && !box))
        rc = rsi_fail(err, RSD_E_INVALID, "a comm, a place for the layout and %zu boxes are needed",
                      n);
    if (!rc)
        rc = rsi_shape_check(dtype, ndim, shape, &elems, err);
    if (!rc) {
        words = n < SIZE_MAX / sizeof(box[0]) - 1 ? rsi_calloc(n * sizeof(box[0]) + sizeof(mine), 1)
                                                  : NULL;
        rc = words ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);
    }
    if (!rc) {
        memcpy(mine.shape, shape, (size_t)ndim * sizeof(shape[0]));
        memcpy(words, &mine, sizeof(mine));
        if (n)
            memcpy(words + sizeof(mine), box, n * sizeof(box[0]));
    }
    rsi_terms_call(&terms, "rsd_layout_create_local");
    rc = rsi_alike(comm, &terms, rc, err);
    if (!rc)
        rc = rsi_allgather_any(comm, words, sizeof(mine) + n * sizeof(box[0]), &all, err);
    if (!rc)
        rc = rsi_agree(comm, build(comm, &all, &made, err), err);
    if (!rc)
        *out = made;
    else
        rsd_layout_free(made);
    rsi_gathered_release(&all);
    rsi_free(words);
    return rc;
}
