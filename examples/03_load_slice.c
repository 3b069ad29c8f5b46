/* SPDX-License-Identifier: Apache-2.0 */
/* Loads some rows of one matrix, without ranks and without reading the rest, as an inference engine
 * would: 03_load_slice CHECKPOINT TENSOR FIRST COUNT prints the sum of COUNT rows of a float32
 * matrix, from row FIRST on, in any format and however it is sharded. Without arguments the program
 * makes a matrix in memory and checks the result itself. */
#include <reshard/reshard.h>

#include <stdio.h>
#include <stdlib.h>

static rsd_err sum_rows(rsd_ckpt *ckpt, const char *name, int64_t first, int64_t count, double *sum,
                        rsd_error *err)
{
    rsd_view        rows = { .box = { .ndim = 2 } };
    rsd_tensor_info info = { .size = sizeof(info) };
    size_t          t;
    rsd_err         rc = rsd_ckpt_find(ckpt, name, &t, err);

    if (!rc)
        rc = rsd_ckpt_tensor(ckpt, t, &info, err);
    if (!rc && (info.ndim != 2 || info.dtype != RSD_F32)) {
        snprintf(err->msg, sizeof(err->msg), "\"%s\" is not a float32 matrix", name);
        return RSD_E_MISMATCH;
    }
    if (rc)
        return rc;
    rows.box.off[0] = first;
    rows.box.len[0] = count;
    rows.box.len[1] = info.shape[1];
    if (count > 0 && count <= info.shape[0])
        rows.data = malloc((size_t)rsd_box_count(&rows.box) * sizeof(float));
    rc = rsd_ckpt_read(ckpt, t, &rows, NULL, err); /* fails if the rows are out of range */
    *sum = 0;
    for (int64_t i = 0; !rc && i < rsd_box_count(&rows.box); i++)
        *sum += ((float *)rows.data)[i];
    free(rows.data);
    return rc;
}

/* A 6 x 8 matrix on three ranks; each element is its own index. */
static rsd_err make_checkpoint(rsd_store *store, const char *path, rsd_error *err)
{
    const int64_t shape[] = { 6, 8 };
    const int32_t ranks[] = { 0, 1, 2 };
    rsd_save_opts opts = { .size = sizeof(opts), .store = store };
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    static float  all[48];
    rsd_view      view = { .box = { 2, { 0 }, { 6, 8 } }, .data = all };
    rsd_err       rc;

    for (int i = 0; i < 48; i++)
        all[i] = (float)i;
    rc = rsd_layout_create_chunked(0, 3, ranks, RSD_F32, 2, shape, &layout, err);
    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, "weight", layout, RSD_F32, 2, shape, 1, &view, err);
    if (!rc)
        rc = rsd_save(path, NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_layout_free(layout);
    return rc;
}

int main(int argc, char **argv)
{
    const char *path = argc == 5 ? argv[1] : "step-1000", *name = argc == 5 ? argv[2] : "weight";
    int64_t     first = argc == 5 ? strtoll(argv[3], NULL, 10) : 1;
    int64_t     count = argc == 5 ? strtoll(argv[4], NULL, 10) : 3;
    rsd_store  *store = NULL;
    rsd_ckpt   *ckpt = NULL;
    rsd_error   err = { .msg = "" };
    double      sum = 0;
    rsd_err     rc = RSD_OK;

    if (argc != 5)
        rc = rsd_store_open("mem:", &store, &err);
    if (!rc && store)
        rc = make_checkpoint(store, path, &err);
    if (!rc)
        rc = rsd_ckpt_open(store, path, &ckpt, &err);
    if (!rc)
        rc = sum_rows(ckpt, name, first, count, &sum, &err);
    if (rc)
        fprintf(stderr, "03_load_slice: %s\n", err.msg);
    else
        printf("rows %lld to %lld of \"%s\" add up to %g\n", (long long)first,
               (long long)(first + count - 1), name, sum);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    return rc || (argc != 5 && sum != (8 + 31) * 24 / 2) ? 1 : 0;
}
