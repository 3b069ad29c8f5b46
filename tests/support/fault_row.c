/* SPDX-License-Identifier: Apache-2.0 */
#include "fault_row.h"

#include <stdio.h>
#include <stdlib.h>

static const char *number(int n, char text[16])
{
    snprintf(text, 16, "%d", n);
    return n == FAULT_NOT_COUNTED ? "-" : text;
}

void fault_row_print(const fault_row *row)
{
    const char *path = getenv("RESHARD_FAULTS_TABLE");
    FILE       *file = path ? fopen(path, "a") : NULL;
    char        line[160], silent[16], hung[16];

    snprintf(line, sizeof(line), "%-52s %7d %7d %7d %7d %7d %7s %7s\n", row->fault, row->tried,
             row->found_old, row->found_new, row->refused, row->lost, number(row->silent, silent),
             number(row->hung, hung));
    fputs(line, stdout);
    fflush(stdout);
    if (file) {
        fputs(line, file);
        fclose(file);
    }
}
