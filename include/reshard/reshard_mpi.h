/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_mpi.h - MPI ranks as a comm. The only header that includes mpi.h.
 *
 * MPI libraries have no common binary interface, so there is a small library for each: link
 * libreshard and either libreshard_mpi_openmpi or libreshard_mpi_mpich, whichever matches the mpi.h
 * that you compile with (pkg-config: reshard-mpi-openmpi, reshard-mpi-mpich). */
#ifndef RESHARD_MPI_H
#define RESHARD_MPI_H

/* In C++, without the old C++ bindings of MPI, which would need another library. */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <reshard/reshard_plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The transport itself, the only function that these libraries export. `comm` NULL: MPI_COMM_WORLD;
 * MPI is initialised if it is not yet, and in that case finalised when the comm is freed.
 * [collective] */
RSD_API rsd_err rsd_mpi_transport(const MPI_Comm *comm, const rsd_comm_ops **ops, void **self,
                                  rsd_error *err);

/* The ranks of `comm`, which is duplicated and not used afterwards: messages never mix with the
 * caller's, and errors are returned. MPI must be initialised, with MPI_THREAD_FUNNELED or higher if
 * there are threads; all calls with the comm must come from MPI's main thread, and the comm must be
 * freed before MPI_Finalize. A rank that dies ends the program, as is usual with MPI. Unless
 * MPI_COMM_WORLD has MPI_ERRORS_RETURN, MPICH also ends it when a message is longer than expected,
 * which happens only if a rank has different layouts. [collective] */
static inline rsd_err rsd_comm_create_mpi(MPI_Comm comm, rsd_comm **out, rsd_error *err)
{
    const rsd_comm_ops *ops;
    void               *self;
    rsd_err             rc = rsd_mpi_transport(&comm, &ops, &self, err);

    if (rc)
        return rc;
    rc = rsd_comm_create_custom(ops, self, out, err);
    if (rc)
        ops->close(self);
    return rc;
}

#ifdef __cplusplus
}
#endif
#endif
