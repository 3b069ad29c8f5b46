/* SPDX-License-Identifier: Apache-2.0 */
/* Does everything with a checkpoint that a program can: opens it, reads all tensors, decodes all
 * objects, verifies it. For tests and fuzz targets that care about what became of bad input. */
#ifndef CKPT_WALK_H
#define CKPT_WALK_H

#include <reshard/reshard.h>

#include "store/store.h"

enum { CKPT_WALK_DAMAGES = 8 };

typedef struct ckpt_walk {
    rsd_err   opened;                    /* rsd_ckpt_open */
    rsd_err   read;                      /* the first tensor or object that could not be read */
    rsd_err   verified;                  /* rsd_ckpt_verify itself */
    rsd_error error;                     /* of the first of these that failed */
    size_t    damages;                   /* that verify reported */
    rsd_error damage[CKPT_WALK_DAMAGES]; /* the first of them */
    size_t    opaque;                    /* objects of classes that nobody knows */
    char      opaque_name[128];          /* the class of the first */
    int64_t   open_peak; /* bytes of heap that opening took, the checkpoint itself included */
    int64_t   read_peak; /* and everything after it */
    uint32_t  elements;  /* checksum of dtypes, shapes, elements and values that were read */
    uint32_t  content;   /* the same with the names and the paths to them */
} ckpt_walk;

/* `store` NULL: a local path. Tensors above `most` bytes are read in part. */
void ckpt_walk_run(rsd_store *store, const char *path, int64_t most, ckpt_walk *out);
/* True if something is known to be wrong: an error, or damage that was reported. */
bool ckpt_walk_noticed(const ckpt_walk *walk);

/* Puts a file of these bytes there, in a folder that exists; NULL and 0: an empty one. */
rsd_err ckpt_walk_put(rsd_store *store, const char *name, const void *bytes, size_t len);

#endif
