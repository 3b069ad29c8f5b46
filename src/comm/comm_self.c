/* SPDX-License-Identifier: Apache-2.0 */
/* One rank without peers, possibly playing rank r of n: a group of one thread (comm_threads.c). */
#include "comm/comm_threads.h"

#include <inttypes.h>

rsd_err rsd_comm_create_self(int32_t as_rank, int32_t of_size, rsd_comm **out, rsd_error *err)
{
    rsd_comm_ops ops = rsi_threads_ops;
    void        *self = NULL;
    rsd_err      rc;

    if (!out || as_rank < 0 || as_rank >= of_size)
        return rsi_fail(err, RSD_E_INVALID, "a comm can't be rank %" PRId32 " of %" PRId32, as_rank,
                        of_size);
    rc = rsi_threads_open(1, &self, err);
    if (rc)
        return rc;
    rsi_threads_play(self, as_rank, of_size);
    ops.name = "self";
    ops.flags = RSD_COMM_ALONE;
    rc = rsd_comm_create_custom(&ops, self, out, err);
    if (rc)
        ops.close(self);
    return rc;
}
