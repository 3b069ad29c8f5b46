/* SPDX-License-Identifier: Apache-2.0 */
/* Sources for conversions, and their results compared. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert_fixture.h"
#include "store/file.h"
#include "sys_faults.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *some_bytes(size_t n, uint32_t seed)
{
    unsigned char *p = malloc(n + 1);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (seed >> 24) & 0xbf; /* no float is NaN, whose payload casts may change */
    }
    return p;
}

static void *keep[16];
static int   kept;

static void add(rsd_state *state, const rsd_rules *rules, const char *full, const char *name,
                rsd_dtype dtype, int ndim, const int64_t *shape)
{
    rsd_view    view = { .box.ndim = ndim };
    rsd_layout *layout = NULL;
    size_t      n = rsd_dtype_size(dtype);
    rsd_error   err;

    for (int d = 0; d < ndim; d++) {
        view.box.len[d] = shape[d];
        n *= (size_t)shape[d];
    }
    view.data = keep[kept++] = some_bytes(n, (uint32_t)n + 17);
    if (rules && rsd_rules_layout(rules, full, dtype, ndim, shape, &layout, &err))
        fail_msg("%s", err.msg);
    if (rsd_state_tensor(state, name, layout, dtype, ndim, shape, 1, &view, &err))
        fail_msg("%s", err.msg);
    rsd_layout_free(layout);
}

static void add_all(rsd_state *state, const rsd_rules *rules)
{
    const int64_t big[] = { 1500, 2000 }, cols[] = { 768, 1031 };

    assert_int_equal(rsd_state_push(state, "m", NULL), RSD_OK);
    add(state, rules, "m.big", "big", RSD_F32, 2, big);
    add(state, rules, "m.cols", "cols", RSD_BF16, 2, cols);
    assert_int_equal(rsd_state_push(state, "small", NULL), RSD_OK);
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(rsd_state_push_index(state, i, NULL), RSD_OK);
        add(state, rules, "m.small", NULL, RSD_I64, 1, &i);
        assert_int_equal(rsd_state_pop(state, NULL), RSD_OK);
    }
    assert_int_equal(rsd_state_pop(state, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(state, NULL), RSD_OK);
    add(state, rules, "scalar", "scalar", RSD_F64, 0, NULL);
}

static void add_values(rsd_state *state, rsd_values *owner)
{
    const rsd_value *step, *note;

    assert_int_equal(rsd_value_create_int(owner, 7, &step, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, "hello", 5, &note, NULL), RSD_OK);
    assert_int_equal(rsd_state_push(state, "m", NULL), RSD_OK);
    assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(state, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(state, "note", note, NULL), RSD_OK);
}

void conv_source(rsd_store *store, const char *path, rsd_format format, const char *rules,
                 bool values, const char *transform)
{
    rsd_save_opts opts = { .size = sizeof(opts),
                           .store = store,
                           .format = format,
                           .sync = RSD_NEVER,
                           .transform = transform,
                           .distributed = rules && format == RSD_FORMAT_SAFETENSORS };
    rsd_rules    *parsed = NULL;
    rsd_values   *owner;
    rsd_state    *state;
    rsd_error     err;

    if (rules && rsd_rules_parse(rules, &parsed, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    add_all(state, parsed);
    if (values)
        add_values(state, owner);
    if (rsd_save(path, NULL, state, &opts, &err))
        fail_msg("%s", err.msg);
    rsd_state_free(state);
    rsd_values_free(owner);
    rsd_rules_free(parsed);
    while (kept > 0)
        free(keep[--kept]);
}

static void *read_all(rsd_ckpt *ckpt, size_t t, const rsd_tensor_info *info)
{
    rsd_view  view = { .box.ndim = info->ndim };
    rsd_error err;

    memcpy(view.box.len, info->shape, sizeof(view.box.len));
    view.data = calloc((size_t)info->bytes + 1, 1);
    assert_non_null(view.data);
    if (info->bytes > 0 && rsd_ckpt_read(ckpt, t, &view, NULL, &err))
        fail_msg("%s", err.msg);
    return view.data;
}

static void same_tensor(rsd_ckpt *a, size_t t, rsd_ckpt *b)
{
    rsd_tensor_info x = { .size = sizeof(x) }, y = x;
    size_t          u;
    void           *p, *q;

    assert_int_equal(rsd_ckpt_tensor(a, t, &x, NULL), RSD_OK);
    if (rsd_ckpt_find(b, x.name, &u, NULL))
        fail_msg("\"%s\" is missing", x.name);
    assert_int_equal(rsd_ckpt_tensor(b, u, &y, NULL), RSD_OK);
    assert_int_equal(x.dtype, y.dtype);
    assert_int_equal(x.ndim, y.ndim);
    assert_memory_equal(x.shape, y.shape, sizeof(x.shape));
    p = read_all(a, t, &x);
    q = read_all(b, u, &y);
    if (memcmp(p, q, (size_t)x.bytes) != 0)
        fail_msg("\"%s\" has other bytes", x.name);
    free(p);
    free(q);
}

void conv_same(rsd_store *a_store, const char *a, rsd_store *b_store, const char *b)
{
    rsd_ckpt *x, *y;
    rsd_error err;

    if (rsd_ckpt_open(a_store, a, &x, &err) || rsd_ckpt_open(b_store, b, &y, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(rsd_ckpt_tensors(x), rsd_ckpt_tensors(y));
    for (size_t t = 0; t < rsd_ckpt_tensors(x); t++)
        same_tensor(x, t, y);
    rsd_ckpt_close(x);
    rsd_ckpt_close(y);
}

rsd_err conv_run(rsd_store *store, const char *from, const char *to, rsd_convert_opts opts,
                 rsd_error *err)
{
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(store, from, &ckpt, err);

    if (rc)
        return rc;
    opts.size = sizeof(opts);
    opts.store = opts.store ? opts.store : store; /* NULL: both are local */
    rc = rsd_convert(ckpt, to, NULL, &opts, err);
    rsd_ckpt_close(ckpt);
    return rc;
}

void conv_folder(char *path, size_t cap)
{
    const char *top = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    snprintf(path, cap, "%s/reshard-convert-XXXXXX", top);
    assert_non_null(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void conv_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

rsd_store *conv_faulty_store(const char *folder)
{
    const rsi_file_opts how = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS };
    rsd_store          *store;

    assert_int_equal(rsi_file_store_open(folder, &how, &store, NULL), RSD_OK);
    return store;
}
