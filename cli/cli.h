/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of the tool share. Each command is one file with one function. */
#ifndef CLI_H
#define CLI_H

#include <reshard/reshard.h>

#include <stdio.h>

/* What the tool ends with; scripts rely on it. */
enum {
    EXIT_DONE = 0,
    EXIT_NO = 1,        /* the answer is no: damage, a difference */
    EXIT_MISUSE = 2,    /* wrong arguments */
    EXIT_COULD_NOT = 3, /* I/O, memory, ranks */
    EXIT_INVALID = 4    /* not a valid checkpoint */
};

int cmd_demo(int argc, char **argv);

/* draw.c */
/* Colours are for people: on if `out` is a terminal and NO_COLOR is not set. */
bool draw_in_colour(FILE *out);
/* Who holds which part of a tensor of one or two dimensions: a character for each rank. */
void draw_layout(FILE *out, const rsd_layout *layout, bool colour);

#endif
