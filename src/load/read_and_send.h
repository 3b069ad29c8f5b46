/* SPDX-License-Identifier: Apache-2.0 */
/* Reads data that several ranks want once and passes them on. */
#ifndef RSI_READ_AND_SEND_H
#define RSI_READ_AND_SEND_H

#include "load/wanted_by_several.h"

typedef struct rsi_pass {
    rsd_comm            *comm;
    const rsi_share     *share;
    const rsi_want      *want; /* this rank's, as passed to rsi_share_make */
    const rsd_read_opts *opts; /* its staging bounds memory if a piece fits */
} rsi_pass;

/* Fills the views of every tensor that is read once. [collective] */
rsd_err rsi_pass_run(const rsi_pass *pass, rsd_error *err);

#endif
