/* SPDX-License-Identifier: Apache-2.0 */
/* How a comm on MPI begins: MPI itself if nobody has initialised it, a duplicate of the caller's
 * communicator, and whether a machine has more ranks than cores. */
#include "comm/comm_mpi_end.h"

#include <unistd.h>

/* FNV-1a of the machine's name. */
static uint64_t machine_hash(void)
{
    char     name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int      len = 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    MPI_Get_processor_name(name, &len);
    for (int i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Finds out if this machine has more ranks than cores. `all` has room for one hash per rank. */
static rsd_err find_crowd(rsi_mpi_end *me, uint64_t *all, rsd_error *err)
{
    uint64_t    mine = machine_hash();
    MPI_Request request;
    long        here = 0;
    int code = MPI_Iallgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE,
                              me->comm, &request);

    code = rsi_mpi_settle(code, &request);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Iallgather", err);
    for (int r = 0; r < me->size; r++)
        here += all[r] == mine;
    me->family->crowded = here > sysconf(_SC_NPROCESSORS_ONLN);
    return RSD_OK;
}

/* Allocates everything before any rank depends on this one. */
static rsi_mpi_end *prepare(int size)
{
    rsi_mpi_family *f = rsi_calloc(1, sizeof(*f));
    rsi_mpi_end    *me = NULL;

    if (!f)
        return NULL;
    f->control = MPI_COMM_NULL;
    f->listen = MPI_REQUEST_NULL;
    f->told = rsi_calloc((size_t)size, sizeof(f->told[0]));
    for (int r = 0; f->told && r < size; r++)
        f->told[r] = MPI_REQUEST_NULL;
    if (f->told)
        me = rsi_mpi_end_create(f);
    if (!me) {
        rsi_free(f->told);
        rsi_free(f);
    }
    return me;
}

static rsd_err connect_all(rsi_mpi_end *me, uint64_t *hash, rsd_error *err)
{
    rsi_mpi_family *f = me->family;
    MPI_Request     request;
    int             code;
    rsd_err         rc;

    rsi_mpi_end_learn(me);
    f->rank = me->rank;
    f->size = me->size;
    rc = find_crowd(me, hash, err);
    if (rc)
        return rc;
    code = rsi_mpi_settle(MPI_Comm_idup(me->comm, &f->control, &request), &request);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Comm_idup", err);
    MPI_Comm_set_errhandler(f->control, MPI_ERRORS_RETURN);
    code = MPI_Irecv(&f->heard, (int)sizeof(f->heard), MPI_BYTE, MPI_ANY_SOURCE, 0, f->control,
                     &f->listen);
    return code == MPI_SUCCESS ? RSD_OK : rsi_mpi_fail(code, "MPI_Irecv", err);
}

/* Opens an end on a duplicate of `from`; fails on all ranks or on none. */
static rsd_err open_on(MPI_Comm from, rsi_mpi_end **out, rsd_error *err)
{
    MPI_Comm     comm = MPI_COMM_NULL;
    MPI_Request  request;
    rsi_mpi_end *me;
    uint64_t    *hash; /* [size] */
    int          size = 0, code;
    rsd_err      rc;

    code = rsi_mpi_settle(MPI_Comm_idup(from, &comm, &request), &request);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Comm_idup", err);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_size(comm, &size);
    me = prepare(size);
    hash = rsi_calloc((size_t)size, sizeof(hash[0]));
    if (rsi_mpi_all(comm, me && hash)) {
        me->comm = comm;
        rc = connect_all(me, hash, err);
    } else {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %d ranks on one of them", size);
        MPI_Comm_free(&comm);
    }
    rsi_free(hash);
    if (rc && me)
        rsi_mpi_ops.close(me);
    if (!rc)
        *out = me;
    return rc;
}

static rsd_err initialise(bool *by_us, rsd_error *err)
{
    int is = 0, was = 0, level, code;

    *by_us = false;
    MPI_Initialized(&is);
    MPI_Finalized(&was);
    if (was)
        return rsi_fail(err, RSD_E_INVALID, "MPI has been finalised");
    if (is)
        return RSD_OK;
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Init_thread", err);
    /* MPICH reports errors of finished requests here, whatever their comm; the default handler ends
     * the program. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    *by_us = true;
    return RSD_OK;
}

rsd_err rsd_mpi_transport(const MPI_Comm *comm, const rsd_comm_ops **ops, void **self,
                          rsd_error *err)
{
    rsi_mpi_end *me = NULL;
    bool         by_us = false;
    int          is = 0;
    rsd_err      rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    MPI_Initialized(&is);
    if (comm && !is)
        return rsi_fail(err, RSD_E_INVALID, "MPI has not been initialised");
    rc = initialise(&by_us, err);
    if (rc)
        return rc;
    rc = open_on(comm ? *comm : MPI_COMM_WORLD, &me, err);
    if (rc) {
        if (by_us)
            MPI_Finalize();
        return rc;
    }
    me->family->initialised = by_us;
    *ops = &rsi_mpi_ops;
    *self = me;
    return RSD_OK;
}
