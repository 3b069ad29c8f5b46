/* SPDX-License-Identifier: Apache-2.0 */
/* The zip archives that torch.save writes: where each record's data lie. Reads the directory and
 * the headers, never the data, so that a record can then be read in part. Records are stored, not
 * compressed. The writer is in zip_write.h. */
#ifndef RSI_ZIP_H
#define RSI_ZIP_H

#include "base/arena.h"
#include "format/source.h"

/* Fixed parts of the format, shared with the writer; all its numbers are little-endian. */
enum {
    RSI_ZIP_LOCAL_SIG = 0x04034b50,
    RSI_ZIP_DESCRIPTOR_SIG = 0x08074b50,
    RSI_ZIP_CENTRAL_SIG = 0x02014b50,
    RSI_ZIP_END64_SIG = 0x06064b50,
    RSI_ZIP_LOCATOR_SIG = 0x07064b50,
    RSI_ZIP_END_SIG = 0x06054b50,

    RSI_ZIP_LOCAL = 30,      /* size of a record's header, without the name */
    RSI_ZIP_CENTRAL = 46,    /* size of a directory entry, without the name */
    RSI_ZIP_DESCRIPTOR = 16, /* size of the trailer after the data: CRC and sizes */
    RSI_ZIP_DESCRIPTOR64 = 24,
    RSI_ZIP_END64 = 56,
    RSI_ZIP_LOCATOR = 20,
    RSI_ZIP_END = 22,

    RSI_ZIP_EXTRA64 = 1,        /* the extra field with 64-bit sizes */
    RSI_ZIP_FLAG_AFTER = 0x008, /* CRC and sizes follow the data */
    RSI_ZIP_FLAG_UTF8 = 0x800,

    RSI_ZIP_NAME_MAX = 1024 /* bytes of a name: torch's are a file's name and a few characters */
};

typedef struct rsi_zip_record {
    const char *name; /* inside the folder: "data.pkl", "data/0" */
    uint64_t    data; /* offset of the data in the source */
    uint64_t    size;
    uint32_t    crc32;  /* from the archive; 0 if torch was told to omit it */
    uint16_t    method; /* 0: stored; anything else was refused */
} rsi_zip_record;

typedef struct rsi_zip {
    const char     *folder; /* "archive" */
    rsi_zip_record *record; /* [n] by place in the file */
    uint32_t       *sorted; /* [n] indices into `record`, by name */
    size_t          n;
    int             version;    /* of torch's file format, 1 to 10 */
    bool            big_endian; /* from the record `byteorder`; little if missing */
    /* The bytes of `data.pkl` if they were read along with the structure, else NULL: saves a read
     * per item. */
    const unsigned char *pickle;
    size_t               pickle_len;
} rsi_zip;

/* Finds the records of an archive that fills the source exactly, and checks all of its structure:
 * see zip_read.c for the rules. An item of one tensor takes two reads of 1 KiB, or one read if it
 * has 4 KiB or less. The result lives in `mem`. */
rsd_err rsi_zip_read(const rsi_source *source, rsi_arena *mem, rsi_zip *out, rsd_error *err);
/* The records up to the first one of "data/", found from the headers at the front of an archive of
 * which only the first `len` bytes are known; the size of the last record is 0. False if there is
 * none, or the headers are not as torch writes them. The rest of the archive may contradict it. */
bool rsi_zip_front(const unsigned char *bytes, size_t len, rsi_arena *mem, rsi_zip *out);
/* Fills `sorted` from the records; refuses duplicate names. */
rsd_err rsi_zip_sort(const rsi_source *source, rsi_zip *zip, rsd_error *err);
/* NULL if there is none; `name` is inside the folder. */
const rsi_zip_record *rsi_zip_find(const rsi_zip *zip, const char *name);

#endif
