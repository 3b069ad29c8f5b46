/* SPDX-License-Identifier: Apache-2.0 */
/* A small valid checkpoint of each format, for tests that then damage it. */
#ifndef CKPT_SAMPLE_H
#define CKPT_SAMPLE_H

#include "store/store.h"

typedef enum ckpt_sample {
    SAMPLE_DCP,         /* "ck": .metadata, __0_0.distcp, __1_0.distcp */
    SAMPLE_DCP_ZSTD,    /* the same files, each item a zstd frame */
    SAMPLE_SAFETENSORS, /* "ck.safetensors": the tensors alone */
    SAMPLE_TORCH,       /* "ck.pt" */
    SAMPLE_DCP_LONG,    /* like the first, with an object whose pickle has 5000 bytes */
    SAMPLE_TORCH_LONG,  /* "ck.pt" with the same */
    SAMPLE_COUNT
} ckpt_sample;

/* The path that it has in its store. */
const char *ckpt_sample_path(ckpt_sample which);
/* Its files, the n-th of them; NULL behind the last. */
const char *ckpt_sample_file(ckpt_sample which, size_t n);
/* Saves it, without a checksum file; the same bytes every time. */
rsd_err ckpt_sample_save(rsd_store *store, ckpt_sample which, rsd_error *err);
rsd_err ckpt_sample_save_with(rsd_store *store, ckpt_sample which, rsd_choice checksum,
                              rsd_error *err);

/* A file's bytes; free them. NULL: it can't be read. */
unsigned char *ckpt_sample_bytes(rsd_store *store, const char *name, size_t *len);
/* A new store in memory with the same files, except that `name`, if not NULL, has these bytes. */
rsd_store *ckpt_sample_copy(rsd_store *from, ckpt_sample which, const char *name, const void *bytes,
                            size_t len);

#endif
