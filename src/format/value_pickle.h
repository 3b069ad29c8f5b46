/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as the pickle that torch.save puts into an archive (data.pkl): protocol 2, equal
 * bytes for equal values, loadable with weights_only=True unless there are objects of foreign
 * classes. value.h does the reverse. */
#ifndef RSI_VALUE_PICKLE_H
#define RSI_VALUE_PICKLE_H

#include "base/bytes.h"
#include "format/value.h"

/* The tensors of a value in the order written: tensor i is storage i. */
typedef struct rsi_storages {
    const rsd_value_tensor **tensor; /* for rsi_free */
    size_t                   n, cap;
} rsi_storages; /* zeroed: none */

/* Each tensor gets its own storage, whatever its name in the source. An object of a foreign class
 * is written with the opcodes that it was read from; RSD_E_UNSUPPORTED names one that has none. On
 * error *out is unchanged. */
rsd_err rsi_value_to_pickle(const rsd_value *value, rsi_bytes *out, rsi_storages *storages,
                            rsd_error *err);

#endif
