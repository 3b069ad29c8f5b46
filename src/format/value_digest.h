/* SPDX-License-Identifier: Apache-2.0 */
/* A digest of a value with all that is in it: how two objects are seen to be the same. */
#ifndef RSI_VALUE_DIGEST_H
#define RSI_VALUE_DIGEST_H

#include "format/torch_archive.h"

/* Equal values have equal digests, whatever archives they are in: dicts and sets in any order,
 * tensors by their elements. `a` is the archive that has their bytes. RSD_E_UNSUPPORTED: it can't
 * be told what is in it. */
rsd_err rsi_value_digest(const rsi_archive *a, const rsd_value *v, uint64_t digest[2],
                         rsd_error *err);

#endif
