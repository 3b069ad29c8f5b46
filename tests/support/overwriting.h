/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that a process of its own overwrites again and again, as fast as it can, while it is
 * loaded here. All elements and the value of one save are one number, so a load that mixes two
 * saves shows. */
#ifndef OVERWRITING_H
#define OVERWRITING_H

#include <reshard/reshard.h>

#include <sys/types.h>

typedef struct overwriting_kind {
    const char *name; /* of the checkpoint in its folder: its end says the format */
    rsd_format  format;
    bool        distributed;
    rsd_choice  checksum, verify;
} overwriting_kind;

extern const overwriting_kind overwriting_kinds[];
enum { OVERWRITING_KINDS = 6 };

/* Shared with the writers. */
typedef struct overwriting {
    const overwriting_kind *kind;
    rsd_store              *store; /* NULL: `path` is a local one */
    char                    path[512];
    _Atomic int64_t        *published; /* [2] saves so far; the longest, in microseconds */
    pid_t                   writer[2];
    int                     n;
} overwriting;

/* What came of loads. */
typedef struct overwriting_counts {
    int64_t tried, whole, refused, mixed, hung; /* hung: see fault_row.h */
    int64_t published;                          /* saves meanwhile */
    int64_t longest_load, longest_save;         /* in microseconds */
} overwriting_counts;

/* Saves once; then `writers` processes overwrite it until it is ended. Returns false and prints why
 * if that fails. */
bool overwriting_begin(overwriting *o, const overwriting_kind *kind, const char *folder,
                       int writers);
/* False: a writer failed. */
bool overwriting_end(overwriting *o);
/* The loop of a writer; the file `published` counts for a process that is started by hand. Ends
 * when the file `stop` is there, or never if that is NULL. */
int overwriting_write(const overwriting_kind *kind, const char *path, _Atomic int64_t *published,
                      const char *stop);

/* One save over what is there; prints why it failed. */
bool overwriting_save(const overwriting_kind *kind, const char *path, int64_t number);

/* One load on the ranks of `comm`, or alone; *number is what it found, -1 if it was mixed. */
rsd_err overwriting_load(const overwriting *o, rsd_comm *comm, int64_t nth, int64_t *number,
                         rsd_error *err);
/* Loads until `loads` were tried and `loads` / 10 saves were published meanwhile. [collective] */
rsd_err overwriting_loads(const overwriting *o, rsd_comm *comm, int64_t loads,
                          overwriting_counts *counts, rsd_error *err);
/* None was mixed; of many, at least 99 of 100 were whole. Of few that depends on how busy the
 * machine is: a load gives up when it was overtaken five times. */
bool overwriting_ok(const overwriting_counts *counts);
/* A row of tools/run-faults' table: whole ones count as new, mixed ones as silent. */
void overwriting_row(const char *fault, const overwriting_counts *counts);

#endif
