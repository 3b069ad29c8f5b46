/* SPDX-License-Identifier: Apache-2.0 */
/* Async saves of ranks that are processes, by fork and by copying: tensors change all the time
 * while they are written, and the saved bytes are those of the call. Then the child of the last
 * rank is killed. */
#include "async_case.h"
#include "comm/comm.h"
#include "sys_faults.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return rsi_fail(err, RSD_E_BUG, "line %d: not so: %s: %s", __LINE__, #x, err->msg);    \
    } while (0)

static pid_t parent;

static void die_in_child(void)
{
    if (getpid() != parent)
        kill(getpid(), SIGKILL);
}

static rsd_err open_together(async_bed *bed, rsd_comm *comm, rsd_error *err)
{
    char    top[64] = "";
    rsd_err rc;

    if (comm->rank == 0) {
        async_bed_open(bed);
        snprintf(top, sizeof(top), "%s", bed->top);
    }
    rc = rsi_broadcast(comm, 0, top, sizeof(top), err);
    if (!rc && comm->rank > 0)
        async_bed_attach(bed, top);
    return rc;
}

static rsd_err close_together(async_bed *bed, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc;

    if (comm->rank > 0)
        async_bed_detach(bed);
    rc = rsi_barrier(comm, err);
    if (comm->rank == 0)
        async_bed_close(bed);
    return rc;
}

static rsd_err save(async_bed *bed, async_state *s, rsd_comm *comm, rsd_stage_way how,
                    rsd_error *err)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .store = bed->store, .threads = 1 };
    int32_t             version = 2;
    bool                done = false;
    rsd_op             *op = NULL;
    rsd_err             rc;

    async_gate_shut(bed);
    rc = rsd_save_begin("ck", comm, s->state, how, &opts, &op, err);
    async_fill(s, version++);
    async_gate_open(bed);
    while (!rc && !done) {
        async_fill(s, version++);
        rc = rsd_op_test(op, RSD_DURABLE, &done, err);
        sched_yield();
    }
    rsd_op_free(op);
    return rc;
}

static rsd_err changing(rsd_comm *comm, rsd_stage_way how, rsd_error *err)
{
    async_state *s = calloc(1, sizeof(*s));
    async_bed    bed;
    rsd_err      rc = open_together(&bed, comm, err);

    CHECK(!rc && s && async_state_make(s, comm->rank, comm->size));
    rc = save(&bed, s, comm, how, err);
    CHECK(!rc);
    CHECK(async_saved(&bed, "ck", 1));
    async_state_free(s);
    free(s);
    return close_together(&bed, comm, err);
}

static rsd_err killed(rsd_comm *comm, rsd_error *err)
{
    async_state *s = calloc(1, sizeof(*s));
    async_bed    bed;
    rsd_err      rc = open_together(&bed, comm, err);

    CHECK(!rc && s && async_state_make(s, comm->rank, comm->size));
    parent = getpid();
    bed.also = comm->rank == comm->size - 1 ? die_in_child : NULL;
    rc = save(&bed, s, comm, RSD_STAGE_FORK, err);
    CHECK(rc == RSD_E_IO && err->rank == comm->size - 1);
    CHECK(strstr(err->msg, "killed by signal 9"));
    CHECK(!rsi_barrier(comm, err));
    CHECK(strcmp(async_list(&bed), "") == 0);
    async_state_free(s);
    free(s);
    return close_together(&bed, comm, err);
}

int main(void)
{
    rsd_comm *comm;
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       rank;

    rc = rsd_comm_create_launched(&comm, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 1;
    }
    rank = rsd_comm_rank(comm);
    if (ASYNC_ROWS % comm->size == 0) {
        rc = rsi_agree(comm, changing(comm, RSD_STAGE_FORK, &err), &err);
        if (!rc)
            rc = rsi_agree(comm, changing(comm, RSD_STAGE_COPY, &err), &err);
        if (!rc)
            rc = rsi_agree(comm, killed(comm, &err), &err);
    }
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err.msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), rc ? 0 : 3);
    if (rank == 0 && rc)
        printf("[  FAILED  ] async: 1 test(s), listed below:\n");
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
