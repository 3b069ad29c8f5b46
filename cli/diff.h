/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `reshard diff` share: cmd_diff.c is the command and tells what was found,
 * diff_names.c finds what belongs together, diff_objects.c compares what is no tensor. */
#ifndef DIFF_H
#define DIFF_H

#include "patterns.h"

/* A tensor or an object of one side. */
typedef struct entry {
    char       *name; /* after --rename; for free */
    const char *own;  /* before */
    size_t      i;    /* its number in the checkpoint */
    bool        object;
    bool        wanted; /* by --include and --exclude */
    bool        met;    /* the other side has it */
} entry;

typedef struct side {
    rsd_ckpt *ckpt;
    entry    *all; /* [n] tensors, then objects, in the checkpoint's order */
    size_t    n;
    entry   **sorted; /* [n] by name */
} side;

/* A value inside an object of one side that the other side holds for itself, or does not hold. */
typedef struct inside {
    int              side;
    size_t           object;
    const rsd_value *part;
    char            *name;  /* for free */
    entry           *other; /* NULL: it has none */
} inside;

/* What could not be compared, and why. */
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
    rsd_values *values;  /* of what is inside */
    size_t      objects; /* that were compared */
    uint64_t    bytes;   /* of tensors inside objects that were compared */
} diff;

/* ---- cmd_diff.c ---- */

int diff_no_memory(const diff *d);
/* `what` is for scripts. Without a and b: only one of the two has it. */
void diff_say(diff *d, bool object, const char *what, const char *name, const char *a,
              const char *b);
void diff_say_values(diff *d, const pair *p);
/* Notes something that was not compared. */
int diff_unsure(diff *d, const char *name, const char *why);

/* ---- diff_names.c ---- */

/* Lists both sides; refuses a --rename that makes one name of two. */
int diff_list(diff *d);
/* Finds what belongs together. */
int  diff_match(diff *d);
void diff_names_free(diff *d);
bool holds_objects(const rsd_ckpt *ckpt);

/* ---- diff_objects.c ---- */

/* Looks for what an object of one side holds as a whole and the other side in parts: a dict or a
 * tuple that DCP keeps as one object is opened in a torch.save file. */
int diff_unfold(diff *d);
/* Compares objects, and what is inside them. */
int diff_objects(diff *d);

#endif
