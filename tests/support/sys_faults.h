/* SPDX-License-Identifier: Apache-2.0 */
/* A table of system calls that fail or return short when a test wants it, and that a test can
 * watch. One test at a time. */
#ifndef SYS_FAULTS_H
#define SYS_FAULTS_H

#include "store/sys.h"

#include <stdbool.h>

typedef struct sys_faults {
    int         at;       /* the call that fails, 1: the next; 0: none */
    bool        for_ever; /* it and all after it */
    int         times;    /* for ever: so many of them; 0: all */
    const char *only;     /* counts and fails calls of this name only; NULL: all */
    int         error;    /* errno of the failure; 0: transfers move one byte only */
    unsigned    no_flags; /* renames with one of these flags are refused with EINVAL */
    bool        no_direct, no_direct_write; /* O_DIRECT is refused by open, or only by pwrite */
    bool        no_link;
    int64_t     tmpfs_left; /* fstatfs reports a tmpfs with so many bytes left; 0: the truth */
    void (*watch)(const char *call, void *arg); /* before each call */
    void *arg;

    int     calls, fsyncs;             /* that were made */
    int64_t bytes_read, bytes_written; /* by pread and pwrite */
} sys_faults;

/* Reset it to zero before use. */
extern sys_faults    faults;
extern const rsi_sys rsi_sys_faulty;
/* The real calls, but fsync does not wait for the disk: nothing in these tests has to survive a
 * power cut. */
const rsi_sys *sys_quick(void);

#endif
