/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of comm_mpi.c, which is built into separate libraries. */
#ifndef RSI_COMM_MPI_H
#define RSI_COMM_MPI_H

#include <stddef.h>

/* MPI counts in int: longer messages are split into parts of this many bytes, 1 GiB unless a test
 * lowers it, on all ranks alike. */
extern size_t rsi_mpi_part_bytes;

#endif
