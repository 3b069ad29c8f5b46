/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_meta.c - DCP metadata: samples that torch wrote, tables that we write, and files that
 * must be refused. tests/data/make_metadata.py makes the samples. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/dcp_meta.h"

#include <stdio.h>
#include <stdlib.h>

#ifndef TEST_DATA
#define TEST_DATA "tests/data" /* from the top of the project */
#endif

typedef struct bytes {
    unsigned char *at;
    size_t         len;
} bytes;

static const char *const samples[] = {
    "dtypes",
    "nested",
    "bytes",
    "small",
    "zstd",
    "sharded",
    "protocol2",
    "protocol5",
    "python313",
    "rank0",
    "rank1",
    "old_package",
    "shared_transforms",
    "extra_attributes",
};
enum { NSAMPLES = sizeof(samples) / sizeof(samples[0]) };

static bytes sample(const char *name)
{
    char  path[512];
    FILE *f;
    bytes b = { .at = malloc(20000) };

    snprintf(path, sizeof(path), "%s/metadata/%s.metadata", TEST_DATA, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("no sample \"%s\"", path);
    b.len = fread(b.at, 1, 20000, f);
    fclose(f);
    return b;
}

static rsd_err append(void *arg, const void *more, size_t len, rsd_error *err)
{
    bytes *b = arg;

    (void)err;
    b->at = realloc(b->at, b->len + len);
    memcpy(b->at + b->len, more, len);
    b->len += len;
    return RSD_OK;
}

static rsd_err read_bytes(const bytes *b, unsigned flags, rsi_dcp_meta **out, rsd_error *err)
{
    rsi_source source = rsi_memory_source(b->at, b->len, ".metadata");

    return rsi_dcp_meta_read(&source, flags, out, err);
}

static rsi_dcp_meta *accept(bytes b)
{
    rsi_dcp_meta *meta = NULL;
    rsd_error     err;

    if (read_bytes(&b, 0, &meta, &err))
        fail_msg("%s", err.msg);
    free(b.at);
    return meta;
}

static void refuse(bytes b, rsd_err code, const char *message)
{
    rsi_dcp_meta *meta = NULL;
    rsd_error     err = { 0 };

    assert_int_equal(read_bytes(&b, 0, &meta, &err), code);
    if (!strstr(err.msg, message))
        fail_msg("\"%s\" is not in \"%s\"", message, err.msg);
    assert_null(meta);
    free(b.at);
}

static bytes written(const rsi_dcp_meta *meta)
{
    bytes     b = { 0 };
    rsd_error err;

    if (rsi_dcp_meta_write(meta, append, &b, &err))
        fail_msg("%s", err.msg);
    return b;
}

/* ---- Samples ------------------------------------------------------------------------------------
 */

static void assert_tensor(const rsi_dcp_tensor *t, const char *name, rsd_dtype dtype, int ndim,
                          size_t nchunks)
{
    assert_string_equal(t->name, name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->ndim, ndim);
    assert_int_equal(t->nchunks, nchunks);
}

static void every_dtype_of_torch_is_read(void **state)
{
    rsi_dcp_meta *meta = accept(sample("dtypes"));

    (void)state;
    assert_int_equal(meta->ntensors, 22);
    for (size_t t = 0; t < 22; t++) {
        rsd_dtype dtype;

        assert_int_equal(rsd_dtype_parse(meta->tensor[t].name, &dtype, NULL), RSD_OK);
        assert_tensor(&meta->tensor[t], meta->tensor[t].name, dtype, 2, 1);
    }
    assert_string_equal(meta->version, "1.0.0");
    rsi_dcp_meta_free(meta);
}

static void nested_names_have_paths(void **state)
{
    rsi_dcp_meta       *meta = accept(sample("nested"));
    const rsi_dcp_path *path = NULL;

    (void)state;
    for (size_t i = 0; i < meta->npaths; i++)
        if (strcmp(meta->path[i].name, "model.layers.1.w") == 0)
            path = &meta->path[i];
    assert_true(meta->has_paths);
    assert_non_null(path);
    assert_int_equal(path->nparts, 4);
    assert_string_equal(path->part[1].key, "layers");
    assert_null(path->part[2].key);
    assert_int_equal(path->part[2].index, 1);
    rsi_dcp_meta_free(meta);
}

static void bytes_items_are_apart_from_tensors(void **state)
{
    rsi_dcp_meta *meta = accept(sample("bytes"));

    (void)state;
    assert_int_equal(meta->ntensors, 1);
    assert_tensor(&meta->tensor[0], "rng", RSD_U8, 1, 1);
    assert_int_equal(meta->nitems, 4);
    assert_string_equal(meta->item[0].name, "step");
    assert_string_equal(meta->file[meta->item[0].row.file], "__0_0.distcp");
    assert_true(meta->item[0].row.length > 0);
    rsi_dcp_meta_free(meta);
}

static void scalars_and_empty_tensors_are_read(void **state)
{
    rsi_dcp_meta *meta = accept(sample("small"));

    (void)state;
    assert_tensor(&meta->tensor[0], "scalar", RSD_F32, 0, 1);
    assert_tensor(&meta->tensor[1], "empty", RSD_F32, 2, 1);
    assert_int_equal(meta->tensor[1].shape[0], 0);
    assert_tensor(&meta->tensor[2], "deep", RSD_F32, 5, 1);
    assert_int_equal(rsi_dcp_chunk_size(meta, &meta->tensor[2], 0)[4], 3);
    rsi_dcp_meta_free(meta);
}

static void transforms_are_read(void **state)
{
    static const char *const names[] = { "zstd", "shared_transforms" };
    static const char *const want[] = { "stream.zstd/1", "zstd" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rsi_dcp_meta *meta = accept(sample(names[i]));

        assert_int_equal(meta->ntransforms, 1);
        assert_int_equal(meta->transforms[0].n, 1);
        assert_string_equal(meta->transforms[0].name[0], want[i]);
        for (size_t c = 0; c < meta->nchunks; c++)
            assert_int_equal(meta->row[c].transforms, 0);
        rsi_dcp_meta_free(meta);
    }
}

static void each_chunk_gets_its_own_row(void **state)
{
    rsi_dcp_meta         *meta = accept(sample("sharded"));
    const rsi_dcp_tensor *t = &meta->tensor[0];
    char                  file[32];

    (void)state;
    assert_tensor(t, "model.weight", RSD_F32, 2, 20);
    for (size_t i = 0; i < 20; i++) {
        const rsi_dcp_row *row = &meta->row[t->first + i];

        assert_int_equal(rsi_dcp_chunk_offset(meta, t, i)[0], 4 * i);
        assert_int_equal(rsi_dcp_chunk_size(meta, t, i)[0], 4);
        assert_int_equal(rsi_dcp_chunk_size(meta, t, i)[1], 3);
        snprintf(file, sizeof(file), "__%zu_0.distcp", i);
        assert_string_equal(meta->file[row->file], file);
        assert_int_equal(row->length, 1000 + i);
        assert_int_equal(row->transforms, RSI_DCP_NO_TRANSFORMS);
    }
    assert_string_equal(meta->checkpoint_id, "/data/run/step_100");
    assert_string_equal(meta->save_id, "00000000-0000-4000-8000-000000000000");
    rsi_dcp_meta_free(meta);
}

static void protocols_2_and_5_read_as_protocol_4_does(void **state)
{
    static const char *const names[] = { "protocol2", "protocol5" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rsi_dcp_meta *meta = accept(sample(names[i]));

        assert_tensor(&meta->tensor[0], "model.weight", RSD_F32, 2, 3);
        assert_int_equal(meta->row[2].length, 1002);
        rsi_dcp_meta_free(meta);
    }
}

static void names_of_torch_1_13_are_known(void **state)
{
    rsi_dcp_meta *meta = accept(sample("old_package"));

    (void)state;
    assert_tensor(&meta->tensor[0], "w", RSD_F64, 2, 1);
    assert_true(meta->tensor[0].requires_grad);
    assert_int_equal(meta->nitems, 1);
    assert_int_equal(meta->item[0].row.offset, 900);
    assert_false(meta->has_paths);
    assert_null(meta->checkpoint_id);
    assert_null(meta->version);
    rsi_dcp_meta_free(meta);
}

static void path_of_python_3_13_is_read(void **state)
{
    rsi_dcp_meta *meta = accept(sample("python313"));

    (void)state;
    assert_string_equal(meta->checkpoint_id, "/data/run/step_100");
    rsi_dcp_meta_free(meta);
}

static void unknown_attributes_are_ignored(void **state)
{
    rsi_dcp_meta *meta = accept(sample("extra_attributes"));

    (void)state;
    assert_int_equal(meta->nchunks, 2);
    rsi_dcp_meta_free(meta);
}

/* ---- Writing ------------------------------------------------------------------------------------
 */

static void what_is_written_reads_back_and_is_written_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < NSAMPLES; i++) {
        rsi_dcp_meta *meta = accept(sample(samples[i])), *again;
        bytes         first = written(meta), second;
        rsd_error     err;

        if (read_bytes(&first, 0, &again, &err))
            fail_msg("%s: %s", samples[i], err.msg);
        second = written(again);
        assert_int_equal(first.len, second.len);
        assert_memory_equal(first.at, second.at, first.len);
        assert_int_equal(again->nchunks, meta->nchunks);
        assert_int_equal(again->nitems, meta->nitems);
        assert_int_equal(again->npaths, meta->npaths);
        free(first.at);
        free(second.at);
        rsi_dcp_meta_free(meta);
        rsi_dcp_meta_free(again);
    }
}

