/* SPDX-License-Identifier: Apache-2.0 */
/* A custom transport: postbox_comm.c implements the table of a comm over a postbox that stands in
 * for a network. Here a tensor moves between two ranks over it. */
#include "postbox.h"

#include <reshard/reshard_live.h>
#include <pthread.h>
#include <stdio.h>

/* Rank 0 has the first half of eight numbers and rank 1 the second; they swap halves. */
static void *swap_halves(void *self)
{
    static const int64_t shape[] = { 8 };
    static const int32_t rank[] = { 0, 1, 0 };
    const int32_t        me = *(const int32_t *)self;
    int64_t              had[4], got[4] = { 0 };
    rsd_layout          *from = NULL, *to = NULL;
    rsd_plan            *plan = NULL;
    rsd_comm            *comm = NULL;
    rsd_view             view[2];
    rsd_error            err = { .msg = "" };
    rsd_err              rc = rsd_comm_create_custom(&postbox_ops, self, &comm, &err);

    for (int i = 0; i < 4; i++)
        had[i] = 4 * me + i;
    if (!rc)
        rc = rsd_layout_create_chunked(0, 2, rank, RSD_I64, 1, shape, &from, &err);
    if (!rc)
        rc = rsd_layout_create_chunked(0, 2, rank + 1, RSD_I64, 1, shape, &to, &err);
    if (!rc)
        rc = rsd_plan_create(1, (const rsd_layout *const *)&from, (const rsd_layout *const *)&to,
                             me, &plan, &err);
    if (!rc) {
        const rsd_views src = { rsd_layout_views(from, me, had, &view[0], 1), &view[0] };
        const rsd_views dst = { rsd_layout_views(to, me, got, &view[1], 1), &view[1] };

        rc = rsd_reshard(plan, comm, &src, &dst, NULL, &err);
    }
    if (rc)
        fprintf(stderr, "08_own_comm: rank %d: %s\n", (int)me, err.msg);
    else
        printf("rank %d had %d to %d and has %d to %d\n", (int)me, (int)had[0], (int)had[3],
               (int)got[0], (int)got[3]);
    rsd_plan_free(plan);
    rsd_layout_free(from);
    rsd_layout_free(to);
    rsd_comm_free(comm);
    return rc || got[3] != 4 * (1 - me) + 3 ? self : NULL;
}

int main(void)
{
    static int32_t rank[] = { 0, 1 };
    pthread_t      thread;
    void          *bad[2] = { NULL, NULL };

    if (pthread_create(&thread, NULL, swap_halves, &rank[1]) != 0)
        return 1;
    bad[0] = swap_halves(&rank[0]);
    pthread_join(thread, &bad[1]);
    return bad[0] || bad[1] ? 1 : 0;
}
