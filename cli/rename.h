/* SPDX-License-Identifier: Apache-2.0 */
/* Renames by 's/RE/TO/'. */
#ifndef RENAME_H
#define RENAME_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct renaming {
    regex_t re;
    char   *to;  /* \1 .. \9 and & stand for what matched */
    bool    all; /* s/RE/TO/g: every match, not just the first */
    bool    made;
} renaming;

/* NULL, or what is wrong with the text (static). rename_free frees it, whether zeroed or parsed. */
const char *rename_parse(renaming *r, const char *text);
void        rename_free(renaming *r);
/* The name after all n renamings in turn, in *buf, which grows. NULL: no memory. */
const char *rename_apply(const renaming *r, size_t n, const char *name, char **buf, size_t *cap);

#endif
