/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as the pickle that torch.save puts into an archive (data.pkl): protocol 2, the same
 * bytes for the same value, loadable with weights_only=True. The other way is value.h. */
#ifndef RSI_VALUE_PICKLE_H
#define RSI_VALUE_PICKLE_H

#include "base/bytes.h"
#include "format/value.h"

/* The tensors of a value in the order in which they were written: number i is storage i. */
typedef struct rsi_storages {
    const rsd_value_tensor **tensor; /* for rsi_free */
    size_t                   n, cap;
} rsi_storages; /* zeroed: none */

/* Each tensor gets a storage of its own, whatever it was called where it came from.
 * RSD_E_UNSUPPORTED names what has no pickle that is only data: an object of a foreign class. On
 * error *out is as it was. */
rsd_err rsi_value_to_pickle(const rsd_value *value, rsi_bytes *out, rsi_storages *storages,
                            rsd_error *err);

#endif
