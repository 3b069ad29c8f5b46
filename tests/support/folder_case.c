/* SPDX-License-Identifier: Apache-2.0 */
#include "folder_case.h"

#include <stddef.h>

static float element(int gen, int64_t i)
{
    return (float)gen * 10000 + (float)i;
}

static rsd_err add_rows(rsd_part *part, int32_t rank, int32_t ranks, int gen, float *data,
                        rsd_error *err)
{
    const int64_t shape[] = { FOLDER_ROWS, FOLDER_COLS };
    rsd_view      view = { .box = { .ndim = 2 }, .data = data };
    int64_t       first = FOLDER_ROWS * rank / ranks, end = FOLDER_ROWS * (rank + 1) / ranks;

    view.box.off[0] = first;
    view.box.len[0] = end - first;
    view.box.len[1] = FOLDER_COLS;
    for (int64_t i = 0; i < (end - first) * FOLDER_COLS; i++)
        data[i] = element(gen, first * FOLDER_COLS + i);
    return rsd_part_tensor(part, "w", RSD_F32, 2, shape, &view, err);
}

rsd_part *folder_part(const char *path, int32_t rank, int gen, const folder_how *how,
                      rsd_error *err)
{
    rsd_part_opts opts = { .size = sizeof(opts),
                           .store = how->store,
                           .transform = how->transform,
                           .sync = how->sync,
                           .checksum = how->checksum,
                           .threads = 1 };
    float         data[FOLDER_ROWS * FOLDER_COLS];
    rsd_part     *part = NULL;
    rsd_err       rc = rsd_part_create(path, rank, &opts, &part, err);

    if (!rc)
        rc = add_rows(part, rank, how->ranks ? how->ranks : 1, gen, data, err);
    if (!rc)
        rc = rsd_part_write(part, err);
    if (!rc)
        return part;
    rsd_part_free(part);
    return NULL;
}

rsd_err folder_publish(const char *path, size_t n, rsd_part **part, const folder_how *how,
                       rsd_error *err)
{
    rsd_publish_opts opts = { .size = sizeof(opts),
                              .store = how->store,
                              .overwrite = !how->fresh,
                              .sync = how->sync,
                              .checksum = how->checksum };
    rsd_receipt      receipt[FOLDER_RANKS];
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++)
        rc = rsd_part_receipt(part[i], true, &receipt[i].bytes, &receipt[i].len, err);
    return rc ? rc : rsd_parts_publish(path, n, receipt, &opts, err);
}

rsd_err folder_save(const char *path, int gen, const folder_how *how, rsd_error *err)
{
    int32_t   ranks = how->ranks ? how->ranks : 1;
    rsd_part *part[FOLDER_RANKS] = { NULL };
    rsd_error why = { .code = 0 };
    rsd_err   rc = RSD_OK;

    for (int32_t r = 0; r < ranks && !rc; r++) {
        part[r] = folder_part(path, r, gen, how, &why);
        rc = part[r] ? RSD_OK : (rsd_err)why.code;
    }
    if (!rc)
        rc = folder_publish(path, (size_t)ranks, part, how, &why);
    for (int32_t r = 0; r < ranks; r++)
        rsd_part_free(part[r]);
    if (err)
        *err = why;
    return rc;
}

static int generation_of(rsd_ckpt *ckpt, rsd_error *err)
{
    float    data[FOLDER_ROWS * FOLDER_COLS];
    rsd_view view = { .box = { .ndim = 2, .len = { FOLDER_ROWS, FOLDER_COLS } }, .data = data };
    rsd_read_opts opts = { .size = sizeof(opts), .verify = RSD_ALWAYS, .threads = 1 };
    size_t        t, bad = 0;
    int           gen;

    if (rsd_ckpt_find(ckpt, "w", &t, err) || rsd_ckpt_read(ckpt, t, &view, &opts, err))
        return -1;
    gen = (int)(data[0] / 10000);
    for (int64_t i = 0; i < FOLDER_ROWS * FOLDER_COLS; i++)
        if (data[i] != element(gen, i))
            return -1;
    if (rsd_ckpt_verify(ckpt, &opts, NULL, NULL, &bad, err) || bad)
        return -1;
    return gen;
}

int folder_generation(rsd_store *store, const char *path, rsd_error *err)
{
    rsd_ckpt *ckpt;
    int       gen;

    if (rsd_ckpt_open(store, path, &ckpt, err))
        return 0;
    gen = generation_of(ckpt, err);
    rsd_ckpt_close(ckpt);
    return gen;
}
