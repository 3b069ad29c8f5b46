/* SPDX-License-Identifier: Apache-2.0 */
/* A plain zip writer for tests; every field is written by hand so that tests can break each. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "zip_build.h"
#include "base/crc32.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_START = 1000 }; /* where the archive begins in its file */

const zip_given zip_usual[Z_COUNT] = { { .name = "archive/data.pkl", .data = "a pickle" },
                                       { .name = "archive/byteorder", .data = "little" },
                                       { .name = "archive/data/0", .data = "twelve bytes" },
                                       { .name = "archive/version", .data = "3\n" } };

static size_t name_len(const zip_given *g)
{
    return g->name_len ? g->name_len : strlen(g->name);
}

static size_t data_len(const zip_given *g)
{
    return g->data_len ? g->data_len : strlen(g->data);
}

static void add(zip_built *zip, uint64_t value, int width)
{
    zip->len += (size_t)width;
    assert_true(zip->len <= sizeof(zip->bytes));
    zip_patch(zip, zip->len - (size_t)width, width, value);
}

static void add_bytes(zip_built *zip, const void *bytes, size_t len)
{
    assert_true(zip->len + len <= sizeof(zip->bytes));
    if (len)
        memcpy(zip->bytes + zip->len, bytes, len);
    zip->len += len;
}

static void add_junk(zip_built *zip, size_t len)
{
    for (size_t i = 0; i < len; i++)
        add(zip, 'j', 1);
}

/* CRC and sizes, in the header or behind the data. */
static void add_sizes(zip_built *zip, const zip_given *g, int width)
{
    add(zip, rsi_crc32(0, g->data, data_len(g)), 4);
    add(zip, width == 4 || width == 8 ? data_len(g) : UINT32_MAX, width < 0 ? 4 : width);
    add(zip, width == 4 || width == 8 ? data_len(g) : UINT32_MAX, width < 0 ? 4 : width);
}

static void add_record(zip_built *zip, size_t i, const zip_given *g, const zip_style *style)
{
    size_t after = style->descriptor ? style->descriptor : 16;

    zip->local[i] = zip->len;
    add(zip, 0x04034b50, 4);
    add(zip, 0, 2);
    add(zip, style->sizes_in_front ? 0x800 : 0x808, 2);
    add(zip, 0, 6); /* method, time, date */
    if (style->sizes_in_front)
        add_sizes(zip, g, style->wide ? -1 : 4);
    else
        add(zip, 0, 12);
    add(zip, name_len(g), 2);
    add(zip, 7 + (style->wide ? 20u : 0u), 2);
    add_bytes(zip, g->name, name_len(g));
    if (style->wide) {
        add(zip, 1, 2);
        add(zip, 16, 2);
        add(zip, data_len(g), 8);
        add(zip, style->sizes_in_front ? data_len(g) : 0, 8);
    }
    add_bytes(zip, "FB\x03\0ZZZ", 7);
    zip->data[i] = zip->len;
    add_bytes(zip, g->data, data_len(g));
    zip->behind[i] = zip->len;
    if (style->sizes_in_front)
        return;
    if (after == 16 || after == 24)
        add(zip, 0x08074b50, 4);
    add_sizes(zip, g, after >= 20 ? 8 : 4);
}

static void add_entry(zip_built *zip, size_t i, const zip_given *g, const zip_style *style)
{
    size_t extra = i + 1 == zip->n ? style->extra_len : 0;

    zip->central[i] = zip->len;
    add(zip, 0x02014b50, 4);
    add(zip, 0, 4);
    add(zip, style->sizes_in_front ? 0x800 : 0x808, 2);
    add(zip, 0, 6);
    add_sizes(zip, g, style->wide ? -1 : 4);
    add(zip, name_len(g), 2);
    add(zip, extra + (style->wide ? 28u : 0u), 2);
    add(zip, 0, 4); /* comment, disk */
    add(zip, 0, 6); /* attributes */
    add(zip, style->wide ? UINT32_MAX : zip->local[i], 4);
    add_bytes(zip, g->name, name_len(g));
    if (style->wide) {
        add(zip, 1, 2);
        add(zip, 24, 2);
        add(zip, data_len(g), 8);
        add(zip, data_len(g), 8);
        add(zip, zip->local[i], 8);
    }
    add_bytes(zip, style->extra, extra);
}

