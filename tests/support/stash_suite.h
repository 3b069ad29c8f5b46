/* SPDX-License-Identifier: Apache-2.0 */
/* stash_suite.h - what a stash must do on every comm, as cases that run on all its ranks at once:
 * tests/unit/test_stash.c brings threads, tests/mpi/mpi_stash.c MPI. */
#ifndef RESHARD_TESTS_STASH_SUITE_H
#define RESHARD_TESTS_STASH_SUITE_H

#include "comm_suite.h"

#include <reshard/reshard_live.h>

/* Each ends in a case without a name: what goes well, and how ranks fail together. */
extern const comm_case stash_suite[], stash_suite_faults[];

typedef struct stash_tensor {
    rsd_dtype dtype;
    int       ndim;
    int64_t   shape[RSD_MAX_NDIM];
} stash_tensor;

/* Byte i of tensor `id`, the same on all ranks. */
unsigned char stash_byte(size_t id, size_t i);
size_t        stash_bytes(const stash_tensor *t);
rsd_err stash_make(rsd_comm *comm, int32_t dim, size_t budget, size_t handles, rsd_stash **out,
                   rsd_error *err);
/* Saves it from memory that is overwritten then; takes it and compares. */
rsd_err stash_save(rsd_stash *stash, const stash_tensor *t, size_t id, rsd_stashed *out,
                   rsd_error *err);
rsd_err stash_take(const rsd_stashed *saved, const stash_tensor *t, size_t id, rsd_error *err);
/* data[bytes] must still be 0x5a. */
rsd_err stash_check(const stash_tensor *t, size_t id, const unsigned char *data, rsd_error *err);

#endif
