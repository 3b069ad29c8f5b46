/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark harness. A case measures itself against the ideal of this machine (memcpy, mmap,
 * cp, dd) and against a peer in the same run: contenders take turns, medians are compared. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_result {
    double      value;
    const char *unit;       /* "s", "ms", "us", "GB/s" or "x" */
    double      ideal;      /* same unit; 0: there is none */
    double      of_ideal;   /* 1: as good as the ideal, whatever the unit */
    double      peer_value; /* 0: the peer is missing */
    double      vs_peer;    /* > 1: ours is better */
    double      spread; /* of ours: the middle half of the times spans so many % of the median; set
                           by bench_turns, or by a case that measures otherwise */
    char note[160];     /* for people */
} bench_result;

typedef struct bench_case {
    const char *name; /* "load.reshard@torch": behind the @ stands the peer */
    /* False, with the reason in out->note: it could not be run. It runs in a process of its own. */
    bool (*run)(bench_result *out);
} bench_case;

/* Each ends with a NULL name. */
extern const bench_case plan_cases[], copy_cases[], open_cases[], read_cases[], ckpt_cases[],
    live_cases[], convert_cases[], folder_cases[], tool_cases[], stash_cases[], async_cases[],
    scale_cases[], torch_cases[], py_cases[], redistribute_cases[], hf_cases[];

/* What `bench --scale` does: prints what saves and plans cost on 1 to 65,536 ranks, as CSV. */
int bench_scale(void);
/* What `bench --list PATH [NAME]` does, for open.1000: prints the tensors of a checkpoint, or the
 * chunks of one. */
int bench_list(const char *path, const char *only);
/* What `bench --read PATH NAME` does, for open.cat.512k: reads a tensor and compares checksums. */
int bench_read(const char *path, const char *name);

/* One contender: does the work once. */
typedef void (*bench_work)(void *arg);

/* Runs the contenders in turns, ours first, `rounds` times each (at least 3) after one round that
 * does not count. seconds[i] becomes the median of contender i; ratio[i] the median of (its time /
 * the first one's time in the same round). */
void bench_turns(int n, const bench_work *work, void *const *arg, int rounds, double *seconds,
                 double *ratio);
/* A contender that knows better how long its work took than the clock around it says so here. */
void   bench_took(double seconds);
double bench_now(void); /* seconds */
/* Memory that has been written to once; the process ends if there is none. */
void *bench_memory(size_t bytes);

#endif
