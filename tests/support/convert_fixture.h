/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of conversions share: a source that has everything, and comparing two checkpoints
 * element by element. Everything asserts. */
#ifndef CONVERT_FIXTURE_H
#define CONVERT_FIXTURE_H

#include "store/store.h"

/* Tensors "m.big" float32 [1500, 2000], 12 MB; "m.cols" bfloat16 [768, 1031]; "m.small.0" to
 * "m.small.4" int64, of 0 to 4 elements, in a list; "scalar" float64. Their bytes are arbitrary but
 * the same each time. With `values` also "m.step" = 7 and "note" = "hello". `rules` lays it out;
 * NULL: none. */
void conv_source(rsd_store *store, const char *path, rsd_format format, const char *rules,
                 bool values, const char *transform);

/* The checkpoints have the same tensors: names, dtypes, shapes, all bytes. */
void conv_same(rsd_store *a_store, const char *a, rsd_store *b_store, const char *b);

/* Opens `from`, converts it to `to` and closes it. opts->size and, if it is NULL, opts->store are
 * set here. */
rsd_err conv_run(rsd_store *store, const char *from, const char *to, rsd_convert_opts opts,
                 rsd_error *err);

/* A new folder, in memory where there is such a file system, so that syncs take no time; and its
 * end. */
void conv_folder(char *path, size_t cap);
void conv_remove(const char *path);
/* A store whose calls fail as `faults` (sys_faults.h) says. */
rsd_store *conv_faulty_store(const char *folder);

#endif
