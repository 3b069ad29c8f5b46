/* SPDX-License-Identifier: Apache-2.0 */
/* The serialization id that torch.save puts into its archives: 20 digits from the names of the
 * records, 20 from their CRCs. Readers ignore it; a correct id makes our files equal to torch's. */
#ifndef RSI_ZIP_ID_H
#define RSI_ZIP_ID_H

#include "base/error.h"

enum { RSI_ZIP_ID_LEN = 40 };

/* One step of the fold that computes both halves, starting from 0. */
static inline uint64_t rsi_zip_id_fold(uint64_t hash, uint64_t value)
{
    return hash ^ (value + 0x9e3779b9 + (hash << 6) + (hash >> 2));
}

/* The half computed from the names, for an archive of n storages. */
rsd_err rsi_zip_id_names(size_t n, uint64_t *out, rsd_error *err);
void    rsi_zip_id_text(uint64_t names, uint64_t crcs, char out[RSI_ZIP_ID_LEN + 1]);

#endif
