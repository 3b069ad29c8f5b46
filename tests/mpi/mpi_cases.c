/* SPDX-License-Identifier: Apache-2.0 */
/* The acceptance cases under mpirun: those that the number of ranks is enough for. */
#include "accept_cases.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static rsd_err run_all(rsd_comm *comm, const char *folder, int *passed, rsd_error *err)
{
    const accept_case *const list[] = { accept_resharding, accept_checkpoint };

    for (size_t l = 0; l < sizeof(list) / sizeof(list[0]); l++)
        for (const accept_case *c = list[l]; c->name; c++) {
            rsd_err rc;

            if (comm->size < c->ranks)
                continue;
            rc = rsi_agree(comm, c->run(comm, folder, err), err);
            if (rc)
                return rsi_while(err, rc, "%s", c->name);
            ++*passed;
        }
    return RSD_OK;
}

int main(void)
{
    char      folder[] = "/tmp/reshard-accept-XXXXXX";
    rsd_comm *comm;
    rsd_error err = { .rank = -1 };
    int       passed = 0, rank;
    rsd_err   rc = rsd_comm_create_launched(&comm, &err);

    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 1;
    }
    rank = rsd_comm_rank(comm);
    accept_every = 3;
    if (rank == 0 && !mkdtemp(folder))
        rc = rsi_fail(&err, RSD_E_IO, "could not create \"%s\"", folder);
    rc = rsi_agree(comm, rc, &err);
    if (!rc)
        rc = rsi_broadcast(comm, 0, folder, sizeof(folder), &err);
    if (!rc)
        rc = run_all(comm, folder, &passed, &err);
    if (rank == 0)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err.msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), passed);
    if (rank == 0 && rc)
        printf("[  FAILED  ] cases: 1 test(s), listed below:\n");
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
