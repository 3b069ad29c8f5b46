/* SPDX-License-Identifier: Apache-2.0 */
/* test_crc32.c - every way to compute a CRC32 agrees with the definition, bit by bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "skip_because.h"

/* The two own ways again, which a library with ISA-L does without. */
#undef RSI_HAVE_ISAL
#define rsi_crc32         own_crc32
#define rsi_crc32_combine own_crc32_combine
uint32_t own_crc32(uint32_t crc, const void *bytes, size_t len);
uint32_t own_crc32_combine(uint32_t first, uint32_t second, uint64_t second_len);
#include "../../src/base/crc32.c"
#undef rsi_crc32
#undef rsi_crc32_combine

enum { MOST = 700 };

static unsigned char bytes[MOST + 16];

static int fill(void **state)
{
    uint32_t x = 1;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(x >> 24);
    }
    return 0;
}

/* The definition: one bit of input a step. */
static uint32_t slow(uint32_t crc, const unsigned char *at, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void the_check_value_of_the_standard_comes_out(void **state)
{
    (void)state;
    assert_int_equal(rsi_crc32(0, "123456789", 9), 0xcbf43926);
}

static void nothing_leaves_the_crc_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(rsi_crc32(0, NULL, 0), 0);
    assert_int_equal(rsi_crc32(0xcbf43926, NULL, 0), 0xcbf43926);
}

/* All lengths at several alignments, starting from nothing and from something. */
static void assert_way_is_right(uint32_t (*way)(uint32_t, const void *, size_t))
{
    for (size_t len = 0; len <= MOST; len++)
        for (size_t shift = 0; shift < 16; shift += 5)
            assert_int_equal(way(0x12345678, bytes + shift, len),
                             slow(0x12345678, bytes + shift, len));
}

static void tables_give_the_crc_of_every_length(void **state)
{
    (void)state;
    assert_way_is_right(by_table);
}

static void folding_gives_the_crc_of_every_length(void **state)
{
    (void)state;
    if (!can_fold())
        skip_because("this processor has no instruction for it");
    assert_way_is_right(own_crc32);
}

static void the_chosen_way_gives_the_crc_of_every_length(void **state)
{
    (void)state;
    assert_way_is_right(rsi_crc32);
}

static void pieces_one_after_the_other_give_the_crc_of_the_whole(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= MOST; cut += 7)
        assert_int_equal(rsi_crc32(rsi_crc32(0, bytes, cut), bytes + cut, MOST - cut),
                         slow(0, bytes, MOST));
}

static void combining_two_crcs_gives_that_of_the_whole(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= MOST; cut++)
        assert_int_equal(
            rsi_crc32_combine(slow(0, bytes, cut), slow(0, bytes + cut, MOST - cut), MOST - cut),
            slow(0, bytes, MOST));
}

/* The CRC of 2^k zero bytes, by doubling. */
static uint32_t zeros(int k)
{
    uint32_t crc = slow(0, (const unsigned char *)"", 1);

    for (int i = 0; i < k; i++)
        crc = rsi_crc32_combine(crc, crc, (uint64_t)1 << i);
    return crc;
}

static void combining_works_for_lengths_beyond_32_bits(void **state)
{
    uint32_t once = rsi_crc32_combine(0xcbf43926, zeros(40), (uint64_t)1 << 40);
    uint32_t twice = rsi_crc32_combine(0xcbf43926, zeros(39), (uint64_t)1 << 39);

    (void)state;
    twice = rsi_crc32_combine(twice, zeros(39), (uint64_t)1 << 39);
    assert_int_equal(once, twice);
    assert_int_not_equal(once, rsi_crc32_combine(0xcbf43926, zeros(9), (uint64_t)1 << 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_check_value_of_the_standard_comes_out),
        cmocka_unit_test(nothing_leaves_the_crc_as_it_is),
        cmocka_unit_test(tables_give_the_crc_of_every_length),
        cmocka_unit_test(folding_gives_the_crc_of_every_length),
        cmocka_unit_test(the_chosen_way_gives_the_crc_of_every_length),
        cmocka_unit_test(pieces_one_after_the_other_give_the_crc_of_the_whole),
        cmocka_unit_test(combining_two_crcs_gives_that_of_the_whole),
        cmocka_unit_test(combining_works_for_lengths_beyond_32_bits),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
