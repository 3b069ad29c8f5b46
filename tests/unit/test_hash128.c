/* SPDX-License-Identifier: Apache-2.0 */
/* test_hash128.c - the hash is XXH3-128 in its canonical form, whole or in pieces. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "base/mem.h"
#include "skip_because.h"

#include <string.h>

enum { MOST = 5000 };

static unsigned char bytes[MOST];

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

static void the_hash_of_nothing_is_the_published_one(void **state)
{
    static const unsigned char want[] = { 0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                          0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f };
    unsigned char              got[RSI_HASH128_BYTES];

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    rsi_hash128("", 0, got);
    assert_memory_equal(got, want, sizeof(want));
}

static void pieces_give_the_hash_of_the_whole(void **state)
{
    rsi_hash128_stream *stream;
    unsigned char       whole[RSI_HASH128_BYTES], got[RSI_HASH128_BYTES];

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    stream = rsi_hash128_create();
    assert_non_null(stream);
    for (size_t len = 0; len <= MOST; len += 1 + len / 5)
        for (size_t cut = 0; cut <= len; cut += 1 + len / 7) {
            rsi_hash128(bytes, len, whole);
            rsi_hash128_begin(stream);
            rsi_hash128_feed(stream, bytes, cut);
            rsi_hash128_feed(stream, bytes + cut, len - cut);
            rsi_hash128_end(stream, got);
            assert_memory_equal(got, whole, sizeof(whole));
        }
    rsi_hash128_free(stream);
}

static void the_fast_way_gives_the_same_hash(void **state)
{
    unsigned char fast[RSI_HASH128_BYTES], plain[RSI_HASH128_BYTES];

    (void)state;
    if (!rsi_hash128_plainly("", 0, plain))
        skip_because("built without xxHash");
    for (size_t len = 0; len <= MOST; len++) {
        rsi_hash128_plainly(bytes, len, plain);
        rsi_hash128(bytes, len, fast);
        assert_memory_equal(fast, plain, sizeof(fast));
    }
}

static void every_flipped_bit_changes_the_hash(void **state)
{
    unsigned char whole[RSI_HASH128_BYTES], got[RSI_HASH128_BYTES];

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    rsi_hash128(bytes, 600, whole);
    for (size_t bit = 0; bit < 600 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        rsi_hash128(bytes, 600, got);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_memory_not_equal(got, whole, sizeof(whole));
    }
}

static void without_memory_there_is_no_stream(void **state)
{
    (void)state;
    rsi_mem_fail_at(1, 0);
    assert_null(rsi_hash128_create());
    rsi_mem_fail_at(0, 0);
    rsi_hash128_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_of_nothing_is_the_published_one),
        cmocka_unit_test(pieces_give_the_hash_of_the_whole),
        cmocka_unit_test(the_fast_way_gives_the_same_hash),
        cmocka_unit_test(every_flipped_bit_changes_the_hash),
        cmocka_unit_test(without_memory_there_is_no_stream),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