/* A table of one tensor [8, 3] of two chunks and one item, to be changed by tests. */
static struct table {
    rsi_dcp_meta       meta;
    rsi_dcp_tensor     tensor[2];
    int64_t            shape[2], box[8];
    rsi_dcp_row        row[2];
    rsi_dcp_item       item;
    const char        *file[2];
    rsi_dcp_transforms transforms;
    rsi_dcp_path       path;
    rsi_dcp_part       part[2];
} table;

static const char *const steps[] = { "rot13", "zstd" };

static int set_up(void **state)
{
    (void)state;
    table = (struct table){ 0 };
    memcpy(table.shape, (int64_t[]){ 8, 3 }, sizeof(table.shape));
    memcpy(table.box, (int64_t[]){ 0, 0, 4, 3, 4, 0, 4, 3 }, sizeof(table.box));
    table.tensor[0] = (rsi_dcp_tensor){
        .name = "a.0", .shape = table.shape, .nchunks = 2, .dtype = RSD_F32, .ndim = 2
    };
    table.row[0] = (rsi_dcp_row){ 0, RSI_DCP_NO_TRANSFORMS, 0, 1000 };
    table.row[1] = (rsi_dcp_row){ 1, 0, (int64_t)1 << 40, 999 };
    table.item = (rsi_dcp_item){ "step", { 0, RSI_DCP_NO_TRANSFORMS, 1000, 300 } };
    table.file[0] = "__0_0.distcp";
    table.file[1] = "__1_0.distcp";
    table.transforms = (rsi_dcp_transforms){ 2, steps };
    table.part[0] = (rsi_dcp_part){ .key = "a" };
    table.path = (rsi_dcp_path){ "a.0", table.part, 2 };
    table.meta = (rsi_dcp_meta){ .tensor = table.tensor,
                                 .ntensors = 1,
                                 .box = table.box,
                                 .row = table.row,
                                 .nchunks = 2,
                                 .item = &table.item,
                                 .nitems = 1,
                                 .file = table.file,
                                 .nfiles = 2,
                                 .transforms = &table.transforms,
                                 .ntransforms = 1,
                                 .path = &table.path,
                                 .npaths = 1,
                                 .has_paths = true,
                                 .checkpoint_id = "name" };
    return 0;
}

