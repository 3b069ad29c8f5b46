/* SPDX-License-Identifier: Apache-2.0 */
/* The save that the fault tests disturb, and how they see what came of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "ckpt_fixture.h"
#include "save/image_cache.h"
#include "sys_faults.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 8, COLS = 6, BIAS = 5 };

/* ---- the cases ---- */

static rsd_err begin_and_wait(const char *path, rsd_comm *comm, rsd_state *state, rsd_stage_way how,
                              const rsd_save_opts *opts, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc = rsd_save_begin(path, comm, state, how, opts, &op, err);

    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

static rsd_err save_copied(const char *path, rsd_comm *comm, rsd_state *state,
                           const rsd_save_opts *opts, rsd_error *err)
{
    return begin_and_wait(path, comm, state, RSD_STAGE_COPY, opts, err);
}

/* The ranks here are threads, so this one stands for all. */
static rsd_err save_forked(const char *path, rsd_comm *comm, rsd_state *state,
                           const rsd_save_opts *opts, rsd_error *err)
{
    rsd_err rc = begin_and_wait(path, NULL, state, RSD_STAGE_FORK, opts, err);

    err->rank = rsd_comm_rank(comm);
    return rc;
}

static const struct {
    const char *name;
    fault_save  save;
    bool        forked;
} fault_ways[] = { { "", rsd_save, false },
                   { " async", save_copied, false },
                   { " forked", save_forked, true } };

static const struct {
    const char *name, *path;
    rsd_format  format;
    bool        distributed;
    int32_t     ranks;
    bool        brief;
} kinds[] = {
    { "DCP", "ck", RSD_FORMAT_DCP, false, 4, true },
    { "DCP", "ck", RSD_FORMAT_DCP, false, 1, true },
    { "safetensors", "ck", RSD_FORMAT_SAFETENSORS, true, 4, true },
    { "safetensors", "ck", RSD_FORMAT_SAFETENSORS, true, 1, false },
    { "one file", "ck.safetensors", RSD_FORMAT_AUTO, false, 1, true },
    { "one file", "ck.safetensors", RSD_FORMAT_AUTO, false, 4, false },
    { "torch.save", "ck.pt", RSD_FORMAT_AUTO, false, 1, false },
    { "torch.save", "ck.pt", RSD_FORMAT_AUTO, false, 4, false },
};

enum {
    WAYS = sizeof(fault_ways) / sizeof(fault_ways[0]),
    KINDS = sizeof(kinds) / sizeof(kinds[0]),
    CASES = WAYS * KINDS * 2
};

bool fault_long(void)
{
    const char *form = getenv("RESHARD_FAULTS");

    return form && strcmp(form, "all") == 0;
}

static const fault_case *all_cases(void)
{
    static fault_case all[CASES];
    static char       name[CASES][80];

    for (size_t i = 0; i < CASES && !all[i].name; i++) {
        size_t way = i / 2 / KINDS, kind = i / 2 % KINDS;
        bool   overwrite = i % 2 == 0;

        snprintf(name[i], sizeof(name[i]), "%s%s, %d rank%s, %s", kinds[kind].name,
                 fault_ways[way].name, (int)kinds[kind].ranks, kinds[kind].ranks > 1 ? "s" : "",
                 overwrite ? "overwriting" : "fresh");
        all[i] =
            (fault_case){ .name = name[i],
                          .save = fault_ways[way].save,
                          .ranks = kinds[kind].ranks,
                          .overwrite = overwrite,
                          .path = kinds[kind].path,
                          .format = kinds[kind].format,
                          .distributed = kinds[kind].distributed,
                          .forked = fault_ways[way].forked,
                          .brief = kinds[kind].brief && (overwrite || kinds[kind].ranks == 1) &&
                                   (way == 0 || (kind < 2 && overwrite)) };
    }
    return all;
}

const fault_case *fault_next_forked(const fault_case *after)
{
    const fault_case *all = all_cases();

    for (const fault_case *c = after ? after + 1 : all; c < all + CASES; c++)
        if ((c->brief || fault_long()) && !(c->forked && c->ranks > 1))
            return c;
    return NULL;
}

const fault_case *fault_next(const fault_case *after)
{
    const fault_case *c = fault_next_forked(after);

    while (c && c->forked)
        c = fault_next_forked(c);
    return c;
}

/* ---- states ---- */

static int32_t rows_data[2][ROWS * COLS], bias_data[2][BIAS];

static int32_t element(int version, int i)
{
    return version * 1000 + i;
}

static void fill(void)
{
    for (int v = 1; v <= 2; v++) {
        for (int i = 0; i < ROWS * COLS; i++)
            rows_data[v - 1][i] = element(v, i);
        for (int i = 0; i < BIAS; i++)
            bias_data[v - 1][i] = element(v, 100 + i);
    }
}

/* Rank `rank` of `ranks` has its rows and all of the bias. */
static rsd_state *make_state(fault_bed *bed, int version, int32_t rank)
{
    const int64_t    shape[] = { ROWS, COLS }, bias[] = { BIAS };
    int32_t          ranks = bed->c->ranks;
    rsd_view         view = { 0 };
    const rsd_value *step;
    rsd_layout      *layout;
    rsd_state       *state;
    char             rules[64];

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    snprintf(rules, sizeof(rules), "mesh tp=%d; * shard(0)@tp", (int)ranks);
    layout = fix_layout(rules, RSD_I32, 2, shape);
    view.box = fix_box2(rank * ROWS / ranks, 0, ROWS / ranks, COLS);
    view.data = &rows_data[version - 1][rank * (ROWS / ranks) * COLS];
    assert_int_equal(rsd_state_tensor(state, "w", layout, RSD_I32, 2, shape, 1, &view, NULL),
                     RSD_OK);
    rsd_layout_free(layout);
    snprintf(rules, sizeof(rules), "mesh tp=%d; * replicate", (int)ranks);
    layout = fix_layout(rules, RSD_I32, 1, bias);
    view = fix_whole(1, bias, bias_data[version - 1]);
    assert_int_equal(rsd_state_tensor(state, "b", layout, RSD_I32, 1, bias, 1, &view, NULL),
                     RSD_OK);
    rsd_layout_free(layout);
    if (bed->c->format == RSD_FORMAT_DCP) {
        assert_int_equal(rsd_value_create_int(bed->values, version, &step, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
    }
    return state;
}

/* ---- saving ---- */

rsd_err fault_save_rank(fault_bed *bed, rsd_comm *comm, int version, bool overwrite)
{
    const fault_case *c = bed->c;
    int32_t           rank = rsd_comm_rank(comm);
    rsd_save_opts     opts = { .size = sizeof(opts),
                               .store = bed->on[rank] ? bed->on[rank] : bed->quiet,
                               .format = c->format,
                               .overwrite = overwrite,
                               .distributed = c->distributed,
                               .threads = c->ranks > 1 ? 1 : 2,
                               .on_progress = bed->on_progress,
                               .arg = &bed->rc[rank] };
    const char       *path = c->path;

    if (bed->change)
        bed->change(rank, &path, &opts);
    memset(&bed->err[rank], 0, sizeof(bed->err[rank]));
    bed->rc[rank] = c->save(path, comm, bed->state[version - 1][rank], &opts, &bed->err[rank]);
    rsi_image_cache_forget(
        bed->state[version - 1][rank]); /* what a save keeps for the next is no leak */
    return bed->rc[rank];
}

typedef struct rank_arg {
    fault_bed *bed;
    rsd_comm  *comm;
    int        version;
    bool       overwrite;
} rank_arg;

static void *save_rank(void *arg)
{
    rank_arg *a = arg;

    fault_save_rank(a->bed, a->comm, a->version, a->overwrite);
    if (a->bed->ended)
        a->bed->ended(rsd_comm_rank(a->comm));
    rsd_comm_free(a->comm);
    return NULL;
}

bool fault_save_version(fault_bed *bed, int version, bool overwrite)
{
    pthread_t thread[FAULT_RANKS];
    rsd_comm *comm[FAULT_RANKS];
    rank_arg  arg[FAULT_RANKS];
    int32_t   n = bed->c->ranks;
    bool      same = true;
    time_t    start = time(NULL);

    assert_int_equal(rsd_comm_create_threads(n, comm, NULL), RSD_OK);
    for (int32_t r = 0; r < n && bed->tune; r++)
        bed->tune(comm[r]);
    if (bed->no_memory)
        rsi_mem_fail_at(bed->no_memory, bed->for_ever);
    for (int32_t r = 0; r < n; r++) {
        arg[r] = (rank_arg){ bed, comm[r], version, overwrite };
        assert_int_equal(pthread_create(&thread[r], NULL, save_rank, &arg[r]), 0);
    }
    for (int32_t r = 0; r < n; r++)
        pthread_join(thread[r], NULL);
    for (int32_t r = 1; r < n; r++)
        same = same && bed->rc[r] == bed->rc[0];
    bed->seconds = (long long)(time(NULL) - start);
    return same;
}

/* ---- looking ---- */

static void found_damage(void *arg, const rsd_error *what)
{
    (void)arg, (void)what;
}

/* Reads all; false: something can't be read or is damaged. */
static bool read_whole(const fault_bed *bed, rsd_ckpt *ckpt, int32_t *rows, int32_t *bias)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = RSD_ALWAYS, .threads = 1 };
    const int64_t       shape[] = { ROWS, COLS }, len[] = { BIAS };
    rsd_view            w = fix_whole(2, shape, rows), b = fix_whole(1, len, bias);
    size_t              t, damage = 0;

    if (rsd_ckpt_tensors(ckpt) != 2 || rsd_ckpt_find(ckpt, "w", &t, NULL) ||
        rsd_ckpt_read(ckpt, t, &w, &opts, NULL) || rsd_ckpt_find(ckpt, "b", &t, NULL) ||
        rsd_ckpt_read(ckpt, t, &b, &opts, NULL))
        return false;
    if (rsd_ckpt_verify(ckpt, &opts, found_damage, NULL, &damage, NULL) || damage)
        return false;
    return rsd_ckpt_objects(ckpt) == (bed->c->format == RSD_FORMAT_DCP ? 1u : 0u);
}

static bool has_step(const fault_bed *bed, rsd_ckpt *ckpt, int version)
{
    const rsd_value *value = NULL;
    rsd_values      *owner;
    const char      *name;
    bool             yes;

    if (bed->c->format != RSD_FORMAT_DCP)
        return true;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    yes = !rsd_ckpt_object(ckpt, 0, &name, owner, &value, NULL) && strcmp(name, "step") == 0 &&
          rsd_value_int(value) == version;
    rsd_values_free(owner);
    return yes;
}

fault_found fault_look_in(const fault_bed *bed, rsd_store *store)
{
    int32_t     rows[ROWS * COLS], bias[BIAS];
    fault_found found = FAULT_LOST;
    rsd_entry   entry;
    rsd_ckpt   *ckpt;

    if (rsi_store_stat(store, bed->c->path, &entry, NULL) == RSD_E_NOTFOUND)
        return FAULT_NONE;
    if (rsd_ckpt_open(store, bed->c->path, &ckpt, NULL))
        return FAULT_LOST;
    if (read_whole(bed, ckpt, rows, bias))
        for (int v = 1; v <= 2; v++)
            if (memcmp(rows, rows_data[v - 1], sizeof(rows)) == 0 &&
                memcmp(bias, bias_data[v - 1], sizeof(bias)) == 0 && has_step(bed, ckpt, v))
                found = v == 1 ? FAULT_OLD : FAULT_NEW;
    rsd_ckpt_close(ckpt);
    return found;
}

/* Of every byte that has the name. */
static uint32_t sum(const fault_bed *bed)
{
    unsigned char *bytes;
    uint32_t       crc;
    rsd_entry      entry;
    size_t         len;

    assert_int_equal(rsi_store_stat(bed->quiet, bed->c->path, &entry, NULL), RSD_OK);
    if (entry.kind == RSD_ENTRY_FOLDER)
        return fix_sum(bed->quiet, bed->c->path);
    bytes = fix_get(bed->quiet, bed->c->path, &len);
    crc = rsi_crc32(0, bytes, len);
    free(bytes);
    return crc;
}

fault_found fault_look(const fault_bed *bed)
{
    fault_found found = fault_look_in(bed, bed->quiet);

    return found == FAULT_OLD && bed->old_sum && sum(bed) != bed->old_sum ? FAULT_LOST : found;
}

int fault_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int  n = 0;

    assert_non_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* ---- beds ---- */

rsd_store *fault_store(const fault_bed *bed, const rsi_sys *sys, rsi_file_io io)
{
    const rsi_file_opts opts = { .sys = sys, .io = io, .threads = 1 };
    rsd_store          *store;

    assert_int_equal(rsi_file_store_open(bed->top, &opts, &store, NULL), RSD_OK);
    return store;
}

static void must_save(fault_bed *bed, int version)
{
    assert_true(fault_save_version(bed, version, true));
    if (bed->rc[0])
        fail_msg("%s: a save without faults: %s", bed->c->name, bed->err[0].msg);
}

/* Where folders are made: a test that fails leaves its own. */
static const char *scratch(void)
{
    const char *given = getenv("RESHARD_FAULTS_FOLDER");

    return given ? given : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

void fault_bed_attach(fault_bed *bed, const fault_case *c, const char *top)
{
    memset(bed, 0, sizeof(*bed));
    bed->c = c;
    if (top)
        snprintf(bed->top, sizeof(bed->top), "%s", top);
    else
        snprintf(bed->top, sizeof(bed->top), "%s/reshard-faults.XXXXXX", scratch());
    if (!top)
        assert_non_null(mkdtemp(bed->top));
    fill();
    bed->quiet = fault_store(bed, sys_quick(), RSI_FILE_IO_THREADS);
    assert_int_equal(rsd_values_create(&bed->values, NULL), RSD_OK);
    for (int v = 1; v <= 2; v++)
        for (int32_t r = 0; r < c->ranks; r++)
            bed->state[v - 1][r] = make_state(bed, v, r);
}

void fault_bed_open(fault_bed *bed, const fault_case *c, const char *top)
{
    fault_bed_attach(bed, c, top);
    must_save(bed, 1);
    bed->old_sum = sum(bed);
    assert_true(snprintf(bed->names, sizeof(bed->names), "%s", fix_list(bed->quiet, "")) <
                (int)sizeof(bed->names));
    assert_true(strncmp(bed->names, c->path, strlen(c->path)) == 0 && !strstr(bed->names, ".tmp-"));
    fault_reset(bed);
}

void fault_reset(fault_bed *bed)
{
    fault_bed plain = *bed;

    memset(plain.on, 0, sizeof(plain.on));
    plain.on_progress = NULL;
    plain.tune = NULL;
    plain.no_memory = 0;
    plain.ended = NULL;
    must_save(&plain, 1);
    assert_string_equal(fix_list(bed->quiet, ""), bed->names);
    assert_int_equal(fault_look(bed), FAULT_OLD);
    if (!bed->c->overwrite)
        fault_clear(bed);
}

void fault_clear(fault_bed *bed)
{
    char  names[512];
    char *at = names;

    assert_true(snprintf(names, sizeof(names), "%s", fix_list(bed->quiet, "")) <
                (int)sizeof(names));
    for (char *name = strsep(&at, " "); name && *name; name = strsep(&at, " "))
        assert_int_equal(rsi_store_remove(bed->quiet, name, NULL), RSD_OK);
}

void fault_bed_close(fault_bed *bed)
{
    fault_clear(bed);
    rmdir(bed->top);
    fault_bed_detach(bed);
}

void fault_bed_detach(fault_bed *bed)
{
    for (int32_t r = 0; r < FAULT_RANKS; r++) {
        rsd_state_free(bed->state[0][r]);
        rsd_state_free(bed->state[1][r]);
    }
    rsd_values_free(bed->values);
    rsd_store_close(bed->quiet);
}

/* ---- the table ---- */

void fault_count(fault_row *row, const fault_bed *bed, fault_found found)
{
    bool refused = false;

    for (int32_t r = 0; r < bed->c->ranks; r++)
        refused = refused || bed->rc[r];
    row->tried++;
    row->refused += refused;
    row->found_new += found == FAULT_NEW;
    row->found_old += found == (bed->c->overwrite ? FAULT_OLD : FAULT_NONE);
    row->lost += found == FAULT_LOST || (bed->c->overwrite && found == FAULT_NONE);
    if (row->silent != FAULT_NOT_COUNTED)
        row->silent += !refused && found != FAULT_NEW;
    if (row->hung != FAULT_NOT_COUNTED)
        row->hung += bed->seconds > FAULT_HUNG;
}
