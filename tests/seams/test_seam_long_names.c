/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint may have any name that the file system takes, up to 255 bytes: it is saved, sealed,
 * verified, overwritten, converted and gone on with, and nothing else is left beside it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "convert_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char top[64];

/* A name of `len` bytes with this end, of ASCII or of characters with two bytes. */
static void make_name(char *path, size_t len, const char *end, bool wide)
{
    char  *at = path + sprintf(path, "%s/", top);
    size_t letters = len - strlen(end);

    for (size_t i = 0; i < letters; i++)
        at[i] = wide && letters - letters % 2 > i ? (i % 2 ? '\xa4' : '\xc3') : 'n';
    strcpy(at + letters, end);
}

static int entries(void)
{
    DIR           *dir = opendir(top);
    struct dirent *entry;
    int            n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    return n;
}

static int cancel(void *arg, int64_t done, int64_t total)
{
    (void)total;
    return *(bool *)arg && done > 0;
}

static void verify(const char *path)
{
    rsd_ckpt *ckpt;

    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_has_checksums(ckpt), rsi_hash128_available());
    assert_int_equal(rsd_ckpt_verify(ckpt, NULL, NULL, NULL, NULL, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
}

static void try_name(size_t len, const char *end, bool wide)
{
    char             from[128], path[512];
    bool             stop = true;
    rsd_convert_opts opts = {
        .sync = RSD_NEVER, .overwrite = true, .on_progress = cancel, .arg = &stop
    };
    rsd_error err;

    snprintf(from, sizeof(from), "%s/src", top);
    make_name(path, len, end, wide);
    opts.keep = rsi_hash128_available();
    for (int again = 0; again < 2; again++) { /* new, then overwriting */
        stop = true;
        opts.resume = false;
        assert_int_equal(conv_run(NULL, from, path, opts, &err), RSD_E_CANCELED);
        stop = false;
        opts.resume = opts.keep;
        assert_int_equal(conv_run(NULL, from, path, opts, &err), RSD_OK);
        verify(path);
        conv_same(NULL, from, NULL, path);
        assert_int_equal(entries(), end[0] && opts.keep ? 3 : 2);
    }
    opts.keep = opts.resume = false;
    assert_int_equal(conv_run(NULL, from, path, opts, &err), RSD_OK);
    verify(path);
    if (opts.keep) {
        const rsd_checksum_opts seal = { .size = sizeof(seal), .overwrite = true };

        assert_int_equal(rsd_ckpt_add_checksums(NULL, path, &seal, &err), RSD_OK);
        verify(path);
    }
    conv_remove(top);
}

static void a_name_of_any_length_works(void **state)
{
    static const size_t lengths[] = { 200, 210, 220, 221, 230, 233, 234, 242, 243, 254, 255 };

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (int kind = 0; kind < 3; kind++) {
            static const char *const ends[] = { "", ".safetensors", ".pt" };
            char                     from[128];

            if (kind == 2 && i % 3)
                continue;
            conv_folder(top, sizeof(top));
            snprintf(from, sizeof(from), "%s/src", top);
            conv_source(NULL, from, RSD_FORMAT_DCP, NULL, false, NULL);
            try_name(lengths[i], ends[kind], i % 2);
        }
}

static void a_name_that_is_too_long_is_refused_before_anything_is_written(void **state)
{
    char             from[128], path[512];
    rsd_convert_opts opts = { .sync = RSD_NEVER };
    rsd_error        err;

    (void)state;
    conv_folder(top, sizeof(top));
    snprintf(from, sizeof(from), "%s/src", top);
    conv_source(NULL, from, RSD_FORMAT_DCP, NULL, false, NULL);
    make_name(path, 256, "", false);
    assert_int_equal(conv_run(NULL, from, path, opts, &err), RSD_E_INVALID);
    assert_int_equal(entries(), 1);
    conv_remove(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_of_any_length_works),
        cmocka_unit_test(a_name_that_is_too_long_is_refused_before_anything_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
