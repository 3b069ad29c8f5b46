/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint section of reshard.h: checks arguments and passes them on. */
#include "base/mem.h"
#include "base/checked.h"
#include "base/opts.h"
#include "comm/facts.h"
#include "comm/signs.h"
#include "load/read_together.h"
#include "read/fetch_all.h"
#include "read/object_bytes.h"
#include "verify/make_sums.h"
#include "verify/verify.h"
#include "format/dcp.h"
#include "format/decoded.h"
#include "format/open.h"
#include "format/value_digest.h"

#include <reshard/reshard_folder.h>
#include <reshard/reshard_live.h>
#include <string.h>

rsd_err rsd_ckpt_open(rsd_store *store, const char *path, rsd_ckpt **out, rsd_error *err)
{
    if (!path || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: path or output pointer");
    return rsi_ckpt_open(store, path, out, err);
}

rsd_err rsd_ckpt_open_with(rsd_store *store, const char *path, const rsd_open_opts *opts,
                           rsd_ckpt **out, rsd_error *err)
{
    rsd_open_opts known = { .size = sizeof(known) };
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_open_opts", err);

    if (rc)
        return rc;
    if (!path || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: path or output pointer");
    return rsi_ckpt_open_with(store, path, &known, out, err);
}

rsd_health rsd_ckpt_health(const rsd_ckpt *ckpt, size_t t)
{
    return ckpt && ckpt->health && t < ckpt->ntensors ? (rsd_health)ckpt->health[t] : RSD_WHOLE;
}

rsd_health rsd_ckpt_object_health(const rsd_ckpt *ckpt, size_t i)
{
    return ckpt && ckpt->health && i < ckpt->nobjects ? (rsd_health)ckpt->health[ckpt->ntensors + i]
                                                      : RSD_WHOLE;
}

const char *rsd_ckpt_skipped(const rsd_ckpt *ckpt, size_t i)
{
    return ckpt && i < ckpt->nskipped ? ckpt->skipped[i] : NULL;
}

bool rsd_ckpt_note(const rsd_ckpt *ckpt, size_t i, const char **name, const char **why)
{
    if (!ckpt || i >= ckpt->nnotes)
        return false;
    *name = ckpt->note[i].name;
    *why = ckpt->note[i].why;
    return true;
}

const char *rsd_ckpt_lost(const rsd_ckpt *ckpt, size_t i)
{
    return ckpt && i < ckpt->nlost ? ckpt->lost[i] : NULL;
}

void rsd_ckpt_close(rsd_ckpt *ckpt)
{
    if (ckpt)
        rsi_extents_free(ckpt->extents);
    rsi_ckpt_close(ckpt);
}

rsd_format rsd_ckpt_format(const rsd_ckpt *ckpt)
{
    return ckpt->format;
}

const char *rsd_ckpt_kind(const rsd_ckpt *ckpt)
{
    return ckpt->kind ? ckpt->kind : "";
}

size_t rsd_ckpt_tensors(const rsd_ckpt *ckpt)
{
    return ckpt->ntensors;
}

static rsd_err check_tensor(const rsd_ckpt *ckpt, size_t t, rsd_error *err)
{
    if (!ckpt)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint");
    if (t >= ckpt->ntensors)
        return rsi_fail(err, RSD_E_INVALID, "no tensor %zu: the checkpoint has %zu", t,
                        ckpt->ntensors);
    return RSD_OK;
}

rsd_err rsd_ckpt_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out, rsd_error *err)
{
    rsd_tensor_info info;
    rsd_err         rc = check_tensor(ckpt, t, err);

    if (!rc)
        rc = rsi_result_check(out, "rsd_tensor_info", err);
    if (rc)
        return rc;
    ckpt->ops->tensor(ckpt, t, &info);
    rsi_result_give(out, &info, sizeof(info));
    return RSD_OK;
}

rsd_err rsd_ckpt_find(const rsd_ckpt *ckpt, const char *name, size_t *out, rsd_error *err)
{
    if (!ckpt || !name || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint, name or output pointer");
    if (!ckpt->ops->find(ckpt, name, out))
        return rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no tensor \"%s\"", name);
    return RSD_OK;
}

static rsd_err check_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_tensor_info *info,
                           rsd_error *err)
{
    rsd_err rc = rsd_ckpt_tensor(ckpt, t, info, err);

    if (!rc && i >= info->chunks)
        rc = rsi_fail(err, RSD_E_INVALID, "tensor \"%s\" has no chunk %zu, it has %zu", info->name,
                      i, info->chunks);
    return rc;
}

