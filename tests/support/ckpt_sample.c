/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a small state in each format, and copies what was saved with one file exchanged. */
#include "ckpt_sample.h"
#include "ckpt_walk.h"
#include "format/value.h"

#include <stdlib.h>
#include <string.h>

static const float   weight[4][3] = { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 }, { 10, 11, 12 } };
static const int64_t moment[3] = { -1, 300, INT64_C(1) << 40 };

const char *ckpt_sample_path(ckpt_sample which)
{
    if (which == SAMPLE_SAFETENSORS)
        return "ck.safetensors";
    return which == SAMPLE_TORCH || which == SAMPLE_TORCH_LONG ? "ck.pt" : "ck";
}

const char *ckpt_sample_file(ckpt_sample which, size_t n)
{
    static const char *const dcp[] = { "ck/__0_0.distcp", "ck/__1_0.distcp", "ck/.metadata", NULL };

    if (strcmp(ckpt_sample_path(which), "ck") == 0)
        return n < 4 ? dcp[n] : NULL;
    return n == 0 ? ckpt_sample_path(which) : NULL;
}

/* "weight" in two parts on two ranks. */
static rsd_err add_weight(rsd_state *state, rsd_error *err)
{
    const int64_t shape[] = { 4, 3 };
    const int32_t owner[] = { 0, 1 };
    const rsd_box box[] = { { .ndim = 2, .off = { 0, 0 }, .len = { 2, 3 } },
                            { .ndim = 2, .off = { 2, 0 }, .len = { 2, 3 } } };
    rsd_view      view = { .box = { .ndim = 2, .len = { 4, 3 } },
                           .data = (void *)(uintptr_t)weight }; /* only read */
    rsd_layout   *layout;
    rsd_err       rc = rsd_layout_create_boxes(RSD_F32, 2, shape, 2, owner, box, &layout, err);

    if (rc)
        return rc;
    rc = rsd_state_tensor(state, "weight", layout, RSD_F32, 2, shape, 1, &view, err);
    rsd_layout_free(layout);
    return rc;
}

/* "optim.moment": a tensor in a dict. */
static rsd_err add_moment(rsd_state *state, rsd_error *err)
{
    const int64_t shape[] = { 3 };
    rsd_view      view = { .box = { .ndim = 1, .len = { 3 } }, .data = (void *)(uintptr_t)moment };
    rsd_err       rc = rsd_state_push(state, "optim", err);

    if (!rc)
        rc = rsd_state_tensor(state, "moment", NULL, RSD_I64, 1, shape, 1, &view, err);
    return rc ? rc : rsd_state_pop(state, err);
}

static rsd_err add_values(rsd_state *state, rsd_values *owner, rsd_error *err)
{
    const rsd_value *step, *text, *pair[2], *both;
    rsd_err          rc = rsd_value_create_int(owner, 1234, &step, err);

    if (!rc)
        rc = rsd_value_create_bytes(owner, RSD_VALUE_STR, "cosine", 6, &text, err);
    if (!rc) {
        pair[0] = text;
        pair[1] = step;
        rc = rsd_value_create_list(owner, RSD_VALUE_TUPLE, 2, pair, &both, err);
    }
    if (!rc)
        rc = rsd_state_value(state, "step", step, err);
    return rc ? rc : rsd_state_value(state, "schedule", both, err);
}

/* "notes": text that is longer than what readers look at in one go. */
static rsd_err add_notes(rsd_state *state, rsd_values *owner, rsd_error *err)
{
    const rsd_value *text;
    char             letters[5000];
    rsd_err          rc;

    for (size_t i = 0; i < sizeof(letters); i++)
        letters[i] = (char)('a' + i % 23);
    rc = rsd_value_create_bytes(owner, RSD_VALUE_STR, letters, sizeof(letters), &text, err);
    return rc ? rc : rsd_state_value(state, "notes", text, err);
}

rsd_err ckpt_sample_save(rsd_store *store, ckpt_sample which, rsd_error *err)
{
    return ckpt_sample_save_with(store, which, RSD_NEVER, err);
}

rsd_err ckpt_sample_save_with(rsd_store *store, ckpt_sample which, rsd_choice checksum,
                              rsd_error *err)
{
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .store = store,
                                 .threads = 1,
                                 .checksum = checksum,
                                 .transform = which == SAMPLE_DCP_ZSTD ? "stream.zstd" : NULL };
    rsd_state          *state = NULL;
    rsd_values         *owner = NULL;
    rsd_err             rc = rsd_state_create(&state, err);

    if (!rc)
        rc = rsd_values_create(&owner, err);
    if (!rc)
        rc = add_weight(state, err);
    if (!rc)
        rc = add_moment(state, err);
    if (!rc && which != SAMPLE_SAFETENSORS)
        rc = add_values(state, owner, err);
    if (!rc && (which == SAMPLE_DCP_LONG || which == SAMPLE_TORCH_LONG))
        rc = add_notes(state, owner, err);
    if (!rc)
        rc = rsd_save(ckpt_sample_path(which), NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_values_free(owner);
    return rc;
}

unsigned char *ckpt_sample_bytes(rsd_store *store, const char *name, size_t *len)
{
    unsigned char *bytes;
    uint64_t       size;

    if (rsi_store_file_size(store, name, &size, NULL))
        return NULL;
    bytes = malloc(size ? (size_t)size : 1);
    if (!bytes || (size > 0 && rsi_store_read_all(store, name, 0, bytes, (size_t)size, NULL))) {
        free(bytes);
        return NULL;
    }
    *len = (size_t)size;
    return bytes;
}

rsd_store *ckpt_sample_copy(rsd_store *from, ckpt_sample which, const char *name, const void *bytes,
                            size_t len)
{
    const char *file;
    rsd_store  *to;
    rsd_err     rc = rsd_store_open("mem:", &to, NULL);

    if (rc)
        return NULL;
    if (strcmp(ckpt_sample_path(which), "ck") == 0)
        rc = rsi_store_make_folder(to, "ck", NULL);
    for (size_t n = 0; !rc && (file = ckpt_sample_file(which, n)) != NULL; n++) {
        bool           other = name && strcmp(name, file) == 0;
        size_t         have = len;
        unsigned char *own = other ? NULL : ckpt_sample_bytes(from, file, &have);

        rc = other || own ? ckpt_walk_put(to, file, other ? bytes : own, have) : RSD_E_IO;
        free(own);
    }
    if (!rc)
        return to;
    rsd_store_close(to);
    return NULL;
}
