/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a checkpoint on all ranks at once: one rank reads the metadata, the others are told. */
#ifndef RSI_OPEN_TOGETHER_H
#define RSI_OPEN_TOGETHER_H

#include "comm/comm.h"
#include "format/ckpt.h"

/* What rank 0 tells before the log. */
typedef struct rsi_told {
    uint64_t failed; /* rank 0 has nothing to tell */
    uint64_t bytes;  /* of the log */
    uint64_t side;   /* bytes of the side file, which ends in `trailer`; 0: there is none */
    char     trailer[RSI_SUMS_TRAILER];
} rsi_told;

typedef struct rsi_together {
    rsd_ckpt  *ckpt;
    rsd_store *front; /* what the checkpoint reads through; NULL: the store itself */
    rsd_store *held;  /* what holds the checkpoint behind that; NULL: nothing does */
    rsd_store *inner; /* the other ranks': what `front` asks, `held` or the store */
    rsd_store *own;   /* the store of a local path */
    char      *log;   /* rank 0's, on the others, while they open */
    rsi_told   told;
    rsd_error  unheld; /* why this rank, which may never read, could not hold it */
} rsi_together;

/* `store` NULL: local files. `comm` NULL: [local]. Otherwise [collective]: all or none has it open,
 * and it is the same: before a rank opens its first file it compares the last line of the side file
 * with rank 0's; if there is none, rank 0 has found the name unchanged after all ranks held it, and
 * sizes and times of files are compared. `again`: it was replaced meanwhile, so take more care.
 * *out stays where it is. After a failure it is to be closed too. */
rsd_err rsi_together_open(rsd_comm *comm, rsd_store *store, const char *path, bool again,
                          rsi_together *out, rsd_error *err);
/* After a failure `rc`, which all ranks have: true on all ranks if the checkpoint was replaced, so
 * that it can be begun again. [collective], as opening is. */
bool rsi_together_replaced(rsd_comm *comm, const rsi_together *together, rsd_err rc);
void rsi_together_close(rsi_together *together);

#endif
