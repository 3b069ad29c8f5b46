/* SPDX-License-Identifier: Apache-2.0 */
/* What is being written is private, wherever it is: in a shared folder nobody can put a work folder
 * of a name that can be guessed in its place, and nobody can enter a temporary tree. The umask
 * counts for what is published. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "ckpt_fixture.h"
#include "convert_fixture.h"
#include "skip_because.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_USER = 65534 };

typedef struct place {
    char folder[64], from[96], to[96];
    char kept[160];
    bool cancel;
    int  open_temps, temps; /* names that were seen meanwhile: that others may enter, all */
} place;

static place make_place(const char *to)
{
    place p = { .cancel = false };

    conv_folder(p.folder, sizeof(p.folder));
    assert_int_equal(chmod(p.folder, 01777), 0); /* as /tmp */
    snprintf(p.from, sizeof(p.from), "%s/src", p.folder);
    snprintf(p.to, sizeof(p.to), "%s/%s", p.folder, to);
    conv_source(NULL, p.from, RSD_FORMAT_DCP, NULL, true, NULL);
    return p;
}

/* Looks at all temporary names in the folder. */
static int step(void *arg, int64_t done, int64_t total)
{
    place         *p = arg;
    DIR           *dir = opendir(p->folder);
    struct dirent *entry;

    (void)done;
    (void)total;
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        struct stat st;

        if (!strstr(entry->d_name, ".tmp-") && !strstr(entry->d_name, ".partial-"))
            continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        p->temps++;
        p->open_temps += (st.st_mode & 077) != 0;
    }
    closedir(dir);
    return p->cancel;
}

static void kept(void *arg, const char *partial)
{
    place *p = arg;

    snprintf(p->kept, sizeof(p->kept), "%s", partial);
}

static rsd_err convert(place *p, bool keep, bool resume, rsd_error *err)
{
    rsd_convert_opts opts = { .keep = keep,
                              .resume = resume,
                              .sync = RSD_NEVER,
                              .threads = 1,
                              .on_progress = step,
                              .on_kept = kept,
                              .arg = p };

    return conv_run(NULL, p->from, p->to, opts, err);
}

/* A run that was stopped: p->kept is its work folder. */
static void stop_early(place *p)
{
    rsd_error err;

    p->cancel = true;
    assert_int_equal(convert(p, true, false, &err), RSD_E_CANCELED);
    p->cancel = false;
    assert_int_equal(access(p->kept, F_OK), 0);
}

static void refused(place *p, const char *why)
{
    rsd_error err;

    assert_int_not_equal(convert(p, true, true, &err), RSD_OK);
    if (!strstr(err.msg, why))
        fail_msg("%s", err.msg);
    assert_int_equal(access(p->to, F_OK), -1);
}

static void a_work_folder_that_others_may_write_to_is_refused(void **state)
{
    place     p = make_place("out");
    rsd_error err;

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    stop_early(&p);
    assert_int_equal(chmod(p.kept, 0777), 0);
    refused(&p, "others may write to it");
    assert_int_equal(chmod(p.kept, 0700), 0);
    assert_int_equal(convert(&p, true, true, &err), RSD_OK);
    conv_remove(p.folder);
}

static void a_link_is_no_work_folder(void **state)
{
    place p = make_place("out.safetensors");
    char  elsewhere[96];

    (void)state;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    stop_early(&p);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", p.folder);
    assert_int_equal(rename(p.kept, elsewhere), 0);
    assert_int_equal(symlink("elsewhere", p.kept), 0);
    refused(&p, p.kept + strlen(p.folder) + 1);
    conv_remove(p.folder);
}

