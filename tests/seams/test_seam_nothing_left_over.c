/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion leaves its target and nothing else, also where a file that is still open can't be
 * removed (FUSE and NFS rename it), and of two to one target the second learns why it can't. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "convert_fixture.h"
#include "store/file.h"
#include "sys_faults.h"
#include "skip_because.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* ---- calls as FUSE makes them ---- */

static bool is_open(ino_t ino, int but)
{
    DIR           *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    bool           yes = false;

    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        struct stat st;
        int         fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fd != but && fd != dirfd(dir) && fstat(fd, &st) == 0)
            yes = yes || (st.st_ino == ino && S_ISREG(st.st_mode));
    }
    closedir(dir);
    return yes;
}

static int fuse_unlinkat(int dir, const char *name, int flags)
{
    struct stat st;
    char        hidden[64];

    if (!(flags & AT_REMOVEDIR) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && is_open(st.st_ino, -1)) {
        snprintf(hidden, sizeof(hidden), ".fuse_hidden%ju", (uintmax_t)st.st_ino);
        return renameat(dir, name, dir, hidden);
    }
    return unlinkat(dir, name, flags);
}

static int fuse_renameat2(int dir, const char *name, int to_dir, const char *to, unsigned flags)
{
    if (flags) {
        errno = EINVAL;
        return -1;
    }
    return renameat(dir, name, to_dir, to);
}

static int fuse_fstatfs(int fd, struct statfs *out)
{
    int rc = fstatfs(fd, out);

    out->f_type = 0x65735546;
    return rc;
}

static int no_linkat(int dir, const char *name, int to_dir, const char *to, int flags)
{
    (void)dir, (void)name, (void)to_dir, (void)to, (void)flags;
    errno = EPERM;
    return -1;
}

/* ---- conversions ---- */

typedef struct run {
    char      folder[64], from[96];
    rsi_sys   sys;
    bool      again; /* starts another one in the middle */
    rsd_err   again_rc;
    rsd_error again_err;
} run;

static rsd_err convert(run *r, const char *to, bool overwrite, rsd_error *err);

static int step(void *arg, int64_t done, int64_t total)
{
    run *r = arg;

    (void)done;
    (void)total;
    if (r->again) {
        r->again = false;
        r->again_rc = convert(r, "out", false, &r->again_err);
    }
    return 0;
}

static rsd_err convert(run *r, const char *to, bool overwrite, rsd_error *err)
{
    rsi_file_opts    how = { .sys = &r->sys, .io = RSI_FILE_IO_THREADS };
    rsd_convert_opts opts = { .size = sizeof(opts),
                              .sync = RSD_NEVER,
                              .threads = 1,
                              .keep = rsi_hash128_available(),
                              .overwrite = overwrite,
                              .on_progress = step,
                              .arg = r };
    rsd_ckpt        *ckpt;
    rsd_err          rc;

    assert_int_equal(rsi_file_store_open(r->folder, &how, &opts.store, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_open(NULL, r->from, &ckpt, NULL), RSD_OK);
    rc = rsd_convert(ckpt, to, NULL, &opts, err);
    rsd_ckpt_close(ckpt);
    rsd_store_close(opts.store);
    return rc;
}

static void begin(run *r)
{
    *r = (run){ .sys = *sys_quick() };
    conv_folder(r->folder, sizeof(r->folder));
    snprintf(r->from, sizeof(r->from), "%s/src", r->folder);
    conv_source(NULL, r->from, RSD_FORMAT_DCP, NULL, true, NULL);
}

/* All names in the folder but the source's. */
static const char *names(const run *r)
{
    static char     text[1024];
    struct dirent **entry;
    int             n = scandir(r->folder, &entry, NULL, alphasort);

    text[0] = 0;
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;

        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "src") != 0)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s ", name);
        free(entry[i]);
    }
    free(entry);
    return text;
}

static void nothing_is_left_where_open_files_are_hidden(void **state)
{
    run       r;
    rsd_error err;

    (void)state;
    begin(&r);
    r.sys.unlinkat = fuse_unlinkat;
    r.sys.renameat2 = fuse_renameat2;
    r.sys.fstatfs = fuse_fstatfs;
    for (int links = 0; links < 2; links++) {
        const char *want = rsi_hash128_available()
                               ? "out out.safetensors out.safetensors.reshard-sums "
                               : "out out.safetensors ";
        char        path[128];

        if (!links)
            r.sys.linkat = no_linkat;
        assert_int_equal(convert(&r, "out", false, &err), RSD_OK);
        assert_int_equal(convert(&r, "out.safetensors", false, &err), RSD_OK);
        assert_int_equal(convert(&r, "out.safetensors", false, &err), RSD_E_EXISTS);
        assert_int_equal(convert(&r, "out.safetensors", true, &err), RSD_OK);
        assert_string_equal(names(&r), want);
        snprintf(path, sizeof(path), "%s/out", r.folder);
        conv_same(NULL, r.from, NULL, path);
        conv_remove(path);
        snprintf(path, sizeof(path), "%s/out.safetensors", r.folder);
        conv_same(NULL, r.from, NULL, path);
        conv_remove(path);
        strcat(path, ".reshard-sums");
        unlink(path);
        r.sys.linkat = sys_quick()->linkat;
    }
    conv_remove(r.folder);
}

static void the_second_of_two_learns_that_another_one_is_running(void **state)
{
    run       r;
    rsd_error err;

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash: the second writes too and finds the name taken");
    begin(&r);
    r.again = true;
    assert_int_equal(convert(&r, "out", false, &err), RSD_OK);
    assert_int_equal(r.again_rc, RSD_E_EXISTS);
    assert_non_null(strstr(r.again_err.msg, "another conversion to it is running"));
    assert_null(strstr(r.again_err.msg, "lock"));
    assert_string_equal(names(&r), "out ");
    conv_remove(r.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_where_open_files_are_hidden),
        cmocka_unit_test(the_second_of_two_learns_that_another_one_is_running),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
