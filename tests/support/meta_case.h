/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of DCP metadata share: samples that torch wrote, a table to be changed, reading and
 * writing that assert. */
#ifndef META_CASE_H
#define META_CASE_H

#include "format/dcp_meta.h"

typedef struct meta_bytes {
    unsigned char *at; /* for free */
    size_t         len;
} meta_bytes;

enum { META_SAMPLES = 18 };
extern const char *const meta_samples[META_SAMPLES];
/* The bytes of a sample. */
meta_bytes meta_sample(const char *name);

/* Adds to the meta_bytes `arg`; for rsi_dcp_meta_write. */
rsd_err    meta_append(void *arg, const void *more, size_t len, rsd_error *err);
rsd_err    meta_read(const meta_bytes *b, rsi_dcp_meta **out, rsd_error *err);
meta_bytes meta_written(const rsi_dcp_meta *meta);
/* Both free the bytes. */
rsi_dcp_meta *meta_accept(meta_bytes b);
void          meta_refuse(meta_bytes b, rsd_err code, const char *message);

void meta_assert_tensor(const rsi_dcp_tensor *t, const char *name, rsd_dtype dtype, int ndim,
                        size_t nchunks);

/* A table of one tensor [8, 3] of two chunks and one item, to be changed by tests. */
extern struct meta_table {
    rsi_dcp_meta       meta;
    rsi_dcp_tensor     tensor[2];
    int64_t            shape[2], box[8];
    rsi_dcp_row        row[2];
    rsi_dcp_item       item;
    const char        *file[2];
    rsi_dcp_transforms transforms;
    rsi_dcp_path       path;
    rsi_dcp_part       part[2];
} meta_table;
/* Makes it what it was; for cmocka. */
int meta_set_up(void **state);

#endif
