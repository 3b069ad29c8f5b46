/* SPDX-License-Identifier: Apache-2.0 */
/* ranks_case.h - saves in which ranks differ, as cases that run on all ranks of any comm:
 * tests/seams/ brings threads, tests/mpi/mpi_ranks.c MPI. Cases return RSD_E_BUG with the line
 * where something is not so. */
#ifndef RESHARD_TESTS_RANKS_CASE_H
#define RESHARD_TESTS_RANKS_CASE_H

#include "comm_suite.h"

/* Each ends in a case without a name. */
extern const comm_case ranks_values[], ranks_options[], ranks_arguments[];

/* A folder that rank 0 made and told to all. */
typedef struct ranks_bed {
    rsd_comm  *comm;
    rsd_store *store;
    char       top[64];
    char       path[96]; /* "<top>/ck" */
} ranks_bed;

rsd_err ranks_bed_open(ranks_bed *bed, rsd_comm *comm, rsd_error *err);
rsd_err ranks_bed_close(ranks_bed *bed, rsd_error *err);
/* Nothing is in the folder. */
bool ranks_bed_empty(const ranks_bed *bed);
/* The last part of the bed's path, for another file or folder in it. */
const char *ranks_bed_name(ranks_bed *bed, const char *name);

/* One rank's state: "w" in rows, "b" on all, and with `values` what differs from rank to rank. */
typedef struct ranks_state {
    rsd_state  *state;
    rsd_values *owner;
    float       w[64], b[8];
} ranks_state;

rsd_err ranks_state_make(ranks_state *s, const rsd_comm *comm, bool values, rsd_error *err);
void    ranks_state_free(ranks_state *s);

/* The values that a rank holds: a name, numbers, bytes, a dict whose keys differ too, a list, a
 * dict with a tensor in it. Each has another pickled length on every rank. */
enum { RANKS_VALUES = 6 };
extern const char *const ranks_value_name[RANKS_VALUES];
rsd_err ranks_value(size_t i, int32_t rank, rsd_values *owner, const rsd_value **out,
                    rsd_error *err);

/* rsd_save, or with a way rsd_save_begin and rsd_op_wait. */
rsd_err ranks_save(const char *path, rsd_comm *comm, rsd_state *state, rsd_stage_way how,
                   const rsd_save_opts *opts, rsd_error *err);
/* The ways that a comm has: 0 and the two of rsd_stage_way; false: there are no more. */
bool ranks_way(const rsd_comm *comm, int i, rsd_stage_way *out);

/* A call failed here with this code, for the sake of that rank, with this in its message, and so it
 * did on every rank; the comm still works. [collective] */
rsd_err ranks_failed(rsd_comm *comm, rsd_err rc, rsd_err want, int32_t rank, const char *text,
                     rsd_error *err);

/* The checkpoint is whole by every check there is, has the tensors, and the values of the rank
 * value_of[i]; NULL: of rank 0; -1: none. [local] */
rsd_err ranks_saved(const char *path, const int32_t *value_of, rsd_error *err);

#endif
