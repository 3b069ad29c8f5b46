/* SPDX-License-Identifier: Apache-2.0 */
/* Overwriting replaces checkpoints and nothing else: folders that hold other things, files in the
 * place of folders, symbolic links, FIFOs, sockets and devices are refused and stay, whether it is
 * a save, an async save or a conversion, and when they come while it works. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"
#include "format/sums.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static char top[64];

static const char *at(const char *name)
{
    static char path[4][160];
    static int  next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", top, name);
    return path[next];
}

static void put(const char *name)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "mine", 4), 4);
    close(fd);
}

static bool is_mine(const char *name)
{
    char text[5] = "";
    int  fd = open(at(name), O_RDONLY);

    if (fd < 0)
        return false;
    if (read(fd, text, 4) != 4)
        text[0] = 0;
    close(fd);
    return strcmp(text, "mine") == 0;
}

/* ---- three ways to write a checkpoint ---- */

/* Comes into the target in the middle of the work. */
static const char *meanwhile;

static int step(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    if (meanwhile)
        put(meanwhile);
    meanwhile = NULL;
    return 0;
}

static rsd_err save(const char *to, bool async, rsd_error *err)
{
    const rsd_save_opts opts = {
        .size = sizeof(opts), .overwrite = true, .sync = RSD_NEVER, .on_progress = step
    };
    const int64_t four[] = { 4 };
    int32_t       data[4];
    rsd_state    *state;
    rsd_op       *op;
    rsd_err       rc;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "a", NULL, 1, four, data);
    if (!async) {
        rc = rsd_save(at(to), NULL, state, &opts, err);
    } else {
        rc = rsd_save_begin(at(to), NULL, state, RSD_STAGE_COPY, &opts, &op, err);
        if (!rc) {
            rc = rsd_op_wait(op, RSD_DURABLE, err);
            rsd_op_free(op);
        }
    }
    rsd_state_free(state);
    return rc;
}

enum { SAVE, ASYNC, CONVERT, WAYS };

static rsd_err write_to(int way, const char *to, rsd_error *err)
{
    rsd_convert_opts opts = { .overwrite = true, .sync = RSD_NEVER, .on_progress = step };

    return way == CONVERT ? conv_run(NULL, at("src"), at(to), opts, err)
                          : save(to, way == ASYNC, err);
}

static void refused(int way, const char *to, const char *why)
{
    rsd_error err;

    assert_int_equal(write_to(way, to, &err), RSD_E_EXISTS);
    if (!strstr(err.msg, why))
        fail_msg("%s", err.msg);
}

/* ---- facts ---- */

static void a_folder_with_other_things_is_not_replaced(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        rsd_error err;

        assert_int_equal(write_to(way, "ck", &err), RSD_OK);
        put("ck/thesis.txt");
        refused(way, "ck", "holds \"thesis.txt\", which is not part of a checkpoint");
        assert_true(is_mine("ck/thesis.txt"));
        assert_int_equal(unlink(at("ck/thesis.txt")), 0);
        assert_int_equal(mkdir(at("ck/sub"), 0700), 0);
        refused(way, "ck", "holds \"sub\"");
        put("ck/sub/a.safetensors");
        refused(way, "ck", "holds \"sub/a.safetensors\"");
        assert_true(is_mine("ck/sub/a.safetensors"));
        assert_int_equal(unlink(at("ck/sub/a.safetensors")), 0);
        assert_int_equal(rmdir(at("ck/sub")), 0);
        assert_int_equal(symlink("/", at("ck/x.distcp")), 0);
        refused(way, "ck", "holds \"x.distcp\"");
        assert_int_equal(unlink(at("ck/x.distcp")), 0);
        assert_int_equal(write_to(way, "ck", &err), RSD_OK);
        conv_remove(at("ck"));
        assert_int_equal(mkdir(at("ck"), 0700), 0); /* an empty one is */
        assert_int_equal(write_to(way, "ck", &err), RSD_OK);
        conv_remove(at("ck"));
    }
}

static void what_comes_while_it_is_written_is_not_removed(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        rsd_error err;

        assert_int_equal(write_to(way, "ck", &err), RSD_OK);
        meanwhile = "ck/thesis.txt";
        refused(way, "ck", "holds \"thesis.txt\"");
        assert_null(meanwhile);
        assert_true(is_mine("ck/thesis.txt"));
        conv_remove(at("ck"));
    }
}

static rsd_err append(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    (void)err;
    assert_int_equal(fwrite(bytes, 1, len, arg), len);
    return RSD_OK;
}

