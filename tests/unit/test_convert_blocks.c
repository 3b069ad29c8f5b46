/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_blocks.c - images cut into blocks: every byte is in exactly one, none is longer than
 * 4 MiB, and each that is not late can be written with what stands in it alone. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "base/mem.h"
#include "ckpt_fixture.h"
#include "convert/convert_blocks.h"
#include "plan_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CUT ((int64_t)RSI_CONVERT_BLOCK_BYTES)

static const rsi_image_spec dcp = { .format = RSD_FORMAT_DCP };
static const rsi_image_spec st = { .format = RSD_FORMAT_SAFETENSORS, .one_file = true };
static const rsi_image_spec torch = { .format = RSD_FORMAT_TORCH, .one_file = true };

/* Tensors of so many bytes each; no memory is behind them. */
static rsd_state *bytes_state(size_t n, const int64_t *bytes)
{
    rsd_state *made;

    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    for (size_t i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof(name), "t%zu", i);
        assert_int_equal(rsd_state_tensor(made, name, NULL, RSD_U8, 1, &bytes[i], 0, NULL, NULL),
                         RSD_OK);
    }
    return made;
}

static void make_image(rsi_image *image, rsd_state *made, const rsi_image_spec *spec)
{
    rsd_error err;

    if (rsi_image_make(image, made, spec, &err))
        fail_msg("%s", err.msg);
}

static void make_cuts(rsi_convert_blocks *cuts, const rsi_image *image)
{
    assert_int_equal(rsi_convert_blocks_make(cuts, image, NULL, NULL, NULL), RSD_OK);
}

/* ---- what holds for all cuts ---- */

/* What a cut says about itself and the parts in it. */
static void check_parts(const rsi_image *image, const rsi_convert_block *cut)
{
    uint64_t end = cut->off + cut->len;
    size_t   p = cut->part;

    assert_int_equal(image->part[p].at + cut->part_off, cut->off);
    assert_true(cut->part_off < image->part[p].len);
    for (;
         p < image->nparts && image->part[p].at < end && (p == cut->part || !image->part[p].opens);
         p++) {
        const rsi_out_part *part = &image->part[p];
        bool                ends_here = part->at + part->len <= end;
        bool                begins_here = part->at >= cut->off;

        if (cut->late)
            assert_int_equal(part->kind, RSI_PART_GAP);
        if (cut->piece) { /* nothing but its storage */
            assert_int_equal(part->kind, RSI_PART_DATA);
            assert_int_equal(p, cut->part);
        } else if (part->kind == RSI_PART_DATA && part->crc) {
            assert_true(begins_here && ends_here);
        }
        if (part->kind == RSI_PART_GAP && part->nth > 0 && !cut->late && part->len > 0) {
            /* its CRC is known when this cut is; that of nothing always */
            assert_true(p > cut->part || image->part[p - 1].len == 0);
            assert_true(part->nth < part->zip->spec.n || part->nth == 1);
        }
    }
}

static void check(const rsi_convert_blocks *cuts, const rsi_image *image)
{
    size_t at = 0, late = 0;

    for (size_t f = 0; f < image->nfiles; f++) {
        uint64_t off = 0;

        for (; at < cuts->n && cuts->at[at].file == f; at++) {
            const rsi_convert_block *cut = &cuts->at[at];

            assert_int_equal(cut->off, off);
            assert_in_range(cut->len, 1, RSI_CONVERT_BLOCK_BYTES);
            assert_false(cut->done);
            check_parts(image, cut);
            late += cut->late;
            off += cut->len;
        }
        assert_int_equal(off, image->file[f].bytes);
    }
    assert_int_equal(at, cuts->n);
    assert_int_equal(cuts->nlate, late);
}

/* Each item begins with a cut of its own. */
static void check_items(const rsi_convert_blocks *cuts, const rsi_image *image)
{
    size_t k = 0;

    for (size_t i = 0; i < image->nitems; i++) {
        while (k < cuts->n && (cuts->at[k].part != image->item[i].first || cuts->at[k].part_off))
            k++;
        assert_true(k < cuts->n);
    }
}

