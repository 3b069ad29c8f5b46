/* SPDX-License-Identifier: Apache-2.0 */
/* A custom transform: registers "stream.rot13", which swaps the case of ASCII letters, saves a
 * checkpoint through it and reads it back. A real one would compress or encrypt. */
#include <reshard/reshard_plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char nothing; /* this transform keeps nothing between its calls */

static rsd_err begin(void *arg, bool encode, void **stream, rsd_error *err)
{
    (void)arg, (void)encode, (void)err; /* decoding is the same as encoding */
    *stream = &nothing;
    return RSD_OK;
}

static rsd_err feed(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                    size_t out_cap, size_t *made, rsd_error *err)
{
    size_t n = in_len < out_cap ? in_len : out_cap;

    (void)stream, (void)err;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = ((const unsigned char *)in)[i], lower = c | 0x20;

        ((unsigned char *)out)[i] = lower >= 'a' && lower <= 'z' ? c ^ 0x20 : c;
    }
    *used = *made = n;
    return RSD_OK;
}

static rsd_err end(void *stream, void *out, size_t out_cap, size_t *made, bool *done,
                   rsd_error *err)
{
    (void)stream, (void)out, (void)out_cap, (void)err;
    *made = 0;
    *done = true;
    return RSD_OK;
}

static void release(void *stream)
{
    (void)stream;
}

/* Saves and reads one tensor in a store in memory. */
static rsd_err round_trip(rsd_store *store, float *weight, float *back, rsd_error *err)
{
    const int64_t shape[] = { 4 };
    rsd_view      view = { .box = { 1, { 0 }, { 4 } }, .data = weight };
    rsd_save_opts opts = { .size = sizeof(opts), .store = store, .transform = "stream.rot13" };
    rsd_state    *state;
    rsd_ckpt     *ckpt;
    rsd_chunk     chunk = { .size = sizeof(chunk) };
    rsd_err       rc = rsd_state_create(&state, err);

    if (rc)
        return rc;
    rc = rsd_state_tensor(state, "weight", NULL, RSD_F32, 1, shape, 1, &view, err);
    if (!rc)
        rc = rsd_save("checkpoint", NULL, state, &opts, err);
    rsd_state_free(state);
    if (!rc)
        rc = rsd_ckpt_open(store, "checkpoint", &ckpt, err);
    if (rc)
        return rc;
    view.data = back;
    rc = rsd_ckpt_chunk(ckpt, 0, 0, &chunk, err);
    if (!rc) {
        printf("stored through %s in %s\n", chunk.transforms[0], chunk.file);
        rc = rsd_ckpt_read(ckpt, 0, &view, NULL, err);
    }
    rsd_ckpt_close(ckpt);
    return rc;
}

int main(void)
{
    static const rsd_transform rot13 = { .size = sizeof(rot13),
                                         .name = "stream.rot13",
                                         .version = "1",
                                         .begin = begin,
                                         .feed = feed,
                                         .end = end,
                                         .free = release };
    float                      weight[] = { 1, 2, 3, 4 }, back[4] = { 0 };
    rsd_store                 *store = NULL;
    rsd_error                  err;
    rsd_err                    rc = rsd_transform_register(&rot13, &err);

    if (!rc)
        rc = rsd_store_open("mem:", &store, &err);
    if (!rc)
        rc = round_trip(store, weight, back, &err);
    if (!rc)
        puts(memcmp(weight, back, sizeof(back)) == 0 ? "the same came back"
                                                     : "something else came back");
    else
        fprintf(stderr, "own_transform: %s\n", err.msg);
    rsd_store_close(store);
    return rc || memcmp(weight, back, sizeof(back)) != 0;
}
