/* SPDX-License-Identifier: Apache-2.0 */
/* reshard bench: measures this machine and folder in a few seconds. One bfloat16 matrix is saved
 * for 8 ranks by rows, read back, verified, and saved again for 4 ranks by columns. To compare
 * programs, use `make bench` instead. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4096 };

static const char by_rows[] = "mesh dp=8; * shard(0)@dp";
static const char by_columns[] = "mesh tp=4; * shard(1)@tp";

typedef struct bench {
    const args *a;
    char       *folder;
    int64_t     shape[2];
    uint64_t    bytes;
    char       *data, *copy; /* [bytes] */
    double      memcpy_rate; /* bytes per second */
    columns     table;
    json_out    out;
    bool        json;
    progress    bar;
} bench;

static void print_row(bench *b, const char *what, double seconds)
{
    const double rate = seconds > 0 ? (double)b->bytes / seconds : 0;
    char         size[32];

    if (b->json) {
        json_open_object(&b->out, NULL);
        json_text(&b->out, "name", what);
        json_uint(&b->out, "bytes", b->bytes);
        json_real(&b->out, "seconds", seconds);
        json_close(&b->out);
        return;
    }
    columns_add(&b->table, what);
    columns_add(&b->table, size_text(b->bytes, size, sizeof(size)));
    columns_addf(&b->table, "%.3f s", seconds);
    columns_addf(&b->table, "%.2f", rate / 1e9);
    columns_addf(&b->table, "%.0f%%", 100 * rate / b->memcpy_rate);
}

static rsd_err stopped(rsd_error *err)
{
    if (!signals_caught())
        return RSD_OK;
    *err = (rsd_error){ .code = RSD_E_CANCELED, .rank = -1, .msg = "stopped" };
    return RSD_E_CANCELED;
}

/* ---- measurements ---- */

/* The best of three copies between two warm buffers too large for any cache. */
static rsd_err measure_memcpy(bench *b, rsd_error *err)
{
    double best = 0;

    memset(b->copy, 1, b->bytes);
    for (int i = 0; i < 3; i++) {
        const double start = now();
        double       seconds;

        memcpy(b->copy, b->data, b->bytes);
        seconds = now() - start;
        best = i == 0 || seconds < best ? seconds : best;
    }
    b->memcpy_rate = best > 0 ? (double)b->bytes / best : 1;
    print_row(b, "memcpy", best);
    return stopped(err);
}

