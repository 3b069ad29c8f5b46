/* SPDX-License-Identifier: Apache-2.0 */
/* test_detect.c - the format of a checkpoint, from the names in a folder or a file's first bytes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/detect.h"

#include <stdio.h>
#include <string.h>

static rsd_err detect(rsd_store *store, const char *path, rsd_format *out, rsd_error *err)
{
    rsi_files files;
    rsd_err   rc = rsi_files_open_held(&files, store, path, 0, err);

    if (!rc)
        rc = rsi_detect(&files, out, err);
    rsi_files_close(&files);
    return rc;
}

/* A folder with these empty files, told by one text with spaces. */
static void assert_folder(const char *names, rsd_err code, int format, const char *text)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };
    rsd_format found = RSD_FORMAT_AUTO;
    char       name[64];

    assert_int_equal(rsi_store_make_folder(store, "f", NULL), RSD_OK);
    while (*names) {
        size_t len = strcspn(names, " ");

        memcpy(name, "f/", 2);
        memcpy(name + 2, names, len);
        name[2 + len] = 0;
        fix_put(store, name, "", 0);
        names += len + (names[len] == ' ');
    }
    assert_int_equal(detect(store, "f", &found, &err), code);
    assert_int_equal(found, format);
    if (text)
        assert_non_null(strstr(err.msg, text));
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void folders_are_told_by_the_names_in_them(void **state)
{
    (void)state;
    assert_folder(".metadata __0_0.distcp", RSD_OK, RSD_FORMAT_DCP, NULL);
    assert_folder("__0.metadata", RSD_OK, RSD_FORMAT_DCP, NULL);
    assert_folder("__12.metadata config.json", RSD_OK, RSD_FORMAT_DCP, NULL);
    assert_folder("model.safetensors", RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
    assert_folder("model.safetensors.index.json", RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
    assert_folder(".metadata a.safetensors", RSD_OK, RSD_FORMAT_DCP, NULL);
}

static void an_adapter_tells_only_if_nothing_else_does(void **state)
{
    (void)state;
    assert_folder("adapter_model.safetensors", RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
    assert_folder("adapter_model.safetensors rng_state_0.pth optimizer.pt", RSD_OK,
                  RSD_FORMAT_SAFETENSORS, NULL);
    assert_folder("adapter_model.bin", RSD_OK, RSD_FORMAT_TORCH, NULL);
    assert_folder("adapter_model.safetensors pytorch_model.bin", RSD_OK, RSD_FORMAT_TORCH, NULL);
    assert_folder("adapter_model.safetensors pytorch_model.bin.index.json", RSD_OK,
                  RSD_FORMAT_TORCH, NULL);
    assert_folder("adapter_model.safetensors latest", RSD_OK, RSD_FORMAT_ZERO, NULL);
    assert_folder("adapter_model.safetensors model_world_size_2_rank_0.pt", RSD_OK,
                  RSD_FORMAT_RANKS, NULL);
    assert_folder("adapter_model.safetensors .metadata", RSD_OK, RSD_FORMAT_DCP, NULL);
}

static void a_model_comes_before_the_state_of_a_training(void **state)
{
    (void)state;
    assert_folder("model.safetensors latest", RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
    assert_folder("pytorch_model.bin latest rank_0.pt", RSD_OK, RSD_FORMAT_TORCH, NULL);
    assert_folder("training_args.bin latest rank_0.pt", RSD_OK, RSD_FORMAT_ZERO, NULL);
    assert_folder("pytorch_model_fsdp_rank0.bin", RSD_OK, RSD_FORMAT_RANKS, NULL);
}

static void folders_without_a_checkpoint_are_refused(void **state)
{
    (void)state;
    assert_folder("", RSD_E_FORMAT, 0, "no checkpoint found in it");
    assert_folder("readme.txt safetensors __.metadata __x.metadata a.metadata", RSD_E_FORMAT, 0,
                  "neither \".metadata\" nor a \".safetensors\" file");
    assert_folder(".safetensors", RSD_E_FORMAT, 0, "no checkpoint found in it");
}

/* accelerate's folder, with and without a file that torch.save wrote */
static void subfolders_that_are_checkpoints_are_named(void **state)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };
    rsd_format found = RSD_FORMAT_AUTO;
    rsd_ckpt  *ckpt = NULL;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "f", NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "f/logs", NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "f/optimizer_0", NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "f/pytorch_model_fsdp_0", NULL), RSD_OK);
    fix_put(store, "f/optimizer_0/.metadata", "", 0);
    fix_put(store, "f/pytorch_model_fsdp_0/.metadata", "", 0);
    assert_int_equal(detect(store, "f", &found, &err), RSD_E_FORMAT);
    assert_non_null(strstr(
        err.msg, "file; subfolders with a checkpoint: \"optimizer_0\", \"pytorch_model_fsdp_0\""));
    fix_put(store, "f/scheduler.bin", "", 0);
    assert_int_equal(rsd_ckpt_open(store, "f", &ckpt, &err), RSD_E_FORMAT);
    assert_non_null(strstr(
        err.msg, "them; subfolders with a checkpoint: \"optimizer_0\", \"pytorch_model_fsdp_0\""));
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void at_most_three_subfolders_are_named(void **state)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };
    rsd_format found = RSD_FORMAT_AUTO;
    char       name[32];

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "f", NULL), RSD_OK);
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof(name), "f/step-%d", i);
        assert_int_equal(rsi_store_make_folder(store, name, NULL), RSD_OK);
        snprintf(name, sizeof(name), "f/step-%d/model.safetensors", i);
        fix_put(store, name, "", 0);
    }
    assert_int_equal(detect(store, "f", &found, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, ": \"step-1\", \"step-2\", \"step-3\", ..."));
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void a_save_that_did_not_end_is_told(void **state)
{
    (void)state;
    assert_folder(".metadata.tmp __0_0.distcp", RSD_E_FORMAT, 0, "a save that did not end");
}

