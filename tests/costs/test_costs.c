/* SPDX-License-Identifier: Apache-2.0 */
/* test_costs.c - no case costs more than tests/costs.csv says, by 3 %.
 *
 *     test_costs            compares all cases
 *     test_costs --print    prints a line for each: case and counts
 *     test_costs --compiler prints what instructions depend on
 *     test_costs CASE       runs one, for tools/costs, which counts its instructions */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cost_case.h"
#include "skip_because.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE     "mesh x=1; * replicate"
#define ROWS4   "mesh tp=4; *norm* replicate; * shard(0)@tp"
#define COLS4   "mesh tp=4; *norm* replicate; * shard(1)@tp"
#define COLS2   "mesh tp=2; *norm* replicate; * shard(1)@tp"
#define GRID    "mesh dp=2 tp=2; *norm* replicate; * shard(0)@dp shard(1)@tp"
#define ALL4    "mesh tp=4; * replicate"
#define PARTIAL "mesh tp=4; * partial(sum)@tp"

#ifdef RSI_HAVE_XXHASH
enum { WITH_CHECKSUMS = 1 };
#else
enum { WITH_CHECKSUMS = 0 };
#endif
#ifdef __OPTIMIZE__
#define BUILD "optimized"
#else
#define BUILD "not optimized"
#endif
enum { COUNTS = 5 };

static const cost_case cases[] = {
    /* name, what, ranks, rules, path, the case that makes the source */
    { "save.dcp.one", COST_SAVE, 0, ONE, .path = "one" },
    { "save.dcp.rows", COST_SAVE, 4, ROWS4, .path = "rows" },
    { "save.dcp.rows.messages", COST_SAVE, 4, ROWS4, .path = "rows", .messages = true },
    { "save.dcp.grid", COST_SAVE, 4, GRID, .path = "grid" },
    { "save.dcp.bare", COST_SAVE, 4, ROWS4, .path = "bare", .no_checksums = true },
    { "save.dcp.small", COST_SAVE, 4, ROWS4, .path = "small", .small = true },
    { "save.dcp.again", COST_SAVE, 4, COLS4, "rows", .source = "save.dcp.rows", .overwrite = true },
    { "save.st.one", COST_SAVE, 0, ONE, .path = "one.safetensors" },
    { "save.st.rows", COST_SAVE, 4, ROWS4, .path = "rows.safetensors" },
    { "save.st.folder", COST_SAVE, 0, ONE, .path = "folder", .shard_size = 1 << 20 },
    { "save.st.distributed", COST_SAVE, 4, ROWS4, .path = "parts", .distributed = true },
    { "save.pt.one", COST_SAVE, 0, ONE, .path = "one.pt" },
    { "save.pt.cols", COST_SAVE, 4, COLS4, .path = "cols.pt" },

    { "load.dcp.same", COST_LOAD, 4, ROWS4, "rows", .source = "save.dcp.rows" },
    { "load.dcp.cols", COST_LOAD, 4, COLS4, "rows", .source = "save.dcp.rows" },
    { "load.dcp.cols.messages", COST_LOAD, 4, COLS4, "rows", .source = "save.dcp.rows",
      .messages = true },
    { "load.dcp.fewer", COST_LOAD, 2, COLS2, "rows", .source = "save.dcp.rows" },
    { "load.dcp.all", COST_LOAD, 4, ALL4, "rows", .source = "save.dcp.rows" },
    { "load.dcp.all.messages", COST_LOAD, 4, ALL4, "rows", .source = "save.dcp.rows",
      .messages = true },
    { "load.dcp.one", COST_LOAD, 0, ONE, "rows", .source = "save.dcp.rows" },
    { "load.dcp.small", COST_LOAD, 4, ROWS4, "small", .source = "save.dcp.small", .small = true },
    { "load.dcp.bare", COST_LOAD, 4, ROWS4, "bare", .source = "save.dcp.bare" },
    { "load.dcp.cast", COST_LOAD, 0, ONE, "one", .source = "save.dcp.one", .cast = true },
    { "load.st.rows", COST_LOAD, 4, ROWS4, "one.safetensors", .source = "save.st.one" },
    { "load.pt.cols", COST_LOAD, 4, COLS4, "one.pt", .source = "save.pt.one" },

    { "convert.dcp.st", COST_CONVERT, 0, NULL, "to.safetensors", .source = "save.dcp.rows" },
    { "convert.dcp.folder", COST_CONVERT, 0, NULL, "to.safetensors", .source = "save.dcp.grid",
      .cast = true },
    { "convert.dcp.pt", COST_CONVERT, 0, NULL, "to.pt", .source = "save.dcp.rows" },
    { "convert.dcp.cols", COST_CONVERT, 0, COLS4, "to", .source = "save.dcp.rows" },
    { "convert.st.dcp", COST_CONVERT, 0, COLS4, "to", .source = "save.st.one" },

    { "open.dcp", COST_OPEN, 0, NULL, "rows", .source = "save.dcp.rows" },
    { "open.dcp.small", COST_OPEN, 0, NULL, "small", .source = "save.dcp.small" },
    { "open.st", COST_OPEN, 0, NULL, "one.safetensors", .source = "save.st.one" },
    { "verify.dcp", COST_VERIFY, 0, NULL, "rows", .source = "save.dcp.rows" },
    { "verify.pt", COST_VERIFY, 0, NULL, "one.pt", .source = "save.pt.one" },

    { "live.cols", COST_LIVE, 4, COLS4, NULL, .source = ROWS4 },
    { "live.cols.messages", COST_LIVE, 4, COLS4, NULL, .source = ROWS4, .messages = true },
    { "live.sum.messages", COST_LIVE, 4, ROWS4, NULL, .source = PARTIAL, .messages = true },
    { "stash.rows.messages", COST_STASH, 4, .dim = 0, .messages = true },
    { "stash.columns", COST_STASH, 4, .dim = 1 },
    { .name = NULL },
};

