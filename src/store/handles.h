/* SPDX-License-Identifier: Apache-2.0 */
/* Files to be read that are open in this process. Only so many of them keep their descriptors: a
 * file that nobody reads from at the moment is closed when others are opened, and opened again when
 * it is needed. So a checkpoint may have any number of files. store_open.c opens and closes them.
 */
#ifndef RSI_HANDLES_H
#define RSI_HANDLES_H

#include "store/store.h"

/* The file has been opened: from now on it may be closed when it is idle. Closes others if there
 * are too many. */
void rsi_handles_add(rsi_file *file);
/* A file that was added will be closed for good; nobody uses it any more. */
void rsi_handles_drop(rsi_file *file);

/* True: the file is open and stays so until rsi_handle_leave. False: it is closed. */
bool rsi_handle_take(rsi_file *file);
void rsi_handle_leave(rsi_file *file);

/* Descriptors have run out: closes files that are idle, or waits a moment for some to be. False:
 * there are none. `tries` counts the calls of one request, so that it ends. Leaves errno alone. */
bool rsi_handles_spare(int tries);

/* store_open.c: closes an idle file so that it can be opened again. */
void rsi_file_shut(rsi_file *file);

#endif
