/* SPDX-License-Identifier: Apache-2.0 */
/* test_transform_zstd.c - "stream.zstd" reads what torch writes, writes the same kind of frame, and
 * is bounded. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "rot13.h"
#include "transform_help.h"
#include "skip_because.h"

#include <string.h>

static held_bytes made;

static void need_zstd(void)
{
    if (!rsi_transform_zstd(0))
        skip_because("built without zstd");
}

static void zstd_comes_back_whatever_the_pieces(void **state)
{
    (void)state;
    need_zstd();
    for (size_t step = 1; step <= LONG; step = step * 17 + 1) {
        size_t len = step == 1 ? 500 : LONG;

        assert_int_equal(encode_bytes(ZSTD, long_text(), len, step, &made, NULL), RSD_OK);
        assert_true(made.len < len);
        assert_undone(ZSTD, NULL, &made, long_text(), len);
    }
}

static void zstd_of_nothing_comes_back_as_nothing(void **state)
{
    (void)state;
    need_zstd();
    assert_int_equal(encode_bytes(ZSTD, "", 0, 1, &made, NULL), RSD_OK);
    assert_true(made.len > 0);
    assert_undone(ZSTD, NULL, &made, "", 0);
}

/* Byte 4 of a frame: bits 6, 7 and 5 tell of a content size, bit 2 of a checksum, bits 0 and 1 of a
 * dictionary. */
static void the_frame_has_no_content_size_and_no_checksum(void **state)
{
    (void)state;
    need_zstd();
    assert_int_equal(encode_bytes(ZSTD, long_text(), LONG, LONG, &made, NULL), RSD_OK);
    assert_memory_equal(made.at, "\x28\xb5\x2f\xfd\x00", 5);
    assert_int_equal(made.at[5], (21 - 10) << 3); /* a window of 2^21 bytes, as level 3 has */
}

/* "hello hello hello hello" by python-zstandard's stream_writer, which torch uses. */
static const unsigned char theirs[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x65,
                                        0x00, 0x00, 0x30, 0x68, 0x65, 0x6c, 0x6c,
                                        0x6f, 0x20, 0x01, 0x00, 0x99, 0x4b, 0x11 };

static void a_frame_that_torch_wrote_is_read(void **state)
{
    held_bytes from = { .len = sizeof(theirs) };

    (void)state;
    need_zstd();
    memcpy(from.at, theirs, sizeof(theirs));
    assert_undone(ZSTD, NULL, &from, "hello hello hello hello", 23);
}

static void frames_one_after_the_other_are_read(void **state)
{
    held_bytes from = { .len = 2 * sizeof(theirs) };

    (void)state;
    need_zstd();
    memcpy(from.at, theirs, sizeof(theirs));
    memcpy(from.at + sizeof(theirs), theirs, sizeof(theirs));
    assert_undone(ZSTD, NULL, &from, "hello hello hello hellohello hello hello hello", 46);
}

static void a_frame_cut_short_anywhere_is_refused(void **state)
{
    (void)state;
    need_zstd();
    for (size_t len = 0; len < sizeof(theirs); len++)
        assert_refused(ZSTD, theirs, len, 100, RSD_E_FORMAT, "cut short");
}

static void bytes_that_are_no_frame_are_refused(void **state)
{
    unsigned char bad[sizeof(theirs) + 4];

    (void)state;
    need_zstd();
    assert_refused(ZSTD, "this is not zstd", 16, 100, RSD_E_FORMAT, "zstd: ");
    memcpy(bad, theirs, sizeof(theirs));
    memcpy(bad + sizeof(theirs), "junk", 4);
    assert_refused(ZSTD, bad, sizeof(bad), 100, RSD_E_FORMAT, "zstd: ");
}

/* A frame of "hi" whose header asks for 16 MiB. */
static void a_frame_that_asks_for_a_large_window_is_refused(void **state)
{
    static const unsigned char wide[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x70,
                                          0x11, 0x00, 0x00, 0x68, 0x69 };

    (void)state;
    need_zstd();
    assert_refused(ZSTD, wide, sizeof(wide), 100, RSD_E_FORMAT, "too much memory");
}

static void more_bytes_than_allowed_are_refused(void **state)
{
    (void)state;
    need_zstd();
    assert_refused(ZSTD, theirs, sizeof(theirs), 22, RSD_E_FORMAT, "more than the 22 bytes");
    assert_int_equal(encode_bytes(ROT13, "abc", 3, 3, &made, NULL), RSD_OK);
    assert_refused(ROT13, made.at, made.len, 2, RSD_E_FORMAT, "more than the 2 bytes");
}

/* 64 MiB of zeros in 6 KiB: what is taken stays near what is allowed. */
static void a_bomb_takes_little_memory(void **state)
{
    static unsigned char zeros[1 << 16];
    rsi_encoder         *encoder = NULL;
    rsi_mem_stats        before, after;

    (void)state;
    need_zstd();
    made.len = 0;
    assert_int_equal(rsi_encoder_create(ZSTD, keep_bytes, &made, &encoder, NULL), RSD_OK);
    for (int i = 0; i < 1024; i++)
        assert_int_equal(rsi_encoder_feed(encoder, zeros, sizeof(zeros), NULL), RSD_OK);
    assert_int_equal(rsi_encoder_end(encoder, NULL), RSD_OK);
    rsi_encoder_free(encoder);
    rsi_mem_fail_at(0, 0);
    before = rsi_mem_stats_get();
    assert_refused(ZSTD, made.at, made.len, 10000, RSD_E_FORMAT, "more than the 10000 bytes");
    after = rsi_mem_stats_get();
    assert_true(after.peak - before.bytes < 1 << 18);
}

static int register_rot13(void **state)
{
    (void)state;
    return rsd_transform_register(rot13(), NULL) ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zstd_comes_back_whatever_the_pieces),
        cmocka_unit_test(zstd_of_nothing_comes_back_as_nothing),
        cmocka_unit_test(the_frame_has_no_content_size_and_no_checksum),
        cmocka_unit_test(a_frame_that_torch_wrote_is_read),
        cmocka_unit_test(frames_one_after_the_other_are_read),
        cmocka_unit_test(a_frame_cut_short_anywhere_is_refused),
        cmocka_unit_test(bytes_that_are_no_frame_are_refused),
        cmocka_unit_test(a_frame_that_asks_for_a_large_window_is_refused),
        cmocka_unit_test(more_bytes_than_allowed_are_refused),
        cmocka_unit_test(a_bomb_takes_little_memory),
    };

    return cmocka_run_group_tests(tests, register_rot13, NULL);
}
