/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks share a machine, and bytes that cross the network once for each. A comm finds out
 * when it is first asked and keeps the groups. Whatever ranks do per machine costs them memory and
 * time for their neighbours only, apart from 16 bytes for every rank while they find out. */
#include "comm/comm.h"
#include "base/digest.h"
#include "base/mem.h"

#include <reshard/reshard_live.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The start of a small file, which stays empty if there is none. */
static void read_start(const char *path, char out[64])
{
    int     fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, out, 63);

    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
}

/* This run of the kernel, and the namespaces in which its processes reach each other. */
static uint64_t system_host(void)
{
    static const char *const space[] = { "/proc/self/ns/ipc", "/proc/self/ns/net" };

    char     boot[64];
    uint64_t id[2] = { 0, 0 };

    read_start("/proc/sys/kernel/random/boot_id", boot);
    for (int i = 0; i < 2; i++) {
        struct stat st;

        id[i] = stat(space[i], &st) == 0 ? (uint64_t)st.st_ino : 0;
    }
    return rsi_digest(rsi_digest(0, boot, strlen(boot)), id, sizeof(id));
}

uint64_t rsi_host_id(rsd_comm *comm)
{
    if (comm->host_id == 0)
        comm->host_id = comm->ops.host                       ? comm->ops.host(comm->self)
                        : comm->ops.flags & RSD_COMM_THREADS ? 1 /* all are one process */
                                                             : system_host();
    return comm->host_id;
}

bool rsi_one_cache(void)
{
    char cores[64], near[64];

    read_start("/sys/devices/system/cpu/online", cores);
    read_start("/sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", near);
    return cores[0] && strlen(cores) < sizeof(cores) - 1 && strcmp(cores, near) == 0;
}

static int by_host(const void *a, const void *b)
{
    const rsi_place *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_number(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

int32_t rsi_hosts_number(rsi_place *all, int32_t n, int32_t *number)
{
    int32_t hosts = 0;

    qsort(all, (size_t)n, sizeof(all[0]), by_host);
    for (int32_t i = 0; i < n; i++) {
        hosts += i == 0 || all[i].host != all[i - 1].host;
        number[all[i].rank] = hosts - 1;
    }
    return hosts;
}

/* Lists the ranks of this machine in near[], and the first rank of each machine in first[]. */
static void list_ranks(rsi_place *all, int32_t size, uint64_t mine, int32_t *near, int32_t *nnear,
                       int32_t *first, int32_t *nfirst)
{
    *nnear = *nfirst = 0;
    qsort(all, (size_t)size, sizeof(all[0]), by_host);
    for (int32_t i = 0; i < size; i++) {
        if (all[i].host == mine)
            near[(*nnear)++] = all[i].rank;
        if (i == 0 || all[i].host != all[i - 1].host)
            first[(*nfirst)++] = all[i].rank;
    }
    qsort(first, (size_t)*nfirst, sizeof(first[0]), by_number);
}

static rsd_err split(rsd_comm *comm, uint64_t mine, rsd_error *err)
{
    size_t     size = (size_t)comm->size;
    rsi_place *all = rsi_calloc(size, sizeof(all[0]));
    int32_t   *near = rsi_calloc(size, sizeof(near[0]));
    int32_t   *first = rsi_calloc(size, sizeof(first[0]));
    int32_t    nnear, nfirst;
    rsd_err    rc = all && near && first
                        ? RSD_OK
                        : rsi_fail(err, RSD_E_NOMEM, "no memory for the machines of %zu ranks", size);

    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_allgather(comm, &(rsi_place){ mine, comm->rank }, sizeof(all[0]), all, err);
    if (!rc) {
        list_ranks(all, comm->size, mine, near, &nnear, first, &nfirst);
        rc = rsd_comm_split(comm, nnear, near, &comm->host, err);
    }
    if (!rc)
        rc = rsd_comm_split(comm, near[0] == comm->rank ? nfirst : 0, first, &comm->leads, err);
    if (rc) {
        rsd_comm_free(comm->host);
        comm->host = NULL;
    }
    rsi_free(all);
    rsi_free(near);
    rsi_free(first);
    return rc;
}

rsd_err rsi_hosts_find(rsd_comm *comm, rsd_error *err)
{
    uint64_t mine;
    int64_t  ends[2];
    rsd_err  rc;

    if (comm->hosts_known || comm->size == 1 || comm->alone)
        return RSD_OK;
    mine = rsi_host_id(comm);
    ends[0] = (int64_t)mine;
    ends[1] = ~(int64_t)mine;
    rc = rsi_allreduce(comm, RSI_OP_MAX, ends, 2, err);
    if (!rc && ends[0] != ~ends[1])
        rc = split(comm, mine, err);
    comm->hosts_known = !rc;
    return rc;
}

rsd_comm *rsi_host(rsd_comm *comm)
{
    if (!comm->host)
        return comm;
    comm->host->timeout_ms = comm->timeout_ms;
    return comm->host;
}

rsd_err rsi_spread(rsd_comm *comm, void *data, size_t bytes, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (comm->leads) {
        comm->leads->timeout_ms = comm->timeout_ms;
        rc = rsi_broadcast(comm->leads, 0, data, bytes, err);
    }
    return rc ? rc : rsi_broadcast(rsi_host(comm), 0, data, bytes, err);
}
