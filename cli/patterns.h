/* SPDX-License-Identifier: Apache-2.0 */
/* --include, --exclude and --rename of a command: which names they select and how they change them;
 * and warnings if one of them had no effect, which is a mistake. */
#ifndef PATTERNS_H
#define PATTERNS_H

#include "cli.h"
#include "rename.h"

typedef struct patterns {
    const char **include, **exclude, **rename; /* as given; no include: all */
    size_t       ninclude, nexclude, nrenamings;
    renaming    *renaming; /* [nrenamings] */
    char        *name;     /* the last renamed name */
    size_t       name_cap;
} patterns; /* zeroed: no options given */

/* Reads the three options. EXIT_DONE, or the exit code with the reason printed. */
int  patterns_read(const args *a, patterns *p);
void patterns_free(patterns *p);
bool patterns_want(const patterns *p, const char *name);
/* Valid until the next call. NULL: no memory. */
const char *patterns_rename(patterns *p, const char *name);

/* Adds the names of all tensors and objects of a checkpoint to *name, which grows; the caller frees
 * it. False: no memory. */
bool patterns_names(rsd_ckpt *ckpt, const char ***name, size_t *n);
/* Says that `what` ("no tensor", "nothing") in the first operand has this name, with the nearest
 * one there is; returns EXIT_NO. */
int patterns_missing(const args *a, rsd_ckpt *ckpt, const char *what, const char *glob);
/* Warns, with the nearest name, if a shell-style glob of the option matches none of the names. */
void patterns_warn_glob(const args *a, const char *option, const char *glob,
                        const char *const *name, size_t n);
/* The same for all --exclude, and for all --rename. */
void patterns_warn_exclude(const args *a, const patterns *p, const char *const *name, size_t n);
void patterns_warn_rename(const args *a, const patterns *p, const char *const *name, size_t n);

#endif
