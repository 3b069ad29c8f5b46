/* SPDX-License-Identifier: Apache-2.0 */
/* test_zip_write.c - archives are torch's byte for byte; the plan knows every offset before; ours
 * are read back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "base/mem.h"
#include "format/tensor_pickle.h"
#include "format/zip.h"
#include "format/zip_write.h"

#include <stdlib.h>
#include <string.h>

/* An archive with everything that is needed to make it. */
typedef struct written {
    rsi_zip_spec   spec;
    rsi_zip_plan   plan;
    rsi_arena      mem;
    unsigned char *bytes;
    size_t         len;
} written;

/* The bytes of every storage: 3, 10, 17, ... */
static void fill(unsigned char *at, uint64_t len, unsigned mask)
{
    for (uint64_t i = 0; i < len; i++)
        at[i] = (unsigned char)((i * 7 + 3) & mask);
}

static void make(written *w, unsigned mask)
{
    const rsi_zip_spec *spec = &w->spec;
    uint32_t           *crc = calloc(spec->n + 1, sizeof(crc[0]));
    uint64_t            at = 0;

    assert_int_equal(rsi_zip_plan_make(spec, &w->mem, &w->plan, NULL), RSD_OK);
    w->len = (size_t)w->plan.size;
    w->bytes = malloc(w->len);
    for (size_t i = 0; i <= spec->n; i++) {
        size_t         len = (size_t)rsi_zip_gap_size(&w->plan, i), half = len / 2;
        unsigned char *gap = malloc(len), *piece = malloc(len); /* exact, for sanitizers */

        assert_int_equal(rsi_zip_gap_at(&w->plan, i), at);
        memset(gap, 0xee, len);
        rsi_zip_gap_write(&w->plan, i, crc, 0, len, gap);
        memcpy(w->bytes + at, gap, len);
        rsi_zip_gap_write(&w->plan, i, crc, 0, half, piece);
        assert_memory_equal(piece, gap, half);
        rsi_zip_gap_write(&w->plan, i, crc, half, len - half, piece);
        assert_memory_equal(piece, gap + half, len - half);
        /* Each piece of the last gap goes through all records. */
        for (size_t k = 0; k < len && k < 4096 && spec->n < 100; k += 7) {
            rsi_zip_gap_write(&w->plan, i, crc, k, len - k < 7 ? len - k : 7, piece);
            assert_memory_equal(piece, gap + k, len - k < 7 ? len - k : 7);
        }
        free(gap);
        free(piece);
        at += rsi_zip_gap_size(&w->plan, i);
        if (i == spec->n)
            break;
        assert_int_equal(rsi_zip_data_at(&w->plan, i), at);
        fill(w->bytes + at, spec->size[i], mask);
        crc[i] = rsi_crc32(0, w->bytes + at, (size_t)spec->size[i]);
        at += spec->size[i];
    }
    assert_int_equal(at, w->plan.size);
    free(crc);
}

static void drop(written *w)
{
    rsi_arena_release(&w->mem);
    free(w->bytes);
    w->bytes = NULL;
}