/* Cuts tensors of these sizes for a format; how many cuts and how many of them late there are. */
static size_t cut_up(size_t n, const int64_t *bytes, const rsi_image_spec *spec, size_t *late)
{
    rsd_state         *made = bytes_state(n, bytes);
    rsi_image          image;
    rsi_convert_blocks cuts;
    size_t             ncuts;

    make_image(&image, made, spec);
    make_cuts(&cuts, &image);
    check(&cuts, &image);
    check_items(&cuts, &image);
    ncuts = cuts.n;
    *late = cuts.nlate;
    rsi_convert_blocks_release(&cuts);
    assert_int_equal(cuts.n, 0);
    rsi_image_release(&image);
    rsd_state_free(made);
    return ncuts;
}

/* ---- sizes ---- */

static void a_state_of_nothing_has_no_late_cut(void **state)
{
    size_t late;

    (void)state;
    assert_int_equal(cut_up(0, NULL, &dcp, &late), 0);
    assert_int_equal(cut_up(0, NULL, &st, &late), 1); /* its header */
    assert_int_equal(cut_up(0, NULL, &torch, &late), 1);
    assert_int_equal(late, 0);
}

static void what_is_small_is_one_cut(void **state)
{
    const int64_t one[] = { 100 }, none[] = { 0 };
    size_t        late;

    (void)state;
    assert_int_equal(cut_up(1, one, &dcp, &late), 1);
    assert_int_equal(cut_up(1, one, &st, &late), 1);
    assert_int_equal(cut_up(1, one, &torch, &late), 1);
    assert_int_equal(late, 0); /* an archive of one storage has no other CRC in its directory */
    assert_int_equal(cut_up(1, none, &dcp, &late), 1);
    assert_int_equal(late, 0);
}

static void every_item_of_a_dcp_file_is_a_cut_of_its_own(void **state)
{
    const int64_t three[] = { 100, 0, 7 };
    size_t        late;

    (void)state;
    assert_int_equal(cut_up(3, three, &dcp, &late), 3);
    assert_int_equal(late, 0);
}

static void the_directory_of_several_storages_is_late(void **state)
{
    const int64_t three[] = { 100, 0, 7 };
    size_t        late;

    (void)state;
    assert_int_equal(cut_up(3, three, &torch, &late), 2);
    assert_int_equal(late, 1);
}

static void a_long_storage_is_cut_into_pieces_with_a_late_gap(void **state)
{
    const int64_t one[] = { 2 * CUT + 1 }, mixed[] = { 10, 3 * CUT, 10 };
    size_t        late;

    (void)state;
    assert_int_equal(cut_up(1, one, &dcp, &late), 5); /* head, three pieces, the gap */
    assert_int_equal(late, 1);
    /* head and 10 bytes; three pieces; the gap; 10 bytes; the directory */
    assert_int_equal(cut_up(3, mixed, &torch, &late), 7);
    assert_int_equal(late, 2);
    assert_int_equal(cut_up(1, one, &st, &late), 3); /* has no CRCs: blocks, wherever they end */
    assert_int_equal(late, 0);
}

/* A storage fits into one cut with the gap behind it or not: one byte decides. */
static void storages_around_the_limit_are_cut_right(void **state)
{
    size_t before = 0, late_before = 0, changes = 0;

    (void)state;
    for (int64_t bytes = CUT - 1500; bytes <= CUT + 3; bytes++) {
        size_t late, n = cut_up(1, &bytes, &dcp, &late);

        changes += before && (n != before || late != late_before);
        before = n;
        late_before = late;
    }
    assert_int_equal(late_before, 1);
    assert_in_range(changes, 2, 3); /* its head goes alone; its gap is late; a second piece */
}

static void any_mix_of_sizes_is_cut_right(void **state)
{
    static const int64_t size[] = { 0, 1, 64, 4000, CUT / 2, CUT - 200, CUT, CUT + 1, 3 * CUT };
    const size_t         n = sizeof(size) / sizeof(size[0]);

    (void)state;
    for (size_t i = 0; i < n * n * n; i++) {
        const int64_t three[] = { size[i % n], size[i / n % n], size[i / n / n] };
        size_t        late;

        cut_up(3, three, &dcp, &late);
        cut_up(3, three, &st, &late);
        cut_up(3, three, &torch, &late);
    }
}

