/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the store of files share: a folder with a store whose calls can fail and one
 * whose calls don't, and short ways to put and find files. */
#ifndef FILE_CASE_H
#define FILE_CASE_H

#include "store/file.h"
#include "store/store.h"
#include "sys_faults.h"

typedef struct file_case {
    rsd_store *store;
    rsd_store *plain; /* the same folder, with calls that don't fail */
    char       dir[64];
    rsd_error  err;
} file_case;

/* For cmocka: *state becomes a file_case. */
int file_case_open(void **state);
/* For tests that save hundreds of times: in memory, if there is such a place. */
int file_case_open_fast(void **state);
int file_case_close(void **state);
#define FILE_TEST(test) cmocka_unit_test_setup_teardown(test, file_case_open, file_case_close)
#define FAST_TEST(test) cmocka_unit_test_setup_teardown(test, file_case_open_fast, file_case_close)

/* Another store at the same folder, queues on io_uring or on one thread. */
rsd_store *file_another(file_case *f, rsi_file_io io);
/* The path of a name. */
void file_in_dir(const file_case *f, const char *name, char *path, size_t cap);

rsd_err file_put(rsd_store *store, const char *name, const char *text, rsd_error *err);
rsd_err file_put_in(rsd_store *store, const rsi_tree *tree, const char *name, const char *text,
                    rsd_error *err);
/* Publishes "ck" with the text in "x". */
rsd_err file_publish(rsd_store *store, const char *text, uint32_t flags, rsd_error *err);
bool    file_holds(rsd_store *store, const char *name, const char *text);
int     file_entries(const file_case *f); /* at the top */
/* A visitor of entries that counts them in the int `arg`. */
rsd_err file_count(void *arg, const rsd_entry *entry, rsd_error *err);
int     file_open_fds(void); /* of this process */

#endif
