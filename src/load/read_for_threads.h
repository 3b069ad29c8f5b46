/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what several ranks want once, and whoever reads it writes it straight into the memory of
 * those who want it. */
#ifndef RSI_READ_FOR_THREADS_H
#define RSI_READ_FOR_THREADS_H

#include "load/wanted_by_several.h"

/* Fills the views of every tensor that is read once; the share was made with `reach`.
 * [collective] */
rsd_err rsi_deal_run(rsd_comm *comm, const rsi_share *share, const rsd_read_opts *opts,
                     rsd_error *err);

#endif
