/* SPDX-License-Identifier: Apache-2.0 */
/* torch's distributed safetensors: every rank writes its own file with its part of each tensor, and
 * the file's metadata (DCP_SHARDING_INFO) say where in the whole tensor the part begins. The shape
 * of the whole is not stored: it is the furthest extent of any part. Files without that metadata
 * hold whole tensors. */
#ifndef RSI_ST_DCP_H
#define RSI_ST_DCP_H

#include "base/error.h"
#include "format/json_write.h"
#include "format/st_header.h"

#define RSI_ST_DCP_INFO        "DCP_SHARDING_INFO"
#define RSI_ST_DCP_VERSION_KEY "DCP_VERSION"
#define RSI_ST_DCP_VERSION     "1.0"
#define RSI_NANOTRON_SLICES    "local_global_slices_pairs"
#define RSI_ST_FILE_NAME       96 /* room for any name made by the functions below */

/* Where the parts of one file begin: tensor t of the header at off[t->shape .. t->shape + t->ndim -
 * 1]. */
typedef struct rsi_st_dcp {
    bool     sharded; /* declared by the file; otherwise all offsets are 0 */
    int64_t *off;     /* [header->ndims] */
    int64_t *whole;   /* the same for the sizes of whole tensors; NULL: the file does not say */
} rsi_st_dcp;

rsd_err rsi_st_dcp_read(const rsi_st_header *header, rsi_st_dcp *out, rsd_error *err);
void    rsi_st_dcp_release(rsi_st_dcp *dcp);

/* The text of DCP_SHARDING_INFO for n parts, where tensor i begins at off[i][0 .. ndim[i]-1]: in
 * out->buf, byte for byte as torch writes it. */
rsd_err rsi_st_dcp_write(size_t n, const char *const *name, const int *ndim,
                         const int64_t *const *off, rsi_json_out *out, rsd_error *err);

/* "shard-00001-model-00001-of-00002.safetensors"; all count from 1. */
size_t rsi_st_shard_name(int64_t shard, int64_t file, int64_t files, char *buf, size_t cap);
/* The numbers of such a name; false for any other name. */
bool rsi_st_shard_parse(const char *name, int64_t *shard, int64_t *file, int64_t *files);

/* ---- joining the parts of all files ---- */

typedef struct rsi_st_file {   /* borrowed */
    const char          *path; /* for messages */
    const rsi_st_header *header;
    const rsi_st_dcp    *dcp;
} rsi_st_file;

typedef struct rsi_st_part {
    uint32_t file, tensor; /* header->tensor[tensor] of this file */
} rsi_st_part;

typedef struct rsi_st_whole {
    const rsi_name *name; /* of its first part */
    rsd_dtype       dtype;
    int             ndim;
    int64_t         shape[RSD_MAX_NDIM];
    size_t first, parts; /* its parts are part[first .. first + parts - 1], in file order */
} rsi_st_whole;

/* A part with the offset and shape of one in an earlier file, which is loaded. */
typedef struct rsi_st_replica {
    rsi_st_part part, loaded;
} rsi_st_replica;

typedef struct rsi_st_joined {
    rsi_st_whole   *whole; /* [nwholes] in the order in which the files name them */
    size_t          nwholes;
    rsi_st_part    *part; /* [nparts] */
    size_t          nparts;
    rsi_st_replica *replica; /* [nreplicas] */
    size_t          nreplicas;
} rsi_st_joined;

/* Parts with the same name must agree in dtype and number of dimensions, and a tensor that a file
 * holds whole must be in no other file. torch writes a replica for each rank that has one. Whether
 * the parts cover the tensor exactly once is checked when a layout is made of them. */
rsd_err rsi_st_join(size_t nfiles, const rsi_st_file *file, rsi_st_joined *out, rsd_error *err);
void    rsi_st_joined_release(rsi_st_joined *joined);

#endif