static void table_made_by_hand_reads_back(void **state)
{
    rsi_dcp_meta *meta = accept(written(&table.meta));

    (void)state;
    assert_tensor(&meta->tensor[0], "a.0", RSD_F32, 2, 2);
    assert_int_equal(rsi_dcp_chunk_offset(meta, &meta->tensor[0], 1)[0], 4);
    assert_int_equal(meta->row[1].offset, (int64_t)1 << 40);
    assert_string_equal(meta->file[meta->row[1].file], "__1_0.distcp");
    assert_int_equal(meta->transforms[meta->row[1].transforms].n, 2);
    assert_string_equal(meta->transforms[0].name[1], "zstd");
    assert_string_equal(meta->item[0].name, "step");
    assert_int_equal(meta->item[0].row.length, 300);
    assert_null(meta->path[0].part[1].key);
    assert_string_equal(meta->checkpoint_id, "name");
    assert_null(meta->save_id);
    rsi_dcp_meta_free(meta);
}

static void integers_of_every_size_read_back(void **state)
{
    static const int64_t list[] = { 0,          255,       256,         65535,
                                    65536,      INT32_MAX, 2147483648u, 4294967295u,
                                    4294967296, 1ll << 39, 1ll << 47,   INT64_MAX - 1000 };

    (void)state;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        rsi_dcp_meta *meta;

        table.row[0].offset = list[i];
        meta = accept(written(&table.meta));
        assert_int_equal(meta->row[0].offset, list[i]);
        rsi_dcp_meta_free(meta);
    }
}

