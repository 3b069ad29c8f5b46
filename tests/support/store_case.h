/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of all stores share: a store of each kind in turn, files put there and looked at.
 * Everything asserts. */
#ifndef STORE_CASE_H
#define STORE_CASE_H

#include "store/store.h"

typedef struct store_backend {
    const char *name;
    int         kind; /* 0: memory, else rsi_file_io */
} store_backend;

/* Runs a group of tests on memory, files with threads, files with io_uring; how many failed. */
int store_each_backend(int (*run)(const store_backend *b));
/* One of the group's tests. */
#define STORE_TEST(b, test)                                                                        \
    {                                                                                              \
#test, test, store_case_open, store_case_close, (void *)(uintptr_t)(b)                     \
    }

typedef struct store_case {
    rsd_store *store;
    int64_t    bytes; /* of memory before */
    char       dir[64];
    rsd_error  err;
} store_case;

/* For cmocka: *state is a store_backend before, a store_case then. */
int store_case_open(void **state);
/* Empties the folder and checks that nothing leaked. */
int store_case_close(void **state);

#define ok(call) store_assert_ok((call), f)
void store_assert_ok(rsd_err rc, const store_case *f);

/* A file with these bytes. */
void   store_put(store_case *f, const char *name, const void *bytes, size_t len);
void   store_put_text(store_case *f, const char *name, const char *text);
void   store_put_in(store_case *f, const rsi_tree *tree, const char *name, const char *text);
void   store_assert_text(store_case *f, const char *name, const char *text);
void   store_assert_missing(store_case *f, const char *name);
size_t store_entries(store_case *f, const char *folder);

/* The byte that position `at` of test files has. */
unsigned char store_pattern(uint64_t at);
/* For rsi_free. */
unsigned char *store_pattern_bytes(uint64_t from, size_t len);

#endif
