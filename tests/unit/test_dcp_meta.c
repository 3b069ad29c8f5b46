/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_meta.c - DCP metadata: samples that torch wrote, hostile files, want of memory. What
 * does not fit together is in test_dcp_meta_link.c, writing and joining in test_dcp_meta_write.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "meta_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Samples ------------------------------------------------------------------------------------
 */

static void every_dtype_of_torch_is_read(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("dtypes"));

    (void)state;
    assert_int_equal(meta->ntensors, 22);
    for (size_t t = 0; t < 22; t++) {
        rsd_dtype dtype;

        assert_int_equal(rsd_dtype_parse(meta->tensor[t].name, &dtype, NULL), RSD_OK);
        meta_assert_tensor(&meta->tensor[t], meta->tensor[t].name, dtype, 2, 1);
    }
    assert_string_equal(meta->version, "1.0.0");
    rsi_dcp_meta_free(meta);
}

static void nested_names_have_paths(void **state)
{
    rsi_dcp_meta       *meta = meta_accept(meta_sample("nested"));
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
    rsi_dcp_meta *meta = meta_accept(meta_sample("bytes"));

    (void)state;
    assert_int_equal(meta->ntensors, 1);
    meta_assert_tensor(&meta->tensor[0], "rng", RSD_U8, 1, 1);
    assert_int_equal(meta->nitems, 4);
    assert_string_equal(meta->item[0].name, "step");
    assert_string_equal(meta->file[meta->item[0].row.file], "__0_0.distcp");
    assert_true(meta->item[0].row.length > 0);
    rsi_dcp_meta_free(meta);
}

static void scalars_and_empty_tensors_are_read(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("small"));

    (void)state;
    meta_assert_tensor(&meta->tensor[0], "scalar", RSD_F32, 0, 1);
    meta_assert_tensor(&meta->tensor[1], "empty", RSD_F32, 2, 1);
    assert_int_equal(meta->tensor[1].shape[0], 0);
    meta_assert_tensor(&meta->tensor[2], "deep", RSD_F32, 5, 1);
    assert_int_equal(rsi_dcp_chunk_size(meta, &meta->tensor[2], 0)[4], 3);
    rsi_dcp_meta_free(meta);
}

static void transforms_are_read(void **state)
{
    static const char *const names[] = { "zstd", "shared_transforms" };
    static const char *const want[] = { "stream.zstd/1", "zstd" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rsi_dcp_meta *meta = meta_accept(meta_sample(names[i]));

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
    rsi_dcp_meta         *meta = meta_accept(meta_sample("sharded"));
    const rsi_dcp_tensor *t = &meta->tensor[0];
    char                  file[32];

    (void)state;
    meta_assert_tensor(t, "model.weight", RSD_F32, 2, 20);
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
        rsi_dcp_meta *meta = meta_accept(meta_sample(names[i]));

        meta_assert_tensor(&meta->tensor[0], "model.weight", RSD_F32, 2, 3);
        assert_int_equal(meta->row[2].length, 1002);
        rsi_dcp_meta_free(meta);
    }
}

static void names_of_torch_1_13_are_known(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("old_package"));

    (void)state;
    meta_assert_tensor(&meta->tensor[0], "w", RSD_F64, 2, 1);
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
    rsi_dcp_meta *meta = meta_accept(meta_sample("python313"));

    (void)state;
    assert_string_equal(meta->checkpoint_id, "/data/run/step_100");
    rsi_dcp_meta_free(meta);
}

static void enums_of_python_3_11_2_are_read(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        rsi_dcp_meta *meta = meta_accept(meta_sample(i ? "python3112_protocol2" : "python3112"));

        assert_int_equal(meta->ntensors, 1);
        assert_int_equal(meta->tensor[0].dtype, RSD_F32);
        rsi_dcp_meta_free(meta);
    }
}

