/* SPDX-License-Identifier: Apache-2.0 */
/* Writes catalogues. All is words of 8 bytes, little-endian; a text is its length and its
 * bytes, filled up with zeros, at least one. In order: magic, length of the catalogue, length and
 * hash of the metadata; counts; three texts; names of files; transforms; items; paths; skipped
 * attributes; tensors, each with the columns of its chunks (packed.h); the hash of all bytes before
 * it. Next: dcp_catalogue_read.c. */
#include "format/dcp_catalogue.h"
#include "base/mem.h"

#include <string.h>

enum { WORD = 8, HASHED = 256 << 10 };

rsd_err rsi_meta_identify(const rsi_source *metadata, rsi_sums *rows, rsi_meta_id *out,
                          rsd_error *err)
{
    rsi_hash128_stream *stream = rsi_hash128_create();
    unsigned char      *buf = rsi_alloc_aligned(64, HASHED);
    rsd_err             rc = RSD_OK;

    if (!stream || !buf)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to hash metadata");
    else
        rsi_hash128_begin(stream);
    if (!rc && rows)
        rc = rsi_sums_begin(rows, 0, 0, err);
    for (uint64_t at = 0; at < metadata->size && !rc; at += HASHED) {
        size_t n = metadata->size - at < HASHED ? (size_t)(metadata->size - at) : HASHED;

        rc = rsi_source_read(metadata, at, buf, n, err);
        if (!rc)
            rsi_hash128_feed(stream, buf, n);
        if (!rc && rows)
            rc = rsi_sums_feed(rows, buf, n, err);
    }
    if (!rc && rows)
        rc = rsi_sums_end(rows, err);
    if (!rc) {
        rsi_hash128_end(stream, out->hash);
        out->bytes = metadata->size;
    }
    rsi_hash128_free(stream);
    rsi_free(buf);
    return rc;
}

typedef struct making {
    const rsi_dcp_meta *meta;
    rsi_bytes          *out;
    /* [files], [transforms]: number + 1 in the order of first use, which does not depend on who
     * made the table; 0: unused */
    uint32_t *file, *transforms;
    uint32_t *file_order, *transforms_order; /* [nfiles], [ntransforms]: the reverse */
    uint32_t  nfiles, ntransforms;
    int64_t  *value; /* a column of the tensor with the most chunks */
} making;

static void add_word(making *m, uint64_t x)
{
    unsigned char word[WORD];

    for (int b = 0; b < WORD; b++)
        word[b] = (unsigned char)(x >> 8 * b);
    rsi_bytes_add(m->out, word, sizeof(word));
}

static void add_text(making *m, const char *text)
{
    static const char zeros[WORD];
    const size_t      len = strlen(text);

    add_word(m, len);
    rsi_bytes_add(m->out, text, len);
    rsi_bytes_add(m->out, zeros, WORD - len % WORD);
}

/* Number 0: there is none. */
static void add_choice(making *m, const char *text)
{
    add_word(m, text != NULL);
    if (text)
        add_text(m, text);
}

static void number_one(uint32_t which, uint32_t *number, uint32_t *order, uint32_t *n)
{
    if (number[which])
        return;
    order[*n] = which;
    number[which] = ++*n;
}

static void number_file(making *m, uint32_t file)
{
    number_one(file, m->file, m->file_order, &m->nfiles);
}

static void number_transforms(making *m, uint32_t transforms)
{
    if (transforms != RSI_DCP_NO_TRANSFORMS)
        number_one(transforms, m->transforms, m->transforms_order, &m->ntransforms);
}

static int64_t transforms_of(const making *m, uint32_t transforms)
{
    return transforms == RSI_DCP_NO_TRANSFORMS ? -1 : (int64_t)m->transforms[transforms] - 1;
}

static void add_files(making *m)
{
    for (uint32_t i = 0; i < m->nfiles; i++)
        add_text(m, m->meta->file[m->file_order[i]]);
    for (uint32_t i = 0; i < m->ntransforms; i++) {
        const rsi_dcp_transforms *list = &m->meta->transforms[m->transforms_order[i]];

        add_word(m, list->n);
        for (size_t k = 0; k < list->n; k++)
            add_text(m, list->name[k]);
    }
}

static void add_items(making *m)
{
    const rsi_dcp_meta *meta = m->meta;

    for (size_t i = 0; i < meta->nitems; i++) {
        const rsi_dcp_row *row = &meta->item[i].row;

        add_text(m, meta->item[i].name);
        add_word(m, m->file[row->file] - 1);
        add_word(m, (uint64_t)transforms_of(m, row->transforms));
        add_word(m, (uint64_t)row->offset);
        add_word(m, (uint64_t)row->length);
    }
    for (size_t i = 0; i < meta->npaths; i++) {
        add_text(m, meta->path[i].name);
        add_word(m, meta->path[i].nparts);
        for (size_t k = 0; k < meta->path[i].nparts; k++) {
            add_word(m, (uint64_t)meta->path[i].part[k].index);
            add_choice(m, meta->path[i].part[k].key);
        }
    }
    for (size_t i = 0; i < meta->nskipped; i++)
        add_text(m, meta->skipped[i]);
}

