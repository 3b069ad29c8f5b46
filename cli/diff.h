/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `reshard diff`: cmd_diff.c is the command and reports the result,
 * diff_names.c pairs the entries, diff_objects.c compares everything that is not a tensor. */
#ifndef DIFF_H
#define DIFF_H

#include "patterns.h"

/* A tensor or object of one side. */
typedef struct entry {
    char       *name; /* after --rename; for free */
    const char *own;  /* before --rename */
    size_t      i;    /* its number in the checkpoint */
    bool        object;
    bool        wanted; /* selected by --include and --exclude */
    bool        met;    /* present on the other side */
} entry;

typedef struct side {
    rsd_ckpt *ckpt;
    entry    *all; /* [n] tensors, then objects, in the checkpoint's order */
    size_t    n;
    entry   **sorted; /* [n] by name */
} side;

/* A value inside an object of one side that the other side stores separately, or lacks. */
typedef struct inside {
    int              side;
    size_t           object;
    const rsd_value *part;
    char            *name;  /* for free */
    entry           *other; /* NULL: missing */
} inside;

/* Something that could not be compared, and why. */
typedef struct unsure {
    char *name;
    char  why[160];
} unsure;

typedef struct diff {
    const args *a;
    side        side[2];
    patterns    patterns;
    bool        json, quiet, names_only, cast;
    tolerance   tol;
    json_out    out;
    size_t      different;
    unsure     *unsure; /* [nunsure] */
    size_t      nunsure, unsure_cap;
    pair       *pair; /* [npairs] tensors whose values are to be compared */
    size_t      npairs;
    inside     *inside; /* [ninside] */
    size_t      ninside, inside_cap;
    rsd_values *values;  /* own the values in `inside` */
    size_t      objects; /* number compared */
    uint64_t    bytes;   /* of compared tensors inside objects */
} diff;

/* ---- cmd_diff.c ---- */

int diff_no_memory(const diff *d);
/* `what` is for scripts. a and b NULL: only one side has it. */
void diff_say(diff *d, bool object, const char *what, const char *name, const char *a,
              const char *b);
void diff_say_values(diff *d, const pair *p);
/* Records something that was not compared. */
int diff_unsure(diff *d, const char *name, const char *why);

/* ---- diff_names.c ---- */

/* Lists both sides; refuses a --rename that maps two names to one. */
int diff_list(diff *d);
/* Pairs the entries of both sides. */
int  diff_match(diff *d);
void diff_names_free(diff *d);
bool holds_objects(const rsd_ckpt *ckpt);

/* ---- diff_objects.c ---- */

/* Finds objects that one side stores whole and the other in parts: a dict or tuple that DCP stores
 * as one object is opened in a torch.save file. */
int diff_unfold(diff *d);
/* Compares objects and their contents. */
int diff_objects(diff *d);

#endif
