/* SPDX-License-Identifier: Apache-2.0 */
/* Reads data that several ranks want once; the reader writes them directly into the memory of the
 * ranks that want them. */
#ifndef RSI_READ_FOR_THREADS_H
#define RSI_READ_FOR_THREADS_H

#include "load/wanted_by_several.h"

/* Fills the views of every tensor that is read once; `share` was made with `reach`. [collective] */
rsd_err rsi_deal_run(rsd_comm *comm, const rsi_share *share, const rsd_read_opts *opts,
                     rsd_error *err);

#endif