static void names_of_any_length_read_back(void **state)
{
    char *name = calloc(1, 70001);

    (void)state;
    for (size_t len = 0; len <= 70000; len += len < 254 ? 254 : len < 257 ? 1 : 69743) {
        rsi_dcp_meta *meta;

        memset(name, 'n', len);
        name[len] = '\0';
        table.tensor[0].name = name;
        meta = accept(written(&table.meta));
        assert_string_equal(meta->tensor[0].name, name);
        rsi_dcp_meta_free(meta);
    }
    free(name);
}

/* More chunks than one batch of the pickle takes. */
static void thousands_of_chunks_read_back(void **state)
{
    enum { N = 2500 };
    int64_t      *box = calloc(N, 2 * sizeof(box[0])), shape = N;
    rsi_dcp_row  *row = calloc(N, sizeof(row[0]));
    rsi_dcp_meta *meta;

    (void)state;
    for (int i = 0; i < N; i++) {
        box[2 * i] = i;
        box[2 * i + 1] = 1;
        row[i] = (rsi_dcp_row){ 0, RSI_DCP_NO_TRANSFORMS, 100 * i, 100 };
    }
    table.tensor[0] = (rsi_dcp_tensor){
        .name = "a.0", .shape = &shape, .nchunks = N, .dtype = RSD_F32, .ndim = 1
    };
    table.meta.box = box;
    table.meta.row = row;
    table.meta.nchunks = N;
    meta = accept(written(&table.meta));
    assert_int_equal(meta->nchunks, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(meta->row[i].offset, 100 * i);
    rsi_dcp_meta_free(meta);
    free(box);
    free(row);
}

static void table_that_can_not_be_written_is_refused(void **state)
{
    bytes b = { 0 };

    (void)state;
    table.row[0].file = 2;
    assert_int_equal(rsi_dcp_meta_write(&table.meta, append, &b, NULL), RSD_E_INVALID);
    set_up(NULL);
    table.row[0].transforms = 1;
    assert_int_equal(rsi_dcp_meta_write(&table.meta, append, &b, NULL), RSD_E_INVALID);
    set_up(NULL);
    table.tensor[0].dtype = (rsd_dtype)0;
    assert_int_equal(rsi_dcp_meta_write(&table.meta, append, &b, NULL), RSD_E_INVALID);
    set_up(NULL);
    table.meta.nchunks = 3;
    assert_int_equal(rsi_dcp_meta_write(&table.meta, append, &b, NULL), RSD_E_INVALID);
    assert_int_equal(b.len, 0);
}

static rsd_err disk_full(void *arg, const void *more, size_t len, rsd_error *err)
{
    (void)arg;
    (void)more;
    (void)len;
    return rsi_fail(err, RSD_E_IO, "disk full");
}

static void failing_put_ends_the_writing(void **state)
{
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_dcp_meta_write(&table.meta, disk_full, NULL, &err), RSD_E_IO);
    assert_string_equal(err.msg, "disk full");
}

/* ---- What does not fit together -----------------------------------------------------------------
 */

static void chunk_outside_its_tensor_is_refused(void **state)
{
    (void)state;
    table.box[4] = 5;
    refuse(written(&table.meta), RSD_E_FORMAT,
           "tensor \"a.0\": the chunk at [5, 0] of size [4, 3] is not inside of the shape [8, 3]");
    table.box[4] = INT64_MAX;
    refuse(written(&table.meta), RSD_E_FORMAT, "is not inside");
    table.box[4] = -1;
    refuse(written(&table.meta), RSD_E_FORMAT, "the chunk at [-1, 0]");
    set_up(NULL);
    table.box[6] = -4;
    refuse(written(&table.meta), RSD_E_FORMAT, "of size [-4, 3]");
}

static void empty_chunk_at_the_end_is_inside(void **state)
{
    (void)state;
    table.box[4] = 8;
    table.box[6] = 0;
    rsi_dcp_meta_free(accept(written(&table.meta)));
}

static void chunk_that_is_listed_twice_is_refused(void **state)
{
    (void)state;
    table.box[4] = 0;
    refuse(written(&table.meta), RSD_E_FORMAT, "tensor \"a.0\": two chunks at [0, 0]");
}

static void shapes_that_can_not_be_are_refused(void **state)
{
    (void)state;
    table.shape[0] = -8;
    refuse(written(&table.meta), RSD_E_FORMAT, "the shape [-8, 3] has a negative size");
    table.shape[0] = INT64_MAX / 4;
    refuse(written(&table.meta), RSD_E_FORMAT, "is too large");
}

