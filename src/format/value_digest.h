/* SPDX-License-Identifier: Apache-2.0 */
/* A digest of a value and all its contents, to tell whether two objects are equal. */
#ifndef RSI_VALUE_DIGEST_H
#define RSI_VALUE_DIGEST_H

#include "format/torch_archive.h"

/* Equal values have equal digests, whatever archives they are in: dicts and sets in any order,
 * tensors by their elements. `a` is the archive with the tensors' bytes. RSD_E_UNSUPPORTED: the
 * contents are unknown. */
rsd_err rsi_value_digest(const rsi_archive *a, const rsd_value *v, uint64_t digest[2],
                         rsd_error *err);

#endif
