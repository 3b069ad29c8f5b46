/* SPDX-License-Identifier: Apache-2.0 */
/* Builds small zip archives, good ones and, by patching, broken ones. Independent of the writer in
 * src/. */
#ifndef ZIP_BUILD_H
#define ZIP_BUILD_H

#include "format/zip.h"

enum { ZIP_BUILD_RECORDS = 8 };

typedef struct zip_given {
    const char *name; /* with its folder */
    const char *data;
    size_t      name_len, data_len; /* 0: up to the NUL */
} zip_given;

/* How to build; zeroed: as torch does. */
typedef struct zip_style {
    size_t descriptor;     /* bytes of it: 0 for 16, or 12, 20, 24 */
    bool   sizes_in_front; /* no descriptor at all */
    bool   wide;           /* sizes and offsets in zip64 fields */
    bool   plain_end;      /* no zip64 end record */
    size_t prefix, gap; /* bytes of junk before the first and the second record, offsets adjusted */
    size_t before_end;  /* bytes of junk behind the directory */
    const char *extra;  /* an extra field of the last entry of the directory */
    size_t      extra_len;
} zip_style;

typedef struct zip_built {
    unsigned char bytes[16384];
    size_t        len, n;
    size_t        local[ZIP_BUILD_RECORDS], data[ZIP_BUILD_RECORDS]; /* where things are */
    size_t        behind[ZIP_BUILD_RECORDS];                         /* the descriptor */
    size_t        central[ZIP_BUILD_RECORDS];
    size_t        dir, end64, locator, end;
} zip_built;

/* data.pkl, byteorder, data/0, version; these are their numbers. */
enum { Z_PICKLE, Z_BYTEORDER, Z_DATA, Z_VERSION, Z_COUNT };
extern const zip_given zip_usual[Z_COUNT];

/* NULL and 0: the usual records; style NULL: torch's. */
void zip_build(zip_built *zip, const zip_given *given, size_t n, const zip_style *style);
/* Overwrites `width` bytes at `at` with a number. */
void zip_patch(zip_built *zip, size_t at, int width, uint64_t value);
/* Puts bytes in, or takes them out, without adjusting anything. */
void zip_insert(zip_built *zip, size_t at, const void *bytes, size_t len);

/* It is read, as a part of a larger file. */
void zip_accept(const zip_built *zip, rsi_arena *mem, rsi_zip *out);
/* It is refused with `code`; the message has `text` and names the file. */
void zip_refuse(const zip_built *zip, rsd_err code, const char *text);

#endif
