/* SPDX-License-Identifier: Apache-2.0 */
/* Many boxes are read from an open checkpoint in one call, cast and strided, and objects give the
 * bytes that were stored. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert_fixture.h"
#include "folder_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char top[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    conv_folder(top, sizeof(top));
    snprintf(path, sizeof(path), "%s/ck", top);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    conv_remove(top);
    return 0;
}

static rsd_ckpt *open_saved(size_t *t)
{
    folder_how how = { .ranks = 4 };
    rsd_ckpt  *ckpt;

    assert_int_equal(folder_save(path, 1, &how, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_find(ckpt, "w", t, NULL), RSD_OK);
    return ckpt;
}

/* Each column is a read of its own, into a transposed array of another dtype. */
static void every_column_is_read_in_one_call(void **state)
{
    static double data[FOLDER_COLS][FOLDER_ROWS];
    rsd_read      read[FOLDER_COLS + 1] = { 0 };
    rsd_error     err;
    size_t        t;
    rsd_ckpt     *ckpt = open_saved(&t);

    (void)state;
    for (int64_t c = 0; c < FOLDER_COLS; c++) {
        read[c] = (rsd_read){ .t = t, .dtype = RSD_F64, .view = { .data = data[c] } };
        read[c].view.box = (rsd_box){ 2, { 0, c }, { FOLDER_ROWS, 1 } };
    }
    read[FOLDER_COLS].t = t; /* an empty box needs no memory */
    read[FOLDER_COLS].view.box.ndim = 2;
    if (rsd_ckpt_read_many(ckpt, FOLDER_COLS + 1, read, NULL, &err))
        fail_msg("%s", err.msg);
    for (int64_t c = 0; c < FOLDER_COLS; c++)
        for (int64_t r = 0; r < FOLDER_ROWS; r++)
            assert_true(data[c][r] == 10000 + (double)(r * FOLDER_COLS + c));
    rsd_ckpt_close(ckpt);
}

static void a_wrong_read_is_named(void **state)
{
    float     x[4];
    rsd_read  read[2] = { 0 };
    rsd_error err;
    size_t    t;
    rsd_ckpt *ckpt = open_saved(&t);

    (void)state;
    read[0] = (rsd_read){ .t = t, .view = { .data = x } };
    read[0].view.box = (rsd_box){ 2, { 0, 0 }, { 1, 4 } };
    read[1] = read[0];
    read[1].view.box.off[1] = FOLDER_COLS;
    assert_int_equal(rsd_ckpt_read_many(ckpt, 2, read, NULL, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "read 1"));
    read[1] = read[0];
    read[1].t = 7;
    assert_int_equal(rsd_ckpt_read_many(ckpt, 2, read, NULL, &err), RSD_E_INVALID);
    read[1].t = t;
    read[1].view.data = NULL;
    assert_int_equal(rsd_ckpt_read_many(ckpt, 2, read, NULL, &err), RSD_E_INVALID);
    rsd_ckpt_close(ckpt);
}

static rsd_err take(void *arg, const void *bytes, size_t len)
{
    char *text = arg;

    if (len >= 64)
        return RSD_E_INVALID;
    memcpy(text, bytes, len);
    text[len] = 0;
    return RSD_OK;
}

static void an_object_gives_its_bytes(const char *transform)
{
    static const char note[] = "bytes as they are";
    rsd_part_opts     opts = { .size = sizeof(opts), .transform = transform };
    rsd_publish_opts  how = { .size = sizeof(how), .overwrite = true, .save_id = "save-1" };
    rsd_dcp_info      info = { .size = sizeof(info) };
    rsd_chunk         chunk = { .size = sizeof(chunk) };
    rsd_read_opts     reading = { .size = sizeof(reading), .verify = RSD_ALWAYS };
    char              text[64] = "";
    rsd_receipt       receipt;
    rsd_part         *part;
    rsd_ckpt         *ckpt;

    assert_int_equal(rsd_part_create(path, 3, &opts, &part, NULL), RSD_OK);
    assert_int_equal(rsd_part_object(part, "note", note, strlen(note), NULL), RSD_OK);
    assert_int_equal(rsd_part_write(part, NULL), RSD_OK);
    assert_int_equal(rsd_part_receipt(part, true, &receipt.bytes, &receipt.len, NULL), RSD_OK);
    assert_int_equal(rsd_parts_publish(path, 1, &receipt, &how, NULL), RSD_OK);
    rsd_part_free(part);

    assert_int_equal(rsd_ckpt_open(NULL, path, &ckpt, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_object_extent(ckpt, 0, &chunk, NULL), RSD_OK);
    assert_int_equal(chunk.ntransforms, transform ? 1 : 0);
    assert_int_equal(strncmp(chunk.file, "__3_", 4), 0);
    assert_int_equal(rsd_ckpt_object_bytes(ckpt, 0, &reading, take, text, NULL), RSD_OK);
    assert_string_equal(text, note);
    assert_int_equal(rsd_ckpt_object_bytes(ckpt, 1, &reading, take, text, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_dcp(ckpt, &info, NULL), RSD_OK);
    assert_string_equal(info.save_id, "save-1");
    assert_string_equal(info.checkpoint_id, "reshard");
    assert_true(info.paths);
    rsd_ckpt_close(ckpt);
}

static void objects_give_their_bytes(void **state)
{
    (void)state;
    an_object_gives_its_bytes(NULL);
    an_object_gives_its_bytes("stream.zstd");
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_column_is_read_in_one_call),
        T(a_wrong_read_is_named),
        T(objects_give_their_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
