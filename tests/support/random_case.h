/* SPDX-License-Identifier: Apache-2.0 */
/* random_case.h - random tensors, each with a layout it has and one it shall get.
 *
 * The same seed gives the same case on every machine: a seed, and how many ranks there are, is all
 * that a failure has to tell. */
#ifndef RESHARD_TESTS_RANDOM_CASE_H
#define RESHARD_TESTS_RANDOM_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <reshard/reshard.h>

#include "oracle.h"

enum {
    CASE_RANKS = 21,      /* layouts name ranks 0 .. 20, or fewer */
    CASE_TENSORS = 4,     /* of a case, at most */
    CASE_PIECES = 24,     /* boxes or ranges of a layout, at most */
    CASE_MESH_RANKS = 12, /* of a mesh, at most */
    CASE_SIZE = 13,       /* of a dimension, at most */
    CASE_ELEMENTS = 4000  /* of a tensor, at most */
};

typedef enum layout_kind { MESH, CHUNKED, BOXES, RANGES, LAYOUT_KINDS } layout_kind;

typedef struct random_layout {
    layout_kind   kind;
    int           axes;
    int64_t       mesh[3];
    rsd_placement place[3]; /* chunked: one axis, one shard */
    bool          counted; /* the mesh has the ranks 0, 1, 2 ... and is to be made without a list */
    size_t        n;
    int32_t       rank[CASE_PIECES];  /* of the mesh, or the owner of a box or range */
    rsd_box       box[CASE_PIECES];   /* boxes */
    int64_t       start[CASE_PIECES]; /* ranges */
    int64_t       count[CASE_PIECES];
} random_layout;

typedef struct random_tensor {
    rsd_dtype     dtype;
    rsd_box       whole;
    random_layout layout[2]; /* before, after */
    bool shared[2]; /* equals that of the tensor before; plans are to get the same object */
} random_tensor;

typedef struct random_case {
    bool          partial[2]; /* some tensors are Partial before, after; never both */
    size_t        n;
    random_tensor tensor[CASE_TENSORS];
} random_case;

/* One layout of a tensor: as it was drawn, as the library made it, as the oracle sees it. */
typedef struct random_side {
    const random_layout *drawn;
    const rsd_box       *whole; /* the tensor */
    int64_t              size;  /* bytes of an element */
    rsd_layout          *layout;
    oracle               want;
    int64_t             *mem; /* [world][want.count] each rank's memory, an int64 for an element */
} random_side;

/* Sizes of 0, empty shards, uneven ones, replicas and empty boxes all come often. Layouts name
 * ranks below `ranks`, which is CASE_RANKS at most. */
void random_case_draw(random_case *c, uint64_t seed, int32_t ranks);
/* Prints the case in words, as cmocka prints errors. */
void random_case_tell(const random_case *c);

/* Makes the layout before (0) or after (1); `t` has to stay. A failure leaves what can be freed. */
rsd_err random_side_make(random_side *s, const random_tensor *t, size_t after, int32_t world,
                         rsd_error *err);
/* Accepts a side that is all zero. */
void random_side_free(random_side *s);

#endif
