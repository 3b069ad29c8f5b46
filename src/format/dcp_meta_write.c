/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a table as the pickle that torch.distributed.checkpoint loads as its Metadata. Protocol 4,
 * in the order of the table. Repeated words, classes and names are memoized, as they make up most
 * of the file. */
#include "base/mem.h"
#include "format/dcp_meta.h"
#include "format/tensor_pickle.h"

enum { BUFFER = 64 << 10, BATCH = 1000 };

/* Words that the file repeats; a class is a module and a name. */
enum word {
    W_META_MODULE,
    W_STORAGE_MODULE,
    W_TORCH,
    W_SERIALIZATION,
    W_METADATA,
    W_TENSOR,
    W_PROPERTIES,
    W_CHUNK,
    W_BYTES,
    W_INDEX,
    W_INFO,
    W_STORAGE_META,
    W_FORMAT,
    W_SIZE_CLASS,
    W_GET_LAYOUT,
    W_KEY_PROPERTIES,
    W_KEY_SIZE,
    W_KEY_CHUNKS,
    W_KEY_OFFSETS,
    W_KEY_SIZES,
    W_KEY_FQN,
    W_KEY_INDEX,
    W_KEY_OFFSET,
    W_KEY_PATH,
    W_KEY_LENGTH,
    W_KEY_TRANSFORMS,
    NWORDS
};

static const struct {
    const char *text;
    int         module; /* of a class; -1: plain text */
} words[NWORDS] = {
    [W_META_MODULE] = { "torch.distributed.checkpoint.metadata", -1 },
    [W_STORAGE_MODULE] = { "torch.distributed.checkpoint.filesystem", -1 },
    [W_TORCH] = { "torch", -1 },
    [W_SERIALIZATION] = { "torch.serialization", -1 },
    [W_METADATA] = { "Metadata", W_META_MODULE },
    [W_TENSOR] = { "TensorStorageMetadata", W_META_MODULE },
    [W_PROPERTIES] = { "TensorProperties", W_META_MODULE },
    [W_CHUNK] = { "ChunkStorageMetadata", W_META_MODULE },
    [W_BYTES] = { "BytesStorageMetadata", W_META_MODULE },
    [W_INDEX] = { "MetadataIndex", W_META_MODULE },
    [W_INFO] = { "_StorageInfo", W_STORAGE_MODULE },
    [W_STORAGE_META] = { "StorageMeta", W_META_MODULE },
    [W_FORMAT] = { "_MEM_FORMAT_ENCODING", W_META_MODULE },
    [W_SIZE_CLASS] = { "Size", W_TORCH },
    [W_GET_LAYOUT] = { "_get_layout", W_SERIALIZATION },
    [W_KEY_PROPERTIES] = { "properties", -1 },
    [W_KEY_SIZE] = { "size", -1 },
    [W_KEY_CHUNKS] = { "chunks", -1 },
    [W_KEY_OFFSETS] = { "offsets", -1 },
    [W_KEY_SIZES] = { "sizes", -1 },
    [W_KEY_FQN] = { "fqn", -1 },
    [W_KEY_INDEX] = { "index", -1 },
    [W_KEY_OFFSET] = { "offset", -1 },
    [W_KEY_PATH] = { "relative_path", -1 },
    [W_KEY_LENGTH] = { "length", -1 },
    [W_KEY_TRANSFORMS] = { "transform_descriptors", -1 },
};

/* The first failure is kept; all later calls do nothing. */
typedef struct writer {
    rsi_dcp_put    put;
    void          *arg;
    rsd_error     *err;
    rsd_err        rc;
    unsigned char *buf; /* [BUFFER] */
    size_t         len;
    uint32_t       nmemo;
    uint32_t       word[NWORDS]; /* place in the memo + 1; 0: not written yet */
    uint32_t      *name;         /* [tensors, items, files] the same for their names */
    uint32_t       dtype[256], layout, format;
    /* Of the tensor being written: its chunks, which are the table's, or those of its columns. */
    const int64_t     *box;              /* [nchunks][2][ndim] */
    const rsi_dcp_row *row;              /* [nchunks] */
    int64_t           *own_box, *column; /* of the tensor with columns that has the most chunks */
    rsi_dcp_row       *own_row;
} writer;

/* ---- Bytes ---- */

static void flush(writer *w)
{
    if (!w->rc && w->len)
        w->rc = w->put(w->arg, w->buf, w->len, w->err);
    w->len = 0;
}

static void bytes(writer *w, const void *from, size_t len)
{
    while (len) {
        size_t room = BUFFER - w->len, n = len < room ? len : room;

        memcpy(w->buf + w->len, from, n);
        w->len += n;
        from = (const char *)from + n;
        len -= n;
        if (w->len == BUFFER)
            flush(w);
    }
}

