/* SPDX-License-Identifier: Apache-2.0 */
/* What crash_note.c writes down and crash_store.c plays. */
#ifndef CRASH_LOG_H
#define CRASH_LOG_H

#include "crash_store.h"

#include <sys/types.h>

enum {
    CRASH_NAMES = 256,
    CRASH_NAME = 96,
    CRASH_NODES = 256,
    CRASH_ENTRIES = 24, /* of a folder, over all its life */
    CRASH_CHANGES = 4096,
    CRASH_PIECE = 1024 /* bytes of a write that are kept or lost together */
};

typedef struct crash_entry {
    int name; /* number in `name` */
    int node; /* -1: removed */
} crash_entry;

/* A file or folder. */
typedef struct crash_node_t {
    ino_t          ino;
    bool           folder;
    int            nentries;
    crash_entry    entry[CRASH_ENTRIES];
    unsigned char *bytes;
    size_t         size, cap;
} crash_node_t;

typedef enum crash_kind {
    CRASH_SET, /* names of a folder: `name` is `child`, and `other` is `other_child` */
    CRASH_WRITE,
    CRASH_SIZE, /* a file has at least `len` bytes */
    CRASH_SYNC,
    CRASH_BAD_SYNC
} crash_kind;

typedef struct crash_change {
    crash_kind     kind;
    int            node;                            /* the file, or the folder that has the names */
    int            name, child, other, other_child; /* other -1: none; a child -1: removed */
    size_t         off, len;
    unsigned char *bytes; /* [len] */
} crash_change;

typedef struct crash_log {
    bool          on;
    int           nnames, nnodes, nfirst, nchanges, nsyncs;
    int           fail_sync; /* the sync that fails; 0: none */
    bool          fail_for_ever;
    char          name[CRASH_NAMES][CRASH_NAME];
    crash_node_t  node[CRASH_NODES]; /* node 0: the top */
    crash_node_t *first;             /* [nfirst] as they were at the start */
    crash_change  change[CRASH_CHANGES];
} crash_log;

extern crash_log crash;

/* For the threads of ranks, in which cmocka's assertions don't work. */
void crash_need(bool true_that, const char *what);
int  crash_name(const char *text); /* its number */
int  crash_node(ino_t ino);        /* -1: not below the top */
int  crash_new_node(ino_t ino, bool folder);

#endif
