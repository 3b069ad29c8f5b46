/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for a tensor in several boxes, each kept in an odd way: padded and permuted strides that
 * divide nothing, or callbacks. What is between the elements must stay as it was. */
#ifndef SLICES_H
#define SLICES_H

#include "reshard/reshard.h"

/* One box. */
typedef struct slab {
    unsigned char *bytes;
    size_t         len;
} slab;

typedef struct slices {
    size_t    n;
    rsd_view *view; /* [n] */
    slab     *slab; /* [n] */
    size_t    elem_bytes;
} slices;

/* seed 0: one packed box. Otherwise boxes that cover the tensor, the same ones for the same seed.
 */
rsd_err slices_cut(slices *s, const rsd_tensor_info *info, uint64_t seed, rsd_error *err);
/* After slice i was read: RSD_E_BUG if bytes outside its elements have changed. */
rsd_err slices_check(const slices *s, size_t i, rsd_error *err);
void    slices_free(slices *s);

#endif
