/* SPDX-License-Identifier: Apache-2.0 */
/* Notes what system calls change (crash_note.c has the calls) and plays it again in part. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "crash_log.h"
#include "ckpt_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

crash_log crash;

void crash_need(bool true_that, const char *what)
{
    if (true_that)
        return;
    fprintf(stderr, "the disk that forgets: %s\n", what);
    abort();
}

/* ---- nodes ---- */

int crash_name(const char *text)
{
    for (int i = 0; i < crash.nnames; i++)
        if (strcmp(crash.name[i], text) == 0)
            return i;
    crash_need(crash.nnames < CRASH_NAMES && strlen(text) < CRASH_NAME, "too many names");
    strncpy(crash.name[crash.nnames], text, CRASH_NAME - 1);
    return crash.nnames++;
}

/* Inodes are used again, so the last one counts. */
int crash_node(ino_t ino)
{
    for (int i = crash.nnodes - 1; i >= 0; i--)
        if (crash.node[i].ino == ino)
            return i;
    return -1;
}

int crash_new_node(ino_t ino, bool folder)
{
    crash_need(crash.nnodes < CRASH_NODES, "too many files");
    crash.node[crash.nnodes] = (crash_node_t){ .ino = ino, .folder = folder };
    return crash.nnodes++;
}

static void set_entry(crash_node_t *folder, int name, int node)
{
    for (int i = 0; i < folder->nentries; i++) {
        if (folder->entry[i].name != name)
            continue;
        folder->entry[i].node = node;
        return;
    }
    assert_true(folder->nentries < CRASH_ENTRIES);
    folder->entry[folder->nentries++] = (crash_entry){ name, node };
}

static int get_entry(const crash_node_t *folder, int name)
{
    for (int i = 0; i < folder->nentries; i++)
        if (folder->entry[i].name == name)
            return folder->entry[i].node;
    return -1;
}

static void set_size(crash_node_t *file, size_t size)
{
    if (size <= file->size)
        return;
    if (size > file->cap) {
        file->bytes = realloc(file->bytes, size);
        assert_non_null(file->bytes);
        file->cap = size;
    }
    memset(file->bytes + file->size, 0, size - file->size);
    file->size = size;
}

/* What is in a folder when the recording starts. */
static void scan(int at, const char *path)
{
    DIR           *folder = opendir(path);
    struct dirent *e;

    assert_non_null(folder);
    while ((e = readdir(folder))) {
        char        below[512];
        struct stat st;
        int         node, fd;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        assert_true(snprintf(below, sizeof(below), "%s/%s", path, e->d_name) < (int)sizeof(below));
        assert_int_equal(lstat(below, &st), 0);
        node = crash_new_node(st.st_ino, S_ISDIR(st.st_mode));
        set_entry(&crash.node[at], crash_name(e->d_name), node);
        if (S_ISDIR(st.st_mode)) {
            scan(node, below);
            continue;
        }
        set_size(&crash.node[node], (size_t)st.st_size);
        fd = open(below, O_RDONLY);
        assert_true(fd >= 0);
        assert_int_equal(read(fd, crash.node[node].bytes, (size_t)st.st_size), st.st_size);
        close(fd);
    }
    closedir(folder);
}

void crash_start(const char *top)
{
    struct stat st;

    crash_end();
    assert_int_equal(stat(top, &st), 0);
    crash_new_node(st.st_ino, true);
    scan(0, top);
    crash.nfirst = crash.nnodes;
    crash.first = calloc((size_t)crash.nnodes, sizeof(crash.first[0]));
    assert_non_null(crash.first);
    for (int i = 0; i < crash.nnodes; i++) {
        crash.first[i] = crash.node[i];
        crash.node[i].bytes = NULL;
        crash.node[i].cap = 0;
    }
    crash.on = true;
}

void crash_end(void)
{
    for (int i = 0; i < crash.nnodes; i++)
        free(crash.node[i].bytes);
    for (int i = 0; i < crash.nfirst; i++)
        free(crash.first[i].bytes);
    for (int i = 0; i < crash.nchanges; i++)
        free(crash.change[i].bytes);
    free(crash.first);
    memset(&crash, 0, sizeof(crash));
}

int crash_changes(void)
{
    return crash.nchanges;
}

int crash_syncs(void)
{
    return crash.nsyncs;
}

void crash_fail_sync(int nth, bool for_ever)
{
    crash.fail_sync = nth ? crash.nsyncs + nth : 0;
    crash.fail_for_ever = for_ever;
}

/* ---- playing ---- */

static void play(const crash_change *c)
{
    crash_node_t *at = &crash.node[c->node];

    switch (c->kind) {
    case CRASH_SET:
        set_entry(at, c->name, c->child);
        if (c->other >= 0)
            set_entry(at, c->other, c->other_child);
        break;
    case CRASH_WRITE:
        set_size(at, c->off + c->len);
        memcpy(at->bytes + c->off, c->bytes, c->len);
        break;
    case CRASH_SIZE:
        set_size(at, c->len);
        break;
    default:
        break;
    }
}

