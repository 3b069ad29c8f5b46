/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the bytes of a state's tensor from any source. */
#include "state/tensor.h"
#include "shape/box.h"

rsd_err rsi_tensor_check(const rsi_state_tensor *tensor, const rsd_box *box, rsd_error *err)
{
    rsd_err rc = tensor->pull ? RSD_OK : rsi_views_cover(&tensor->views, box, true, err);

    return rc ? rsi_while(err, rc, "tensor \"%s\"", tensor->spot.name) : RSD_OK;
}

const unsigned char *rsi_tensor_direct(const rsi_state_tensor *tensor, const rsd_box *box)
{
    return rsi_views_direct(&tensor->views, box, 0);
}

rsd_err rsi_tensor_bytes(const rsi_state_tensor *tensor, const rsd_box *box, uint64_t off,
                         size_t len, unsigned char *out, rsd_error *err)
{
    int64_t elem = tensor->views.elem_bytes;
    int64_t at = (int64_t)off / elem, end = at + (int64_t)len / elem;
    rsd_err rc = RSD_OK;

    if (tensor->pull) /* pull names the source's tensor in errors */
        return tensor->pull(tensor->pull_arg, tensor->number, box, off, len, out, err);
    while (at < end && !rc) {
        rsd_box part;
        int64_t n = rsi_range_box(box->ndim, box->len, at, end, &part);

        for (int d = 0; d < box->ndim; d++)
            part.off[d] += box->off[d];
        rc = rsi_views_pack(&tensor->views, &part, 0, out, err);
        out += n * elem;
        at += n;
    }
    return rc ? rsi_while(err, rc, "tensor \"%s\"", tensor->spot.name) : RSD_OK;
}
