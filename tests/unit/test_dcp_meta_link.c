/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_meta_link.c - DCP metadata whose tables do not fit together are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "meta_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- What does not fit together -----------------------------------------------------------------
 */

static void chunk_outside_its_tensor_is_refused(void **state)
{
    (void)state;
    meta_table.box[4] = 5;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT,
                "tensor \"a.0\": the chunk at [5, 0] of size [4, 3] lies outside the shape [8, 3]");
    meta_table.box[4] = INT64_MAX;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "lies outside");
    meta_table.box[4] = -1;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "the chunk at [-1, 0]");
    meta_set_up(NULL);
    meta_table.box[6] = -4;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "of size [-4, 3]");
}

static void empty_chunk_at_the_end_is_inside(void **state)
{
    (void)state;
    meta_table.box[4] = 8;
    meta_table.box[6] = 0;
    rsi_dcp_meta_free(meta_accept(meta_written(&meta_table.meta)));
}

static void chunk_that_is_listed_twice_is_refused(void **state)
{
    (void)state;
    meta_table.box[4] = 0;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT,
                "tensor \"a.0\": two chunks at [0, 0]");
}

static void shapes_that_can_not_be_are_refused(void **state)
{
    (void)state;
    meta_table.shape[0] = -8;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT,
                "the shape [-8, 3] has a negative size");
    meta_table.shape[0] = INT64_MAX / 4;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "is too large");
}

static void tensor_of_nine_dimensions_is_not_supported(void **state)
{
    int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    (void)state;
    meta_table.tensor[0].ndim = 9;
    meta_table.tensor[0].shape = nine;
    meta_table.tensor[0].nchunks = 0;
    meta_table.meta.nchunks = 0;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_UNSUPPORTED, "tensor \"a.0\": 9 dimensions");
}

static void chunk_of_other_dimensions_is_refused(void **state)
{
    meta_bytes     b = meta_written(&meta_table.meta);
    unsigned char *at = memmem(b.at, b.len, "sizes", 5);

    (void)state;
    /* "sizes" MEMOIZE BINGET <Size> BININT1 4 BININT1 3 TUPLE2: without the 4, and TUPLE1 */
    memmove(at + 8, at + 10, b.len - (size_t)(at + 10 - b.at));
    at[10] = 0x85;
    b.len -= 2;
    meta_refuse(b, RSD_E_FORMAT, "in a tensor of 2 dimensions");
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
        meta_table.file[1] = bad[i].name;
        meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, bad[i].why);
    }
}

static void file_name_with_a_nul_is_refused(void **state)
{
    meta_bytes b = meta_written(&meta_table.meta);

    (void)state;
    ((unsigned char *)memmem(b.at, b.len, "__1_0", 5))[2] = '\0';
    meta_refuse(b, RSD_E_FORMAT, "it contains a NUL");
}

static void rows_that_can_not_be_are_refused(void **state)
{
    (void)state;
    meta_table.row[0].offset = -1;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT,
                "1000 bytes at byte -1 of file \"__0_0.distcp\"");
    meta_table.row[0].offset = INT64_MAX;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "an impossible range");
    meta_table.row[0].offset = 0;
    meta_table.row[0].length = -5;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "-5 bytes");
}

static void path_that_does_not_join_to_its_name_is_refused(void **state)
{
    (void)state;
    meta_table.part[1].index = 1;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT,
                "planner_data of \"a.0\" does not join to that name");
    meta_table.path.nparts = 1;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "does not join");
    meta_table.part[0].key = "a.0.0";
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "does not join");
}

static void name_that_is_there_twice_is_refused(void **state)
{
    (void)state;
    meta_table.item.name = "a.0";
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "\"a.0\" is a duplicate");
}

static void path_that_is_there_twice_is_refused(void **state)
{
    rsi_dcp_path twice[] = { meta_table.path, meta_table.path };

    (void)state;
    meta_table.meta.path = twice;
    meta_table.meta.npaths = 2;
    meta_refuse(meta_written(&meta_table.meta), RSD_E_FORMAT, "planner_data has \"a.0\" twice");
}

static void chunk_without_a_row_is_refused(void **state)
{
    meta_bytes     b = meta_written(&meta_table.meta);
    unsigned char *from = (unsigned char *)memmem(b.at, b.len, "storage_data}", 13) + 13;
    unsigned char *to = (unsigned char *)memmem(b.at, b.len, "\x8c\x0cstorage_meta", 14);

    (void)state;
    memmove(from, to, b.len - (size_t)(to - b.at));
    b.len -= (size_t)(to - from);
    meta_refuse(b, RSD_E_FORMAT, "tensor \"a.0\": the chunk at [0, 0] has no row in storage_data");
}

static void row_without_a_chunk_is_refused(void **state)
{
    meta_bytes     b = meta_written(&meta_table.meta);
    unsigned char *at = memmem(b.at, b.len, "\x8c\x06offset\x94h", 10);

    (void)state;
    assert_int_equal(at[11], 'K');
    at[12] = 3;
    meta_refuse(b, RSD_E_FORMAT,
                "tensor \"a.0\": storage_data has a row at [3, 0], where there is no chunk");
}

static void two_rows_for_one_chunk_are_refused(void **state)
{
    meta_bytes     b = meta_written(&meta_table.meta);
    unsigned char *at = memmem(b.at, b.len, "\x8c\x06offset\x94h", 10);

    (void)state;
    at[12] = 4;
    meta_refuse(b, RSD_E_FORMAT, "storage_data has two rows at [4, 0]");
}

static void row_of_an_unknown_name_is_refused(void **state)
{
    meta_bytes     b = meta_written(&meta_table.meta);
    unsigned char *at = memmem(b.at, b.len,
                               "\x8c\x03"
                               "fqn\x94h",
                               7);

    (void)state;
    at[7] = 0; /* the memo's first text */
    meta_refuse(
        b, RSD_E_FORMAT,
        "storage_data has a row for \"torch.distributed.checkpoint.metadata\", which does not");
}

static void dtype_that_is_not_supported_is_named(void **state)
{
    meta_bytes b = meta_written(&meta_table.meta);

    (void)state;
    memcpy(memmem(b.at, b.len, "float32", 7), "bits2x4", 7);
    meta_refuse(b, RSD_E_UNSUPPORTED,
                "tensor \"a.0\": the dtype \"torch.bits2x4\" is not supported");
}

#define FACT(name) cmocka_unit_test_setup(name, meta_set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
