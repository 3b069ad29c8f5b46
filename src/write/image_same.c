/* SPDX-License-Identifier: Apache-2.0 */
#include "write/image_same.h"
#include "base/digest.h"
#include "base/mem.h"

#include <string.h>

/* All that no rank compares otherwise: headers, pickles, values. */
static uint64_t digest(const rsi_image *image)
{
    uint64_t d = image->nparts;

    for (size_t i = 0; i < image->nparts; i++) {
        const rsi_out_part *part = &image->part[i];
        uint64_t            fact[] = { part->kind, part->len, part->tensor };

        d = rsi_digest(d, fact, sizeof(fact));
        if (part->kind == RSI_PART_BYTES)
            d = rsi_digest(d, part->bytes, (size_t)part->len);
        if (part->kind == RSI_PART_GAP && part->nth == 0)
            d = rsi_digest(d, part->zip->spec.pickle, part->zip->spec.pickle_len);
    }
    return d;
}

/* Rank 0's archive to all; the others make theirs from it. */
static rsd_err follow(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_error *err)
{
    bool      leads = rsd_comm_rank(comm) == 0;
    rsi_bytes told = { 0 };
    uint64_t  bytes;
    rsd_err   rc = rsi_agree(comm, leads ? rsi_image_torch_tell(image, &told, err) : RSD_OK, err);

    bytes = told.len;
    if (!rc)
        rc = rsi_broadcast(comm, 0, &bytes, sizeof(bytes), err);
    if (rc)
        goto out;
    if (!leads) {
        told.at = rsi_calloc((size_t)bytes, 1);
        told.len = (size_t)bytes;
        rc = told.at ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for rank 0's values");
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_broadcast(comm, 0, told.at, told.len, err);
    if (rc)
        goto out;
    rc = rsi_agree(comm, leads ? RSD_OK : rsi_image_torch_told(image, state, &told, err), err);
out:
    rsi_free(told.at);
    return rc;
}

rsd_err rsi_image_same(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_err mine,
                       rsd_error *err)
{
    uint64_t d = mine ? 0 : digest(image);
    int64_t  said[] = { !mine, (int64_t)d, (int64_t)~d };
    rsd_err  rc = rsi_allreduce(comm, RSI_OP_MIN, said, 3, err);

    if (rc)
        return rc;
    if (!said[0])
        return rsi_agree(comm, mine, err);
    if (said[1] == ~said[2])
        return RSD_OK;
    if (image->format != RSD_FORMAT_TORCH)
        return rsi_fail(err, RSD_E_BUG, "the ranks planned different files");
    return follow(image, state, comm, err);
}
