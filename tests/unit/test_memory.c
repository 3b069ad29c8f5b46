/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory.c - what only a store in memory can get wrong. The rest is test_store.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store/store.h"

#include <string.h>

static int open_store(void **state)
{
    rsd_store *store;
    rsd_err    rc = rsd_store_open("mem:", &store, NULL);

    *state = rc ? NULL : store;
    return (int)rc;
}

static int close_store(void **state)
{
    rsd_store_close(*state);
    return rsi_mem_stats_get().bytes == 0 ? 0 : -1;
}

static rsi_file *open_file(rsd_store *store, uint32_t flags, uint64_t bytes)
{
    rsi_file *file;

    assert_int_equal(rsi_file_open(store, "a", flags, bytes, &file, NULL), RSD_OK);
    return file;
}

static void a_write_that_memory_does_not_suffice_for_is_refused(void **state)
{
    rsi_file *out = open_file(*state, RSD_OPEN_CREATE, 0), *none;
    rsd_error err;

    assert_int_equal(rsi_file_write(out, (uint64_t)INT64_MAX - 8, "abcd", 4, &err), RSD_E_NOMEM);
    assert_non_null(strstr(err.msg, "\"a\""));
    rsi_file_close(out, NULL);
    assert_int_equal(rsi_file_open(*state, "b", RSD_OPEN_CREATE, INT64_MAX, &none, &err),
                     RSD_E_NOMEM);
    assert_int_equal(rsi_file_open(*state, "b", RSD_OPEN_READ, 0, &none, &err), RSD_E_NOTFOUND);
}

static void a_tree_removed_under_its_writers_can_not_be_committed(void **state)
{
    rsi_tree *tree, *other;

    assert_int_equal(rsi_tree_begin(*state, "ck", 0, &tree, NULL), RSD_OK);
    assert_int_equal(rsi_tree_attach(*state, tree->temp, &other, NULL), RSD_OK);
    assert_int_equal(rsi_store_remove(*state, tree->temp, NULL), RSD_OK);
    assert_int_equal(rsi_tree_commit(tree, NULL), RSD_E_NOTFOUND);
    assert_int_equal(rsi_tree_abort(tree, NULL), RSD_OK);
    assert_int_equal(rsi_tree_abort(other, NULL), RSD_OK);
}

static void two_stores_in_memory_share_nothing(void **state)
{
    rsd_store *second;
    rsd_entry  entry;

    rsi_file_close(open_file(*state, RSD_OPEN_CREATE, 0), NULL);
    assert_int_equal(rsd_store_open("mem:", &second, NULL), RSD_OK);
    assert_int_equal(rsi_store_stat(second, "a", &entry, NULL), RSD_E_NOTFOUND);
    rsd_store_close(second);
}

#define T(test) cmocka_unit_test_setup_teardown(test, open_store, close_store)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_write_that_memory_does_not_suffice_for_is_refused),
        T(a_tree_removed_under_its_writers_can_not_be_committed),
        T(two_stores_in_memory_share_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