/* The archive is whole, and its records are where the plan said. */
static void assert_reads_back(const written *w)
{
    rsi_source source = rsi_memory_source(w->bytes, w->len, "f");
    rsi_arena  mem = { 0 };
    rsi_zip    zip;
    rsd_error  err;

    if (rsi_zip_read(&source, &mem, &zip, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(zip.n, w->spec.n + 6);
    for (size_t i = 0; i < zip.n; i++)
        assert_int_equal(rsi_crc32(0, w->bytes + zip.record[i].data, (size_t)zip.record[i].size),
                         zip.record[i].crc32);
    for (size_t i = 0; i < w->spec.n; i++)
        assert_int_equal(zip.record[4 + i].data, rsi_zip_data_at(&w->plan, i));
    rsi_arena_release(&mem);
}

static void assert_torch(const written *w, size_t len, uint32_t crc)
{
    assert_int_equal(w->len, len);
    assert_int_equal(rsi_crc32(0, w->bytes, w->len), crc);
    assert_reads_back(w);
}

/* The item of one tensor, by length and CRC what torch.save wrote. */
static void assert_item(const rsi_tensor_pickle *t, unsigned mask, size_t len, uint32_t crc)
{
    unsigned char pickle[RSI_TENSOR_PICKLE_MAX];
    uint64_t      size = (uint64_t)t->storage_bytes;
    written       w = { .spec = { .pickle = pickle, .n = 1, .size = &size } };

    assert_int_equal(rsi_tensor_pickle_write(t, pickle, &w.spec.pickle_len, NULL), RSD_OK);
    make(&w, mask);
    assert_torch(&w, len, crc);
    drop(&w);
}

/* ---- torch's bytes --------------------------------------------------------------------------- */

static void items_of_every_dtype_are_torchs(void **state)
{
    static const struct {
        rsd_dtype dtype;
        size_t    len;
        uint32_t  crc;
    } torch[] = {
        { RSD_BOOL, 1577, 0xacd5aec4 },        { RSD_U8, 1577, 0x4fd9680a },
        { RSD_I8, 1577, 0x66418d69 },          { RSD_U16, 1577, 0xf3a58036 },
        { RSD_I16, 1577, 0x2e205aca },         { RSD_U32, 1577, 0x0a02f9ba },
        { RSD_I32, 1577, 0x08e892f6 },         { RSD_U64, 1641, 0xf9f115ee },
        { RSD_I64, 1641, 0xc2e5052b },         { RSD_F16, 1577, 0x6574bdf8 },
        { RSD_BF16, 1577, 0x314df341 },        { RSD_F32, 1577, 0x6110732c },
        { RSD_F64, 1641, 0x1deaa9f8 },         { RSD_C32, 1577, 0xbd769568 },
        { RSD_C64, 1641, 0xcced1293 },         { RSD_C128, 1769, 0x94f6695a },
        { RSD_F8_E4M3FN, 1641, 0x60e39255 },   { RSD_F8_E5M2, 1641, 0x15465ebd },
        { RSD_F8_E4M3FNUZ, 1641, 0x0c5f86ff }, { RSD_F8_E5M2FNUZ, 1641, 0xcfdd5cd8 },
        { RSD_F8_E8M0FNU, 1641, 0x1b254ccb },  { RSD_F4_E2M1FN_X2, 1641, 0x7a7b81d6 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(torch) / sizeof(torch[0]); i++) {
        rsd_dtype         dtype = torch[i].dtype;
        rsi_tensor_pickle t = { .dtype = dtype,
                                .ndim = 2,
                                .size = { 4, 3 },
                                .stride = { 3, 1 },
                                .storage_bytes = 12 * (int64_t)rsd_dtype_size(dtype) };

        assert_item(&t, dtype == RSD_BOOL ? 1 : 0xff, torch[i].len, torch[i].crc);
    }
}

static void items_of_scalar_empty_and_strided_tensors_are_torchs(void **state)
{
    rsi_tensor_pickle scalar = { .dtype = RSD_F32, .storage_bytes = 4 };
    rsi_tensor_pickle empty = { .dtype = RSD_F32, .ndim = 1, .stride = { 1 } };
    rsi_tensor_pickle turned = {
        .dtype = RSD_F32, .ndim = 2, .size = { 4, 3 }, .stride = { 1, 4 }, .storage_bytes = 48
    };
    rsi_tensor_pickle large = {
        .dtype = RSD_F32, .ndim = 1, .size = { 70000 }, .stride = { 1 }, .storage_bytes = 280000
    };

    (void)state;
    assert_item(&scalar, 0xff, 1577, 0xf55109f5);
    assert_item(&empty, 0xff, 1513, 0x400faa6e);
    assert_item(&turned, 0xff, 1577, 0x3bfdfcbf);
    assert_item(&large, 0xff, 281577, 0x319d5d55);
}

/* torch.save(7) */
static void an_item_without_a_tensor_is_torchs(void **state)
{
    written w = { .spec = { .pickle = "\x80\2K\7.", .pickle_len = 5 } };

    (void)state;
    make(&w, 0xff);
    assert_torch(&w, 1261, 0x09c5212d);
    drop(&w);
}

/* torch.save([5 bytes, nothing, 100 bytes], "model.pt"), with the pickle it has. */
static void a_file_of_several_storages_is_torchs(void **state)
{
    static const char pickle[] =
        "\200\002]q\000(ctorch._utils\012_rebuild_tensor_v2\012q\001((X\007\000\000"
        "\000storageq\002ctorch\012ByteStorage\012q\003X\001\000\000\0000q\004X\003"
        "\000\000\000cpuq\005K\005tq\006QK\000K\005\205q\007K\001\205q\010\211cc"
        "ollections\012OrderedDict\012q\011)Rq\012tq\013Rq\014h\001((h\002h\003X"
        "\001\000\000\0001q\015h\005K\000tq\016QK\000K\000\205q\017K\001\205q\020"
        "\211h\011)Rq\021tq\022Rq\023h\001((h\002h\003X\001\000\000\0002q\024h\005"
        "Kdtq\025QK\000Kd\205q\026K\001\205q\027\211h\011)Rq\030tq\031Rq\032e.";
    const uint64_t size[] = { 5, 0, 100 };
    written        w = { .spec = { .folder = "model",
                                   .pickle = pickle,
                                   .pickle_len = sizeof(pickle) - 1,
                                   .n = 3,
                                   .size = size } };

    (void)state;
    make(&w, 0xff);
    assert_torch(&w, 2063, 0x929d0aeb);
    drop(&w);
}

/* ---- alignment ------------------------------------------------------------------------------- */

static void data_are_aligned_in_the_file(void **state)
{
    const uint64_t size[] = { 1000 };

    (void)state;
    for (uint64_t start = 0; start < 200; start++)
        for (uint32_t align = 0; align <= 32768; align = align ? align * 8 : 8) {
            written w = { .spec = { .pickle = "", .n = 1, .size = size, .start = start } };

            w.spec.align = align;
            make(&w, 0xff);
            assert_int_equal((start + rsi_zip_data_at(&w.plan, 0)) % (align ? align : 64), 0);
            assert_reads_back(&w);
            drop(&w);
        }
}

static void a_start_that_is_a_multiple_changes_no_byte(void **state)
{
    const uint64_t size[] = { 1000 };
    written        a = { .spec = { .pickle = "abc", .pickle_len = 3, .n = 1, .size = size } };
    written        b = a;

    (void)state;
    b.spec.start = 64 * 12345;
    make(&a, 0xff);
    make(&b, 0xff);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.bytes, b.bytes, a.len);
    drop(&a);
    drop(&b);
}

/* ---- zip64 ----------------------------------------------------------------------------------- */

/* As if 4 GiB were at some place of a small archive: every field that can be full is, somewhere. */
static void archives_beyond_the_limit_are_read_back(void **state)
{
    const uint64_t size[] = { 700, 0, 1300, 5 };

    (void)state;
    for (uint64_t full = 1; full < 6000; full += full < 50 ? 1 : 37) {
        written w = { .spec = { .pickle = "abc", .pickle_len = 3, .n = 4, .size = size } };

        w.spec.full = full;
        make(&w, 0xff);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(rsi_zip_data_at(&w.plan, i) % 64, 0);
        assert_reads_back(&w);
        drop(&w);
    }
}

/* Headers of torch.save(torch.zeros(n, dtype=uint8)), without the data: length of all and CRC of
 * the rest. */
static void items_around_4_gib_are_torchs(void **state)
{
    static const struct {
        uint64_t size;
        uint32_t data_crc;
        size_t   len;
        uint32_t crc;
    } torch[] = {
        { 4294967294u, 0x0f6a7026, 1611, 0x9d981d37 },
        { 4294967295u, 0x00000000, 1630, 0x1739ae77 },
        { 4294967301u, 0xb1c2a1a3, 1624, 0x7f864515 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(torch) / sizeof(torch[0]); i++) {
        rsi_tensor_pickle t = { .dtype = RSD_U8,
                                .ndim = 1,
                                .size = { (int64_t)torch[i].size },
                                .stride = { 1 },
                                .storage_bytes = (int64_t)torch[i].size };
        unsigned char     pickle[RSI_TENSOR_PICKLE_MAX], gaps[4096];
        rsi_zip_spec      spec = { .pickle = pickle, .n = 1, .size = &torch[i].size };
        rsi_zip_plan      plan;
        rsi_arena         mem = { 0 };
        size_t            head, tail;

        assert_int_equal(rsi_tensor_pickle_write(&t, pickle, &spec.pickle_len, NULL), RSD_OK);
        assert_int_equal(rsi_zip_plan_make(&spec, &mem, &plan, NULL), RSD_OK);
        head = (size_t)rsi_zip_gap_size(&plan, 0);
        tail = (size_t)rsi_zip_gap_size(&plan, 1);
        assert_int_equal(head + tail, torch[i].len);
        assert_int_equal(plan.size, torch[i].len + torch[i].size);
        rsi_zip_gap_write(&plan, 0, NULL, 0, head, gaps);
        rsi_zip_gap_write(&plan, 1, &torch[i].data_crc, 0, tail, gaps + head);
        assert_int_equal(rsi_crc32(0, gaps, head + tail), torch[i].crc);
        rsi_arena_release(&mem);
    }
}

/* More than 65535 records: the 16-bit count of the end record is full. */
static void an_archive_of_70000_storages_is_read_back(void **state)
{
    uint64_t *size = calloc(70000, sizeof(size[0]));
    written   w = { .spec = { .pickle = "abc", .pickle_len = 3, .n = 70000, .size = size } };

    (void)state;
    size[69999] = 3;
    make(&w, 0xff);
    assert_int_equal(w.bytes[w.len - 14], 0xff);
    assert_reads_back(&w);
    drop(&w);
    free(size);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void assert_refused(const rsi_zip_spec *spec, const char *text)
{
    rsi_arena    mem = { 0 };
    rsi_zip_plan plan;
    rsd_error    err = { 0 };

    assert_int_equal(rsi_zip_plan_make(spec, &mem, &plan, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, text));
    rsi_arena_release(&mem);
}

static void what_makes_no_sense_is_refused(void **state)
{
    const uint64_t huge[] = { INT64_MAX, INT64_MAX, 1 };
    char           name[1100];
    rsi_zip_spec   good = { .pickle = "", .n = 0, .size = huge }, bad;

    (void)state;
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    for (int i = 0; i < 3; i++) {
        bad = good;
        bad.folder = (const char *[]){ "", "a/b", name }[i];
        assert_refused(&bad, "the folder of an archive can't be");
    }
    for (int i = 0; i < 4; i++) {
        bad = good;
        bad.align = (uint32_t[]){ 1, 48, 65536, 0x80000000 }[i];
        assert_refused(&bad, "can't be aligned");
    }
    bad = good;
    bad.n = 2;
    assert_refused(&bad, "does not fit");
    bad.start = 32;
    assert_refused(&bad, "not a multiple of 64");
}

static void every_allocation_that_fails_is_no_memory(void **state)
{
    const uint64_t size[] = { 700, 0, 1300, 5 };
    rsi_zip_spec   spec = { .pickle = "abc", .pickle_len = 3, .n = 4, .size = size };
    rsd_err        rc = RSD_E_NOMEM;
    int64_t        before = rsi_mem_stats_get().bytes;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_arena    mem = { 0 };
        rsi_zip_plan plan;

        rsi_mem_fail_at(n, n % 2 == 0);
        rc = rsi_zip_plan_make(&spec, &mem, &plan, NULL);
        rsi_mem_fail_at(0, 0);
        assert_true(rc == RSD_E_NOMEM || (rc == RSD_OK && n > 3));
        rsi_arena_release(&mem);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_of_every_dtype_are_torchs),
        cmocka_unit_test(items_of_scalar_empty_and_strided_tensors_are_torchs),
        cmocka_unit_test(an_item_without_a_tensor_is_torchs),
        cmocka_unit_test(a_file_of_several_storages_is_torchs),
        cmocka_unit_test(data_are_aligned_in_the_file),
        cmocka_unit_test(a_start_that_is_a_multiple_changes_no_byte),
        cmocka_unit_test(archives_beyond_the_limit_are_read_back),
        cmocka_unit_test(items_around_4_gib_are_torchs),
        cmocka_unit_test(an_archive_of_70000_storages_is_read_back),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(every_allocation_that_fails_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
