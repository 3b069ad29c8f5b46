/* SPDX-License-Identifier: Apache-2.0 */
/* --include, --exclude and --rename of a command: what they leave and what they call it; and
 * warnings where one of them did nothing, which is a slip of the pen. */
#ifndef PATTERNS_H
#define PATTERNS_H

#include "cli.h"
#include "rename.h"

typedef struct patterns {
    const char **include, **exclude, **rename; /* as they were given; none: all is included */
    size_t       ninclude, nexclude, nrenamings;
    renaming    *renaming; /* [nrenamings] */
    char        *name;     /* what the last one was renamed to */
    size_t       name_cap;
} patterns; /* zeroed: nothing was given */

/* Reads the three options. EXIT_DONE, or the code to end with and the reason printed. */
int  patterns_read(const args *a, patterns *p);
void patterns_free(patterns *p);
bool patterns_want(const patterns *p, const char *name);
/* Until the next call. NULL: no memory. */
const char *patterns_rename(patterns *p, const char *name);

/* Adds all names of a checkpoint, tensors and objects, to *name, which grows and is for free.
 * False: no memory. */
bool patterns_names(rsd_ckpt *ckpt, const char ***name, size_t *n);
/* Warns if a shell pattern of the option matches none of the names, with the one that is nearest.
 */
void patterns_warn_glob(const args *a, const char *option, const char *glob,
                        const char *const *name, size_t n);
/* The same for all --exclude, and for all --rename. */
void patterns_warn_exclude(const args *a, const patterns *p, const char *const *name, size_t n);
void patterns_warn_rename(const args *a, const patterns *p, const char *const *name, size_t n);

#endif
