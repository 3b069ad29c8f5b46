/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by reading, joining and writing DCP metadata. dcp_meta.h describes the flow. */
#include "base/mem.h"
#include "format/dcp_meta_core.h"

/* ---- Classes ---- */

#define CALL  RSI_PICKLE_FOLD_CALL
#define BUILD RSI_PICKLE_FOLD_BUILD
#define GROWS RSI_PICKLE_GROWS
#define MOVES RSI_PICKLE_MOVES

/* The module was renamed in torch 2.0, TensorProperties moved in 2.3. */
#define META_CLASSES(module)                                                                       \
    { module, "Metadata", CLS_META, GROWS | MOVES },                                               \
        { module, "TensorStorageMetadata", CLS_TENSOR, BUILD | GROWS | MOVES },                    \
        { module, "TensorProperties", CLS_PROPERTIES,                                              \
          BUILD | MOVES | RSI_PICKLE_GROWS_FROM(PROPERTIES) },                                     \
        { module, "ChunkStorageMetadata", CLS_CHUNK, BUILD | GROWS | MOVES },                      \
        { module, "BytesStorageMetadata", CLS_BYTES, GROWS | MOVES },                              \
        { module, "MetadataIndex", CLS_INDEX, BUILD | MOVES },                                     \
        { module, "StorageMeta", CLS_STORAGE_META, GROWS | MOVES },                                \
        { module, "_MEM_FORMAT_ENCODING", CLS_MEMORY_FORMAT, CALL | MOVES },                       \
    {                                                                                              \
        module, "MEM_FORMAT_ENCODING", CLS_MEMORY_FORMAT, CALL                                     \
    }
#define PATH_CLASSES(module)                                                                       \
    { module, "PosixPath", CLS_POSIX_PATH, 0 }, { module, "PurePosixPath", CLS_POSIX_PATH, 0 },    \
        { module, "WindowsPath", CLS_WINDOWS_PATH, 0 },                                            \
    {                                                                                              \
        module, "PureWindowsPath", CLS_WINDOWS_PATH, 0                                             \
    }
#define TORCH(name)                                                                                \
    {                                                                                              \
        "torch", name, CLS_TORCH, 0                                                                \
    }

static const rsi_pickle_class classes[] = {
    { "torch", "Size", CLS_SIZE, CALL },
    { "torch.distributed.checkpoint.filesystem", "_StorageInfo", CLS_INFO, BUILD | MOVES },
    { "torch.distributed._shard.checkpoint.filesystem", "_StorageInfo", CLS_INFO, BUILD },
    { "megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata", CLS_META, GROWS },
    { "torch.serialization", "_get_layout", CLS_LAYOUT, CALL },
    { "builtins", "getattr", CLS_GETATTR, CALL },
    { "__builtin__", "getattr", CLS_GETATTR, CALL },
    { "collections", "OrderedDict", CLS_ORDERED_DICT, 0 },
    META_CLASSES("torch.distributed.checkpoint.metadata"),
    META_CLASSES("torch.distributed._shard.checkpoint.metadata"),
    META_CLASSES("torch.distributed._shard.sharded_tensor.metadata"),
    PATH_CLASSES("pathlib"),
    PATH_CLASSES("pathlib._local"),
    RSI_TORCH_DTYPES(TORCH),
    /* listed, so that the message is about the dtype */
    TORCH("quint8"),
    TORCH("qint8"),
    TORCH("qint32"),
    TORCH("quint4x2"),
    TORCH("quint2x4"),
    TORCH("bits8"),
    TORCH("bits16"),
    TORCH("bits1x8"),
    TORCH("bits2x4"),
    TORCH("bits4x2"),
    TORCH("bcomplex32"),
};

const rsi_pickle_class *rsi_dcp_classes(size_t *n)
{
    *n = sizeof(classes) / sizeof(classes[0]);
    return classes;
}

/* ---- The table ---- */

void rsi_dcp_meta_free(rsi_dcp_meta *meta)
{
    if (!meta)
        return;
    rsi_arena_release(&meta->mem);
    rsi_free(meta);
}

rsd_err rsi_dcp_file_check(const char *name, size_t len, rsd_error *err)
{
    const char *why = NULL;

    if (len == 0)
        why = "it is empty";
    else if (memchr(name, '\0', len))
        why = "it contains a NUL";
    else if (name[0] == '/')
        why = "it is absolute";
    else if (memchr(name, '/', len))
        why = "it has more than one component";
    else if ((len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
        why = "it is a directory";
    else if (len > 255)
        why = "it is longer than 255 bytes";
    if (why)
        return rsi_fail(err, RSD_E_FORMAT, "the file name \"%s\" is refused: %s", name, why);
    return RSD_OK;
}

rsi_dcp_row rsi_dcp_row_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i)
{
    if (!t->column)
        return meta->row[t->first + i];
    return (rsi_dcp_row){ .file = (uint32_t)rsi_packed_at(&t->column[RSI_DCP_FILE], i),
                          .transforms = (uint32_t)rsi_packed_at(&t->column[RSI_DCP_TRANSFORMS], i),
                          .offset = rsi_packed_at(&t->column[RSI_DCP_OFFSET], i),
                          .length = rsi_packed_at(&t->column[RSI_DCP_LENGTH], i) };
}

void rsi_dcp_box_of(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, size_t i,
                    int64_t box[2 * RSD_MAX_NDIM])
{
    const int n = 2 * t->ndim;

    if (!t->column)
        memcpy(box, rsi_dcp_chunk_offset(meta, t, i), (size_t)n * sizeof(box[0]));
    for (int d = 0; t->column && d < n; d++)
        box[d] = rsi_packed_at(&t->column[RSI_DCP_BOX + d], i);
}