/* Fills m->value with a column of a tensor. */
static void take_column(making *m, const rsi_dcp_tensor *t, int c)
{
    const rsi_dcp_row *row = t->column ? NULL : m->meta->row + t->first;

    if (t->column)
        rsi_packed_all(&t->column[c], m->value);
    for (size_t i = 0; row && i < t->nchunks; i++)
        m->value[i] = c == RSI_DCP_FILE         ? (int64_t)row[i].file
                      : c == RSI_DCP_TRANSFORMS ? (int64_t)row[i].transforms
                      : c == RSI_DCP_OFFSET     ? row[i].offset
                      : c == RSI_DCP_LENGTH     ? row[i].length
                                            : rsi_dcp_chunk_offset(m->meta, t, i)[c - RSI_DCP_BOX];
}

static void add_columns(making *m, const rsi_dcp_tensor *t, int first, int end)
{
    for (int c = first; c < end; c++) {
        take_column(m, t, c);
        for (size_t i = 0; c == RSI_DCP_FILE && i < t->nchunks; i++)
            m->value[i] = (int64_t)m->file[m->value[i]] - 1;
        for (size_t i = 0; c == RSI_DCP_TRANSFORMS && i < t->nchunks; i++)
            m->value[i] = transforms_of(m, (uint32_t)m->value[i]);
        rsi_packed_add(m->value, t->nchunks, m->out);
    }
}

static void add_tensor(making *m, const rsi_dcp_tensor *t)
{
    add_text(m, t->name);
    add_word(m, (uint64_t)t->dtype);
    add_word(m, t->requires_grad);
    add_word(m, t->nchunks); /* from here on, equal layouts have equal bytes */
    add_word(m, (uint64_t)t->ndim);
    for (int d = 0; d < t->ndim; d++)
        add_word(m, (uint64_t)t->shape[d]);
    add_columns(m, t, RSI_DCP_BOX, RSI_DCP_BOX + 2 * t->ndim);
    add_columns(m, t, 0, RSI_DCP_BOX); /* no longer */
}

static void add_all(making *m, const rsi_meta_id *of)
{
    const rsi_dcp_meta *meta = m->meta;
    const size_t        start = m->out->len;
    unsigned char       hash[RSI_HASH128_BYTES];

    add_word(m, RSI_CATALOGUE_MAGIC);
    add_word(m, 0); /* the length */
    add_word(m, of->bytes);
    rsi_bytes_add(m->out, of->hash, sizeof(of->hash));
    add_word(m, m->nfiles);
    add_word(m, m->ntransforms);
    add_word(m, meta->nitems);
    add_word(m, meta->npaths);
    add_word(m, meta->nskipped);
    add_word(m, meta->ntensors);
    add_word(m, meta->has_paths);
    add_choice(m, meta->checkpoint_id);
    add_choice(m, meta->save_id);
    add_choice(m, meta->version);
    add_files(m);
    add_items(m);
    for (size_t t = 0; t < meta->ntensors; t++)
        add_tensor(m, &meta->tensor[t]);
    if (m->out->lost)
        return;
    for (int b = 0; b < WORD; b++)
        m->out->at[start + WORD + (size_t)b] =
            (unsigned char)((m->out->len - start + sizeof(hash)) >> 8 * b);
    rsi_hash128(m->out->at + start, m->out->len - start, hash);
    rsi_bytes_add(m->out, hash, sizeof(hash));
}

static void number_all(making *m)
{
    const rsi_dcp_meta *meta = m->meta;

    for (size_t t = 0; t < meta->ntensors; t++) {
        take_column(m, &meta->tensor[t], RSI_DCP_FILE);
        for (size_t i = 0; i < meta->tensor[t].nchunks; i++)
            number_file(m, (uint32_t)m->value[i]);
        take_column(m, &meta->tensor[t], RSI_DCP_TRANSFORMS);
        for (size_t i = 0; i < meta->tensor[t].nchunks; i++)
            number_transforms(m, (uint32_t)m->value[i]);
    }
    for (size_t i = 0; i < meta->nitems; i++) {
        number_file(m, meta->item[i].row.file);
        number_transforms(m, meta->item[i].row.transforms);
    }
}

bool rsi_catalogue_worth(const rsi_dcp_meta *meta, uint64_t bytes)
{
    bool worth = bytes >= RSI_CATALOGUE_LEAST && rsi_hash128_available() &&
                 meta->nchunks / RSI_CATALOGUE_CHUNKS >= meta->ntensors;

    for (size_t t = 0; worth && t < meta->ntensors; t++)
        worth = !meta->tensor[t].whole;
    return worth;
}

bool rsi_catalogue_make(const rsi_dcp_meta *meta, const rsi_meta_id *of, rsi_bytes *out)
{
    making m = { .meta = meta, .out = out };
    size_t most = 0;

    for (size_t t = 0; t < meta->ntensors; t++)
        most = meta->tensor[t].nchunks > most ? meta->tensor[t].nchunks : most;
    m.file = rsi_calloc(meta->nfiles, 2 * sizeof(m.file[0]));
    m.transforms = rsi_calloc(meta->ntransforms, 2 * sizeof(m.transforms[0]));
    m.value = rsi_calloc(most, sizeof(m.value[0]));
    if (m.file && m.transforms && m.value) {
        m.file_order = m.file + meta->nfiles;
        m.transforms_order = m.transforms + meta->ntransforms;
        number_all(&m);
        add_all(&m, of);
    } else {
        out->lost = true;
    }
    rsi_free(m.file);
    rsi_free(m.transforms);
    rsi_free(m.value);
    return !out->lost;
}