static void byte(writer *w, int b)
{
    w->buf[w->len++] = (unsigned char)b;
    if (w->len == BUFFER)
        flush(w);
}

static void codes(writer *w, const char *list)
{
    bytes(w, list, strlen(list));
}

static void little(writer *w, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        byte(w, (int)(x >> 8 * i & 255));
}

/* ---- Values ---- */

static void text(writer *w, const char *s)
{
    size_t len = strlen(s);

    if (len < 256) {
        byte(w, 0x8c); /* SHORT_BINUNICODE */
        byte(w, (int)len);
    } else {
        byte(w, 'X'); /* BINUNICODE */
        little(w, len, 4);
    }
    bytes(w, s, len);
}

static void text_or_none(writer *w, const char *s)
{
    if (s)
        text(w, s);
    else
        byte(w, 'N');
}

static void memoize(writer *w, uint32_t *place)
{
    byte(w, 0x94);
    *place = ++w->nmemo;
}

/* True if it was written before; then writes a reference to it. */
static bool again(writer *w, uint32_t place)
{
    if (place == 0)
        return false;
    byte(w, place <= 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    little(w, place - 1, place <= 256 ? 1 : 4);
    return true;
}

static void name(writer *w, const char *s, uint32_t *place)
{
    if (again(w, *place))
        return;
    text(w, s);
    memoize(w, place);
}

static void word(writer *w, enum word what)
{
    int module = words[what].module;

    if (again(w, w->word[what]))
        return;
    if (module >= 0)
        name(w, words[module].text, &w->word[module]);
    text(w, words[what].text);
    if (module >= 0)
        byte(w, 0x93); /* STACK_GLOBAL */
    memoize(w, &w->word[what]);
}

static void integer(writer *w, int64_t x)
{
    unsigned char code[RSI_PICKLE_INT_MAX];

    bytes(w, code, rsi_pickle_put_int(code, x));
}

/* torch.Size((a, b)) */
static void size(writer *w, int n, const int64_t *x)
{
    word(w, W_SIZE_CLASS);
    if (n > 3)
        byte(w, '(');
    for (int d = 0; d < n; d++)
        integer(w, x[d]);
    if (n > 3)
        byte(w, 't');
    else
        byte(w, n ? 0x84 + n : ')');
    codes(w, "\x85R");
}

/* An object of a class, up to the start of its state. */
static void object(writer *w, enum word class)
{
    word(w, class);
    codes(w, ")\x81}(");
}

/* ---- state_dict_metadata ---- */

static void dtype(writer *w, rsd_dtype which)
{
    uint32_t *place = &w->dtype[which & 255];

    if (again(w, *place))
        return;
    word(w, W_TORCH);
    text(w, rsd_dtype_name(which));
    byte(w, 0x93); /* STACK_GLOBAL */
    memoize(w, place);
}

static void layout_and_format(writer *w, bool requires_grad)
{
    if (!again(w, w->layout)) {
        word(w, W_GET_LAYOUT);
        text(w, "torch.strided");
        codes(w, "\x85R");
        memoize(w, &w->layout);
    }
    byte(w, requires_grad ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
    if (!again(w, w->format)) {
        word(w, W_FORMAT);
        integer(w, 0); /* contiguous */
        codes(w, "\x85R");
        memoize(w, &w->format);
    }
}

/* The state is a tuple: dtype, layout, requires_grad, memory format, pin_memory. */
static void properties(writer *w, const rsi_dcp_tensor *t)
{
    word(w, W_PROPERTIES);
    codes(w, ")\x81(");
    dtype(w, t->dtype);
    layout_and_format(w, t->requires_grad);
    codes(w, "\x89tb");
}

/* Writes a MARK before every batch, and `close` after it. */
static void batch(writer *w, size_t i, size_t n, int close)
{
    if (i > 0 && (i % BATCH == 0 || i == n))
        byte(w, close);
    if (i < n && i % BATCH == 0)
        byte(w, '(');
}

/* ---- chunks ---- */

static void unpack_boxes(writer *w, const rsi_dcp_tensor *t)
{
    const size_t wide = 2 * (size_t)t->ndim;

    for (size_t c = 0; c < wide; c++) {
        rsi_packed_all(&t->column[RSI_DCP_BOX + c], w->column);
        for (size_t i = 0; i < t->nchunks; i++)
            w->own_box[i * wide + c] = w->column[i];
    }
}

static void unpack_rows(writer *w, const rsi_dcp_tensor *t)
{
    for (int c = 0; c < RSI_DCP_BOX; c++) {
        rsi_packed_all(&t->column[c], w->column);
        for (size_t i = 0; i < t->nchunks; i++) {
            rsi_dcp_row *row = &w->own_row[i];

            if (c == RSI_DCP_FILE)
                row->file = (uint32_t)w->column[i];
            else if (c == RSI_DCP_TRANSFORMS)
                row->transforms = (uint32_t)w->column[i];
            else if (c == RSI_DCP_OFFSET)
                row->offset = w->column[i];
            else
                row->length = w->column[i];
        }
    }
}

static void take_chunks(writer *w, const rsi_dcp_meta *meta, const rsi_dcp_tensor *t, bool rows)
{
    if (t->column) {
        unpack_boxes(w, t);
        if (rows)
            unpack_rows(w, t);
    }
    w->box = t->column ? w->own_box : meta->box + t->box;
    w->row = t->column ? w->own_row : meta->row + t->first;
}

static bool make_room(writer *w, const rsi_dcp_meta *meta)
{
    size_t most = 0;

    for (size_t t = 0; t < meta->ntensors; t++)
        if (meta->tensor[t].column && meta->tensor[t].nchunks > most)
            most = meta->tensor[t].nchunks;
    w->own_box = rsi_calloc(most, 2 * RSD_MAX_NDIM * sizeof(w->own_box[0]));
    w->own_row = rsi_calloc(most, sizeof(w->own_row[0]));
    w->column = rsi_calloc(most, sizeof(w->column[0]));
    return w->own_box && w->own_row && w->column;
}

static void tensor(writer *w, const rsi_dcp_meta *meta, const rsi_dcp_tensor *t)
{
    take_chunks(w, meta, t, false);
    object(w, W_TENSOR);
    word(w, W_KEY_PROPERTIES);
    properties(w, t);
    word(w, W_KEY_SIZE);
    size(w, t->ndim, t->shape);
    word(w, W_KEY_CHUNKS);
    byte(w, ']');
    for (size_t i = 0; i <= t->nchunks; i++) {
        batch(w, i, t->nchunks, 'e');
        if (i == t->nchunks)
            break;
        object(w, W_CHUNK);
        word(w, W_KEY_OFFSETS);
        size(w, t->ndim, w->box + i * 2 * (size_t)t->ndim);
        word(w, W_KEY_SIZES);
        size(w, t->ndim, w->box + (i * 2 + 1) * (size_t)t->ndim);
        codes(w, "ub");
    }
    codes(w, "ub");
}

static void state_dict(writer *w, const rsi_dcp_meta *meta)
{
    size_t n = meta->ntensors + meta->nitems;

    text(w, "state_dict_metadata");
    byte(w, '}');
    for (size_t i = 0; i <= n && !w->rc; i++) {
        batch(w, i, n, 'u');
        if (i < meta->ntensors) {
            name(w, meta->tensor[i].name, &w->name[i]);
            tensor(w, meta, &meta->tensor[i]);
        } else if (i < n) {
            name(w, meta->item[i - meta->ntensors].name, &w->name[i]);
            word(w, W_BYTES);
            codes(w, ")\x81");
        }
    }
}

/* ---- planner_data ---- */

static void planner(writer *w, const rsi_dcp_meta *meta)
{
    text(w, "planner_data");
    if (!meta->has_paths) {
        byte(w, 'N');
        return;
    }
    byte(w, '}');
    for (size_t i = 0; i <= meta->npaths; i++) {
        const rsi_dcp_path *path = &meta->path[i];

        batch(w, i, meta->npaths, 'u');
        if (i == meta->npaths)
            break;
        text(w, path->name);
        byte(w, '(');
        for (size_t k = 0; k < path->nparts; k++)
            if (path->part[k].key)
                text(w, path->part[k].key);
            else
                integer(w, path->part[k].index);
        byte(w, 't');
    }
}

/* ---- storage_data ---- */

static void info(writer *w, const rsi_dcp_meta *meta, const rsi_dcp_row *row)
{
    uint32_t *file = &w->name[meta->ntensors + meta->nitems + row->file];

    object(w, W_INFO);
    word(w, W_KEY_PATH);
    name(w, meta->file[row->file], file);
    word(w, W_KEY_OFFSET);
    integer(w, row->offset);
    word(w, W_KEY_LENGTH);
    integer(w, row->length);
    if (row->transforms != RSI_DCP_NO_TRANSFORMS) {
        const rsi_dcp_transforms *list = &meta->transforms[row->transforms];

        word(w, W_KEY_TRANSFORMS);
        codes(w, "](");
        for (size_t i = 0; i < list->n; i++)
            text(w, list->name[i]);
        byte(w, 'e');
    }
    codes(w, "ub");
}

static void chunk_row(writer *w, const rsi_dcp_meta *meta, size_t t, size_t i)
{
    const rsi_dcp_tensor *of = &meta->tensor[t];

    object(w, W_INDEX);
    word(w, W_KEY_FQN);
    name(w, of->name, &w->name[t]);
    word(w, W_KEY_INDEX);
    integer(w, (int64_t)i);
    word(w, W_KEY_OFFSET);
    size(w, of->ndim, w->box + i * 2 * (size_t)of->ndim);
    codes(w, "ub");
    info(w, meta, &w->row[i]);
}

static void storage(writer *w, const rsi_dcp_meta *meta)
{
    size_t at = 0, n = meta->nchunks + meta->nitems;

    text(w, "storage_data");
    byte(w, '}');
    for (size_t t = 0; t < meta->ntensors && !w->rc; t++) {
        take_chunks(w, meta, &meta->tensor[t], true);
        for (size_t i = 0; i < meta->tensor[t].nchunks; i++) {
            batch(w, at++, n, 'u');
            chunk_row(w, meta, t, i);
        }
    }
    for (size_t i = 0; i < meta->nitems && !w->rc; i++) {
        batch(w, at++, n, 'u');
        object(w, W_INDEX);
        word(w, W_KEY_FQN);
        name(w, meta->item[i].name, &w->name[meta->ntensors + i]);
        word(w, W_KEY_INDEX);
        codes(w, "Nub");
        info(w, meta, &meta->item[i].row);
    }
    batch(w, n, n, 'u');
}

/* ---- The whole ---- */

static void all(writer *w, const rsi_dcp_meta *meta)
{
    codes(w, "\x80\x04");
    object(w, W_METADATA);
    state_dict(w, meta);
    planner(w, meta);
    storage(w, meta);
    text(w, "storage_meta");
    if (meta->checkpoint_id || meta->save_id) {
        object(w, W_STORAGE_META);
        text(w, "checkpoint_id");
        text_or_none(w, meta->checkpoint_id);
        text(w, "save_id");
        text_or_none(w, meta->save_id);
        text(w, "load_id");
        byte(w, 'N');
        text(w, "modules");
        codes(w, "]ub");
    } else {
        byte(w, 'N');
    }
    text(w, "version");
    text_or_none(w, meta->version);
    codes(w, "ub.");
    flush(w);
}

static rsd_err check_row(const rsi_dcp_meta *meta, const rsi_dcp_row *row, const char *of,
                         rsd_error *err)
{
    if (row->file >= meta->nfiles ||
        (row->transforms != RSI_DCP_NO_TRANSFORMS && row->transforms >= meta->ntransforms))
        return rsi_fail(err, RSD_E_INVALID,
                        "the row of \"%s\" names a file or transforms that do "
                        "not exist",
                        of);
    return RSD_OK;
}

static rsd_err check(const rsi_dcp_meta *meta, rsd_error *err)
{
    size_t  n = 0;
    rsd_err rc = RSD_OK;

    for (size_t t = 0; t < meta->ntensors && !rc; t++) {
        const rsi_dcp_tensor *of = &meta->tensor[t];

        if (!rsd_dtype_name(of->dtype))
            return rsi_fail(err, RSD_E_INVALID, "the tensor \"%s\" has no dtype", of->name);
        for (size_t i = 0; !of->column && i < of->nchunks && !rc; i++)
            rc = check_row(meta, &meta->row[of->first + i], of->name, err);
        n += of->nchunks;
    }
    for (size_t i = 0; i < meta->nitems && !rc; i++)
        rc = check_row(meta, &meta->item[i].row, meta->item[i].name, err);
    if (!rc && n != meta->nchunks)
        rc = rsi_fail(err, RSD_E_INVALID, "the tensors have %zu chunks, the table %zu", n,
                      meta->nchunks);
    return rc;
}

rsd_err rsi_dcp_meta_write(const rsi_dcp_meta *meta, rsi_dcp_put put, void *arg, rsd_error *err)
{
    writer *w;
    rsd_err rc = check(meta, err);

    if (rc)
        return rc;
    w = rsi_calloc(1, sizeof(*w));
    if (!w)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write metadata");
    w->put = put;
    w->arg = arg;
    w->err = err;
    w->buf = rsi_calloc(BUFFER, 1);
    w->name = rsi_calloc(meta->ntensors + meta->nitems + meta->nfiles, sizeof(w->name[0]));
    if (w->buf && w->name && make_room(w, meta))
        all(w, meta);
    else
        w->rc = rsi_fail(err, RSD_E_NOMEM, "no memory to write metadata");
    rc = w->rc;
    rsi_free(w->buf);
    rsi_free(w->name);
    rsi_free(w->own_box);
    rsi_free(w->own_row);
    rsi_free(w->column);
    rsi_free(w);
    return rc;
}