static void unknown_attributes_of_objects_are_listed_too(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("extra_bytes"));

    (void)state;
    assert_int_equal(meta->nskipped, 1);
    assert_string_equal(meta->skipped[0], "BytesStorageMetadata.codec");
    rsi_dcp_meta_free(meta);
}

static void unknown_attributes_are_skipped_and_listed(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("extra_attributes"));

    (void)state;
    assert_int_equal(meta->nchunks, 2);
    assert_int_equal(meta->nskipped, 1);
    assert_string_equal(meta->skipped[0], "ChunkStorageMetadata.crc32c");
    rsi_dcp_meta_free(meta);
}

/* ---- Hostile files
 * ------------------------------------------------------------------------------- */

static meta_bytes copy(const char *from, size_t len)
{
    meta_bytes b = { 0 };

    meta_append(&b, from, len, NULL);
    return b;
}
#define PICKLE(text) copy(text, sizeof(text) - 1)
#define ADD(b, text) meta_append(b, text, sizeof(text) - 1, NULL)

static void file_that_would_run_something_is_refused(void **state)
{
    (void)state;
    meta_refuse(
        PICKLE("\x80\x04"
               "cposix\nsystem\n\x8c\x02id\x85R."),
        RSD_E_FORMAT,
        "file \".metadata\": byte 21: refused, because loading it would call \"posix.system\"");
    meta_refuse(PICKLE("\x80\x04(ios\nsystem\n."), RSD_E_FORMAT, "would call \"os.system\"");
}

static void getattr_is_taken_for_known_memory_formats_alone(void **state)
{
    meta_bytes b = meta_sample("python3112");

    (void)state;
    memcpy(memmem(b.at, b.len, "TORCH_CONTIGUOUS_FORMAT", 23), "TORCH_CONTIGUOUS_FORMAX", 23);
    meta_refuse(b, RSD_E_FORMAT, "would call \"builtins.getattr\" for something other");
}

static void foreign_name_is_refused(void **state)
{
    meta_bytes b = meta_sample("sharded");

    (void)state;
    memcpy(memmem(b.at, b.len, "_get_layout", 11), "_get_gayout", 11);
    meta_refuse(b, RSD_E_FORMAT, "\"torch.serialization._get_gayout\"");
}

static void foreign_object_in_an_unknown_attribute_is_passed_over(void **state)
{
    meta_bytes    b = meta_written(&meta_table.meta);
    size_t        end = b.len - 3; /* SETITEMS BUILD STOP */
    rsi_dcp_meta *meta = NULL;

    (void)state;
    b.len = end;
    ADD(&b, "\x8c\x05other"
            "cmy\nClass\n)Rub.");
    assert_int_equal(meta_read(&b, &meta, NULL), RSD_OK);
    assert_int_equal(meta->nchunks, 2);
    rsi_dcp_meta_free(meta);
    free(b.at);
}

static void foreign_object_in_a_known_attribute_is_refused(void **state)
{
    meta_bytes b = meta_written(&meta_table.meta);

    (void)state;
    b.len -= 3; /* SETITEMS BUILD STOP */
    ADD(&b, "\x8c\x07version"
            "cmy\nClass\n)Rub.");
    meta_refuse(b, RSD_E_FORMAT, "would call \"my.Class\"");
    b = meta_written(&meta_table.meta);
    b.len -= 1; /* STOP: a call whose result goes nowhere */
    ADD(&b, "cmy\nClass\n)R0.");
    meta_refuse(b, RSD_E_FORMAT, "would call \"my.Class\"");
}

static void plans_of_megatron_are_passed_over(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("megatron"));

    (void)state;
    meta_assert_tensor(&meta->tensor[0], "model.weight", RSD_F32, 2, 1);
    assert_int_equal(meta->nitems, 1);
    rsi_dcp_meta_free(meta);
}

static void properties_may_have_more_parts_than_are_known(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_sample("torch_2_15"));

    (void)state;
    meta_assert_tensor(&meta->tensor[0], "model.w", RSD_F32, 2, 1);
    meta_assert_tensor(&meta->tensor[1], "model.scalar", RSD_F32, 0, 1);
    rsi_dcp_meta_free(meta);
}