static void restart(void)
{
    for (int i = 0; i < crash.nnodes; i++) {
        crash_node_t *n = &crash.node[i];

        n->size = 0;
        n->nentries = 0;
        if (i >= crash.nfirst)
            continue;
        n->nentries = crash.first[i].nentries;
        memcpy(n->entry, crash.first[i].entry, sizeof(n->entry));
        set_size(n, crash.first[i].size);
        if (n->size)
            memcpy(n->bytes, crash.first[i].bytes, n->size);
    }
}

/* True: the first sync after it came before the cut and went well. */
static bool durable(int i, int after)
{
    for (int k = i + 1; k < after; k++)
        if ((crash.change[k].kind == CRASH_SYNC || crash.change[k].kind == CRASH_BAD_SYNC) &&
            crash.change[k].node == crash.change[i].node)
            return crash.change[k].kind == CRASH_SYNC;
    return false;
}

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Which of `n` changes selection `s` keeps. */
static bool keeps(int s, int i, int n, bool all, uint64_t *random)
{
    if (all)
        return s >> i & 1;
    if (s == 0)
        return false;
    if (s <= n)
        return i == s - 1; /* only one */
    if (s <= 2 * n)
        return i != s - n - 1; /* all but one */
    if (s <= 3 * n)
        return i < s - 2 * n; /* those before, */
    if (s <= 4 * n)
        return i >= s - 3 * n - 1; /* those behind: reordered */
    return next_random(random) % 4 < 1 + (uint64_t)s % 3;
}

int crash_cut(int after, int few, int more, uint64_t seed, void (*visit)(void *arg), void *arg)
{
    static bool safe[CRASH_CHANGES]; /* [after] durable; the others may be lost */
    uint64_t    random = seed * 2654435761u + 88172645463325252u;
    int         n = 0, ways;
    bool        all;

    assert_true(after <= crash.nchanges);
    for (int i = 0; i < after; i++) {
        safe[i] = crash.change[i].kind >= CRASH_SYNC || durable(i, after);
        n += !safe[i];
    }
    all = n <= few;
    ways = all ? 1 << n : 4 * n + 1 + more;
    for (int s = 0; s < ways; s++) {
        int next = 0;

        restart();
        for (int i = 0; i < after; i++) {
            if (safe[i] || keeps(s, next, n, all, &random))
                play(&crash.change[i]);
            next += !safe[i];
        }
        visit(arg);
    }
    return ways;
}

/* ---- looking at what is left ---- */

static bool is_temp(int name)
{
    const char *dot = strstr(crash.name[name], ".tmp-");

    return (dot && strlen(dot) == 21) || strstr(crash.name[name], ".partial-");
}

bool crash_there(const char *name)
{
    int node = 0;

    while (node >= 0 && *name) {
        char   part[CRASH_NAME] = { 0 };
        size_t len = strcspn(name, "/");

        assert_true(len < sizeof(part));
        memcpy(part, name, len);
        node = get_entry(&crash.node[node], crash_name(part));
        name += len + (name[len] == '/');
    }
    return node >= 0;
}

static uint64_t mix(uint64_t sum, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < len; i++)
        sum = (sum ^ at[i]) * 1099511628211u;
    return sum;
}

/* The order of entries must not matter: their sums are added. Two levels are all there are. */
static uint64_t sum_of(int node, bool temps, int depth)
{
    const crash_node_t *n = &crash.node[node];
    uint64_t            sum = 14695981039346656037u;

    assert_true(depth < 8);
    if (!n->folder)
        return mix(sum, n->bytes, n->size);
    for (int i = 0; i < n->nentries; i++) {
        const crash_entry *e = &n->entry[i];
        uint64_t           below;

        if (e->node < 0 || (!temps && is_temp(e->name)))
            continue;
        below = sum_of(e->node, temps, depth + 1);
        sum += mix(below, crash.name[e->name], strlen(crash.name[e->name]));
    }
    return mix(sum, "/", 1);
}

uint64_t crash_sum(bool temps)
{
    return sum_of(0, temps, 0);
}

static void put_node(rsd_store *store, int node, const char *path, bool temps, int depth)
{
    const crash_node_t *n = &crash.node[node];

    assert_true(depth < 8);
    if (!n->folder) {
        fix_put(store, path, n->bytes, n->size);
        return;
    }
    if (*path)
        assert_int_equal(rsi_store_make_folder(store, path, NULL), RSD_OK);
    for (int i = 0; i < n->nentries; i++) {
        const crash_entry *e = &n->entry[i];
        char               below[512];

        if (e->node < 0 || (!temps && is_temp(e->name)))
            continue;
        assert_true(snprintf(below, sizeof(below), "%s%s%s", path, *path ? "/" : "",
                             crash.name[e->name]) < (int)sizeof(below));
        put_node(store, e->node, below, temps, depth + 1);
    }
}

void crash_put(rsd_store *store, bool temps)
{
    put_node(store, 0, "", temps, 0);
}
