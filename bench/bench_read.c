/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tensors out of a checkpoint against mapping the file and copying with memcpy, in the same
 * run, files in memory. */
#include "bench.h"
#include "bench_data.h"

#include <reshard/reshard_live.h>

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 16384, RANKS = 4 }; /* bfloat16 [N, N]: 512 MiB in four row shards */
#define BYTES ((size_t)N * N * 2)

static const int64_t shape[] = { N, N };

static bool make_rows(const char *path)
{
    rsd_view    view = { .box = { 2, { 0 }, { N, N } } };
    rsd_rules  *rules;
    rsd_layout *layout;
    rsd_state  *state;
    rsd_error   err;
    rsd_err     rc = rsd_rules_parse("mesh dp=4; * shard(0)@dp", &rules, &err);

    view.data = bench_memory(BYTES);
    for (size_t i = 0; i < BYTES / 8; i++)
        ((uint64_t *)view.data)[i] = i * 0x9e3779b97f4a7c15u;
    if (!rc)
        rc = rsd_rules_layout(rules, "w", RSD_BF16, 2, shape, &layout, &err);
    if (!rc)
        rc = rsd_state_create(&state, &err);
    if (!rc)
        rc = rsd_state_tensor(state, "w", layout, RSD_BF16, 2, shape, 1, &view, &err);
    return !rc && rsd_save(path, NULL, state, NULL, &err) == RSD_OK;
}

typedef struct reading {
    rsd_ckpt     *ckpt;
    rsd_view      view;
    rsd_read_opts opts;
    rsd_err       rc;
    rsd_error     err;
    char          path[PATH_MAX];
} reading;

static void ours(void *arg)
{
    reading *r = arg;

    r->rc = r->rc ? r->rc : rsd_ckpt_read(r->ckpt, 0, &r->view, &r->opts, &r->err);
}

/* Maps each file of the tensor and copies the columns that are wanted, run by run. */
static void mapped(void *arg)
{
    reading       *r = arg;
    const size_t   run = (size_t)r->view.box.len[1] * 2;
    unsigned char *to = r->view.data;

    for (size_t c = 0; c < RANKS; c++) {
        rsd_chunk            chunk = { .size = sizeof(chunk) };
        uint64_t             offset;
        int64_t              stride[RSD_MAX_NDIM];
        char                 name[PATH_MAX + 64];
        struct stat          st;
        const unsigned char *at;
        int                  fd;

        if (rsd_ckpt_chunk(r->ckpt, 0, c, &chunk, &r->err) ||
            rsd_ckpt_extent(r->ckpt, 0, c, &offset, stride, &r->err))
            exit(3);
        snprintf(name, sizeof(name), "%s/%s", r->path, chunk.file);
        fd = open(name, O_RDONLY);
        if (fd < 0 || fstat(fd, &st) != 0)
            exit(3);
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (run == (size_t)N * 2) {
            memcpy(to, at + offset, run * (size_t)chunk.box.len[0]);
        } else {
            for (int64_t row = 0; row < chunk.box.len[0]; row++)
                memcpy(to + (size_t)row * run,
                       at + offset + (size_t)(row * stride[0] + r->view.box.off[1] * 2), run);
        }
        to += run * (size_t)chunk.box.len[0];
        munmap((void *)(uintptr_t)at, (size_t)st.st_size);
        close(fd);
    }
}

static uint64_t bytes_read(void)
{
    char     line[64];
    uint64_t bytes = 0;
    FILE    *io = fopen("/proc/self/io", "r");

    if (io && fgets(line, sizeof(line), io))
        sscanf(line, "rchar: %" SCNu64, &bytes);
    if (io)
        fclose(io);
    return bytes;
}

static bool read_columns(int64_t first, int64_t count, int32_t threads, bench_result *out)
{
    static reading   r;
    const bench_work work[] = { ours, mapped };
    void *const      arg[] = { &r, &r };
    size_t           bytes = (size_t)N * (size_t)count * 2;
    double           seconds[2], ratio[2];
    uint64_t         before;

    bench_path("rows", r.path, sizeof(r.path));
    if (!bench_prepare(r.path, make_rows) || rsd_ckpt_open(NULL, r.path, &r.ckpt, &r.err)) {
        snprintf(out->note, sizeof(out->note), "%.150s", r.err.msg);
        return false;
    }
    bench_warm(r.path);
    r.opts = (rsd_read_opts){ .size = sizeof(r.opts), .threads = threads };
    r.view = (rsd_view){ .box = { 2, { 0, first }, { N, count } }, .data = bench_memory(bytes) };
    before = bytes_read();
    ours(&r);
    before = bytes_read() - before;
    bench_turns(2, work, arg, 9, seconds, ratio);
    if (r.rc) {
        snprintf(out->note, sizeof(out->note), "%.150s", r.err.msg);
        return false;
    }
    out->unit = "GB/s";
    out->value = (double)bytes / seconds[0] / 1e9;
    out->ideal = (double)bytes / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note),
             "%.0f MiB, %.4fx the bytes read; ideal: mmap + memcpy, one core",
             (double)bytes / (1 << 20), (double)before / (double)bytes);
    rsd_ckpt_close(r.ckpt);
    return true;
}

static bool whole(bench_result *out)
{
    return read_columns(0, N, 0, out);
}

static bool column(bench_result *out)
{
    return read_columns(N / 4, N / 4, 0, out);
}

const bench_case read_cases[] = {
    { "read.whole", whole },
    { "read.column", column },
    { 0 },
};
