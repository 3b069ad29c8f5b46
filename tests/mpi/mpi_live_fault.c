/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that is killed or stopped while tensors move between ranks; tools/run-mpi-tests says what
 * must come of it:
 *
 *     mpirun -n 4 mpi_live_fault messages|rooms kill|stop NOTE RANK N
 *
 * Rows become columns, or come to all ranks, in small messages, which are sent or left in shared
 * memory and of which RANK does not survive its nth; N 0, or more than there are: all elements
 * arrive, and the rank says how many messages it had. On several machines what comes to all ranks
 * is passed on in the last of them: one tensor cut among a machine's ranks, the other, a small one,
 * by one rank. */
#include "base/error.h"
#include "doomed_rank.h"
#include "live/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 3, SIDE = 96, CUT_MIN = 4096, TINY = 5120, WAIT_MS = 2000 };

/* A tensor in rows on all ranks, and what shall become of it. */
typedef struct tensor {
    int64_t       side;
    rsd_placement to;
    rsd_layout   *layout[2];
    rsd_view      view[2];
    rsd_views     views[2];
    int32_t       data[2][SIDE * SIDE];
} tensor;

static tensor all[TENSORS] = {
    { .side = SIDE, .to = { .kind = RSD_SHARD, .dim = 1 } },
    { .side = SIDE, .to = { .kind = RSD_REPLICATE } },
    { .side = 8, .to = { .kind = RSD_REPLICATE } },
};

/* Every element is its place in the whole tensor. */
static int32_t element(const tensor *t, const rsd_view *view, int64_t i)
{
    int64_t row = view->box.off[0] + i / view->box.len[1];

    return (int32_t)(row * t->side + view->box.off[1] + i % view->box.len[1]);
}

static int64_t count(const tensor *t, int side)
{
    return t->views[side].n > 0 ? rsd_box_count(&t->view[side].box) : 0;
}

static rsd_err make_tensor(rsd_comm *comm, tensor *t, rsd_error *err)
{
    const int64_t       shape[] = { t->side, t->side }, sizes[] = { comm->size };
    const rsd_placement place[] = { { .kind = RSD_SHARD }, t->to };
    rsd_mesh           *mesh;
    rsd_err             rc = rsd_mesh_create(1, sizes, NULL, NULL, &mesh, err);

    for (int k = 0; k < 2 && !rc; k++) {
        rc = rsd_layout_create(mesh, &place[k], RSD_I32, 2, shape, &t->layout[k], err);
        if (!rc) {
            t->views[k].n = rsd_layout_views(t->layout[k], comm->rank, t->data[k], &t->view[k], 1);
            t->views[k].view = &t->view[k];
        }
    }
    for (int64_t i = 0; !rc && i < count(t, 0); i++)
        t->data[0][i] = element(t, &t->view[0], i);
    rsd_mesh_free(mesh);
    return rc;
}

static rsd_err check_tensor(const tensor *t, rsd_error *err)
{
    for (int64_t i = 0; i < count(t, 1); i++)
        if (t->data[1][i] != element(t, &t->view[1], i))
            return rsi_fail(err, RSD_E_BUG, "element %d is wrong", (int)element(t, &t->view[1], i));
    return RSD_OK;
}

/* Messages count from the first that may carry elements on. */
static rsd_err move(rsd_comm *comm, const doom *d, const rsd_plan *plan, rsd_error *err)
{
    const rsd_choice       direct = rsi_exchange_room_least == 1 ? RSD_DEFAULT : RSD_NEVER;
    const rsd_reshard_opts opts = { .size = sizeof(opts), .max_memory = TINY, .direct = direct };
    rsd_views              src[TENSORS], dst[TENSORS];
    rsd_op                *op = NULL;
    rsd_err                rc;

    for (int t = 0; t < TENSORS; t++) {
        src[t] = all[t].views[0];
        dst[t] = all[t].views[1];
    }
    rc = rsd_reshard_begin(plan, comm, src, dst, &opts, &op, err);
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

static rsd_err move_all(rsd_comm *comm, const doom *d, rsd_error *err)
{
    const rsd_layout *src[TENSORS], *dst[TENSORS];
    rsd_plan         *plan = NULL;
    rsd_err           rc = RSD_OK;

    for (int t = 0; t < TENSORS && !rc; t++) {
        rc = make_tensor(comm, &all[t], err);
        src[t] = all[t].layout[0];
        dst[t] = all[t].layout[1];
    }
    if (!rc)
        rc = rsd_plan_create(TENSORS, src, dst, comm->rank, &plan, err);
    if (!rc)
        rc = move(comm, d, plan, err);
    for (int t = 0; t < TENSORS && !rc; t++)
        rc = check_tensor(&all[t], err);
    rsd_plan_free(plan);
    for (int i = 0; i < 2 * TENSORS; i++)
        rsd_layout_free(all[i / 2].layout[i % 2]);
    return rc;
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm;
    rsd_err   rc;
    doom      d;

    if (argc != 6 || !doom_parse(argv[2], argv[4], argv[5], &d))
        return 2;
    if (strcmp(argv[1], "rooms") == 0)
        rsi_exchange_room_least = 1;
    d.note = argv[3];
    rc = rsd_comm_create_launched(&comm, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 2;
    }
    rsi_exchange_memory_min = TINY;
    rsi_exchange_cut_min = CUT_MIN;
    rc = move_all(comm, &d, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rsd_comm_rank(comm), rsd_err_name(rc), err.msg);
    else if (rsd_comm_rank(comm) == d.rank)
        printf("messages: %ld\n", doom_calls());
    fflush(stdout);
    doom_told(comm);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
