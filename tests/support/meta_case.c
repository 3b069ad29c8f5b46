/* SPDX-License-Identifier: Apache-2.0 */
/* Samples and a table made by hand for tests of DCP metadata. tests/data/make_metadata.py makes the
 * samples. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "meta_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TEST_DATA
#define TEST_DATA "tests/data" /* from the top of the project */
#endif

const char *const meta_samples[META_SAMPLES] = {
    "dtypes",
    "nested",
    "bytes",
    "small",
    "zstd",
    "sharded",
    "protocol2",
    "protocol5",
    "python313",
    "python3112",
    "python3112_protocol2",
    "rank0",
    "rank1",
    "old_package",
    "shared_transforms",
    "extra_attributes",
    "megatron",
    "torch_2_15",
};

meta_bytes meta_sample(const char *name)
{
    char       path[512];
    FILE      *f;
    meta_bytes b = { .at = malloc(20000) };

    snprintf(path, sizeof(path), "%s/metadata/%s.metadata", TEST_DATA, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("no sample \"%s\"", path);
    b.len = fread(b.at, 1, 20000, f);
    fclose(f);
    return b;
}

rsd_err meta_append(void *arg, const void *more, size_t len, rsd_error *err)
{
    meta_bytes *b = arg;

    (void)err;
    b->at = realloc(b->at, b->len + len);
    memcpy(b->at + b->len, more, len);
    b->len += len;
    return RSD_OK;
}

rsd_err meta_read(const meta_bytes *b, rsi_dcp_meta **out, rsd_error *err)
{
    rsi_source source = rsi_memory_source(b->at, b->len, ".metadata");

    return rsi_dcp_meta_read(&source, out, err);
}

rsi_dcp_meta *meta_accept(meta_bytes b)
{
    rsi_dcp_meta *meta = NULL;
    rsd_error     err;

    if (meta_read(&b, &meta, &err))
        fail_msg("%s", err.msg);
    free(b.at);
    return meta;
}

void meta_refuse(meta_bytes b, rsd_err code, const char *message)
{
    rsi_dcp_meta *meta = NULL;
    rsd_error     err = { 0 };

    assert_int_equal(meta_read(&b, &meta, &err), code);
    if (!strstr(err.msg, message))
        fail_msg("\"%s\" is not in \"%s\"", message, err.msg);
    assert_null(meta);
    free(b.at);
}

meta_bytes meta_written(const rsi_dcp_meta *meta)
{
    meta_bytes b = { 0 };
    rsd_error  err;

    if (rsi_dcp_meta_write(meta, meta_append, &b, &err))
        fail_msg("%s", err.msg);
    return b;
}

void meta_assert_tensor(const rsi_dcp_tensor *t, const char *name, rsd_dtype dtype, int ndim,
                        size_t nchunks)
{
    assert_string_equal(t->name, name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->ndim, ndim);
    assert_int_equal(t->nchunks, nchunks);
}

struct meta_table meta_table;

static const char *const steps[] = { "rot13", "zstd" };

int meta_set_up(void **state)
{
    (void)state;
    meta_table = (struct meta_table){ 0 };
    memcpy(meta_table.shape, (int64_t[]){ 8, 3 }, sizeof(meta_table.shape));
    memcpy(meta_table.box, (int64_t[]){ 0, 0, 4, 3, 4, 0, 4, 3 }, sizeof(meta_table.box));
    meta_table.tensor[0] = (rsi_dcp_tensor){
        .name = "a.0", .shape = meta_table.shape, .nchunks = 2, .dtype = RSD_F32, .ndim = 2
    };
    meta_table.row[0] = (rsi_dcp_row){ 0, RSI_DCP_NO_TRANSFORMS, 0, 1000 };
    meta_table.row[1] = (rsi_dcp_row){ 1, 0, (int64_t)1 << 40, 999 };
    meta_table.item = (rsi_dcp_item){ "step", { 0, RSI_DCP_NO_TRANSFORMS, 1000, 300 } };
    meta_table.file[0] = "__0_0.distcp";
    meta_table.file[1] = "__1_0.distcp";
    meta_table.transforms = (rsi_dcp_transforms){ 2, steps };
    meta_table.part[0] = (rsi_dcp_part){ .key = "a" };
    meta_table.path = (rsi_dcp_path){ "a.0", meta_table.part, 2 };
    meta_table.meta = (rsi_dcp_meta){ .tensor = meta_table.tensor,
                                      .ntensors = 1,
                                      .box = meta_table.box,
                                      .row = meta_table.row,
                                      .nchunks = 2,
                                      .item = &meta_table.item,
                                      .nitems = 1,
                                      .file = meta_table.file,
                                      .nfiles = 2,
                                      .transforms = &meta_table.transforms,
                                      .ntransforms = 1,
                                      .path = &meta_table.path,
                                      .npaths = 1,
                                      .has_paths = true,
                                      .checkpoint_id = "name" };
    return 0;
}