static void tensor_of_nine_dimensions_is_not_supported(void **state)
{
    int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    (void)state;
    table.tensor[0].ndim = 9;
    table.tensor[0].shape = nine;
    table.tensor[0].nchunks = 0;
    table.meta.nchunks = 0;
    refuse(written(&table.meta), RSD_E_UNSUPPORTED, "tensor \"a.0\": 9 dimensions");
}

static void chunk_of_other_dimensions_is_refused(void **state)
{
    bytes          b = written(&table.meta);
    unsigned char *at = memmem(b.at, b.len, "sizes", 5);

    (void)state;
    /* "sizes" MEMOIZE BINGET <Size> BININT1 4 BININT1 3 TUPLE2: without the 4, and TUPLE1 */
    memmove(at + 8, at + 10, b.len - (size_t)(at + 10 - b.at));
    at[10] = 0x85;
    b.len -= 2;
    refuse(b, RSD_E_FORMAT, "in a tensor of 2 dimensions");
}

static void file_names_that_lead_elsewhere_are_refused(void **state)
{
    static const struct {
        const char *name, *why;
    } bad[] = {
        { "", "\"\" is refused: it is empty" },
        { "/etc/passwd", "\"/etc/passwd\" is refused: it is absolute" },
        { "../x", "more than one component" },
        { "a/b", "more than one component" },
        { "..", "it is a directory" },
        { ".", "it is a directory" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        table.file[1] = bad[i].name;
        refuse(written(&table.meta), RSD_E_FORMAT, bad[i].why);
    }
}

static void file_name_with_a_nul_is_refused(void **state)
{
    bytes b = written(&table.meta);

    (void)state;
    ((unsigned char *)memmem(b.at, b.len, "__1_0", 5))[2] = '\0';
    refuse(b, RSD_E_FORMAT, "there is a NUL in it");
}

static void rows_that_can_not_be_are_refused(void **state)
{
    (void)state;
    table.row[0].offset = -1;
    refuse(written(&table.meta), RSD_E_FORMAT,
           "1000 bytes from byte -1 on of file \"__0_0.distcp\"");
    table.row[0].offset = INT64_MAX;
    refuse(written(&table.meta), RSD_E_FORMAT, "can't be");
    table.row[0].offset = 0;
    table.row[0].length = -5;
    refuse(written(&table.meta), RSD_E_FORMAT, "-5 bytes");
}

static void path_that_does_not_join_to_its_name_is_refused(void **state)
{
    (void)state;
    table.part[1].index = 1;
    refuse(written(&table.meta), RSD_E_FORMAT,
           "planner_data of \"a.0\" does not join to that name");
    table.path.nparts = 1;
    refuse(written(&table.meta), RSD_E_FORMAT, "does not join");
    table.part[0].key = "a.0.0";
    refuse(written(&table.meta), RSD_E_FORMAT, "does not join");
}

static void name_that_is_there_twice_is_refused(void **state)
{
    (void)state;
    table.item.name = "a.0";
    refuse(written(&table.meta), RSD_E_FORMAT, "\"a.0\" is there twice");
}

static void path_that_is_there_twice_is_refused(void **state)
{
    rsi_dcp_path twice[] = { table.path, table.path };

    (void)state;
    table.meta.path = twice;
    table.meta.npaths = 2;
    refuse(written(&table.meta), RSD_E_FORMAT, "planner_data has \"a.0\" twice");
}

static void chunk_without_a_row_is_refused(void **state)
{
    bytes          b = written(&table.meta);
    unsigned char *from = (unsigned char *)memmem(b.at, b.len, "storage_data}", 13) + 13;
    unsigned char *to = (unsigned char *)memmem(b.at, b.len, "\x8c\x0cstorage_meta", 14);

    (void)state;
    memmove(from, to, b.len - (size_t)(to - b.at));
    b.len -= (size_t)(to - from);
    refuse(b, RSD_E_FORMAT, "tensor \"a.0\": the chunk at [0, 0] has no row in storage_data");
}

static void row_without_a_chunk_is_refused(void **state)
{
    bytes          b = written(&table.meta);
    unsigned char *at = memmem(b.at, b.len, "\x8c\x06offset\x94h", 10);

    (void)state;
    assert_int_equal(at[11], 'K');
    at[12] = 3;
    refuse(b, RSD_E_FORMAT, "tensor \"a.0\": storage_data has a row at [3, 0], where no chunk is");
}

static void two_rows_for_one_chunk_are_refused(void **state)
{
    bytes          b = written(&table.meta);
    unsigned char *at = memmem(b.at, b.len, "\x8c\x06offset\x94h", 10);

    (void)state;
    at[12] = 4;
    refuse(b, RSD_E_FORMAT, "storage_data has two rows at [4, 0]");
}

static void row_of_an_unknown_name_is_refused(void **state)
{
    bytes          b = written(&table.meta);
    unsigned char *at = memmem(b.at, b.len,
                               "\x8c\x03"
                               "fqn\x94h",
                               7);

    (void)state;
    at[7] = 0; /* the memo's first text */
    refuse(b, RSD_E_FORMAT,
           "storage_data has a row for \"torch.distributed.checkpoint.metadata\", which does not");
}

static void dtype_that_is_not_supported_is_named(void **state)
{
    bytes b = written(&table.meta);

    (void)state;
    memcpy(memmem(b.at, b.len, "float32", 7), "bits2x4", 7);
    refuse(b, RSD_E_UNSUPPORTED, "tensor \"a.0\": the dtype \"torch.bits2x4\" is not supported");
}

/* ---- Hostile files
 * ------------------------------------------------------------------------------- */

static bytes copy(const char *from, size_t len)
{
    bytes b = { 0 };

    append(&b, from, len, NULL);
    return b;
}
#define PICKLE(text) copy(text, sizeof(text) - 1)
#define ADD(b, text) append(b, text, sizeof(text) - 1, NULL)

static void file_that_would_run_something_is_refused(void **state)
{
    (void)state;
    refuse(
        PICKLE("\x80\x04"
               "cposix\nsystem\n\x8c\x02id\x85R."),
        RSD_E_FORMAT,
        "metadata \".metadata\": byte 21: refused, because loading it would call \"posix.system\"");
    refuse(PICKLE("\x80\x04(ios\nsystem\n."), RSD_E_FORMAT, "would call \"os.system\"");
}

static void foreign_name_is_refused(void **state)
{
    bytes b = sample("sharded");

    (void)state;
    memcpy(memmem(b.at, b.len, "_get_layout", 11), "_get_gayout", 11);
    refuse(b, RSD_E_FORMAT, "\"torch.serialization._get_gayout\"");
}

static void foreign_object_where_nobody_looks_can_be_allowed(void **state)
{
    bytes         b = written(&table.meta);
    size_t        end = b.len - 3; /* SETITEMS BUILD STOP */
    rsi_dcp_meta *meta = NULL;

    (void)state;
    b.len = end;
    ADD(&b, "\x8c\x05other"
            "cmy\nClass\n)Rub.");
    assert_int_equal(read_bytes(&b, 0, &meta, NULL), RSD_E_FORMAT);
    assert_int_equal(read_bytes(&b, RSI_DCP_ALLOW_UNKNOWN, &meta, NULL), RSD_OK);
    assert_int_equal(meta->nchunks, 2);
    rsi_dcp_meta_free(meta);
    free(b.at);
}

static void something_else_than_metadata_is_refused(void **state)
{
    (void)state;
    refuse(PICKLE("\x80\x04N."), RSD_E_FORMAT, "no object of torch's class Metadata");
    refuse(PICKLE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b."), RSD_E_FORMAT,
           "state_dict_metadata is missing");
}

static void bytes_behind_the_pickle_are_refused(void **state)
{
    bytes b = sample("sharded");

    (void)state;
    ADD(&b, "x");
    refuse(b, RSD_E_FORMAT, "1 bytes behind the end");
}

static void bombs_are_refused_without_memory(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    refuse(PICKLE("Nr\x00\x00\x00\x40."), RSD_E_FORMAT, "memo place 1073741824");
    assert_in_range(rsi_mem_stats_get().peak, 1, 1 << 20);
}

static void list_of_chunks_for_many_tensors_is_refused(void **state)
{
    bytes b = { 0 };

    (void)state;
    /* a chunk, then a list that has it 250 times, then tensors with that list */
    ADD(&b,
        "ctorch.distributed.checkpoint.metadata\nTensorProperties\n)\x81(ctorch\nint8\nNNNNtbq\x00"
        "0");
    ADD(&b, "ctorch.distributed.checkpoint.metadata\nChunkStorageMetadata\n)\x81}(\x8c\x07offsets)"
            "\x8c\x05"
            "sizes)ubq\x01"
            "0](");
    for (int i = 0; i < 250; i++)
        ADD(&b, "h\x01");
    ADD(&b, "eq\x02"
            "0ctorch.distributed.checkpoint.metadata\nTensorStorageMetadata\nq\x03"
            "0");
    for (int i = 0; i < 250; i++)
        ADD(&b, "h\x03)\x81}(\x8c\x0aproperties"
                "h\x00\x8c\x04size)\x8c\x06"
                "chunksh\x02ub0");
    ADD(&b, "N.");
    refuse(b, RSD_E_FORMAT, "more chunks are listed than the file has bytes");
}

static void every_truncation_of_every_sample_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < NSAMPLES; i++) {
        bytes whole = sample(samples[i]);

        for (size_t len = 0; len < whole.len; len++) {
            bytes cut = copy((char *)whole.at, len);

            refuse(cut, RSD_E_FORMAT, "metadata \".metadata\"");
        }
        free(whole.at);
    }
}

