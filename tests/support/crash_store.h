/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that forgets. A table of system calls does everything for real below one folder and
 * notes each change; afterwards the notes are played again up to a moment at which the power is
 * cut, with any selection of the changes that no sync had made durable by then.
 *
 * The rules are those that POSIX promises and no more:
 *  - a sync of a file keeps what was written to it and its size, not its name;
 *  - a sync of a folder keeps the names that were made, removed and exchanged in it so far, not
 *    what they stand for;
 *  - each change of names is there or not there, whole; each KiB of a write likewise;
 *  - everything else may be kept or lost, one without the other and in any order;
 *  - after a sync that failed nobody knows, and no later sync of that file or folder helps.
 * One recording at a time; rank threads may write to it together. Everything asserts. */
#ifndef CRASH_STORE_H
#define CRASH_STORE_H

#include "base/error.h"
#include "store/sys.h"

/* The calls that are noted. io_uring is refused, so that writes come as calls. */
const rsi_sys *crash_sys(void);

/* From now on changes below the folder are noted; what is there already is durable. */
void crash_start(const char *top);
void crash_end(void); /* forgets all */
/* The nth sync from now on (1: the next; 0: none), or it and all after it, fails with EIO. */
void crash_fail_sync(int nth, bool for_ever);

int crash_changes(void); /* that were noted */
int crash_syncs(void);   /* that were asked for */

/* The power is cut after so many changes and syncs. Calls visit with the tree in each state that it
 * may be left in: all of them if at most `few` changes are not durable, else the simple ones and
 * `more` chosen at random from `seed`. Returns how many. */
int crash_cut(int after, int few, int more, uint64_t seed, void (*visit)(void *arg), void *arg);

/* ---- within visit: the state that is left ---- */

bool crash_there(const char *name); /* something has this name; '/' between folders */
/* One number for all names and bytes. `temps`: also of temporary names and of unfinished work. */
uint64_t crash_sum(bool temps);
/* Writes it all into an empty store. */
void crash_put(rsd_store *store, bool temps);

#endif
