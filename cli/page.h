/* SPDX-License-Identifier: Apache-2.0 */
/* The page that --html writes: its fixed parts, made by the build from page.html, and the functions
 * that fill it: page_begin, then page_tensor or page_made for each tensor, page_dropped,
 * page_objects once, page_rank for each rank of a plan, page_end. */
#ifndef PAGE_H
#define PAGE_H

#include "cli.h"

#include <reshard/reshard_recipe.h>

extern const char page_head[], page_tail[]; /* before and after the data */

typedef struct page page;

/* The subject of a page. */
typedef struct page_about {
    const char *path, *rules; /* rules NULL: only a checkpoint; else a plan */
    rsd_format  format;
    const char *recipe; /* that makes the tensors; NULL: they are the checkpoint's */
} page_about;

/* A tensor that a recipe makes. */
typedef struct page_recipe {
    const rsd_made   *made;
    const char       *reads; /* [{"rank", "needs", "reads", "pieces"}], JSON */
    const rsd_layout *after;
} page_recipe;

/* "-" is stdout. A file appears under its name only once complete. Here and below: EXIT_DONE, or
 * the exit code with the reason printed. */
int page_begin(const args *a, const char *file, const page_about *about, page **out);
/* `after` is NULL except for a plan. */
int page_tensor(page *p, rsd_ckpt *ckpt, size_t t, const rsd_layout *after);
/* Counts the bytes that a source tensor has in each file. */
int page_source(page *p, rsd_ckpt *ckpt, size_t t);
int page_made(page *p, rsd_ckpt *ckpt, const page_recipe *r);
/* After all tensors: a source tensor that the rule in this line drops. */
void page_dropped(page *p, const char *name, int32_t line);
/* Writes the n objects with these numbers; NULL: the first n. Long values are shortened. */
int page_objects(page *p, rsd_ckpt *ckpt, size_t n, const size_t *which);
/* needs, reads, keeps, sends, receives, in bytes; the last three are -1 if unknown. */
void page_rank(page *p, const int64_t bytes[5]);
/* Writes the rest and renames the file to its final name, unless `code` is an error; frees the
 * page. Returns `code`, or that of a new error. Accepts NULL. */
int page_end(page *p, int code);

#endif
