/* SPDX-License-Identifier: Apache-2.0 */
/* test_zip_id.c - the serialization id is the one that torch computes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/zip_id.h"

#include <string.h>

/* From torch.save of lists of n tensors: the set grows at 13, 29, 59, 127 ... names. */
static void the_names_of_n_storages_give_what_torch_gives(void **state)
{
    static const struct {
        size_t   n;
        uint64_t id;
    } torch[] = {
        { 0, 2908468677762923104u },    { 1, 15728199511854643026u },
        { 2, 5611085236196705294u },    { 8, 8268647735604577700u },
        { 9, 1977860353369201443u },    { 24, 12647775507600111753u },
        { 25, 14750728607576356699u },  { 55, 7763250659416188633u },
        { 123, 10757249306875524792u }, { 1200, 7006458023395743877u },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(torch) / sizeof(torch[0]); i++) {
        uint64_t got = 0;

        assert_int_equal(rsi_zip_id_names(torch[i].n, &got, NULL), RSD_OK);
        assert_int_equal(got, torch[i].id);
    }
}

static void the_id_has_40_digits(void **state)
{
    char text[RSI_ZIP_ID_LEN + 1];

    (void)state;
    rsi_zip_id_text(7, UINT64_MAX, text);
    assert_string_equal(text, "0000000000000000000718446744073709551615");
}

static void too_many_storages_are_refused(void **state)
{
    uint64_t  got;
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_zip_id_names(SIZE_MAX / 2, &got, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "too many"));
}

static void every_allocation_that_fails_is_no_memory(void **state)
{
    uint64_t got;
    int64_t  before = rsi_mem_stats_get().bytes;

    (void)state;
    for (uint64_t n = 1; n <= 3; n++) {
        rsi_mem_fail_at(n, 0);
        assert_int_equal(rsi_zip_id_names(1, &got, NULL), RSD_E_NOMEM);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    rsi_mem_fail_at(4, 0);
    assert_int_equal(rsi_zip_id_names(1, &got, NULL), RSD_OK);
    rsi_mem_fail_at(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names_of_n_storages_give_what_torch_gives),
        cmocka_unit_test(the_id_has_40_digits),
        cmocka_unit_test(too_many_storages_are_refused),
        cmocka_unit_test(every_allocation_that_fails_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