rsd_err rsd_ckpt_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, rsd_error *err)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_chunk       chunk;
    uint32_t        file;
    rsd_err         rc = check_chunk(ckpt, t, i, &info, err);

    if (!rc)
        rc = rsi_result_check(out, "rsd_chunk", err);
    if (rc)
        return rc;
    ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
    rsi_result_give(out, &chunk, sizeof(chunk));
    return RSD_OK;
}

rsd_err rsd_ckpt_extent(rsd_ckpt *ckpt, size_t t, size_t i, uint64_t *offset, int64_t *stride,
                        rsd_error *err)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsi_extent      extent;
    rsd_err         rc = check_chunk(ckpt, t, i, &info, err);

    if (!rc && (!offset || !stride))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer");
    if (!rc)
        rc = ckpt->ops->locate(ckpt, t, i, false, &extent, err);
    if (rc)
        return rc;
    rsi_decoded_free(extent.decoded);
    if (extent.decoded || extent.big_endian || extent.conj || extent.neg)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "tensor \"%s\": the elements of chunk %zu are not stored as plain bytes",
                        info.name, i);
    *offset = extent.offset;
    memcpy(stride, extent.stride, (size_t)info.ndim * sizeof(stride[0]));
    return RSD_OK;
}

rsd_err rsd_ckpt_layout(const rsd_ckpt *ckpt, size_t t, rsd_layout **out, rsd_error *err)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    int32_t        *owner = NULL;
    rsd_box        *box = NULL;
    rsd_err         rc = rsd_ckpt_tensor(ckpt, t, &info, err);

    if (rc)
        return rc;
    owner = rsi_calloc(info.chunks, sizeof(owner[0]));
    box = rsi_calloc(info.chunks, sizeof(box[0]));
    if (owner && box) {
        for (size_t i = 0; i < info.chunks; i++) {
            rsd_chunk chunk = { .size = sizeof(chunk) };
            uint32_t  file;

            ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
            owner[i] = (int32_t)i;
            box[i] = chunk.box;
        }
        rc = rsd_layout_create_boxes(info.dtype, info.ndim, info.shape, info.chunks, owner, box,
                                     out, err);
    } else {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a layout of %zu chunks", info.chunks);
    }
    rsi_free(owner);
    rsi_free(box);
    return rc;
}

rsd_err rsd_ckpt_read(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                      rsd_error *err)
{
    rsd_read_opts known = { .size = sizeof(known) };
    rsd_err       rc = check_tensor(ckpt, t, err);

    if (!rc)
        rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_read_opts", err);
    if (rc)
        return rc;
    if (!into)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: view to read into");
    return rsi_fetch(ckpt, t, into, &known, err);
}

rsd_err rsd_ckpt_read_many(rsd_ckpt *ckpt, size_t n, const rsd_read *reads,
                           const rsd_read_opts *opts, rsd_error *err)
{
    rsd_read_opts known = { .size = sizeof(known) };
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_read_opts", err);

    if (!rc && (!ckpt || (n && !reads)))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint or the %zu reads", n);
    return rc ? rc : rsi_fetch_many(ckpt, n, reads, &known, err);
}

