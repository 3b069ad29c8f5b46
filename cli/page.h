/* SPDX-License-Identifier: Apache-2.0 */
/* The page that --html writes: its fixed parts, made by the build from page.html, and how a command
 * fills it. page_begin, then page_tensor for each, page_objects once, page_rank for each rank of a
 * plan, page_end. */
#ifndef PAGE_H
#define PAGE_H

#include "cli.h"

extern const char page_head[], page_tail[]; /* before and behind the data */

typedef struct page page;

/* What a page is about. */
typedef struct page_about {
    const char *path, *rules; /* rules NULL: of a checkpoint alone, else of a plan */
    rsd_format  format;
} page_about;

/* "-" is stdout. A file appears under its name when it is complete. EXIT_DONE, or the code to end
 * with and the reason printed, here and below. */
int page_begin(const args *a, const char *file, const page_about *about, page **out);
/* `after` is NULL unless it is a plan. */
int page_tensor(page *p, rsd_ckpt *ckpt, size_t t, const rsd_layout *after);
/* The n objects of these numbers, NULL: the first n; long values are shortened. */
int page_objects(page *p, rsd_ckpt *ckpt, size_t n, const size_t *which);
/* needs, reads, keeps, sends, receives, in bytes; the last three -1 if they are not known. */
void page_rank(page *p, const int64_t bytes[5]);
/* Writes the rest and gives the file its name, unless `code` says that something went wrong; frees
 * the page. `code`, or that of a new trouble. Accepts NULL. */
int page_end(page *p, int code);

#endif
