/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that never frees its comm: mpi_leave FOLDER. The others give up on it, and each says so in
 * memory that all have; when they all have, the first of them to see it makes FOLDER/left. */
#include <reshard/reshard.h>

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT_MS = 200 };

static void *shared(const char *folder)
{
    char  path[256];
    int   fd;
    void *at;

    snprintf(path, sizeof(path), "%s/count", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(int32_t)) < 0)
        return NULL;
    at = mmap(NULL, sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

int main(int argc, char **argv)
{
    _Atomic int32_t *left = argc == 2 ? shared(argv[1]) : NULL;
    rsd_error        err = { .rank = -1 };
    rsd_comm        *comm;
    int32_t          others;
    char             path[256];
    int              fd;

    if (!left || rsd_comm_create_launched(&comm, &err)) {
        fprintf(stderr, "mpi_leave FOLDER: %s\n", err.msg);
        return 1;
    }
    others = rsd_comm_size(comm) - 1;
    if (rsd_comm_rank(comm) < others) {
        rsd_comm_set_timeout(comm, LIMIT_MS, NULL);
        rsd_comm_free(comm);
        atomic_fetch_add(left, 1);
    }
    while (atomic_load(left) < others)
        sched_yield();
    snprintf(path, sizeof(path), "%s/left", argv[1]);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0;
}
