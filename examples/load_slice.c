/* SPDX-License-Identifier: Apache-2.0 */
/* Loads one slice of one tensor without ranks and without the rest: load_slice CHECKPOINT TENSOR
 * FIRST COUNT prints the sum of rows FIRST .. FIRST + COUNT - 1 of a float32 matrix. Any format,
 * however the matrix is sharded. */
#include <reshard/reshard.h>

#include <stdio.h>
#include <stdlib.h>

static int failed(const rsd_error *err)
{
    fprintf(stderr, "load_slice: %s\n", err->msg);
    return 1;
}

int main(int argc, char **argv)
{
    rsd_view        rows = { .box = { .ndim = 2 } };
    rsd_tensor_info info;
    rsd_ckpt       *ckpt;
    rsd_error       err;
    size_t          t;
    double          sum = 0;
    rsd_err         rc;

    if (argc != 5) {
        printf("usage: load_slice CHECKPOINT TENSOR FIRST COUNT\n");
        return 0;
    }
    if (rsd_ckpt_open(NULL, argv[1], &ckpt, &err))
        return failed(&err);
    rc = rsd_ckpt_find(ckpt, argv[2], &t, &err);
    if (!rc)
        rc = rsd_ckpt_tensor(ckpt, t, &info, &err);
    if (!rc && (info.ndim != 2 || info.dtype != RSD_F32)) {
        fprintf(stderr, "load_slice: \"%s\" is no float32 matrix\n", argv[2]);
        rsd_ckpt_close(ckpt);
        return 1;
    }
    if (!rc) {
        rows.box.off[0] = strtoll(argv[3], NULL, 10);
        rows.box.len[0] = strtoll(argv[4], NULL, 10);
        rows.box.len[1] = info.shape[1];
        if (rows.box.len[0] > 0 && rows.box.len[0] <= info.shape[0])
            rows.data = malloc((size_t)rsd_box_count(&rows.box) * sizeof(float));
        rc = rsd_ckpt_read(ckpt, t, &rows, NULL, &err); /* says so if the rows make no sense */
    }
    for (int64_t i = 0; !rc && i < rsd_box_count(&rows.box); i++)
        sum += ((float *)rows.data)[i];
    if (!rc)
        printf("%g\n", sum);
    free(rows.data);
    rsd_ckpt_close(ckpt);
    return rc ? failed(&err) : 0;
}
