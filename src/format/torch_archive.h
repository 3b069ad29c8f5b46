/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of one torch.save archive: a tensor, as in most items of a DCP checkpoint, or any
 * object. */
#ifndef RSI_TORCH_ARCHIVE_H
#define RSI_TORCH_ARCHIVE_H

#include "format/ckpt.h"
#include "format/tensor_pickle.h"
#include "format/zip.h"

/* An archive and its contents. */
typedef struct rsi_archive {
    rsi_source       source;
    rsi_zip          zip;
    uint32_t         file;  /* of the checkpoint, contains the archive */
    const rsd_value *value; /* the object; tensors in it have no bytes. NULL: not requested */
    rsi_arena        mem;   /* of `zip`; the next two own the rest, unless it is borrowed */
    rsd_values      *owner;
    unsigned char   *decoded;
} rsi_archive; /* zeroed: empty */

void rsi_archive_close(rsi_archive *a);

/* An archive that is one tensor: where its elements lie. Offsets in *extent count from the start of
 * the source's file; its `decoded` is NULL. `all`: every other record of the archive is compared
 * with its CRC32. */
rsd_err rsi_torch_tensor_item(const rsi_source *source, bool all, rsi_tensor_pickle *tensor,
                              rsi_extent *extent, rsd_error *err);
/* The same from the archive's first bytes alone; false if they don't tell. The CRC is not set. The
 * end of the archive may contradict it. */
bool rsi_torch_tensor_front(const unsigned char *bytes, size_t len, rsi_tensor_pickle *tensor,
                            rsi_extent *extent);
/* Reads a record and compares it with its CRC32, if it has one. */
rsd_err rsi_torch_check_record(const rsi_source *source, const rsi_zip_record *record,
                               rsd_error *err);
/* Visits each tensor in a value, and each storage inside an opaque one (`opaque`) as a tensor. */
typedef rsd_err (*rsi_tensor_visit)(void *arg, rsd_value_tensor *tensor, bool opaque,
                                    rsd_error *err);
rsd_err rsi_torch_each_tensor(const rsd_value *root, rsi_tensor_visit visit, void *arg,
                              rsd_error *err);
/* An archive that is an object. Small tensors in it are read too; `owner` owns their bytes. */
rsd_err rsi_torch_object_item(const rsi_source *source, rsd_values *owner, const rsd_value **out,
                              rsd_error *err);

/* For archives of many tensors: the pickle of an archive as a value, whose tensors name their
 * storage. *unlisted: see rsi_value_pickle. */
rsd_err rsi_torch_value(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                        rsi_value_pickle *out, rsd_error *err);
/* Reads the bytes of the small tensors in a value of the archive, so that it can be shown and
 * saved. */
rsd_err rsi_torch_read_tensors(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                               const rsd_value *root, rsd_error *err);
/* Where a tensor's elements lie, checked against its storage's record. */
rsd_err rsi_torch_extent(const rsi_source *source, const rsi_zip *zip,
                         const rsi_tensor_pickle *tensor, rsi_extent *out, rsd_error *err);
/* RSD_E_FORMAT if a torch.save file of this value would have ambiguous names when opened. */
rsd_err rsi_torch_names_check(const rsd_value *v, rsd_error *err);
/* Copies the same facts to the other struct. */
void rsi_torch_tensor_of(const rsd_value_tensor *value, rsi_tensor_pickle *out);

#endif
