/* SPDX-License-Identifier: Apache-2.0 */
/* One row of the table that tools/run-faults prints. */
#ifndef FAULT_ROW_H
#define FAULT_ROW_H

enum {
    FAULT_HUNG = 30,       /* seconds that nothing may take */
    FAULT_NOT_COUNTED = -1 /* in the last two columns: there is nothing to be counted */
};

typedef struct fault_row {
    const char *fault;
    int         tried;
    int         found_old, found_new;
    int         refused; /* it said so */
    int         lost;    /* neither old nor new */
    int         silent;  /* it said that all is well, and what was found is not what it promised */
    int         hung;    /* took longer than FAULT_HUNG */
} fault_row;

/* One line, to stdout and to the end of the file RESHARD_FAULTS_TABLE, if there is that name. */
void fault_row_print(const fault_row *row);

#endif
