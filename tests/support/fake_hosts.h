/* SPDX-License-Identifier: Apache-2.0 */
/* fake_hosts.h - threads that pretend to be ranks of several machines: what goes from one to
 * another is counted, and no memory is reached there. */
#ifndef RESHARD_TESTS_FAKE_HOSTS_H
#define RESHARD_TESTS_FAKE_HOSTS_H

#include <reshard/reshard_plugin.h>

#include <stdatomic.h>

enum { FAKE_HOSTS = 8 };

typedef struct fake_hosts {
    int32_t         ranks, per_host; /* rank r is on machine r / per_host */
    const int32_t  *of;              /* [ranks] or on this one, if set */
    bool            blind;           /* not even ranks of one machine reach each other's memory */
    _Atomic int64_t messages[FAKE_HOSTS], bytes[FAKE_HOSTS]; /* that came from other machines */
    _Atomic int64_t moved[FAKE_HOSTS]; /* those of `bytes` that a live move sent as elements */
} fake_hosts;

/* Runs fn on each rank; the first error by rank, if any: one with its own reason, if there is. */
rsd_err fake_hosts_run(fake_hosts *hosts, rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err),
                       void *arg, rsd_error *err);

#endif