static void something_else_than_metadata_is_refused(void **state)
{
    (void)state;
    meta_refuse(PICKLE("\x80\x04N."), RSD_E_FORMAT, "no object of torch's class Metadata");
    meta_refuse(PICKLE("ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b."), RSD_E_FORMAT,
                "state_dict_metadata is missing");
}

static void bytes_behind_the_pickle_are_refused(void **state)
{
    meta_bytes b = meta_sample("sharded");

    (void)state;
    ADD(&b, "x");
    meta_refuse(b, RSD_E_FORMAT, "1 bytes after the end");
}

static void bombs_are_refused_without_memory(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    meta_refuse(PICKLE("Nr\x00\x00\x00\x40."), RSD_E_FORMAT, "memo place 1073741824");
    assert_in_range(rsi_mem_stats_get().peak, 1, 1 << 20);
}

static void list_of_chunks_for_many_tensors_is_refused(void **state)
{
    meta_bytes b = { 0 };

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
    meta_refuse(b, RSD_E_FORMAT, "more chunks are listed than the file has bytes");
}

static void every_truncation_of_every_sample_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < META_SAMPLES; i++) {
        meta_bytes whole = meta_sample(meta_samples[i]);

        for (size_t len = 0; len < whole.len; len++) {
            meta_bytes cut = copy((char *)whole.at, len);

            meta_refuse(cut, RSD_E_FORMAT, "file \".metadata\"");
        }
        free(whole.at);
    }
}

/* Whatever it says then: no crash, no leak, no more memory than allowed. */
static void every_changed_byte_is_survived(void **state)
{
    meta_bytes b = meta_sample("nested");
    int64_t    before = rsi_mem_stats_get().bytes;

    (void)state;
    rsi_mem_fail_at(0, 0);
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            rsi_dcp_meta *meta = NULL;

            b.at[i] ^= (unsigned char)(1 << bit);
            if (meta_read(&b, &meta, NULL) == RSD_OK)
                rsi_dcp_meta_free(meta);
            b.at[i] ^= (unsigned char)(1 << bit);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
        }
    assert_in_range(rsi_mem_stats_get().peak, 1, before + 16 * (int64_t)b.len + (1 << 20));
    free(b.at);
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
static rsd_err all_with_a_failure(const meta_bytes *b, uint64_t n, int for_ever)
{
    rsi_dcp_meta       *meta = NULL, *joined = NULL;
    const rsi_dcp_meta *part[] = { NULL, &meta_table.meta };
    rsd_err             rc;

    rsi_mem_fail_at(n, for_ever);
    rc = meta_read(b, &meta, NULL);
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
        meta_bytes b = meta_sample(names[i / 2]);
        rsd_err    rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rc = all_with_a_failure(&b, n, i % 2);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            assert_in_range(n, 1, 500);
        }
        free(b.at);
    }
}

#define FACT(name) cmocka_unit_test_setup(name, meta_set_up)

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
        FACT(enums_of_python_3_11_2_are_read),
        FACT(unknown_attributes_are_skipped_and_listed),
        FACT(unknown_attributes_of_objects_are_listed_too),
        FACT(file_that_would_run_something_is_refused),
        FACT(getattr_is_taken_for_known_memory_formats_alone),
        FACT(foreign_name_is_refused),
        FACT(foreign_object_in_an_unknown_attribute_is_passed_over),
        FACT(foreign_object_in_a_known_attribute_is_refused),
        FACT(plans_of_megatron_are_passed_over),
        FACT(properties_may_have_more_parts_than_are_known),
        FACT(something_else_than_metadata_is_refused),
        FACT(bytes_behind_the_pickle_are_refused),
        FACT(bombs_are_refused_without_memory),
        FACT(list_of_chunks_for_many_tensors_is_refused),
        FACT(every_truncation_of_every_sample_is_refused),
        FACT(every_changed_byte_is_survived),
        FACT(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
