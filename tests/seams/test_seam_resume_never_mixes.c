/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion that is resumed is of one source: what an earlier run made of a source that was
 * changed since, in whatever way, is not used, and that is told. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "convert_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run {
    char        folder[64], from[96], to[96], config[128];
    bool        at_end; /* it ends early when all is done, not when some is */
    bool        stop;
    bool        change, kept; /* the carried file changes meanwhile; its work is called kept */
    char        why[256];
    const char *cast;
} run;

static run make(const char *from, const char *to, rsd_format format)
{
    run  r = { .at_end = false };
    char side[256];
    int  fd;

    conv_folder(r.folder, sizeof(r.folder));
    snprintf(r.from, sizeof(r.from), "%s/%s", r.folder, from);
    snprintf(r.to, sizeof(r.to), "%s/%s", r.folder, to);
    snprintf(r.config, sizeof(r.config), "%s/config.json", r.from);
    conv_source(NULL, r.from, format, NULL, false, NULL);
    snprintf(side, sizeof(side), "%s%s", r.from,
             strchr(from, '.') ? ".reshard-sums" : "/.reshard-sums");
    assert_int_equal(unlink(side), 0); /* with checksums it would be damage */
    if (strchr(from, '.'))
        return r;
    fd = open(r.config, O_CREAT | O_WRONLY, 0644);
    assert_int_equal(write(fd, "layers 16\n", 10), 10);
    assert_int_equal(close(fd), 0);
    return r;
}

/* Other bytes at `off`; the size stays, and so does the time if wanted. Again until the file
 * system's clock has moved on: some have one that ticks every few milliseconds. */
static void rewrite(const char *path, off_t off, const char *text, bool same_time)
{
    struct stat before, now;
    int         fd = open(path, O_WRONLY);

    assert_int_equal(fstat(fd, &before), 0);
    do {
        const struct timespec times[2] = { before.st_atim, before.st_mtim };

        assert_int_equal(pwrite(fd, text, strlen(text), off), (ssize_t)strlen(text));
        if (same_time)
            assert_int_equal(futimens(fd, times), 0);
        assert_int_equal(fstat(fd, &now), 0);
    } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec &&
             now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    assert_int_equal(close(fd), 0);
}

static int step(void *arg, int64_t done, int64_t total)
{
    run *r = arg;

    if (r->change)
        rewrite(r->config, 0, "layers 32\n", false);
    r->change = false;
    return r->stop && (!r->at_end || done == total);
}

static void note(void *arg, const char *name, const char *why)
{
    run *r = arg;

    assert_non_null(strstr(name, ".partial-"));
    snprintf(r->why, sizeof(r->why), "%s", why);
}

static void kept(void *arg, const char *partial)
{
    run *r = arg;

    r->kept = access(partial, F_OK) == 0;
}

static rsd_err convert(run *r, bool resume)
{
    const rsd_cast   cast = { .pattern = r->cast, .dtype = RSD_F16 };
    rsd_convert_opts opts = { .threads = 1,
                              .keep = true,
                              .resume = resume,
                              .sync = RSD_NEVER,
                              .on_progress = step,
                              .on_left_out = note,
                              .on_kept = kept,
                              .casts = &cast,
                              .ncasts = r->cast ? 1 : 0,
                              .arg = r };

    r->stop = !resume;
    r->why[0] = 0;
    return conv_run(NULL, r->from, r->to, opts, NULL);
}

static void a_file_that_was_rewritten_is_not_mixed(void **state)
{
    (void)state;
    for (int same_time = 0; same_time < 2; same_time++) {
        run r = make("src.safetensors", "out.safetensors", RSD_FORMAT_SAFETENSORS);

        assert_int_equal(convert(&r, false), RSD_E_CANCELED);
        rewrite(r.from, 4096, "other bytes in a block that is done", same_time);
        assert_int_equal(convert(&r, true), RSD_OK);
        conv_same(NULL, r.from, NULL, r.to);
        assert_non_null(strstr(r.why, "starts over"));
        conv_remove(r.folder);
    }
}

/* The same for one that goes along. */
static void a_carried_file_that_was_rewritten_is_the_new_one(void **state)
{
    (void)state;
    for (int same_time = 0; same_time < 2; same_time++) {
        run  r = make("src", "out", RSD_FORMAT_DCP);
        char text[16] = "", config[128];
        int  fd;

        r.at_end = true;
        assert_int_equal(convert(&r, false), RSD_E_CANCELED);
        rewrite(r.config, 0, "layers 32\n", same_time);
        assert_int_equal(convert(&r, true), RSD_OK);
        snprintf(config, sizeof(config), "%s/config.json", r.to);
        fd = open(config, O_RDONLY);
        assert_int_equal(read(fd, text, sizeof(text) - 1), 10);
        close(fd);
        assert_string_equal(text, "layers 32\n");
        assert_non_null(strstr(r.why, "starts over"));
        conv_remove(r.folder);
    }
}

static void nothing_is_kept_of_a_source_that_changes_meanwhile(void **state)
{
    run r = make("src", "out", RSD_FORMAT_DCP);

    (void)state;
    r.change = true;
    assert_int_equal(convert(&r, true), RSD_E_MISMATCH);
    assert_false(r.kept);
    assert_int_equal(convert(&r, true), RSD_OK);
    conv_remove(r.folder);
}

static void a_source_that_stayed_is_resumed(void **state)
{
    run r = make("src", "out", RSD_FORMAT_DCP);

    (void)state;
    r.at_end = true;
    assert_int_equal(convert(&r, false), RSD_E_CANCELED);
    assert_int_equal(convert(&r, true), RSD_OK);
    assert_string_equal(r.why, "");
    conv_same(NULL, r.from, NULL, r.to);
    conv_remove(r.folder);
}

static void other_options_start_over_and_that_is_told(void **state)
{
    run r = make("src", "out", RSD_FORMAT_DCP);

    (void)state;
    assert_int_equal(convert(&r, false), RSD_E_CANCELED);
    r.cast = "scalar";
    assert_int_equal(convert(&r, true), RSD_OK);
    assert_non_null(strstr(r.why, "other options"));
    conv_remove(r.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_was_rewritten_is_not_mixed),
        cmocka_unit_test(a_carried_file_that_was_rewritten_is_the_new_one),
        cmocka_unit_test(nothing_is_kept_of_a_source_that_changes_meanwhile),
        cmocka_unit_test(a_source_that_stayed_is_resumed),
        cmocka_unit_test(other_options_start_over_and_that_is_told),
    };

    if (!rsi_hash128_available()) /* nothing can be kept then */
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