static void files_that_the_checksum_file_lists_may_go(void **state)
{
    static const char *const names[] = { "sub/vocab", "tokenizer.json" };
    const uint64_t           sizes[] = { 4, 4 };
    rsi_sums                 sums = { 0 };
    FILE                    *file;
    rsd_error                err;

    (void)state;
    if (!rsi_sums_available())
        return;
    assert_int_equal(save("ck", false, &err), RSD_OK);
    put("ck/tokenizer.json");
    assert_int_equal(mkdir(at("ck/sub"), 0700), 0);
    put("ck/sub/vocab");
    assert_int_equal(save("ck", false, &err), RSD_E_EXISTS);
    file = fopen(at("ck/.reshard-sums"), "w");
    assert_non_null(file);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(rsi_sums_begin(&sums, i, 0, &err), RSD_OK);
        assert_int_equal(rsi_sums_feed(&sums, "mine", 4, &err), RSD_OK);
    }
    assert_int_equal(rsi_sums_end(&sums, &err), RSD_OK);
    assert_int_equal(rsi_sums_write(&sums, 2, names, sizes, append, file, &err), RSD_OK);
    rsi_sums_release(&sums);
    fputs("damaged\n", file); /* such a one lists nothing */
    fflush(file);
    assert_int_equal(save("ck", false, &err), RSD_E_EXISTS);
    assert_true(is_mine("ck/tokenizer.json"));
    assert_int_equal(ftruncate(fileno(file), ftell(file) - 8), 0);
    fclose(file);
    assert_int_equal(save("ck", false, &err), RSD_OK);
    assert_false(is_mine("ck/tokenizer.json"));
    conv_remove(at("ck"));
}

static void nodes(const char *name, bool present[5])
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char               path[5][128];
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);

    for (int i = 0; i < 5; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%d%s", top, i, name);
    present[0] = symlink("elsewhere", path[0]) == 0;
    present[1] = symlink("src", path[1]) == 0;
    present[2] = mkfifo(path[2], 0600) == 0;
    present[3] = mknod(path[3], S_IFCHR | 0600, makedev(1, 3)) == 0; /* not everyone may */
    snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path[4]);
    present[4] = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    assert_true(present[0] && present[1] && present[2]);
}

static void links_and_nodes_are_not_replaced(void **state)
{
    static const char *const names[] = { "ck", "ck.safetensors" };

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        bool present[5];

        nodes(names[n], present);
        for (int i = 0; i < 5 * WAYS; i++) {
            char        name[32];
            struct stat before, after;

            if (!present[i % 5])
                continue;
            snprintf(name, sizeof(name), "%d%s", i % 5, names[n]);
            assert_int_equal(lstat(at(name), &before), 0);
            refused(i / 5, name, "is neither a file nor a folder");
            assert_int_equal(lstat(at(name), &after), 0);
            assert_int_equal(before.st_ino, after.st_ino);
        }
    }
}

static void files_and_folders_do_not_replace_each_other(void **state)
{
    (void)state;
    put("file");
    assert_int_equal(mkdir(at("folder.safetensors"), 0700), 0);
    put("side.safetensors");
    assert_int_equal(mkdir(at("side.safetensors.reshard-sums"), 0700), 0);
    put("side.safetensors.reshard-sums/thesis.txt");
    for (int way = 0; way < WAYS; way++) {
        refused(way, "file", "is a file and is not replaced by a folder");
        refused(way, "folder.safetensors", "is a folder and is not replaced by a file");
        refused(way, "side.safetensors", "reshard-sums\" is a folder");
    }
    assert_true(is_mine("file"));
    assert_true(is_mine("side.safetensors"));
    assert_true(is_mine("side.safetensors.reshard-sums/thesis.txt"));
}

static void sealing_replaces_only_a_file(void **state)
{
    const rsd_checksum_opts opts = { .size = sizeof(opts), .overwrite = true };
    rsd_error               err;

    (void)state;
    assert_int_equal(save("ck", false, &err), RSD_OK);
    assert_int_equal(unlink(at("ck/.reshard-sums")), 0);
    put("thesis");
    assert_int_equal(symlink("../thesis", at("ck/.reshard-sums")), 0);
    assert_int_not_equal(rsd_ckpt_add_checksums(NULL, at("ck"), &opts, &err), RSD_OK);
    assert_true(is_mine("ck/.reshard-sums"));
    assert_true(is_mine("thesis"));
}

static int begin(void **state)
{
    (void)state;
    conv_folder(top, sizeof(top));
    conv_source(NULL, at("src"), RSD_FORMAT_DCP, NULL, true, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    conv_remove(top);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_with_other_things_is_not_replaced),
        cmocka_unit_test(what_comes_while_it_is_written_is_not_removed),
        cmocka_unit_test(files_that_the_checksum_file_lists_may_go),
        cmocka_unit_test(links_and_nodes_are_not_replaced),
        cmocka_unit_test(files_and_folders_do_not_replace_each_other),
        cmocka_unit_test(sealing_replaces_only_a_file),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