static const char *const count_name[COUNTS] = { "bytes read", "bytes written", "bytes sent",
                                                "messages", "system calls" };

static void numbers(const cost_count *c, int64_t out[COUNTS])
{
    const int64_t all[COUNTS] = { c->bytes_read, c->bytes_written, c->bytes_sent, c->messages,
                                  c->calls };

    memcpy(out, all, sizeof(all));
}

/* The counts of a case in tests/costs.csv. */
static bool recorded(const char *name, int64_t out[COUNTS])
{
    FILE *file = fopen(RESHARD_TEST_DATA "/../costs.csv", "r");
    char  line[512];
    bool  found = false;

    while (file && !found && fgets(line, sizeof(line), file)) {
        char *comma = strchr(line, ',');

        found = comma && (size_t)(comma - line) == strlen(name) &&
                strncmp(line, name, strlen(name)) == 0;
        for (int i = 0; found && i < COUNTS; i++)
            out[i] = strtoll(comma + 1, &comma, 10);
    }
    if (file)
        fclose(file);
    return found;
}

static void costs_no_more_than_recorded(void **state)
{
    const cost_case *c = *state;
    int64_t          now[COUNTS], then[COUNTS];
    cost_count       count;
    rsd_error        err = { .msg = "" };

    if (!WITH_CHECKSUMS)
        skip_because("built without xxHash: saves have no checksums and cost less");
    if (cost_run(c, cases, &count, &err))
        fail_msg("%s", err.msg);
    if (!recorded(c->name, then))
        fail_msg("%s is missing from tests/costs.csv: tools/costs --update", c->name);
    numbers(&count, now);
    for (int i = 0; i < COUNTS; i++)
        if (now[i] * 100 > then[i] * 103 && now[i] > then[i] + 1) /* 1: a wait more or less */
            fail_msg("%s: %" PRId64 " %s, %" PRId64
                     " in tests/costs.csv; if the change is worth it, run tools/costs --update",
                     c->name, now[i], count_name[i], then[i]);
}

static int print_all(void)
{
    for (const cost_case *c = cases; c->name; c++) {
        cost_count count;
        rsd_error  err = { .msg = "" };

        if (cost_run(c, cases, &count, &err))
            return fprintf(stderr, "%s: %s\n", c->name, err.msg), 1;
        printf("%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", c->name,
               count.bytes_read, count.bytes_written, count.bytes_sent, count.messages,
               count.calls);
    }
    return 0;
}

static int run_one(const char *name)
{
    rsd_error err = { .msg = "there is no such case" };

    for (const cost_case *c = cases; c->name; c++)
        if (strcmp(c->name, name) == 0) {
            cost_count count;

            if (!cost_run(c, cases, &count, &err))
                return 0;
        }
    return fprintf(stderr, "%s: %s\n", name, err.msg), 1;
}

int main(int argc, char **argv)
{
    struct CMUnitTest test[sizeof(cases) / sizeof(cases[0])] = { 0 };
    size_t            n = 0;

    if (argc > 1 && strcmp(argv[1], "--compiler") == 0)
        return printf("compiler %s, glibc %s, %s\n", __VERSION__, gnu_get_libc_version(), BUILD) <
               0;
    if (argc > 1)
        return strcmp(argv[1], "--print") == 0 ? print_all() : run_one(argv[1]);
    for (const cost_case *c = cases; c->name; c++)
        test[n++] = (struct CMUnitTest){ c->name, costs_no_more_than_recorded, NULL, NULL,
                                         (void *)(uintptr_t)c };
    return _cmocka_run_group_tests("costs", test, n, NULL, NULL);
}
