/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints to measure with, made beside the program and made only once. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* The path of `name` in the data folder, which is made if need be. */
void bench_path(const char *name, char *buf, size_t cap);
/* Calls make(path) in a process of its own, so that its memory is not the case's, unless `path` is
 * there already. */
bool bench_prepare(const char *path, bool (*make)(const char *path));
/* Reads all files below a folder once, so that they are in memory. */
void bench_warm(const char *path);

#endif