/* Whatever it says then: no crash, no leak, no more memory than allowed. */
static void every_changed_byte_is_survived(void **state)
{
    bytes   b = sample("nested");
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    rsi_mem_fail_at(0, 0);
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            rsi_dcp_meta *meta = NULL;

            b.at[i] ^= (unsigned char)(1 << bit);
            if (read_bytes(&b, 0, &meta, NULL) == RSD_OK)
                rsi_dcp_meta_free(meta);
            b.at[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
        }
    assert_in_range(rsi_mem_stats_get().peak, 1, before + 16 * (int64_t)b.len + (1 << 20));
    free(b.at);
}

/* ---- Joining
 * ------------------------------------------------------------------------------------- */

static void chunks_of_several_ranks_are_joined(void **state)
{
    rsi_dcp_meta         *part[] = { accept(sample("rank0")), accept(sample("rank1")) }, *meta;
    const rsi_dcp_tensor *w;

    (void)state;
    assert_int_equal(rsi_dcp_meta_merge(2, (const rsi_dcp_meta *const *)part, &meta, NULL), RSD_OK);
    rsi_dcp_meta_free(part[0]);
    rsi_dcp_meta_free(part[1]);
    w = &meta->tensor[0];
    assert_int_equal(meta->ntensors, 2);
    assert_tensor(w, "w", RSD_F32, 2, 2);
    assert_int_equal(rsi_dcp_chunk_offset(meta, w, 1)[0], 4);
    assert_string_equal(meta->file[meta->row[w->first + 1].file], "__1_0.distcp");
    /* what both wrote is the first one's */
    assert_tensor(&meta->tensor[1], "bias", RSD_BF16, 1, 1);
    assert_string_equal(meta->file[meta->row[meta->tensor[1].first].file], "__0_0.distcp");
    assert_int_equal(meta->nitems, 1);
    assert_string_equal(meta->file[meta->item[0].row.file], "__0_0.distcp");
    assert_int_equal(meta->npaths, 3);
    assert_string_equal(meta->save_id, "00000000-0000-4000-8000-000000000000");
    rsi_dcp_meta_free(meta);
}

