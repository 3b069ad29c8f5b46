/* SPDX-License-Identifier: Apache-2.0 */
/* test_path_format.c - what the end of a path says about format and shape of a target. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "format/path_format.h"

/* `asked` becomes `format`; one file or a folder. */
static void assert_says(const char *path, rsd_format asked, rsd_format format, bool one_file)
{
    rsd_format got = asked;
    bool       file = rsi_path_format(path, &got);

    if (got != format || file != one_file)
        fail_msg("\"%s\" with format %d: format %d, %s", path, (int)asked, (int)got,
                 file ? "one file" : "a folder");
}

static void the_end_of_a_path_names_the_format(void **state)
{
    (void)state;
    assert_says("a/model.safetensors", RSD_FORMAT_AUTO, RSD_FORMAT_SAFETENSORS, true);
    assert_says("model.pt", RSD_FORMAT_AUTO, RSD_FORMAT_TORCH, true);
    assert_says("model.pth", RSD_FORMAT_AUTO, RSD_FORMAT_TORCH, true);
    assert_says("pytorch_model.bin", RSD_FORMAT_AUTO, RSD_FORMAT_TORCH, true);
}

static void any_other_path_is_a_dcp_folder(void **state)
{
    static const char *const path[] = { "run",          "run.dcp",  "",         "a.pt/run",
                                        "model.pt2",    "model.PT", "modelpt",  "x.pt.d",
                                        "x.safetensor", "x.pt/",    "x.binary", "safetensors" };

    (void)state;
    for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++)
        assert_says(path[i], RSD_FORMAT_AUTO, RSD_FORMAT_DCP, false);
}

static void a_format_that_was_asked_for_stays(void **state)
{
    static const rsd_format all[] = { RSD_FORMAT_DCP, RSD_FORMAT_SAFETENSORS, RSD_FORMAT_TORCH };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_says("x.safetensors", all[i], all[i], true);
        assert_says("x.pt", all[i], all[i], true);
        assert_says("x", all[i], all[i], all[i] == RSD_FORMAT_TORCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_path_names_the_format),
        cmocka_unit_test(any_other_path_is_a_dcp_folder),
        cmocka_unit_test(a_format_that_was_asked_for_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
