/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint on all ranks at once: one rank reads the metadata, the others are told. */
#ifndef RSI_TOGETHER_H
#define RSI_TOGETHER_H

#include "comm/comm.h"
#include "format/ckpt.h"

typedef struct rsi_together {
    rsd_ckpt  *ckpt;
    rsd_store *front; /* what the checkpoint reads through; NULL: the store itself */
    rsd_store *own;   /* the store of a local path */
    char      *log;   /* rank 0's, on the others, while they open */
} rsi_together;

/* `store` NULL: local files. `comm` NULL: [local]. Otherwise [collective]: all or none has it open.
 * After a failure there is nothing to close. */
rsd_err rsi_together_open(rsd_comm *comm, rsd_store *store, const char *path, rsi_together *out,
                          rsd_error *err);
void    rsi_together_close(rsi_together *together);

#endif
