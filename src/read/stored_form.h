/* SPDX-License-Identifier: Apache-2.0 */
/* Elements whose stored form differs from memory: the other byte order, and torch's lazily
 * conjugated and negated tensors. */
#ifndef RSI_STORED_FORM_H
#define RSI_STORED_FORM_H

#include "format/ckpt.h"

static inline bool rsi_stored_otherwise(const rsi_extent *x)
{
    return x->big_endian || x->conj || x->neg;
}

/* Converts packed elements in place. RSD_E_UNSUPPORTED: the type can't be negated. */
rsd_err rsi_stored_to_memory(const rsi_extent *x, rsd_dtype dtype, void *elements, size_t bytes,
                             rsd_error *err);

#endif