static void ranks_that_disagree_are_refused(void **state)
{
    rsi_dcp_meta       *other = accept(written(&table.meta)), *meta = NULL;
    const rsi_dcp_meta *part[] = { other, &table.meta };
    rsd_error           err;

    (void)state;
    table.tensor[0].dtype = RSD_F16;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "tensor \"a.0\" has another dtype or shape"));
    table.tensor[0].dtype = RSD_F32;
    table.shape[1] = 4;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    table.shape[1] = 3;
    table.box[6] = 3;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "chunks of different sizes at one offset"));
    set_up(NULL);
    table.item.name = "a.0";
    table.meta.ntensors = 0;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "a tensor for one rank and bytes for another"));
    assert_null(meta);
    rsi_dcp_meta_free(other);
}

static void transforms_of_several_ranks_are_kept_apart(void **state)
{
    static const char *const other_steps[] = { "zstd" };
    rsi_dcp_meta            *other = accept(written(&table.meta)), *meta;
    const rsi_dcp_meta      *part[] = { other, &table.meta };

    (void)state;
    table.transforms = (rsi_dcp_transforms){ 1, other_steps };
    table.tensor[0].name = "b";
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, NULL), RSD_OK);
    assert_int_equal(meta->ntransforms, 2);
    assert_int_equal(meta->transforms[meta->row[1].transforms].n, 2);
    assert_int_equal(meta->transforms[meta->row[3].transforms].n, 1);
    rsi_dcp_meta_free(meta);
    rsi_dcp_meta_free(other);
}

