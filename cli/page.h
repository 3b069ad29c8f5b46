/* SPDX-License-Identifier: Apache-2.0 */
/* The page that --html writes: its fixed parts, made by the build from page.html, and the functions
 * that fill it: page_begin, then page_tensor for each tensor, page_objects once, page_rank for each
 * rank of a plan, page_end. */
#ifndef PAGE_H
#define PAGE_H

#include "cli.h"

extern const char page_head[], page_tail[]; /* before and after the data */

typedef struct page page;

/* The subject of a page. */
typedef struct page_about {
    const char *path, *rules; /* rules NULL: only a checkpoint; else a plan */
    rsd_format  format;
} page_about;

/* "-" is stdout. A file appears under its name only once complete. Here and below: EXIT_DONE, or
 * the exit code with the reason printed. */
int page_begin(const args *a, const char *file, const page_about *about, page **out);
/* `after` is NULL except for a plan. */
int page_tensor(page *p, rsd_ckpt *ckpt, size_t t, const rsd_layout *after);
/* Writes the n objects with these numbers; NULL: the first n. Long values are shortened. */
int page_objects(page *p, rsd_ckpt *ckpt, size_t n, const size_t *which);
/* needs, reads, keeps, sends, receives, in bytes; the last three are -1 if unknown. */
void page_rank(page *p, const int64_t bytes[5]);
/* Writes the rest and renames the file to its final name, unless `code` is an error; frees the
 * page. Returns `code`, or that of a new error. Accepts NULL. */
int page_end(page *p, int code);

#endif
