/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes all of opening, reading, decoding and verifying. The first byte tells what the rest is:
 *
 *     0  a torch.save file          3  a data file next to valid metadata
 *     1  a safetensors file         4  the same, with items that are zstd frames
 *     2  .metadata next to valid    5  a safetensors index next to a valid file
 *        data files                 6  both files of a rank of DeepSpeed's ZeRO
 *                                   7  all files of its universal form
 *
 * Whatever it is: no crash, a message for each error, little memory, nothing left behind. */
#include "base/mem.h"
#include "ckpt_sample.h"
#include "ckpt_walk.h"

#include <stdlib.h>
#include <string.h>

enum { KINDS = 8, MOST_COPIES = 4 };
#define READ_MOST ((int64_t)1 << 16)
/* Fixed costs of a read: two buffers of 4 MiB, and those of decoding a frame. */
#define READ_FIXED ((int64_t)10 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

/* What is valid, made once and kept. */
static rsd_store *sample_store(ckpt_sample which)
{
    static rsd_store *store[SAMPLE_COUNT];

    if (!store[which]) {
        require(rsd_store_open("mem:", &store[which], NULL) == RSD_OK);
        require(ckpt_sample_save(store[which], which, NULL) == RSD_OK);
    }
    return store[which];
}

static rsd_store *index_store(const uint8_t *bytes, size_t len)
{
    static const char shard[] = "8\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
                                "\"data_offsets\":[0,2]}}   xy";
    rsd_store        *store;

    require(rsd_store_open("mem:", &store, NULL) == RSD_OK);
    require(rsi_store_make_folder(store, "ck", NULL) == RSD_OK);
    require(ckpt_walk_put(store, "ck/a.safetensors", shard, sizeof(shard) - 1) == RSD_OK);
    require(ckpt_walk_put(store, "ck/model.safetensors.index.json", bytes, len) == RSD_OK);
    return store;
}

/* A folder of files with the same bytes. */
static rsd_store *zero_store(bool universal, const uint8_t *bytes, size_t len)
{
    static const char *const rank[] = { "ck/zero_pp_rank_0_mp_rank_00_model_states.pt",
                                        "ck/zero_pp_rank_0_mp_rank_00_optim_states.pt" };
    static const char *const form[] = { "ck/zero/w/fp32.pt", "ck/zero/w/exp_avg.pt",
                                        "ck/zero/optimizer_state.pt",
                                        "ck/mp_rank_00_model_states.pt" };
    rsd_store               *store;

    require(rsd_store_open("mem:", &store, NULL) == RSD_OK);
    require(rsi_store_make_folder(store, universal ? "ck/zero/w" : "ck", NULL) == RSD_OK);
    for (int i = 0; i < (universal ? MOST_COPIES : 2); i++)
        require(ckpt_walk_put(store, universal ? form[i] : rank[i], bytes, len) == RSD_OK);
    return store;
}

static rsd_store *make_store(int kind, const uint8_t *bytes, size_t len, const char **path)
{
    static const struct {
        ckpt_sample which;
        size_t      file;
    } exchanged[] = { { SAMPLE_TORCH, 0 },
                      { SAMPLE_SAFETENSORS, 0 },
                      { SAMPLE_DCP, 2 },
                      { SAMPLE_DCP, 0 },
                      { SAMPLE_DCP_ZSTD, 0 } };
    ckpt_sample which;

    *path = "ck";
    if (kind == 5)
        return index_store(bytes, len);
    if (kind > 5)
        return zero_store(kind == 7, bytes, len);
    which = exchanged[kind].which;
    *path = ckpt_sample_path(which);
    return ckpt_sample_copy(sample_store(which), which,
                            ckpt_sample_file(which, exchanged[kind].file), bytes, len);
}

static void check_error(rsd_err rc, const rsd_error *err)
{
    require(err->code == (int32_t)rc && err->msg[0] != '\0');
    require(rc == RSD_E_FORMAT || rc == RSD_E_CORRUPT || rc == RSD_E_UNSUPPORTED ||
            rc == RSD_E_NOTFOUND);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path;
    rsd_store  *store;
    ckpt_walk   walk;
    int64_t     before, allowed;
    int         kind;

    if (size == 0)
        return 0;
    kind = data[0] % KINDS;
    for (int which = 0; which < SAMPLE_COUNT; which++)
        sample_store((ckpt_sample)which);
    before = rsi_mem_stats_get().bytes;
    store = make_store(kind, data + 1, size - 1, &path);
    require(store != NULL);
    /* The valid files beside it have less than 16 kB. */
    allowed = (kind > 5 ? MOST_COPIES : 1) * (16 * ((int64_t)size + 16384) + (1 << 20));
    ckpt_walk_run(store, path, READ_MOST, &walk);
    require(walk.open_peak <= allowed && walk.read_peak <= allowed + READ_FIXED);
    if (walk.opened || walk.read || walk.verified)
        check_error((rsd_err)walk.error.code, &walk.error);
    for (size_t i = 0; i < walk.damages && i < CKPT_WALK_DAMAGES; i++)
        check_error((rsd_err)walk.damage[i].code, &walk.damage[i]);
    rsd_store_close(store);
    require(rsi_mem_stats_get().bytes == before);
    return 0;
}
