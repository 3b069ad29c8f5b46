/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of support/slow_rank.c with four ranks that are processes: mpi_slow FOLDER. The folder
 * is removed by the caller. The clock that all ranks look at is in a file there. */
#include "launched.h"
#include "slow_rank.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static slow_page *map_page(const char *folder)
{
    char  path[256];
    int   fd;
    void *at;

    snprintf(path, sizeof(path), "%s/clock", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(slow_page)) < 0)
        return NULL;
    at = mmap(NULL, sizeof(slow_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static rsd_err run_all(rsd_comm *comm, const char *folder, int *passed, rsd_error *err)
{
    slow_page *page = map_page(folder);
    rsd_err    rc = RSD_OK;

    if (!page)
        return rsi_fail(err, RSD_E_IO, "could not map a clock in \"%s\"", folder);
    slow_begin(page, comm); /* before the comm has looked at another clock */
    for (const slow_case *c = slow_cases; c->name && !rc; c++) {
        char path[256];

        if (c->breaks)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, c->name);
        rc = c->run(comm, path, err);
        if (rc)
            return rsi_while(err, rc, "%s", c->name);
        ++*passed;
    }
    return RSD_OK;
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm;
    int       passed = 0;
    rsd_err   rc;

    comm = launched_comm("mpi_slow FOLDER");
    if (!comm || argc != 2)
        return 1;
    rc = run_all(comm, argv[1], &passed, &err);
    return launched_end(comm, "mpi_slow", rc, &err, passed);
}
