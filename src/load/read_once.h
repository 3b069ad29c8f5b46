/* SPDX-License-Identifier: Apache-2.0 */
/* Reads data that several ranks of a machine want once and passes them on. */
#ifndef RSI_READ_ONCE_H
#define RSI_READ_ONCE_H

#include "load/wanted_by_several.h"

/* Fills the wanted boxes that several ranks of this rank's machine want together, and takes them
 * from the list: *n becomes the number of the rest. `comm` is the one of all ranks, which have the
 * same checkpoint open. *go: no rank of the machine failed; the result as in rsi_share_go.
 * [collective] on the machine */
rsd_err rsi_read_once(rsd_comm *comm, rsd_ckpt *ckpt, rsi_want *want, size_t *n,
                      rsd_choice cooperate, const rsd_read_opts *opts, bool *go, rsd_error *err);

#endif
