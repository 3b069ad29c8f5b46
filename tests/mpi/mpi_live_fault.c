/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that is killed or stopped while tensors move between ranks; tools/run-mpi-tests says what
 * must come of it:
 *
 *     mpirun -n 4 mpi_live_fault kill|stop NOTE RANK N
 *
 * Rows become columns in small messages, of which RANK does not survive its nth; N 0, or more than
 * there are: all elements arrive, and the rank says how many messages it had. */
#include "base/error.h"
#include "doomed_rank.h"
#include "live/exchange.h"

#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 96, TINY = 5120, WAIT_MS = 2000 };

static rsd_err make_layout(rsd_comm *comm, int32_t dim, rsd_layout **out, rsd_error *err)
{
    const int64_t       shape[] = { SIDE, SIDE }, sizes[] = { comm->size };
    const rsd_placement place = { .kind = RSD_SHARD, .dim = dim };
    rsd_mesh           *mesh;
    rsd_err             rc = rsd_mesh_create(1, sizes, NULL, NULL, &mesh, err);

    if (!rc)
        rc = rsd_layout_create(mesh, &place, RSD_I32, 2, shape, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

/* Every element is its place in the whole tensor. */
static int32_t element(const rsd_view *view, int64_t i)
{
    int64_t row = view->box.off[0] + i / view->box.len[1];

    return (int32_t)(row * SIDE + view->box.off[1] + i % view->box.len[1]);
}

/* Messages count from the first that may carry elements on. */
static rsd_err move(rsd_comm *comm, const doom *d, const rsd_plan *plan, const rsd_view *from,
                    const rsd_view *to, rsd_error *err)
{
    const rsd_views        src = { rsd_box_count(&from->box) > 0, from };
    const rsd_views        dst = { rsd_box_count(&to->box) > 0, to };
    const rsd_reshard_opts opts = { .size = sizeof(opts), .max_memory = TINY, .direct = RSD_NEVER };
    rsd_op                *op = NULL;
    rsd_err                rc = rsd_reshard_begin(plan, comm, &src, &dst, &opts, &op, err);

    if (rc)
        return rc;
    if (!doom_begin(d, comm, WAIT_MS))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a test");
    doom_phase("wait");
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

static rsd_err rows_to_columns(rsd_comm *comm, const doom *d, rsd_error *err)
{
    static int32_t    in[SIDE * SIDE], out[SIDE * SIDE];
    rsd_layout       *layout[2] = { NULL, NULL };
    const rsd_layout *src, *dst;
    rsd_plan         *plan = NULL;
    rsd_view          from = { 0 }, to = { 0 };
    rsd_err           rc = make_layout(comm, 0, &layout[0], err);

    if (!rc)
        rc = make_layout(comm, 1, &layout[1], err);
    src = layout[0];
    dst = layout[1];
    if (!rc)
        rc = rsd_plan_create(1, &src, &dst, comm->rank, &plan, err);
    if (!rc) {
        rsd_layout_views(src, comm->rank, in, &from, 1);
        rsd_layout_views(dst, comm->rank, out, &to, 1);
        for (int64_t i = 0; i < rsd_box_count(&from.box); i++)
            in[i] = element(&from, i);
        rc = move(comm, d, plan, &from, &to, err);
    }
    for (int64_t i = 0; i < rsd_box_count(&to.box) && !rc; i++)
        if (out[i] != element(&to, i))
            rc = rsi_fail(err, RSD_E_BUG, "element %d is wrong", (int)element(&to, i));
    rsd_plan_free(plan);
    rsd_layout_free(layout[0]);
    rsd_layout_free(layout[1]);
    return rc;
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm;
    rsd_err   rc;
    doom      d;

    if (argc != 5 || !doom_parse(argv[1], argv[3], argv[4], &d))
        return 2;
    d.note = argv[2];
    rc = rsd_comm_create_launched(&comm, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 2;
    }
    rsi_exchange_memory_min = TINY;
    rc = rows_to_columns(comm, &d, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rsd_comm_rank(comm), rsd_err_name(rc), err.msg);
    else if (rsd_comm_rank(comm) == d.rank)
        printf("messages: %ld\n", doom_calls());
    fflush(stdout);
    doom_told(comm);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
