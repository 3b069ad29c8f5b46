/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of async saves share: a folder, a store in it whose writes wait at a gate, so that the
 * caller can change its tensors before the first byte is in a file, and a state whose elements tell
 * which version they are of. */
#ifndef ASYNC_CASE_H
#define ASYNC_CASE_H

#include "reshard/reshard.h"

enum { ASYNC_ROWS = 64, ASYNC_COLS = 48 };

typedef struct async_bed {
    char       top[64];
    rsd_store *store; /* files below `top`, through the calls of sys_faults.h */
    int        gate[2];
    void (*also)(void); /* called before each system call, behind the gate */
} async_bed;

/* Calls work in a child process too. All assert, except where ranks are named. */
void async_bed_open(async_bed *bed);
void async_bed_close(async_bed *bed);
/* The same in a folder that another rank has made, and will remove. */
void async_bed_attach(async_bed *bed, const char *top);
void async_bed_detach(async_bed *bed);
/* From now on the first write of all files waits until the gate is opened. */
void async_gate_shut(async_bed *bed);
void async_gate_open(async_bed *bed);
/* What is in the folder, sorted, with a space between; static. */
const char *async_list(const async_bed *bed);

/* One rank's part of "w", its rows, "b", which all have, and the value "step". */
typedef struct async_state {
    int32_t     w[ASYNC_ROWS * ASYNC_COLS], b[ASYNC_COLS];
    rsd_state  *state;
    rsd_values *values;
    int32_t     rank, ranks;
} async_state;

/* For threads of ranks: false instead of an assertion. */
bool async_state_make(async_state *s, int32_t rank, int32_t ranks);
void async_state_free(async_state *s);
/* All elements become those of a version; the value is that of the first. */
void async_fill(async_state *s, int32_t version);
/* True if the checkpoint has this version and nothing of another. `objects`: the format keeps
 * values. */
bool async_saved(const async_bed *bed, const char *path, int32_t version);

#endif
