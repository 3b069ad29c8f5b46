/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes formats that consist of several torch.save files, the legacy form of torch.save and
 * Hugging Face folders: opens, reads, decodes and verifies each. The first byte tells the kind (the
 * table below), the rest is its parts: each but the last follows its length in two bytes. A pickle
 * gets an archive with right checksums around it, so that mutations reach the parsers behind.
 *
 * Whatever it is: no crash, a message for each error, little memory, nothing left behind. */
#include "base/mem.h"
#include "ckpt_walk.h"
#include "zip_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 4, MAX_PICKLE = 12000 };
#define READ_MOST ((int64_t)1 << 16)
/* Fixed costs of a read: two buffers of 4 MiB, and those of decoding a frame. */
#define READ_FIXED ((int64_t)10 << 20)
#ifndef FUZZ_KIND
#define FUZZ_KIND (-1) /* any; a number fuzzes that kind alone */
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files of a kind; a part of it fills each. */
typedef struct kind {
    const char *folder[2]; /* below "ck" */
    struct {
        const char *name;
        int         part;
        bool        raw; /* these bytes, not a pickle to put into an archive */
    } file[MAX_PARTS];
} kind;

static const kind kinds[] = {
    /* 0: the legacy form */
    { .file = { { "model.pt", 0, true } } },
    /* 1: rank files with DTensors */
    { .file = { { "model_world_size_2_rank_0.pt", 0, false },
                { "model_world_size_2_rank_1.pt", 1, false } } },
    /* 2: a Hugging Face folder of torch.save files */
    { .file = { { "pytorch_model.bin.index.json", 0, true }, { "a.bin", 1, false } } },
    /* 3: ZeRO, stage 3 */
    { .file = { { "zero_pp_rank_0_mp_rank_00_optim_states.pt", 0, false },
                { "zero_pp_rank_1_mp_rank_00_optim_states.pt", 1, false },
                { "zero_pp_rank_0_mp_rank_00_model_states.pt", 2, false },
                { "zero_pp_rank_1_mp_rank_00_model_states.pt", 2, false } } },
    /* 4: ZeRO, stages 1 and 2 */
    { .file = { { "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", 0, false },
                { "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", 1, false },
                { "mp_rank_00_model_states.pt", 2, false } } },
    /* 5: DeepSpeed's universal form */
    { .folder = { "ck/zero", "ck/zero/w" },
      .file = { { "zero/w/fp32.pt", 0, false },
                { "zero/w/exp_avg.pt", 1, false },
                { "mp_rank_00_model_states.pt", 2, false } } },
    /* 6: a Hugging Face folder with an index into a sub-folder */
    { .folder = { "ck/sub" },
      .file = { { "diffusion.safetensors.index.json", 0, true },
                { "sub/a.safetensors", 1, true },
                { "b.safetensors", 2, true } } },
    /* 7: the same without an index */
    { .file = { { "model.safetensors", 0, true }, { "model.fp16.safetensors", 1, true } } },
    /* 8: nanotron's */
    { .folder = { "ck/model", "ck/model/a" },
      .file = { { "model/a/model_w_pp-rank-0-of-1_tp-rank-0-of-2.safetensors", 0, true },
                { "model/a/model_w_pp-rank-0-of-1_tp-rank-1-of-2.safetensors", 1, true },
                { "model/a/model_n.safetensors", 2, true },
                { "checkpoint_metadata.json", 3, true } } },
    /* 9: ZeRO on two tensor-parallel ranks */
    { .file = { { "zero_pp_rank_0_mp_rank_00_optim_states.pt", 0, false },
                { "zero_pp_rank_0_mp_rank_01_optim_states.pt", 1, false },
                { "mp_rank_00_model_states.pt", 2, false },
                { "mp_rank_01_model_states.pt", 3, false } } },
    /* 10: vLLM's sharded_state */
    { .file = { { "model-rank-0-part-0.safetensors", 0, true },
                { "model-rank-0-part-1.safetensors", 1, true } } },
    /* 11: nanotron's optimizer state */
    { .file = { { "optimizer_pp-0-of-1_dp-0-of-2_tp-0-of-1_exp-0-of-1.pt", 0, false },
                { "optimizer_pp-0-of-1_dp-1-of-2_tp-0-of-1_exp-0-of-1.pt", 1, false },
                { "optimizer_config.json", 2, true } } },
    /* 12: ZeRO with files of layers, which pipeline stages leave */
    { .file = { { "zero_pp_rank_0_mp_rank_00_optim_states.pt", 0, false },
                { "mp_rank_00_model_states.pt", 1, false },
                { "layer_00-model_states.pt", 2, false },
                { "layer_03-model_00-model_states.pt", 3, false } } },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

typedef struct part {
    const uint8_t *bytes;
    size_t         len;
} part;

static void require(bool fact)
{
    if (!fact)
        abort();
}

static void put(rsd_store *store, const char *name, const void *bytes, size_t len)
{
    char path[96];

    snprintf(path, sizeof(path), "ck/%s", name);
    require(ckpt_walk_put(store, path, bytes, len) == RSD_OK);
}

static void put_archive(rsd_store *store, const char *name, const part *pickle)
{
    static const char floats[] = "\0\0\200?\0\0\0@\0\0@@\0\0\200@";
    const size_t      len = pickle->len < MAX_PICKLE ? pickle->len : MAX_PICKLE;
    const zip_given   given[] = {
          { .name = "archive/data.pkl",
            .data = len ? (const char *)pickle->bytes : "",
            .data_len = len },
          { .name = "archive/byteorder", .data = "little" },
          { .name = "archive/data/0", .data = floats, .data_len = 8 },
          { .name = "archive/data/1", .data = floats, .data_len = 16 },
          { .name = "archive/version", .data = "3\n" },
    };
    zip_built zip;

    zip_build(&zip, given, sizeof(given) / sizeof(given[0]), NULL);
    put(store, name, zip.bytes, zip.len);
}

static void split(const uint8_t *data, size_t size, part out[MAX_PARTS])
{
    for (int i = 0; i < MAX_PARTS; i++) {
        size_t len = size;

        if (i < MAX_PARTS - 1 && size >= 2) {
            len = (size_t)data[0] | (size_t)data[1] << 8;
            data += 2;
            size -= 2;
        }
        out[i] = (part){ data, len < size ? len : size };
        data += out[i].len;
        size -= out[i].len;
    }
}

static rsd_store *make_store(const kind *k, const uint8_t *data, size_t size)
{
    rsd_store *store;
    part       parts[MAX_PARTS];

    split(data, size, parts);
    require(rsd_store_open("mem:", &store, NULL) == RSD_OK);
    require(rsi_store_make_folder(store, "ck", NULL) == RSD_OK);
    for (int i = 0; i < 2 && k->folder[i]; i++)
        require(rsi_store_make_folder(store, k->folder[i], NULL) == RSD_OK);
    for (int i = 0; i < MAX_PARTS && k->file[i].name; i++) {
        const part *p = &parts[k->file[i].part];

        if (k->file[i].raw)
            put(store, k->file[i].name, p->bytes, p->len);
        else
            put_archive(store, k->file[i].name, p);
    }
    return store;
}

static void check_error(rsd_err rc, const rsd_error *err)
{
    require(err->code == (int32_t)rc && err->msg[0] != '\0');
    require(rc == RSD_E_FORMAT || rc == RSD_E_CORRUPT || rc == RSD_E_UNSUPPORTED ||
            rc == RSD_E_NOTFOUND);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const kind *k;
    rsd_store  *store;
    ckpt_walk   walk;
    int64_t     before, allowed;

    if (size == 0)
        return 0;
    k = &kinds[FUZZ_KIND < 0 ? data[0] % KINDS : FUZZ_KIND];
    before = rsi_mem_stats_get().bytes;
    store = make_store(k, data + 1, size - 1);
    /* Archives add less than 4 kB to each pickle; a part may fill two files. */
    allowed = 16 * (2 * (int64_t)size + 16384) + (1 << 20);
    ckpt_walk_run(store, k == kinds ? "ck/model.pt" : "ck", READ_MOST, &walk);
    require(walk.open_peak <= allowed && walk.read_peak <= allowed + READ_FIXED);
    if (walk.opened || walk.read || walk.verified)
        check_error((rsd_err)walk.error.code, &walk.error);
    for (size_t i = 0; i < walk.damages && i < CKPT_WALK_DAMAGES; i++)
        check_error((rsd_err)walk.damage[i].code, &walk.damage[i]);
    rsd_store_close(store);
    require(rsi_mem_stats_get().bytes == before);
    return 0;
}
