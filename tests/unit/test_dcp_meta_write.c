/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_meta_write.c - DCP metadata that we write read back the same; those of several ranks are
 * joined. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "meta_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- Writing ------------------------------------------------------------------------------------
 */

static void what_is_written_reads_back_and_is_written_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < META_SAMPLES; i++) {
        rsi_dcp_meta *meta = meta_accept(meta_sample(meta_samples[i])), *again;
        meta_bytes    first = meta_written(meta), second;
        rsd_error     err;

        if (meta_read(&first, &again, &err))
            fail_msg("%s: %s", meta_samples[i], err.msg);
        second = meta_written(again);
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

static void table_made_by_hand_reads_back(void **state)
{
    rsi_dcp_meta *meta = meta_accept(meta_written(&meta_table.meta));

    (void)state;
    meta_assert_tensor(&meta->tensor[0], "a.0", RSD_F32, 2, 2);
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

        meta_table.row[0].offset = list[i];
        meta = meta_accept(meta_written(&meta_table.meta));
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
        meta_table.tensor[0].name = name;
        meta = meta_accept(meta_written(&meta_table.meta));
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
    meta_table.tensor[0] = (rsi_dcp_tensor){
        .name = "a.0", .shape = &shape, .nchunks = N, .dtype = RSD_F32, .ndim = 1
    };
    meta_table.meta.box = box;
    meta_table.meta.row = row;
    meta_table.meta.nchunks = N;
    meta = meta_accept(meta_written(&meta_table.meta));
    assert_int_equal(meta->nchunks, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(meta->row[i].offset, 100 * i);
    rsi_dcp_meta_free(meta);
    free(box);
    free(row);
}

static void table_that_can_not_be_written_is_refused(void **state)
{
    meta_bytes b = { 0 };

    (void)state;
    meta_table.row[0].file = 2;
    assert_int_equal(rsi_dcp_meta_write(&meta_table.meta, meta_append, &b, NULL), RSD_E_INVALID);
    meta_set_up(NULL);
    meta_table.row[0].transforms = 1;
    assert_int_equal(rsi_dcp_meta_write(&meta_table.meta, meta_append, &b, NULL), RSD_E_INVALID);
    meta_set_up(NULL);
    meta_table.tensor[0].dtype = (rsd_dtype)0;
    assert_int_equal(rsi_dcp_meta_write(&meta_table.meta, meta_append, &b, NULL), RSD_E_INVALID);
    meta_set_up(NULL);
    meta_table.meta.nchunks = 3;
    assert_int_equal(rsi_dcp_meta_write(&meta_table.meta, meta_append, &b, NULL), RSD_E_INVALID);
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
    assert_int_equal(rsi_dcp_meta_write(&meta_table.meta, disk_full, NULL, &err), RSD_E_IO);
    assert_string_equal(err.msg, "disk full");
}

/* ---- Joining
 * ------------------------------------------------------------------------------------- */

static void chunks_of_several_ranks_are_joined(void **state)
{
    rsi_dcp_meta *part[] = { meta_accept(meta_sample("rank0")), meta_accept(meta_sample("rank1")) },
                 *meta;
    const rsi_dcp_tensor *w;

    (void)state;
    assert_int_equal(rsi_dcp_meta_merge(2, (const rsi_dcp_meta *const *)part, &meta, NULL), RSD_OK);
    rsi_dcp_meta_free(part[0]);
    rsi_dcp_meta_free(part[1]);
    w = &meta->tensor[0];
    assert_int_equal(meta->ntensors, 2);
    meta_assert_tensor(w, "w", RSD_F32, 2, 2);
    assert_int_equal(rsi_dcp_chunk_offset(meta, w, 1)[0], 4);
    assert_string_equal(meta->file[meta->row[w->first + 1].file], "__1_0.distcp");
    /* what both wrote is the first one's */
    meta_assert_tensor(&meta->tensor[1], "bias", RSD_BF16, 1, 1);
    assert_string_equal(meta->file[meta->row[meta->tensor[1].first].file], "__0_0.distcp");
    assert_int_equal(meta->nitems, 1);
    assert_string_equal(meta->file[meta->item[0].row.file], "__0_0.distcp");
    assert_int_equal(meta->npaths, 3);
    assert_string_equal(meta->save_id, "00000000-0000-4000-8000-000000000000");
    rsi_dcp_meta_free(meta);
}

static void ranks_that_disagree_are_refused(void **state)
{
    rsi_dcp_meta       *other = meta_accept(meta_written(&meta_table.meta)), *meta = NULL;
    const rsi_dcp_meta *part[] = { other, &meta_table.meta };
    rsd_error           err;

    (void)state;
    meta_table.tensor[0].dtype = RSD_F16;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "tensor \"a.0\" has different dtypes or shapes"));
    meta_table.tensor[0].dtype = RSD_F32;
    meta_table.shape[1] = 4;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    meta_table.shape[1] = 3;
    meta_table.box[6] = 3;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "chunks of different sizes at one offset"));
    meta_set_up(NULL);
    meta_table.item.name = "a.0";
    meta_table.meta.ntensors = 0;
    assert_int_equal(rsi_dcp_meta_merge(2, part, &meta, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "a tensor for one rank and bytes for another"));
    assert_null(meta);
    rsi_dcp_meta_free(other);
}

static void transforms_of_several_ranks_are_kept_apart(void **state)
{
    static const char *const other_steps[] = { "zstd" };
    rsi_dcp_meta            *other = meta_accept(meta_written(&meta_table.meta)), *meta;
    const rsi_dcp_meta      *part[] = { other, &meta_table.meta };

    (void)state;
    meta_table.transforms = (rsi_dcp_transforms){ 1, other_steps };
    meta_table.tensor[0].name = "b";
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
    rsi_dcp_meta_free(meta_accept(meta_written(meta)));
    rsi_dcp_meta_free(meta);
}

#define FACT(name) cmocka_unit_test_setup(name, meta_set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FACT(what_is_written_reads_back_and_is_written_the_same),
        FACT(table_made_by_hand_reads_back),
        FACT(integers_of_every_size_read_back),
        FACT(names_of_any_length_read_back),
        FACT(thousands_of_chunks_read_back),
        FACT(table_that_can_not_be_written_is_refused),
        FACT(failing_put_ends_the_writing),
        FACT(chunks_of_several_ranks_are_joined),
        FACT(ranks_that_disagree_are_refused),
        FACT(transforms_of_several_ranks_are_kept_apart),
        FACT(no_tables_join_to_an_empty_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
