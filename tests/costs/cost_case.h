/* SPDX-License-Identifier: Apache-2.0 */
/* cost_case.h - fixed jobs whose costs are counted: one thread per rank, no io_uring, no direct
 * I/O, so that the counts are the same on every machine. */
#ifndef RESHARD_TESTS_COST_CASE_H
#define RESHARD_TESTS_COST_CASE_H

#include <reshard/reshard.h>

#include <stdint.h>

typedef enum cost_what {
    COST_SAVE,
    COST_LOAD,
    COST_CONVERT,
    COST_OPEN,
    COST_VERIFY,
    COST_LIVE,
    COST_STASH
} cost_what;

typedef struct cost_case {
    const char *name;
    cost_what   what;
    int32_t     ranks;     /* 0: no comm */
    const char *rules;     /* of the state saved or loaded, the target of a conversion or a move */
    const char *path;      /* what is saved, loaded, converted to, opened or verified */
    const char *source;    /* the case that makes `path`; of a conversion its source; of a move its
                              source's rules */
    bool     small;        /* many small tensors instead of a few large ones */
    bool     messages;     /* ranks can't reach each other's memory, as on several machines */
    bool     cast;         /* to bfloat16 */
    bool     no_checksums; /* saves none, or compares none */
    bool     distributed;
    bool     overwrite;
    uint64_t shard_size;
    int32_t  dim; /* of a stash */
} cost_case;

typedef struct cost_count {
    int64_t bytes_read, bytes_written; /* of files */
    int64_t bytes_sent, messages;      /* between ranks, without heartbeats */
    int64_t calls;                     /* to the system, by the file store */
} cost_count;

/* Runs a case, after the one that makes its source, in a scratch folder of its own. */
rsd_err cost_run(const cost_case *c, const cost_case *all, cost_count *out, rsd_error *err);

#endif
