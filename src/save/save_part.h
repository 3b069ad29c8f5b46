/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's part of a checkpoint inside a folder, and its receipt. save_part.c writes it, receipt.c
 * writes and reads receipts, publish_parts.c publishes. */
#ifndef RSI_SAVE_PART_H
#define RSI_SAVE_PART_H

#include "base/bytes.h"
#include "commit/folder.h"
#include "write/write_files.h"

#include <reshard/reshard_folder.h>

struct rsd_part {
    rsi_folder     folder;
    int32_t        rank;
    rsd_part_opts  opts;
    bool           sums_wanted;
    rsd_state     *state; /* one tensor with one view for each box */
    rsi_part_item *item;
    size_t         n, cap;
    rsi_image      image; /* of the written part */
    bool           tried, written;
    char           file[RSI_DATA_NAME]; /* "": nothing was written */
    uint64_t       bytes;
    void          *claim;
    rsi_sums       sums;
    rsi_bytes      receipt;
    rsi_arena      mem; /* names */
};

rsd_err rsi_part_create(const char *path, int32_t rank, const rsd_part_opts *opts, rsd_part **out,
                        rsd_error *err);
void    rsi_part_free(rsd_part *part);
rsd_err rsi_part_tensor(rsd_part *part, const char *name, rsd_dtype dtype, int ndim,
                        const int64_t *shape, const rsd_view *view, rsd_error *err);
rsd_err rsi_part_object(rsd_part *part, const char *name, const void *bytes, size_t len,
                        rsd_error *err);
rsd_err rsi_part_write(rsd_part *part, rsd_error *err);

/* A receipt as read back. */
typedef struct rsi_receipt {
    const char        *file; /* "": the part is empty */
    uint64_t           bytes;
    bool               has_sums;
    const rsi_sum_row *row; /* [nrows], possibly unaligned */
    size_t             nrows;
    const void        *about; /* metadata of the items; NULL: no description */
    size_t             about_len;
} rsi_receipt;

/* Fills part->receipt. */
rsd_err rsi_part_tell(rsd_part *part, bool describe, rsd_error *err);
/* Checks a receipt; *out points into it. */
rsd_err rsi_part_told(const rsd_receipt *receipt, rsi_receipt *out, rsd_error *err);

rsd_err rsi_parts_publish(const char *path, size_t n, const rsd_receipt *receipts,
                          const rsd_publish_opts *opts, rsd_error *err);

#endif
