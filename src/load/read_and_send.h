/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what several ranks want once and passes it on. */
#ifndef RSI_READ_AND_SEND_H
#define RSI_READ_AND_SEND_H

#include "load/wanted_by_several.h"

typedef struct rsi_pass {
    rsd_comm            *comm;
    const rsi_share     *share;
    const rsi_want      *want; /* this rank's, as they were shared */
    const rsd_read_opts *opts; /* its staging bounds the memory, once a piece fits */
} rsi_pass;

/* Fills the views of every tensor that is read once. [collective] */
rsd_err rsi_pass_run(const rsi_pass *pass, rsd_error *err);

#endif