rsd_err rsd_ckpt_read_together(rsd_ckpt *ckpt, rsd_comm *comm, size_t n, const rsd_read *reads,
                               const rsd_read_opts *opts, rsd_error *err)
{
    rsd_read_opts known = { .size = sizeof(known) };
    rsi_pulse     before;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_read_opts", err);

    if (!rc && (!ckpt || !comm || (n && !reads)))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint, comm or the %zu reads", n);
    rc = rsi_same_call(comm, "rsd_ckpt_read_together", rc, err);
    if (rc)
        return rc;
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_read_together(ckpt, comm, n, reads, &known, err));
}

size_t rsd_ckpt_objects(const rsd_ckpt *ckpt)
{
    return ckpt->nobjects;
}

rsd_err rsd_ckpt_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                        const rsd_value **value, rsd_error *err)
{
    if (!ckpt || !name || (owner && !value))
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint or output pointers");
    if (i >= ckpt->nobjects)
        return rsi_fail(err, RSD_E_INVALID, "no object %zu: the checkpoint has %zu", i,
                        ckpt->nobjects);
    return ckpt->ops->object(ckpt, i, name, owner, value, err);
}

static rsd_err check_object(const rsd_ckpt *ckpt, size_t i, rsd_error *err)
{
    if (!ckpt)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint");
    if (i >= ckpt->nobjects)
        return rsi_fail(err, RSD_E_INVALID, "no object %zu: the checkpoint has %zu", i,
                        ckpt->nobjects);
    return RSD_OK;
}

rsd_err rsd_ckpt_object_extent(const rsd_ckpt *ckpt, size_t i, rsd_chunk *out, rsd_error *err)
{
    const rsi_dcp_meta *meta;
    const rsi_dcp_row  *row;
    rsd_chunk           chunk;
    rsd_err             rc = check_object(ckpt, i, err);

    if (!rc)
        rc = rsi_result_check(out, "rsd_chunk", err);
    if (rc)
        return rc;
    if (ckpt->format != RSD_FORMAT_DCP)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "objects of this format have no bytes of their own");
    meta = ((const rsi_dcp *)ckpt->self)->meta;
    row = &meta->item[i].row;
    chunk = (rsd_chunk){ .file = meta->file[row->file],
                         .offset = (uint64_t)row->offset,
                         .length = (uint64_t)row->length };
    if (row->transforms != RSI_DCP_NO_TRANSFORMS) {
        chunk.ntransforms = meta->transforms[row->transforms].n;
        chunk.transforms = meta->transforms[row->transforms].name;
    }
    rsi_result_give(out, &chunk, sizeof(chunk));
    return RSD_OK;
}

rsd_err rsd_ckpt_object_bytes(rsd_ckpt *ckpt, size_t i, const rsd_read_opts *opts,
                              rsd_err (*put)(void *arg, const void *bytes, size_t len), void *arg,
                              rsd_error *err)
{
    rsd_read_opts  known = { .size = sizeof(known) };
    unsigned char *bytes;
    size_t         len;
    rsd_err        rc = check_object(ckpt, i, err);

    if (!rc)
        rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_read_opts", err);
    if (!rc && !put)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: put");
    if (!rc)
        rc = rsi_object_bytes(ckpt, i, known.verify, &bytes, &len, err);
    if (rc)
        return rc;
    rc = put(arg, bytes, len);
    rsi_free(bytes);
    return rc ? rsi_fail(err, rc, "the caller's put failed: %s", rsd_err_name(rc)) : RSD_OK;
}

rsd_err rsd_ckpt_dcp(const rsd_ckpt *ckpt, rsd_dcp_info *out, rsd_error *err)
{
    const rsi_dcp_meta *meta;
    rsd_dcp_info        info;
    rsd_err             rc = rsi_result_check(out, "rsd_dcp_info", err);

    if (rc)
        return rc;
    if (!ckpt || ckpt->format != RSD_FORMAT_DCP)
        return rsi_fail(err, ckpt ? RSD_E_UNSUPPORTED : RSD_E_INVALID,
                        "this is not a DCP checkpoint");
    meta = ((const rsi_dcp *)ckpt->self)->meta;
    info = (rsd_dcp_info){ .checkpoint_id = meta->checkpoint_id,
                           .save_id = meta->save_id,
                           .version = meta->version,
                           .paths = meta->has_paths };
    rsi_result_give(out, &info, sizeof(info));
    return RSD_OK;
}

