/* SPDX-License-Identifier: Apache-2.0 */
/* The stored bytes of objects. */
#ifndef RSI_OBJECT_BYTES_H
#define RSI_OBJECT_BYTES_H

#include "format/ckpt.h"

/* All bytes of object i, transforms undone and compared with the checksums; for rsi_free. */
rsd_err rsi_object_bytes(rsd_ckpt *ckpt, size_t i, rsd_choice verify, unsigned char **bytes,
                         size_t *len, rsd_error *err);

#endif
