/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with a gate, and a state that tells its version. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "async_case.h"
#include "ckpt_fixture.h"
#include "store/file.h"
#include "sys_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PASSES = 4096 }; /* more writes than any of these tests makes */

static void wait_at_gate(const char *call, void *arg)
{
    const async_bed *bed = arg;
    char             pass;

    if (strcmp(call, "pwrite") == 0)
        while (read(bed->gate[0], &pass, 1) < 0)
            ;
    if (bed->also)
        bed->also();
}

void async_gate_shut(async_bed *bed)
{
    assert_int_equal(pipe(bed->gate), 0);
    faults.watch = wait_at_gate;
    faults.arg = bed;
}

void async_gate_open(async_bed *bed)
{
    static const char passes[PASSES];

    assert_int_equal(write(bed->gate[1], passes, sizeof(passes)), (int)sizeof(passes));
}

void async_bed_attach(async_bed *bed, const char *top)
{
    const rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1 };

    memset(bed, 0, sizeof(*bed));
    memset(&faults, 0, sizeof(faults));
    bed->gate[0] = bed->gate[1] = -1;
    snprintf(bed->top, sizeof(bed->top), "%s", top);
    assert_int_equal(rsi_file_store_open(bed->top, &opts, &bed->store, NULL), RSD_OK);
}

void async_bed_open(async_bed *bed)
{
    char top[64];

    snprintf(top, sizeof(top), "%s/reshard-async.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(top));
    async_bed_attach(bed, top);
}

void async_bed_detach(async_bed *bed)
{
    memset(&faults, 0, sizeof(faults));
    rsd_store_close(bed->store);
    if (bed->gate[0] >= 0) {
        close(bed->gate[0]);
        close(bed->gate[1]);
    }
}

void async_bed_close(async_bed *bed)
{
    char command[96];

    async_bed_detach(bed);
    snprintf(command, sizeof(command), "rm -rf '%s'", bed->top);
    assert_int_equal(system(command), 0);
}

const char *async_list(const async_bed *bed)
{
    return fix_list(bed->store, "");
}

/* ---- states ---- */

static int32_t element(int32_t version, int32_t i)
{
    return version * 1000000 + i;
}

void async_fill(async_state *s, int32_t version)
{
    int32_t rows = ASYNC_ROWS / s->ranks, first = rows * ASYNC_COLS * s->rank;

    for (int32_t i = 0; i < rows * ASYNC_COLS; i++)
        s->w[i] = element(version, first + i);
    for (int32_t i = 0; i < ASYNC_COLS; i++)
        s->b[i] = element(version, 500000 + i);
}

bool async_state_make(async_state *s, int32_t rank, int32_t ranks)
{
    const int64_t    shape[] = { ASYNC_ROWS, ASYNC_COLS }, cols[] = { ASYNC_COLS };
    rsd_view         view = { .data = s->w };
    const rsd_value *step;
    rsd_layout      *layout[2];
    char             rules[64];
    bool             ok;

    *s = (async_state){ .rank = rank, .ranks = ranks };
    async_fill(s, 1);
    snprintf(rules, sizeof(rules), "mesh tp=%d; * shard(0)@tp", (int)ranks);
    layout[0] = fix_layout(rules, RSD_I32, 2, shape);
    snprintf(rules, sizeof(rules), "mesh tp=%d; * replicate", (int)ranks);
    layout[1] = fix_layout(rules, RSD_I32, 1, cols);
    view.box = fix_box2(ASYNC_ROWS / ranks * rank, 0, ASYNC_ROWS / ranks, ASYNC_COLS);
    ok = !rsd_state_create(&s->state, NULL) && !rsd_values_create(&s->values, NULL) &&
         !rsd_value_create_int(s->values, 1, &step, NULL) &&
         !rsd_state_tensor(s->state, "w", layout[0], RSD_I32, 2, shape, 1, &view, NULL);
    view = fix_whole(1, cols, s->b);
    ok = ok && !rsd_state_tensor(s->state, "b", layout[1], RSD_I32, 1, cols, 1, &view, NULL);
    rsd_layout_free(layout[0]);
    rsd_layout_free(layout[1]);
    return ok;
}

void async_state_free(async_state *s)
{
    rsd_state_free(s->state);
    rsd_values_free(s->values);
}

bool async_saved(const async_bed *bed, const char *path, int32_t version)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = RSD_ALWAYS, .threads = 1 };
    const int64_t       shape[] = { ASYNC_ROWS, ASYNC_COLS }, cols[] = { ASYNC_COLS };
    int32_t             w[ASYNC_ROWS * ASYNC_COLS] = { 0 }, b[ASYNC_COLS] = { 0 };
    rsd_view            wv = fix_whole(2, shape, w), bv = fix_whole(1, cols, b);
    rsd_ckpt           *ckpt;
    size_t              t;
    bool                ok;

    if (rsd_ckpt_open(bed->store, path, &ckpt, NULL))
        return false;
    ok = !rsd_ckpt_find(ckpt, "w", &t, NULL) && !rsd_ckpt_read(ckpt, t, &wv, &opts, NULL) &&
         !rsd_ckpt_find(ckpt, "b", &t, NULL) && !rsd_ckpt_read(ckpt, t, &bv, &opts, NULL);
    for (int32_t i = 0; i < ASYNC_ROWS * ASYNC_COLS && ok; i++)
        ok = w[i] == element(version, i);
    for (int32_t i = 0; i < ASYNC_COLS && ok; i++)
        ok = b[i] == element(version, 500000 + i);
    rsd_ckpt_close(ckpt);
    return ok;
}
