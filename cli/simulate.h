/* SPDX-License-Identifier: Apache-2.0 */
/* plan --simulate: a model, two layouts and a machine that is not there. */
#ifndef SIMULATE_H
#define SIMULATE_H

#include "cli.h"

#include <reshard/reshard_live.h>

enum { MOST_CLASSES = 1024 };

/* Tensors of equal shape, dtype and layouts. */
typedef struct tensor_class {
    rsd_layout *from, *to;
    int64_t     n, bytes; /* bytes: of one of them */
} tensor_class;

typedef struct simulation {
    const args *a;
    int32_t     ranks, hosts, per_host;
    double      store, link, memory; /* bytes a second: of all, of a host, of a rank */
    rsd_rules  *from_rules, *to_rules;
    tensor_class class[MOST_CLASSES];
    size_t   nclasses;
    int64_t  tensors, bytes, chunks;
    int64_t *writes, *needs; /* [ranks] */
    int64_t *host_reads;     /* [hosts] */
    /* live plans: the most that a rank has of those looked at; received: their sum */
    int32_t looked_at;
    int64_t live_busiest, messages, pieces, sources, plan_bytes;
    int64_t live_received, live_crossed;
} simulation;

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Runs the command; returns its exit code. */
int simulate(const args *a);
int simulate_print(simulation *s);

#endif