static rsd_err save(bench *b, const char *name, const char *text, rsd_choice sync, rsd_error *err)
{
    rsd_view      view = { .box = { 2, { 0 }, { b->shape[0], b->shape[1] } }, .data = b->data };
    rsd_save_opts opts = { .size = sizeof(opts),
                           .sync = sync,
                           .overwrite = true,
                           .on_progress = progress_step,
                           .arg = &b->bar };
    rsd_rules    *rules = NULL;
    rsd_layout   *layout = NULL;
    rsd_state    *state = NULL;
    char          path[4096];
    rsd_err       rc = rsd_rules_parse(text, &rules, err);

    snprintf(path, sizeof(path), "%s/%s", b->folder, name);
    if (!rc)
        rc = rsd_rules_layout(rules, "matrix", RSD_BF16, 2, b->shape, &layout, err);
    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, "matrix", layout, RSD_BF16, 2, b->shape, 1, &view, err);
    if (!rc)
        rc = rsd_save(path, NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

static rsd_err measure_save(bench *b, const char *what, const char *name, const char *text,
                            rsd_choice sync, rsd_error *err)
{
    const double start = now();
    rsd_err      rc = save(b, name, text, sync, err);

    if (!rc)
        print_row(b, what, now() - start);
    return rc;
}

/* Reads everything into one buffer, however many files there are. */
static rsd_err read_all(bench *b, const char *name, rsd_error *err)
{
    rsd_view  view = { .box = { 2, { 0 }, { b->shape[0], b->shape[1] } }, .data = b->copy };
    rsd_ckpt *ckpt;
    char      path[4096];
    rsd_err   rc;

    snprintf(path, sizeof(path), "%s/%s", b->folder, name);
    rc = rsd_ckpt_open(NULL, path, &ckpt, err);
    if (rc)
        return rc;
    rc = rsd_ckpt_read(ckpt, 0, &view, NULL, err);
    rsd_ckpt_close(ckpt);
    return rc;
}

static rsd_err measure_read(bench *b, const char *what, const char *name, rsd_error *err)
{
    double  start = now();
    rsd_err rc = read_all(b, name, err);

    if (rc)
        return rc;
    print_row(b, what, now() - start);
    if (memcmp(b->data, b->copy, b->bytes) != 0) {
        *err = (rsd_error){ .code = RSD_E_BUG,
                            .rank = -1,
                            .msg = "the matrix was changed by a round trip" };
        return RSD_E_BUG;
    }
    return stopped(err);
}

static rsd_err measure_verify(bench *b, const char *name, rsd_error *err)
{
    const double start = now();
    rsd_ckpt    *ckpt;
    char         path[4096];
    rsd_err      rc;

    snprintf(path, sizeof(path), "%s/%s", b->folder, name);
    rc = rsd_ckpt_open(NULL, path, &ckpt, err);
    if (rc)
        return rc;
    rc = rsd_ckpt_verify(ckpt, NULL, NULL, NULL, NULL, err);
    rsd_ckpt_close(ckpt);
    if (!rc)
        print_row(b, "verify", now() - start);
    return rc ? rc : stopped(err);
}

/* Reads, then saves for other ranks: everything that a reshard on disk does. */
static rsd_err measure_reshard(bench *b, rsd_error *err)
{
    const double start = now();
    rsd_err      rc = read_all(b, "rows", err);

    if (!rc)
        rc = save(b, "columns", by_columns, RSD_NEVER, err);
    if (!rc)
        print_row(b, "reshard 8 rows to 4 columns", now() - start);
    return rc;
}

static rsd_err measure_all(bench *b, rsd_error *err)
{
    rsd_err rc = measure_memcpy(b, err);

    if (!rc)
        rc = measure_save(b, "save, to the cache", "rows", by_rows, RSD_NEVER, err);
    if (!rc)
        rc = measure_save(b, "save, to the disk", "rows", by_rows, RSD_DEFAULT, err);
    if (!rc)
        rc = measure_read(b, "read", "rows", err);
    if (!rc)
        rc = measure_verify(b, "rows", err);
    if (!rc)
        rc = measure_reshard(b, err);
    if (!rc)
        rc = measure_read(b, "read columns", "columns", err);
    return rc;
}

/* ---- the command ---- */

static int prepare(bench *b)
{
    const uint64_t row = 2 * COLUMNS, asked = args_size(b->a, "size", (uint64_t)256 << 20);
    const uint64_t rows = asked / row > 0 ? asked / row : 1;

    b->shape[0] = (int64_t)rows;
    b->shape[1] = COLUMNS;
    b->bytes = rows * row;
    b->data = asked > SIZE_MAX / 4 ? NULL : malloc(b->bytes);
    b->copy = b->data ? malloc(b->bytes) : NULL;
    if (!b->copy)
        return refuse(b->a, EXIT_COULD_NOT, "no memory for twice %" PRIu64 " bytes", asked);
    for (uint64_t i = 0; i < b->bytes; i++)
        b->data[i] = (char)(i * 0x9e3779b9u >> 13);
    return scratch_make(b->a, args_text(b->a, "dir", "."), &b->folder);
}

static int run(const args *a)
{
    static const char *const title[] = { "what", ">bytes", ">time", ">GB/s", ">of memcpy", NULL };
    bench                    b = { .a = a, .json = args_has(a, "json"), .out = { .out = stdout } };
    rsd_error                err = { .msg = "" };
    rsd_err                  rc = RSD_OK;
    int                      code;

    progress_begin(&b.bar, a, "saving"); /* first: from now on a signal leaves no folder behind */
    code = prepare(&b);
    if (code)
        goto out;
    if (b.json) {
        json_open_object(&b.out, NULL);
        json_open_array(&b.out, "measured");
    } else {
        columns_begin(&b.table, title);
    }
    rc = measure_all(&b, &err);
    progress_end(&b.bar);
    if (b.json && !rc) {
        json_close(&b.out);
        json_close(&b.out);
    } else if (!b.json && !columns_print(&b.table, stdout)) {
        code = refuse(a, EXIT_COULD_NOT, "no memory for the table");
    }
    if (rc)
        code = fail(a, &err);
out:
    scratch_remove(b.folder);
    free(b.data);
    free(b.copy);
    return code;
}

static const option_spec options[] = {
    { "dir", 0, OPT_PATH, "DIR",
      "work in a new folder below this one; default: the current folder" },
    { "size", 0, OPT_SIZE, "SIZE", "size of the tensor in bytes; default: 256M" },
    OPTION_JSON,
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_bench = {
    .name = "bench",
    .line = "measure this machine: memory, saving, reading, resharding",
    .operands = "",
    .options = options,
    .text = "Saves a tensor as a checkpoint of 8 ranks, reads and verifies it, and reshards it to "
            "4 ranks, each once, and compares with a plain memcpy of the same bytes. Removes the "
            "files afterwards. Reads come from the page cache.",
    .examples = "# how fast is the scratch disk?\n"
                "reshard bench --dir /scratch --size 1G\n",
    .run = run,
};
