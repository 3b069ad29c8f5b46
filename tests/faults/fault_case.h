/* SPDX-License-Identifier: Apache-2.0 */
/* What the fault tests share: a save of version 2 where version 1 may stand, on one or several
 * ranks, and a look at what is there afterwards. The two versions have the same names, shapes and
 * files and no element in common, so that a mixture of both is seen. The programs in this folder
 * bring the faults and say what must come of them. */
#ifndef FAULT_CASE_H
#define FAULT_CASE_H

#include "fault_row.h"
#include "reshard/reshard.h"
#include "store/file.h"

enum { FAULT_RANKS = 4 };

/* A way to save, in the form of rsd_save: another one is one more row of fault_ways. */
typedef rsd_err (*fault_save)(const char *path, rsd_comm *comm, rsd_state *state,
                              const rsd_save_opts *opts, rsd_error *err);

typedef struct fault_case {
    const char *name;
    fault_save  save;
    int32_t     ranks;
    bool        overwrite; /* version 1 is there */
    const char *path;      /* below the folder of the bed */
    rsd_format  format;
    bool        distributed;
    bool        brief;  /* part of the short form */
    bool        forked; /* a child of the rank's process writes the files */
} fault_case;

/* True: every case, every error, every n; else the short form. */
bool fault_long(void);
/* The cases to run, one after the other; NULL after the last. */
const fault_case *fault_next(const fault_case *after);
/* The same with those in which a child writes, whose calls this process can't watch. */
const fault_case *fault_next_forked(const fault_case *after);

typedef enum fault_found {
    FAULT_NONE, /* nothing has the name */
    FAULT_OLD,
    FAULT_NEW,
    FAULT_LOST /* anything else */
} fault_found;

/* A case in a folder of its own. */
typedef struct fault_bed {
    const fault_case *c;
    char              top[64];
    rsd_store        *quiet;                 /* no faults, no waiting for the disk */
    rsd_store        *on[FAULT_RANKS];       /* what each rank saves through; NULL: quiet */
    rsd_state        *state[2][FAULT_RANKS]; /* [version - 1][rank] */
    rsd_values       *values;
    uint32_t          old_sum; /* of version 1's bytes; 0: not known */
    char         names[128];   /* what a save leaves: the path, and a checksum file beside a file */
    rsd_progress on_progress;
    uint64_t     no_memory; /* the allocation that fails, 1: the first of the save; 0: none */
    int          for_ever;  /* it and all after it */
    /* Called with what each rank is about to give to its save. */
    void (*change)(int32_t rank, const char **path, rsd_save_opts *opts);
    /* Called with each rank's comm before it saves. */
    void (*tune)(rsd_comm *comm);
    /* Called by each rank when it has its result. */
    void (*ended)(int32_t rank);

    /* Of the last save. */
    long long seconds;
    rsd_err   rc[FAULT_RANKS];
    rsd_error err[FAULT_RANKS];
} fault_bed;

/* `top` NULL: a new folder in memory where there is such a file system; otherwise a folder that
 * exists and stays. The name stands for version 1, or for nothing if the case overwrites nothing.
 */
void fault_bed_open(fault_bed *bed, const fault_case *c, const char *top);
void fault_bed_close(fault_bed *bed);
/* The same without a look at what is in the folder, and without a change to it. */
void fault_bed_attach(fault_bed *bed, const fault_case *c, const char *top);
void fault_bed_detach(fault_bed *bed);
/* A store in the folder of the bed with these system calls. */
rsd_store *fault_store(const fault_bed *bed, const rsi_sys *sys, rsi_file_io io);

/* Saves a version on every rank and waits for all. False: the ranks' codes differ. */
bool fault_save_version(fault_bed *bed, int version, bool overwrite);
/* The same for one rank, by the thread that has its comm. */
rsd_err fault_save_rank(fault_bed *bed, rsd_comm *comm, int version, bool overwrite);
/* What the name stands for in a store, read by the library itself with every check there is. */
fault_found fault_look_in(const fault_bed *bed, rsd_store *store);
fault_found fault_look(const fault_bed *bed);
/* Back to what it was when the bed was opened, with a save that must succeed and leave nothing but
 * what has the name. */
void fault_reset(fault_bed *bed);
/* Removes all that is in the folder. */
void fault_clear(fault_bed *bed);
/* Descriptors that are open in this process. */
int fault_descriptors(void);

/* ---- the table ---- */

void fault_count(fault_row *row, const fault_bed *bed, fault_found found);

#endif
