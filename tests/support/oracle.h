/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h - who holds which element of a tensor, found the slow way.
 *
 * The oracle writes down every index, cuts the lists of indices as torch.chunk would, and keeps for
 * each rank the place of each element. It uses the types of the public header and none of its
 * functions, so that it can be wrong only by itself. */
#ifndef RESHARD_TESTS_ORACLE_H
#define RESHARD_TESTS_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <reshard/reshard.h>

/* Elements are numbered in row-major order of the whole tensor. */
typedef struct oracle {
    int64_t  count; /* elements of the tensor */
    int32_t  world; /* ranks 0 .. world-1 are written down; the caller's layouts name no others */
    int64_t *pos;   /* [world][count] place in the rank's memory, in elements; -1: not held */
    int64_t *held;  /* [world] elements that the rank holds */
    int32_t
        *part; /* [world] which of the `parts` contributions the rank holds; -1: not in the mesh */
    int32_t parts; /* product of the sizes of all Partial axes */
} oracle;

/* A mesh given by its sizes and its ranks in row-major order. */
void oracle_mesh(oracle *o, int32_t world, int ndim, const int64_t *shape, int axes,
                 const int64_t *mesh, const int32_t *ranks, const rsd_placement *place);
/* Box i belongs to owner[i]; a rank's boxes lie one after the other in its memory. */
void oracle_boxes(oracle *o, int32_t world, int ndim, const int64_t *shape, size_t n,
                  const int32_t *owner, const rsd_box *box);
/* Range i of the flattened tensor belongs to owner[i]; a rank's ranges lie one after the other. */
void oracle_ranges(oracle *o, int32_t world, int ndim, const int64_t *shape, size_t n,
                   const int32_t *owner, const int64_t *start, const int64_t *count);
/* Accepts an oracle that is all zero. */
void oracle_free(oracle *o);

/* The place of element e in the rank's memory, -1 if the rank doesn't hold it. */
int64_t oracle_pos(const oracle *o, int32_t rank, int64_t e);

/* The number of the element at `index`. */
int64_t oracle_element(int ndim, const int64_t *shape, const int64_t *index);
/* The first index of a box; false if the box is empty. */
bool oracle_first(const rsd_box *box, int64_t *index);
/* The index after this one in row-major order of the box; false after the last. */
bool oracle_next(const rsd_box *box, int64_t *index);
/* True if the inner box has elements and all of them are in the outer one. */
bool oracle_holds(const rsd_box *outer, const rsd_box *inner);
/* True if the two have the same elements, at least one. */
bool oracle_same(const rsd_box *a, const rsd_box *b);
/* True if a starts before b, the first dimension counting most. */
bool oracle_starts_before(const rsd_box *a, const rsd_box *b);

#endif
