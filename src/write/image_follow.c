/* SPDX-License-Identifier: Apache-2.0 */
#include "write/image_follow.h"
#include "base/mem.h"
#include "comm/facts.h"

rsd_err rsi_image_follow(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_err mine,
                         rsd_error *err)
{
    bool      same, leads = rsd_comm_rank(comm) == 0;
    rsi_bytes told = { 0 };
    rsd_err   rc = rsi_same_digest(comm, mine ? 0 : rsi_image_digest(image, state, image->nparts),
                                   mine, &same, err);

    if (rc || same)
        return rc;
    if (image->format != RSD_FORMAT_TORCH)
        return rsi_fail(err, RSD_E_BUG, "the ranks planned different files");
    rc = rsi_broadcast_any(comm, 0, &told, leads ? rsi_image_torch_tell(image, &told, err) : RSD_OK,
                           err);
    if (!rc)
        rc = rsi_agree(comm, leads ? RSD_OK : rsi_image_torch_told(image, state, &told, err), err);
    rsi_free(told.at);
    return rc;
}
