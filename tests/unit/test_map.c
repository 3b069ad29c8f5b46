/* SPDX-License-Identifier: Apache-2.0 */
/* test_map.c - what is added is found, what is not added is not. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/map.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 100000 };

static rsi_map map; /* empty at the start of each test */

static int release(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    rsi_map_release(&map);
    return 0;
}

static bool add(const void *key, size_t len, uint64_t value)
{
    return rsi_map_add(&map, key, len, &value, NULL);
}

static void assert_value(const void *key, size_t len, uint64_t want)
{
    uint64_t value = ~want;

    assert_true(rsi_map_get(&map, key, len, &value));
    assert_int_equal(value, want);
}

static void assert_absent(const void *key, size_t len)
{
    uint64_t value = 77;

    assert_false(rsi_map_get(&map, key, len, &value));
    assert_int_equal(value, 77);
}

static void an_empty_map_has_nothing(void **state)
{
    (void)state;
    assert_absent("a", 1);
    assert_absent("", 0);
}

static void what_is_added_is_found(void **state)
{
    (void)state;
    assert_true(add("layers.0.weight", 15, 42));
    assert_value("layers.0.weight", 15, 42);
    assert_int_equal(map.count, 1);
    assert_absent("layers.1.weight", 15);
}

static void a_hundred_thousand_keys_are_found_and_others_are_not(void **state)
{
    static char name[2 * KEYS][24];

    (void)state;
    for (size_t i = 0; i < 2 * KEYS; i++)
        snprintf(name[i], sizeof(name[i]), "layers.%zu.weight", i);
    for (size_t i = 0; i < KEYS; i++)
        assert_true(add(name[i], strlen(name[i]), 3 * i));
    assert_int_equal(map.count, KEYS);
    for (size_t i = 0; i < KEYS; i++)
        assert_value(name[i], strlen(name[i]), 3 * i);
    for (size_t i = KEYS; i < 2 * KEYS; i++)
        assert_absent(name[i], strlen(name[i]));
}

static void keys_that_are_numbers_are_found(void **state)
{
    static uint64_t key[KEYS];

    (void)state;
    for (uint64_t i = 0; i < KEYS; i++) {
        key[i] = i << 32; /* low bits all equal */
        assert_true(add(&key[i], sizeof(key[i]), i));
    }
    for (uint64_t i = 0; i < KEYS; i++)
        assert_value(&key[i], sizeof(key[i]), i);
}

static void at_most_two_thirds_of_the_slots_are_taken(void **state)
{
    static uint64_t key[5000];

    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        key[i] = i;
        assert_true(add(&key[i], sizeof(key[i]), i));
        assert_true(3 * map.count <= 2 * map.cap);
        assert_int_equal(map.cap & (map.cap - 1), 0);
    }
}

static void adding_a_key_again_leaves_its_value(void **state)
{
    uint64_t value = 2;
    bool     was = false;

    (void)state;
    assert_true(add("a", 1, 1));
    assert_true(rsi_map_add(&map, "a", 1, &value, &was));
    assert_true(was);
    assert_int_equal(value, 1);
    assert_value("a", 1, 1);
    assert_int_equal(map.count, 1);
}

static void adding_a_new_key_says_that_it_was_not_there(void **state)
{
    uint64_t value = 9;
    bool     was = true;

    (void)state;
    assert_true(rsi_map_add(&map, "a", 1, &value, &was));
    assert_false(was);
    assert_int_equal(value, 9);
}

static void equal_bytes_elsewhere_are_the_same_key(void **state)
{
    char one[] = "bias", two[] = "bias", three[] = "bias.0";

    (void)state;
    assert_true(add(one, 4, 5));
    assert_value(two, 4, 5);
    assert_value(three, 4, 5); /* what follows does not count */
}

static void a_key_and_its_beginnings_are_different(void **state)
{
    const char *name = "layers.0.attention.wq.weight";

    (void)state;
    for (size_t len = 0; len <= 28; len++)
        assert_true(add(name, len, 100 + len));
    assert_int_equal(map.count, 29);
    for (size_t len = 0; len <= 28; len++)
        assert_value(name, len, 100 + len);
}

static void keys_that_differ_behind_a_nul_are_different(void **state)
{
    (void)state;
    assert_true(add("a\0b", 3, 1));
    assert_true(add("a\0c", 3, 2));
    assert_true(add("a\0", 2, 3));
    assert_true(add("a", 1, 4));
    assert_true(add("a\0\0", 3, 5));
    assert_value("a\0b", 3, 1);
    assert_value("a\0c", 3, 2);
    assert_value("a\0", 2, 3);
    assert_value("a", 1, 4);
    assert_value("a\0\0", 3, 5);
}

static void no_memory_for_the_first_key_is_reported(void **state)
{
    (void)state;
    rsi_mem_fail_at(1, 0);
    assert_false(add("a", 1, 1));
    assert_int_equal(map.count, 0);
    assert_absent("a", 1);
    assert_true(add("a", 1, 1));
}

static void a_failed_growth_leaves_all_keys(void **state)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t            n = 0;

    (void)state;
    assert_true(add(digits, 1, 0));
    rsi_mem_fail_at(1, 1);
    while (add(digits + n, 1, n)) {
        n++;
        assert_true(n < 36);
    }
    assert_int_equal(n, 10); /* of the first 16 slots */
    for (size_t i = 0; i < n; i++)
        assert_value(digits + i, 1, i);
    assert_absent(digits + n, 1);
    rsi_mem_fail_at(0, 0);
    assert_true(add(digits + n, 1, n));
    assert_value(digits + n, 1, n);
}

static void a_released_map_is_empty_and_usable(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    assert_true(add("a", 1, 1));
    rsi_map_release(&map);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
    assert_int_equal(map.count, 0);
    assert_absent("a", 1);
    assert_true(add("a", 1, 2));
    assert_value("a", 1, 2);
}

static void the_hash_depends_on_every_byte_and_the_length(void **state)
{
    unsigned char key[40] = { 0 };
    uint64_t      zeros = rsi_hash(key, sizeof(key));

    (void)state;
    assert_int_equal(rsi_hash(key, sizeof(key)), zeros);
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = 1;
        assert_int_not_equal(rsi_hash(key, sizeof(key)), zeros);
        key[i] = 0;
        assert_int_not_equal(rsi_hash(key, i), zeros);
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_empty_map_has_nothing),
        TEST(what_is_added_is_found),
        TEST(a_hundred_thousand_keys_are_found_and_others_are_not),
        TEST(keys_that_are_numbers_are_found),
        TEST(at_most_two_thirds_of_the_slots_are_taken),
        TEST(adding_a_key_again_leaves_its_value),
        TEST(adding_a_new_key_says_that_it_was_not_there),
        TEST(equal_bytes_elsewhere_are_the_same_key),
        TEST(a_key_and_its_beginnings_are_different),
        TEST(keys_that_differ_behind_a_nul_are_different),
        TEST(no_memory_for_the_first_key_is_reported),
        TEST(a_failed_growth_leaves_all_keys),
        TEST(a_released_map_is_empty_and_usable),
        TEST(the_hash_depends_on_every_byte_and_the_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