rsd_err rsd_ckpt_object_digest(rsd_ckpt *ckpt, size_t i, const rsd_value *part, uint64_t digest[2],
                               rsd_error *err)
{
    rsi_archive a;
    rsd_err     rc;

    if (!ckpt || !digest)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint or output pointer");
    if (i >= ckpt->nobjects)
        return rsi_fail(err, RSD_E_INVALID, "no object %zu: the checkpoint has %zu", i,
                        ckpt->nobjects);
    rc = ckpt->ops->archive(ckpt, i, &a, err);
    if (!rc && !a.value && !part)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                      "a dtype or number of dimensions that is not supported");
    if (!rc)
        rc = rsi_value_digest(&a, part ? part : a.value, digest, err);
    rsi_archive_close(&a);
    return rc;
}

size_t rsd_ckpt_metas(const rsd_ckpt *ckpt)
{
    return ckpt ? ckpt->nmeta : 0;
}

rsd_err rsd_ckpt_meta(const rsd_ckpt *ckpt, size_t i, rsd_meta *out, rsd_error *err)
{
    rsd_err rc = rsi_result_check(out, "rsd_meta", err);

    if (rc)
        return rc;
    if (!ckpt)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint");
    if (i >= ckpt->nmeta)
        return rsi_fail(err, RSD_E_INVALID, "no line %zu of metadata: there are %zu", i,
                        ckpt->nmeta);
    rsi_result_give(out, &ckpt->meta[i], sizeof(*out));
    return RSD_OK;
}

size_t rsd_ckpt_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap)
{
    return ckpt->ops->path(ckpt, name, out, cap);
}

rsd_err rsd_ckpt_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                        void (*damage)(void *arg, const rsd_error *what), void *arg, size_t *count,
                        rsd_error *err)
{
    rsd_read_opts known = { .size = sizeof(known) };
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_read_opts", err);

    if (!rc && !ckpt)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint");
    return rc ? rc : rsi_verify(ckpt, &known, damage, arg, count, err);
}

bool rsd_ckpt_has_checksums(const rsd_ckpt *ckpt)
{
    return ckpt && ckpt->sums.file;
}

rsd_err rsd_ckpt_add_checksums(rsd_store *store, const char *path, const rsd_checksum_opts *opts,
                               rsd_error *err)
{
    rsd_checksum_opts known = { .size = sizeof(known) };
    rsd_err           rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_checksum_opts", err);

    if (!rc && !path)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: path");
    return rc ? rc : rsi_make_sums(store, path, &known, err);
}

/* ---- storages inside objects ---- */

typedef struct hidden {
    size_t  n;
    int64_t bytes;
} hidden;

static rsd_err count_storage(void *arg, rsd_value_tensor *tensor, bool opaque, rsd_error *err)
{
    hidden *h = arg;

    (void)err;
    h->n += opaque;
    if (opaque && !rsi_add(h->bytes, tensor->storage_bytes, &h->bytes))
        h->bytes = INT64_MAX;
    return RSD_OK;
}

rsd_err rsd_ckpt_hidden(rsd_ckpt *ckpt, size_t *storages, int64_t *bytes, rsd_error *err)
{
    hidden  h = { 0 };
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < ckpt->nobjects && !rc; i++) {
        rsi_archive a = { 0 };

        rc = ckpt->ops->archive(ckpt, i, &a, err);
        if (!rc && a.value)
            rc = rsi_torch_each_tensor(a.value, count_storage, &h, err);
        rsi_archive_close(&a);
    }
    if (rc)
        return rc;
    *storages = h.n;
    *bytes = h.bytes;
    return RSD_OK;
}