static void no_tables_join_to_an_empty_one(void **state)
{
    rsi_dcp_meta *meta;

    (void)state;
    assert_int_equal(rsi_dcp_meta_merge(0, NULL, &meta, NULL), RSD_OK);
    assert_int_equal(meta->ntensors, 0);
    rsi_dcp_meta_free(accept(written(meta)));
    rsi_dcp_meta_free(meta);
}

/* ---- No memory
 * ------------------------------------------------------------------------------------ */

static rsd_err drop(void *arg, const void *more, size_t len, rsd_error *err)
{
    (void)arg;
    (void)more;
    (void)len;
    (void)err;
    return RSD_OK;
}

/* Reads, joins and writes with the nth allocation failing. */
static rsd_err all_with_a_failure(const bytes *b, uint64_t n, int for_ever)
{
    rsi_dcp_meta       *meta = NULL, *joined = NULL;
    const rsi_dcp_meta *part[] = { NULL, &table.meta };
    rsd_err             rc;

    rsi_mem_fail_at(n, for_ever);
    rc = read_bytes(b, 0, &meta, NULL);
    part[0] = meta;
    if (!rc)
        rc = rsi_dcp_meta_merge(2, part, &joined, NULL);
    if (!rc)
        rc = rsi_dcp_meta_write(joined, drop, NULL, NULL);
    rsi_mem_fail_at(0, 0);
    rsi_dcp_meta_free(meta);
    rsi_dcp_meta_free(joined);
    return rc;
}

static void every_allocation_may_fail(void **state)
{
    static const char *const names[] = { "nested", "shared_transforms", "bytes" };
    int64_t                  before = rsi_mem_stats_get().bytes;

    (void)state;
    for (int i = 0; i < 6; i++) {
        bytes   b = sample(names[i / 2]);
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rc = all_with_a_failure(&b, n, i % 2);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            assert_in_range(n, 1, 500);
        }
        free(b.at);
    }
}

#define FACT(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FACT(every_dtype_of_torch_is_read),
        FACT(nested_names_have_paths),
        FACT(bytes_items_are_apart_from_tensors),
        FACT(scalars_and_empty_tensors_are_read),
        FACT(transforms_are_read),
        FACT(each_chunk_gets_its_own_row),
        FACT(protocols_2_and_5_read_as_protocol_4_does),
        FACT(names_of_torch_1_13_are_known),
        FACT(path_of_python_3_13_is_read),
        FACT(unknown_attributes_are_ignored),
        FACT(what_is_written_reads_back_and_is_written_the_same),
        FACT(table_made_by_hand_reads_back),
        FACT(integers_of_every_size_read_back),
        FACT(names_of_any_length_read_back),
        FACT(thousands_of_chunks_read_back),
        FACT(table_that_can_not_be_written_is_refused),
        FACT(failing_put_ends_the_writing),
        FACT(chunk_outside_its_tensor_is_refused),
        FACT(empty_chunk_at_the_end_is_inside),
        FACT(chunk_that_is_listed_twice_is_refused),
        FACT(shapes_that_can_not_be_are_refused),
        FACT(tensor_of_nine_dimensions_is_not_supported),
        FACT(chunk_of_other_dimensions_is_refused),
        FACT(file_names_that_lead_elsewhere_are_refused),
        FACT(file_name_with_a_nul_is_refused),
        FACT(rows_that_can_not_be_are_refused),
        FACT(path_that_does_not_join_to_its_name_is_refused),
        FACT(name_that_is_there_twice_is_refused),
        FACT(path_that_is_there_twice_is_refused),
        FACT(chunk_without_a_row_is_refused),
        FACT(row_without_a_chunk_is_refused),
        FACT(two_rows_for_one_chunk_are_refused),
        FACT(row_of_an_unknown_name_is_refused),
        FACT(dtype_that_is_not_supported_is_named),
        FACT(file_that_would_run_something_is_refused),
        FACT(foreign_name_is_refused),
        FACT(foreign_object_where_nobody_looks_can_be_allowed),
        FACT(something_else_than_metadata_is_refused),
        FACT(bytes_behind_the_pickle_are_refused),
        FACT(bombs_are_refused_without_memory),
        FACT(list_of_chunks_for_many_tensors_is_refused),
        FACT(every_truncation_of_every_sample_is_refused),
        FACT(every_changed_byte_is_survived),
        FACT(chunks_of_several_ranks_are_joined),
        FACT(ranks_that_disagree_are_refused),
        FACT(transforms_of_several_ranks_are_kept_apart),
        FACT(no_tables_join_to_an_empty_one),
        FACT(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
