/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of the zip reader: zip_read.c starts, loads windows and checks the
 * records' headers; zip_directory.c checks the end of the archive and its directory. */
#ifndef RSI_ZIP_READER_H
#define RSI_ZIP_READER_H

#include "base/bytes.h"
#include "format/zip.h"

/* Part of the source that is in memory. */
typedef struct rsi_zip_window {
    uint64_t       at;
    size_t         len; /* 0: nothing yet */
    unsigned char *bytes;
} rsi_zip_window;

/* A record's entry in the directory. */
typedef struct rsi_zip_entry {
    uint64_t at, size; /* of its header; of its data */
    uint64_t name;     /* where its name is in the directory */
    uint32_t crc;
    uint16_t name_len, flags;
} rsi_zip_entry;

enum {
    RSI_ZIP_WHOLE = 4096, /* a source up to this size is read at once */
    RSI_ZIP_EDGE = 1024,  /* else this much of each end: all but a lone tensor's data */
    RSI_ZIP_ROAM = 512    /* and this much elsewhere */
};

typedef struct rsi_zip_reader {
    const rsi_source *source;
    rsi_arena        *mem;
    rsi_zip_window    dir, head, tail, roam;
    uint64_t          dir_at, dir_end, count;
    rsi_zip_entry    *entry;      /* [count] */
    size_t            folder_len; /* with the slash */
    unsigned char     buf[RSI_ZIP_WHOLE];
} rsi_zip_reader;

/* The 64-bit fields of a header. */
typedef struct rsi_zip_extra {
    size_t        len;
    bool          found;
    unsigned char bytes[28]; /* two sizes, an offset, a disk */
} rsi_zip_extra;

/* An offset as shown in messages: in the file. */
static inline uint64_t rsi_zip_place(const rsi_zip_reader *r, uint64_t off)
{
    return r->source->start + off;
}

/* Bytes that are in a window, else NULL. */
static inline const unsigned char *rsi_zip_look(const rsi_zip_window *w, uint64_t off, size_t len)
{
    if (off < w->at || off - w->at > w->len || len > w->len - (off - w->at))
        return NULL;
    return w->bytes + (off - w->at);
}

/* `len` bytes at `off`, no more than a name and a header. Valid until the next view. */
rsd_err rsi_zip_view(rsi_zip_reader *r, uint64_t off, size_t len, const unsigned char **out,
                     rsd_error *err);

/* Reads the end records: where the directory is and how many records it has. Loads the window
 * `tail`. */
rsd_err rsi_zip_read_end(rsi_zip_reader *r, rsd_error *err);
/* Reads the entries, in the directory's order. Loads the window `dir`. */
rsd_err rsi_zip_read_directory(rsi_zip_reader *r, rsd_error *err);
/* Walks the extra fields of a header and keeps the one with 64-bit fields. Others, mostly padding,
 * are skipped. */
rsd_err rsi_zip_read_extra(rsi_zip_reader *r, uint64_t at, size_t len, rsi_zip_extra *out,
                           rsd_error *err);
/* Refuses encrypted and compressed records. `at` is where the flags are; the method follows
 * them. */
rsd_err rsi_zip_check_kind(const rsi_zip_reader *r, uint64_t at, unsigned flags, unsigned method,
                           rsd_error *err);

#endif
