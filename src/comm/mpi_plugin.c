/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a program that was built without MPI run under mpirun: loads the library with comm_mpi.c
 * that was built for the launcher's MPI. The library is never unloaded, since MPI can't be. */
#include "comm/mpi_plugin.h"
#include "comm/ucx_plugin.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPENMPI "libreshard_mpi_openmpi.so.1"
#define MPICH   "libreshard_mpi_mpich.so.1"

/* The number of ranks given by a variable; 0 if there is none. */
static long ranks_in(const char *(*env)(const char *), const char *name)
{
    const char *text = env(name);
    long        n = text ? strtol(text, NULL, 10) : 0;

    return n > 0 ? n : 0;
}

static rsd_err find_chosen(const char *name, rsi_launch *out, rsd_error *err)
{
    if (strcmp(name, "none") == 0)
        *out = (rsi_launch){ 0 };
    else if (strcmp(name, "openmpi") == 0)
        *out = (rsi_launch){ .launcher = "RESHARD_MPI=openmpi", .library = { OPENMPI } };
    else if (strcmp(name, "mpich") == 0)
        *out = (rsi_launch){ .launcher = "RESHARD_MPI=mpich", .library = { MPICH } };
    else
        return rsi_fail(err, RSD_E_INVALID,
                        "RESHARD_MPI is \"%s\", it can be openmpi, mpich or none", name);
    return RSD_OK;
}

rsd_err rsi_launch_find(const char *(*env)(const char *name), rsi_launch *out, rsd_error *err)
{
    const char *chosen = env("RESHARD_MPI");
    rsi_launch  found = { 0 };
    long        tasks = ranks_in(env, "SLURM_STEP_NUM_TASKS"); /* not set in a batch script */

    if (chosen && chosen[0])
        return find_chosen(chosen, out, err);
    if (env("OMPI_COMM_WORLD_RANK")) {
        found = (rsi_launch){ .launcher = "mpirun of Open MPI", .library = { OPENMPI } };
        found.ranks = ranks_in(env, "OMPI_COMM_WORLD_SIZE");
    } else if (env("PMI_RANK")) {
        found =
            (rsi_launch){ .launcher = "mpiexec of MPICH or srun", .library = { MPICH, OPENMPI } };
        found.ranks = ranks_in(env, "PMI_SIZE");
    } else if (env("PMIX_RANK")) {
        found = (rsi_launch){ .launcher = "srun with PMIx", .library = { OPENMPI, MPICH } };
        found.ranks = tasks;
    } else if (env("SLURM_PROCID") && tasks > 1) {
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "srun started %ld tasks that can't find each other: use srun --mpi=pmix, "
                        "or set RESHARD_MPI=none if each is meant to work alone",
                        tasks);
    }
    *out = found.ranks == 1 ? (rsi_launch){ 0 } : found;
    return RSD_OK;
}

/* Writes "<folder of file>/<middle><name>" to path; false if it is too long or does not exist. */
static bool beside(const char *file, const char *middle, const char *name, char *path)
{
    const char *slash = strrchr(file, '/');
    int         len;

    if (!slash)
        return false;
    len = snprintf(path, PATH_MAX, "%.*s/%s%s", (int)(slash - file), file, middle, name);
    return len > 0 && len < PATH_MAX && access(path, R_OK) == 0;
}

void *rsi_plugin_load(const char *name)
{
    /* Open MPI's components expect its symbols to be global. */
    const int flags = RTLD_NOW | RTLD_GLOBAL;
    char      exe[PATH_MAX] = "", path[PATH_MAX];
    ssize_t   len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    Dl_info   own;

    exe[len > 0 ? len : 0] = '\0';
    if (dladdr(RSI_MPI_SYMBOL, &own) && own.dli_fname && beside(own.dli_fname, "", name, path))
        return dlopen(path, flags);
    if (beside(exe, "", name, path) || beside(exe, "../lib/", name, path))
        return dlopen(path, flags);
    return dlopen(name, flags);
}

static rsd_err find_transport(const rsi_launch *launch, rsi_mpi_transport *out, rsd_error *err)
{
    const char *reason = NULL;

    for (int i = 0; i < RSI_MPI_LIBRARIES && launch->library[i]; i++) {
        void *library = rsi_plugin_load(launch->library[i]);
        void *symbol = library ? dlsym(library, RSI_MPI_SYMBOL) : NULL;

        if (symbol) {
            memcpy(out, &symbol, sizeof(symbol)); /* C has no cast for this, POSIX allows it */
            return RSD_OK;
        }
        reason = dlerror();
        if (i == 0)
            rsi_fail(err, RSD_E_UNSUPPORTED,
                     "%s started this program, but reshard's library for it can't be loaded: %s; "
                     "a build with that MPI has it, RESHARD_MPI=none makes each process work alone",
                     launch->launcher, reason ? reason : launch->library[i]);
    }
    return RSD_E_UNSUPPORTED;
}

static const char *from_environment(const char *name)
{
    return getenv(name);
}

rsd_err rsd_comm_create_launched(rsd_comm **out, rsd_error *err)
{
    rsi_launch          launch;
    rsi_mpi_transport   transport;
    const rsd_comm_ops *ops;
    void               *self;
    rsd_err             rc;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the comm");
    if (getenv("RESHARD_MEET"))
        return rsi_comm_create_met(from_environment, out, err);
    rc = rsi_launch_find(from_environment, &launch, err);
    if (rc)
        return rc;
    if (!launch.launcher)
        return rsd_comm_create_self(0, 1, out, err);
    rc = find_transport(&launch, &transport, err);
    if (!rc)
        rc = transport(NULL, &ops, &self, err);
    if (rc)
        return rc;
    /* An MPI unknown to the launcher makes every process rank 0 of 1. */
    if (launch.ranks > 0 && ops->count(self) != launch.ranks)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                      "%s started %ld ranks, but the MPI that was loaded sees %" PRId32
                      ": set RESHARD_MPI=openmpi or mpich, whichever belongs to it",
                      launch.launcher, launch.ranks, ops->count(self));
    else
        rc = rsd_comm_create_custom(ops, self, out, err);
    if (rc)
        ops->close(self);
    return rc;
}