static void a_header_longer_than_a_cut_is_cut_too(void **state)
{
    enum { MANY = 90000 };
    int64_t           *bytes = calloc(MANY, sizeof(bytes[0]));
    rsd_state         *made;
    rsi_image          image;
    rsi_convert_blocks cuts;

    (void)state;
    assert_non_null(bytes);
    made = bytes_state(MANY, bytes);
    for (int i = 0; i < 2; i++) {
        make_image(&image, made, i ? &torch : &st);
        make_cuts(&cuts, &image);
        check(&cuts, &image);
        assert_true(cuts.n > 1);
        assert_int_equal(cuts.nlate > 0, i);
        rsi_convert_blocks_release(&cuts);
        rsi_image_release(&image);
    }
    rsd_state_free(made);
    free(bytes);
}

static void scalars_and_layouts_are_cut_right(void **state)
{
    const int64_t shape[] = { 3, 3 * CUT / 8 };
    rsd_layout   *layout = fix_layout("mesh a=2 b=2; * shard(1)@a shard(0)@b", RSD_F32, 2, shape);
    rsd_state    *made;
    rsi_image     image;
    rsi_convert_blocks cuts;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "s", NULL, RSD_F64, 0, NULL, 0, NULL, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "x", layout, RSD_F32, 2, shape, 0, NULL, NULL), RSD_OK);
    make_image(&image, made, &dcp);
    assert_int_equal(image.nfiles, 4);
    make_cuts(&cuts, &image);
    check(&cuts, &image);
    check_items(&cuts, &image);
    rsi_convert_blocks_release(&cuts);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_layout_free(layout);
}

/* ---- CRCs ---- */

/* Pieces of two storages, each known by itself; the short storage between is left alone. */
static void crcs_of_pieces_become_those_of_their_storages(void **state)
{
    const int64_t      bytes[] = { 2 * CUT + 5, 9, CUT + 1 };
    rsd_state         *made = bytes_state(3, bytes);
    unsigned char     *data = malloc((size_t)bytes[0]);
    rsi_image          image;
    rsi_convert_blocks cuts;
    uint32_t          *crc = NULL;

    (void)state;
    assert_non_null(data);
    for (int64_t i = 0; i < bytes[0]; i++)
        data[i] = (unsigned char)(i * 31 + i / 4099);
    make_image(&image, made, &torch);
    make_cuts(&cuts, &image);
    for (size_t i = 0; i < cuts.n; i++) {
        rsi_convert_block *cut = &cuts.at[i];

        if (!cut->piece)
            continue;
        crc = image.part[cut->part].crc;
        cut->crc = rsi_crc32(0, data + cut->part_off, cut->len);
    }
    assert_non_null(crc);
    crc[1] = 12345;
    rsi_convert_blocks_join_crcs(&cuts, &image);
    assert_int_equal(crc[0], rsi_crc32(0, data, (size_t)bytes[0]));
    assert_int_equal(crc[1], 12345);
    assert_int_equal(crc[2], rsi_crc32(0, data, (size_t)bytes[2]));
    rsi_convert_blocks_release(&cuts);
    rsi_image_release(&image);
    rsd_state_free(made);
    free(data);
}

static rsd_err cut_again(void *arg, rsd_error *err)
{
    rsi_convert_blocks cuts;
    rsd_err            rc = rsi_convert_blocks_make(&cuts, arg, NULL, NULL, err);

    if (rc)
        assert_null(cuts.at);
    rsi_convert_blocks_release(&cuts);
    return rc;
}

static void every_allocation_that_fails_is_told(void **state)
{
    const int64_t bytes[] = { 40 * CUT, 9 };
    rsd_state    *made = bytes_state(2, bytes);
    rsi_image     image;

    (void)state;
    make_image(&image, made, &torch);
    assert_survives_no_memory(cut_again, &image);
    rsi_image_release(&image);
    rsd_state_free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_of_nothing_has_no_late_cut),
        cmocka_unit_test(what_is_small_is_one_cut),
        cmocka_unit_test(every_item_of_a_dcp_file_is_a_cut_of_its_own),
        cmocka_unit_test(the_directory_of_several_storages_is_late),
        cmocka_unit_test(a_long_storage_is_cut_into_pieces_with_a_late_gap),
        cmocka_unit_test(storages_around_the_limit_are_cut_right),
        cmocka_unit_test(any_mix_of_sizes_is_cut_right),
        cmocka_unit_test(a_header_longer_than_a_cut_is_cut_too),
        cmocka_unit_test(scalars_and_layouts_are_cut_right),
        cmocka_unit_test(crcs_of_pieces_become_those_of_their_storages),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