static void a_work_folder_of_another_user_is_refused(void **state)
{
    place       p = make_place("out");
    struct stat st;
    rsd_error   err;

    (void)state;
    if (geteuid() != 0 || !rsi_hash128_available()) {
        print_message("skipped: only root can make files of another user\n");
        conv_remove(p.folder);
        skip();
    }
    stop_early(&p);
    assert_int_equal(chown(p.kept, OTHER_USER, OTHER_USER), 0);
    refused(&p, "belongs to another user");
    assert_int_equal(convert(&p, true, false, &err), RSD_OK); /* it starts over in one of its own */
    assert_int_equal(stat(p.to, &st), 0);
    assert_int_equal(st.st_uid, 0);
    conv_remove(p.folder);
}

/* The same seen from the other side, where the folder can't be removed. */
static void an_ordinary_user_gets_an_error_for_a_folder_of_another(void **state)
{
    place p = make_place("out");
    int   status;
    pid_t child;

    (void)state;
    if (geteuid() != 0 || !rsi_hash128_available()) {
        print_message("skipped: only root can make files of another user\n");
        conv_remove(p.folder);
        skip();
    }
    stop_early(&p);
    child = fork();
    if (child == 0) {
        rsd_error err = { .msg = "" };
        bool      fine = setgid(OTHER_USER) == 0 && setuid(OTHER_USER) == 0;

        for (int resume = 0; resume < 2 && fine; resume++)
            fine = convert(&p, true, resume, &err) == RSD_E_EXISTS &&
                   strstr(err.msg, "belongs to another user");
        if (!fine)
            fprintf(stderr, "%s\n", err.msg);
        _exit(!fine);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access(p.to, F_OK), -1);
    conv_remove(p.folder);
}

static mode_t mode_of(const char *folder, const char *name)
{
    char        path[200];
    struct stat st;

    snprintf(path, sizeof(path), "%s%s%s", folder, name ? "/" : "", name ? name : "");
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void save(place *p)
{
    const rsd_save_opts opts = {
        .size = sizeof(opts), .sync = RSD_NEVER, .on_progress = step, .arg = p
    };
    const int64_t four[] = { 4 };
    int32_t       data[4];
    rsd_state    *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "a", NULL, 1, four, data);
    assert_int_equal(rsd_save(p->to, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
}

static void trees_are_private_until_the_umask_counts(void **state)
{
    static const char *const targets[] = { "out", "out.safetensors" };
    static const mode_t      masks[] = { 0, 022, 027, 077 };
    mode_t                   before = umask(022);

    (void)state;
    for (int i = 0; i < 24; i++) {
        mode_t    mask = masks[i % 4];
        bool      file = i / 4 % 2;
        int       way = i / 8; /* save, convert, convert with keep */
        place     p = make_place(targets[file]);
        rsd_error err;

        if (way == 2 && !rsi_hash128_available())
            continue;
        umask(mask);
        if (way == 0)
            save(&p);
        else
            assert_int_equal(convert(&p, way == 2, false, &err), RSD_OK);
        umask(022);
        assert_true(p.temps > 0);
        assert_int_equal(p.open_temps, 0);
        assert_int_equal(mode_of(p.to, NULL), (file ? 0666 : 0777) & ~mask);
        if (!file)
            assert_int_equal(mode_of(p.to, ".metadata"), 0666 & ~mask);
        conv_remove(p.folder);
    }
    umask(before);
}

static void a_folder_that_gives_its_group_on_still_does(void **state)
{
    place p = make_place("out");

    (void)state;
    assert_int_equal(chmod(p.folder, 03777), 0);
    save(&p);
    assert_int_equal(mode_of(p.to, NULL) & 02000, 02000);
    conv_remove(p.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_work_folder_that_others_may_write_to_is_refused),
        cmocka_unit_test(a_link_is_no_work_folder),
        cmocka_unit_test(a_work_folder_of_another_user_is_refused),
        cmocka_unit_test(an_ordinary_user_gets_an_error_for_a_folder_of_another),
        cmocka_unit_test(trees_are_private_until_the_umask_counts),
        cmocka_unit_test(a_folder_that_gives_its_group_on_still_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
