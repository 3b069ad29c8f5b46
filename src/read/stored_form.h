/* SPDX-License-Identifier: Apache-2.0 */
/* Elements that a file has in another form than memory: the other byte order, torch's lazily
 * conjugated and negated tensors. */
#ifndef RSI_STORED_FORM_H
#define RSI_STORED_FORM_H

#include "format/ckpt.h"

static inline bool rsi_stored_otherwise(const rsi_extent *x)
{
    return x->big_endian || x->conj || x->neg;
}

/* Puts packed elements right in place. RSD_E_UNSUPPORTED: a type that can't be negated so. */
rsd_err rsi_stored_to_memory(const rsi_extent *x, rsd_dtype dtype, void *elements, size_t bytes,
                             rsd_error *err);

#endif
