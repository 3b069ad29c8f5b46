/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a checkpoint on all ranks at once: one rank reads the metadata, for threads of its process
 * or for ranks that it sends them to. */
#ifndef RSI_OPEN_TOGETHER_H
#define RSI_OPEN_TOGETHER_H

#include "comm/comm.h"
#include "format/ckpt.h"

/* Rank 0's message before the log. */
typedef struct rsi_told {
    uint64_t failed; /* rank 0 has nothing to send */
    uint64_t bytes;  /* of the log */
    uint64_t side;   /* bytes of the checksum file, which ends in `trailer`; 0: there is none */
    char     trailer[RSI_SUMS_TRAILER];
} rsi_told;

typedef struct rsi_together {
    rsd_ckpt            *ckpt;
    struct rsi_one_ckpt *one;   /* not NULL: `ckpt` is shared, and what follows is not used */
    rsd_store           *front; /* the checkpoint reads through this; NULL: the store itself */
    rsd_store           *held;  /* holds the checkpoint below `front`; NULL: nothing does */
    rsd_store           *inner; /* other ranks: what `front` calls, `held` or the store */
    rsd_store           *own;   /* the store of a local path */
    char                *log;   /* rank 0's log, on the others, while they open */
    rsi_told             told;
    rsd_error            unheld; /* why this rank, which may never read, could not hold it */
} rsi_together;

/* `store` NULL: local files. `comm` NULL: [local]. Otherwise [collective]: all ranks or none open
 * it, and it is the same checkpoint: before a rank opens its first file it compares the last line
 * of the checksum file with rank 0's. If there is no such file, rank 0 has found the name unchanged
 * after all ranks held it, and sizes and times of files are compared. `again`: it was replaced
 * meanwhile, so take more care. *out must not move. Close it even after a failure. */
rsd_err rsi_together_open(rsd_comm *comm, rsd_store *store, const char *path, bool again,
                          rsi_together *out, rsd_error *err);
/* After a failure `rc`, which all ranks have: true on all ranks if the checkpoint was replaced, so
 * that they can start over. [collective], as opening is. */
bool rsi_together_replaced(rsd_comm *comm, const rsi_together *together, rsd_err rc);
void rsi_together_close(rsi_together *together);

#endif