static void add_end(zip_built *zip, size_t dir_size, const zip_style *style)
{
    zip->end64 = zip->len;
    if (!style->plain_end) {
        add(zip, 0x06064b50, 4);
        add(zip, 44, 8);
        add(zip, 0x2d031e, 4);
        add(zip, 0, 8);
        add(zip, zip->n, 8);
        add(zip, zip->n, 8);
        add(zip, dir_size, 8);
        add(zip, zip->dir, 8);
        zip->locator = zip->len;
        add(zip, 0x07064b50, 4);
        add(zip, 0, 4);
        add(zip, zip->end64, 8);
        add(zip, 1, 4);
    }
    zip->end = zip->len;
    add(zip, 0x06054b50, 4);
    add(zip, 0, 4);
    add(zip, zip->n, 2);
    add(zip, zip->n, 2);
    add(zip, style->wide ? UINT32_MAX : dir_size, 4);
    add(zip, style->wide ? UINT32_MAX : zip->dir, 4);
    add(zip, 0, 2);
}

void zip_build(zip_built *zip, const zip_given *given, size_t n, const zip_style *style)
{
    static const zip_style torch_style;
    size_t                 dir_size;

    memset(zip, 0, sizeof(*zip));
    if (!given)
        given = zip_usual, n = Z_COUNT;
    if (!style)
        style = &torch_style;
    zip->n = n;
    add_junk(zip, style->prefix);
    for (size_t i = 0; i < n; i++) {
        if (i == 1)
            add_junk(zip, style->gap);
        add_record(zip, i, &given[i], style);
    }
    zip->dir = zip->len;
    for (size_t i = 0; i < n; i++)
        add_entry(zip, i, &given[i], style);
    dir_size = zip->len - zip->dir;
    add_junk(zip, style->before_end);
    add_end(zip, dir_size, style);
}

void zip_patch(zip_built *zip, size_t at, int width, uint64_t value)
{
    for (int i = 0; i < width; i++)
        zip->bytes[at + (size_t)i] = (unsigned char)(i < 8 ? value >> (8 * i) : 0);
}

void zip_insert(zip_built *zip, size_t at, const void *bytes, size_t len)
{
    assert_true(zip->len + len <= sizeof(zip->bytes) && at <= zip->len);
    memmove(zip->bytes + at + len, zip->bytes + at, zip->len - at);
    memcpy(zip->bytes + at, bytes, len);
    zip->len += len;
}

/* A file with the archive in its middle; reads outside of it are refused. `arg` is the archive. */
static rsd_err read_middle(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    const zip_built *zip = arg;

    (void)err;
    assert_true(off >= FILE_START && off - FILE_START <= zip->len);
    assert_true(len <= zip->len - (off - FILE_START));
    memcpy(buf, zip->bytes + (off - FILE_START), len);
    return RSD_OK;
}

static rsd_err read_zip(const zip_built *zip, rsi_arena *mem, rsi_zip *out, rsd_error *err)
{
    rsi_source source = { .read = read_middle,
                          .arg = (void *)(uintptr_t)zip,
                          .start = FILE_START,
                          .size = zip->len,
                          .name = "__0_0.distcp" };

    return rsi_zip_read(&source, mem, out, err);
}

void zip_accept(const zip_built *zip, rsi_arena *mem, rsi_zip *out)
{
    rsd_error err = { 0 };

    if (read_zip(zip, mem, out, &err))
        fail_msg("%s", err.msg);
}

void zip_refuse(const zip_built *zip, rsd_err code, const char *text)
{
    rsd_error err = { 0 };
    rsi_arena mem = { 0 };
    rsi_zip   out = { .n = 77 };

    assert_int_equal(read_zip(zip, &mem, &out, &err), code);
    if (!strstr(err.msg, text) || !strstr(err.msg, "file \"__0_0.distcp\": "))
        fail_msg("\"%s\" is not in \"%s\"", text, err.msg);
    assert_int_equal(out.n, 77);
    rsi_arena_release(&mem);
}