static void assert_file(const void *bytes, size_t len, rsd_err code, int format, const char *text)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };
    rsd_format found = RSD_FORMAT_AUTO;

    fix_put(store, "any.name", bytes, len);
    assert_int_equal(detect(store, "any.name", &found, &err), code);
    assert_int_equal(found, format);
    if (text)
        assert_non_null(strstr(err.msg, text));
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void files_are_told_by_their_first_bytes(void **state)
{
    (void)state;
    assert_file("PK\3\4", 4, RSD_OK, RSD_FORMAT_TORCH, NULL);
    assert_file("\x80\2", 2, RSD_OK, RSD_FORMAT_TORCH, NULL);
    assert_file("\2\0\0\0\0\0\0\0{}", 10, RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
    assert_file("\2\0\0\0\0\0\0\0{", 9, RSD_OK, RSD_FORMAT_SAFETENSORS, NULL);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    assert_file("", 0, RSD_E_FORMAT, 0, "an empty file");
    assert_file("PK\3", 3, RSD_E_FORMAT, 0, "neither a torch.save archive nor a safetensors file");
    assert_file("PK\1\2", 4, RSD_E_FORMAT, 0,
                "neither a torch.save archive nor a safetensors file");
    assert_file("\x80\6}.", 4, RSD_E_FORMAT, 0,
                "neither a torch.save archive nor a safetensors file");
    assert_file("\x80\1}.", 4, RSD_E_FORMAT, 0,
                "neither a torch.save archive nor a safetensors file");
    assert_file("\2\0\0\0\0\0\0\0", 8, RSD_E_FORMAT, 0,
                "neither a torch.save archive nor a safetensors file");
    assert_file("hello, world", 12, RSD_E_FORMAT, 0,
                "neither a torch.save archive nor a safetensors file");
}

static rsd_err detect_once(void *arg, rsd_error *err)
{
    rsd_format found;

    return detect(arg, "f", &found, err);
}

static void detecting_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    fix_put(store, "f/.metadata", "", 0);
    for (char name[] = "f/a file with quite a long name 0"; name[32] <= '9'; name[32]++) {
        memset(name + 4, name[32], 27);
        fix_put(store, name, "", 0);
    }
    fix_every_allocation(detect_once, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_told_by_the_names_in_them),
        cmocka_unit_test(an_adapter_tells_only_if_nothing_else_does),
        cmocka_unit_test(a_model_comes_before_the_state_of_a_training),
        cmocka_unit_test(folders_without_a_checkpoint_are_refused),
        cmocka_unit_test(subfolders_that_are_checkpoints_are_named),
        cmocka_unit_test(at_most_three_subfolders_are_named),
        cmocka_unit_test(a_save_that_did_not_end_is_told),
        cmocka_unit_test(files_are_told_by_their_first_bytes),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(detecting_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
