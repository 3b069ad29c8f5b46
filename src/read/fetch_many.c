/* SPDX-License-Identifier: Apache-2.0 */
/* Many reads that a caller lists, and the stored bytes of objects. fetch_all.c spreads the reads
 * over threads. */
#include "base/mem.h"
#include "format/dcp.h"
#include "plan/cast.h"
#include "read/check_sums.h"
#include "read/fetch_all.h"
#include "read/object_bytes.h"
#include "shape/box.h"

/* Copies a view and sets its strides. */
static rsd_err take_read(const rsd_ckpt *ckpt, const rsd_read *read, rsd_view *view, rsi_want *want,
                         rsd_error *err)
{
    rsd_tensor_info info;
    bool            packed = true;
    rsd_err         rc;

    if (read->t >= ckpt->ntensors)
        return rsi_fail(err, RSD_E_INVALID, "no tensor %zu: the checkpoint has %zu", read->t,
                        ckpt->ntensors);
    ckpt->ops->tensor(ckpt, read->t, &info);
    *view = read->view;
    *want = (rsi_want){ .t = read->t, .dtype = read->dtype ? read->dtype : info.dtype };
    want->view = view;
    rc = rsi_box_check(&view->box, info.ndim, info.shape, err);
    if (!rc && !view->data && !view->put && rsd_box_count(&view->box) > 0)
        rc = rsi_fail(err, RSD_E_INVALID, "neither memory nor a put given to read into");
    if (!rc && rsd_dtype_size(want->dtype) == 0)
        rc = rsi_fail(err, RSD_E_INVALID, "there is no dtype %d", (int)want->dtype);
    if (!rc && want->dtype != info.dtype)
        rc = rsi_cast_check(want->dtype, info.dtype, err);
    for (int d = 0; d < info.ndim && !rc; d++)
        packed = packed && view->stride[d] == 0;
    if (!rc && packed)
        rsi_strides(info.ndim, view->box.len, (int64_t)rsd_dtype_size(want->dtype), view->stride);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", info.name) : RSD_OK;
}

rsd_err rsi_reads_take(rsi_reads *out, const rsd_ckpt *ckpt, size_t n, const rsd_read *reads,
                       rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *out = (rsi_reads){ .view = rsi_calloc(n, sizeof(out->view[0])),
                        .want = rsi_calloc(n, sizeof(out->want[0])) };
    if (!out->view || !out->want)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", n);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = take_read(ckpt, &reads[i], &out->view[i], &out->want[out->n], err);
        if (rc)
            rsi_while(err, rc, "read %zu", i);
        else if (rsd_box_count(&out->view[i].box) > 0)
            out->n++;
    }
    return rc;
}

void rsi_reads_release(rsi_reads *reads)
{
    rsi_free(reads->view);
    rsi_free(reads->want);
    *reads = (rsi_reads){ 0 };
}

rsd_err rsi_reads_ended(const rsd_ckpt *ckpt, rsd_err rc, rsd_error *err)
{
    rsd_error why = { .rank = -1 };

    if (rc && rc != RSD_E_CORRUPT && rc != RSD_E_FORMAT)
        return rc;
    if (!rsi_files_unchanged(&ckpt->files, &why))
        return rc;
    if (err)
        *err = why;
    return (rsd_err)why.code;
}

rsd_err rsi_fetch_many(rsd_ckpt *ckpt, size_t n, const rsd_read *reads, const rsd_read_opts *opts,
                       rsd_error *err)
{
    rsi_reads list;
    rsd_err   rc = rsi_reads_take(&list, ckpt, n, reads, err);

    if (!rc && list.n)
        rc = rsi_fetch_all(ckpt, list.want, list.n, opts, err);
    rsi_reads_release(&list);
    return rsi_reads_ended(ckpt, rc, err);
}

/* ---- objects ---- */

static rsd_err check_rows(rsd_ckpt *ckpt, const rsi_dcp_row *row, rsd_choice verify, rsd_error *err)
{
    const rsi_dcp     *dcp = ckpt->self;
    uint32_t           file = dcp->file[row->file];
    const rsi_sum_row *sum = NULL;
    size_t             n = 0;
    bool               on;
    rsd_err            rc = rsi_check_begin(ckpt, verify, &on, err);

    if (!rc && on && row->length > 0)
        rc = rsi_ckpt_sums_rows(&ckpt->sums, file, (uint64_t)row->offset, (uint64_t)row->length,
                                &sum, &n, err);
    for (size_t k = 0; k < n && !rc; k++)
        rc = rsi_check_row(ckpt->files.file[file], &sum[k], err);
    return rc ? rsi_while(err, rc, "file \"%s\"", dcp->meta->file[row->file]) : RSD_OK;
}

rsd_err rsi_object_bytes(rsd_ckpt *ckpt, size_t i, rsd_choice verify, unsigned char **bytes,
                         size_t *len, rsd_error *err)
{
    const rsi_dcp *dcp = ckpt->self;
    rsd_err        rc;

    if (ckpt->format != RSD_FORMAT_DCP)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "objects of this format have no bytes of their own");
    rc = check_rows(ckpt, &dcp->meta->item[i].row, verify, err);
    if (!rc)
        rc = rsi_dcp_object_bytes(ckpt, i, bytes, len, err);
    return rc ? rsi_while(err, rc, "object \"%s\"", dcp->meta->item[i].name) : RSD_OK;
}
