/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this process has open for reading. Only a limited number keep their descriptors: an
 * idle file is closed when others are opened, and reopened when needed. So a checkpoint may have
 * any number of files. store_open.c opens and closes them. */
#ifndef RSI_HANDLES_H
#define RSI_HANDLES_H

#include "store/store.h"

/* Adds a newly opened file: from now on it may be closed while idle. Closes others if there are too
 * many. */
void rsi_handles_add(rsi_file *file);
/* Removes an added file, which is about to be closed for good and has no users left. */
void rsi_handles_drop(rsi_file *file);

/* True: the file is open and stays so until rsi_handle_leave. False: it is closed. */
bool rsi_handle_take(rsi_file *file);
void rsi_handle_leave(rsi_file *file);

/* This thread opened (1) or closed (-1) a file that it writes. */
void rsi_handles_writing(int change);

/* Around the opening of a file by its name. Meanwhile a thread has the file's folder open too, so
 * only a few have their turn at a time: otherwise folders could take the descriptors that all of
 * them wait for. A thread that writes files already does not wait for a turn. */
void rsi_handles_turn_begin(bool to_write);
void rsi_handles_turn_end(void);

/* Descriptors have run out: closes an idle file, or waits a moment for other threads to close
 * theirs. False: nothing to close or wait for. To write, the last open file is left alone, because
 * threads that have a file to write may need it to read from; and a thread that writes files
 * already doesn't wait, because it can finish those. `tries` counts the calls of one request, so
 * that it ends. Preserves errno. */
bool rsi_handles_spare(bool to_write, int tries);

/* store_open.c: closes an idle file so that it can be reopened. */
void rsi_file_shut(rsi_file *file);

#endif
