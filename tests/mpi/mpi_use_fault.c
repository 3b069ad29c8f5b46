/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that is killed, stopped or cut off while a checkpoint is loaded or converted, or tensors
 * come out of a stash; tests/hosts/run says what must come of it:
 *
 *     mpi_use_fault kill|stop|cut FOLDER load|convert|stash RANK N
 *
 * RANK does not survive its nth message of that; N 0, or more than there are: all goes well, and
 * the rank says how many it had. A conversion goes from FOLDER/from to FOLDER/to; FOLDER.note is
 * made when it happens. */
#include "base/error.h"
#include "doomed_rank.h"
#include "stash_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 12, ROWS = 32, COLS = 64, WAIT_MS = 2000 };

static const int64_t shape[] = { ROWS, COLS };
static int32_t       data[TENSORS][ROWS * COLS];
static char          from[256], to[256];

static rsd_err begin(const doom *d, rsd_comm *comm, rsd_error *err)
{
    if (!doom_begin(d, comm, WAIT_MS))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a test");
    return RSD_OK;
}

/* Every rank holds all tensors, of int32 that are their own index. */
static rsd_err make_state(const rsd_comm *comm, rsd_state **out, rsd_error *err)
{
    char       text[64];
    rsd_rules *rules = NULL;
    rsd_err    rc = rsd_state_create(out, err);

    snprintf(text, sizeof(text), "mesh n=%d; * replicate", (int)comm->size);
    if (!rc)
        rc = rsd_rules_parse(text, &rules, err);
    for (int i = 0; i < TENSORS && !rc; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_add(*out, name, rules, comm->rank, RSD_I32, 2, shape, data[i], err);
    }
    rsd_rules_free(rules);
    return rc;
}

static rsd_err load(rsd_comm *comm, rsd_state *state, rsd_error *err)
{
    rsd_err rc;

    memset(data, 0xee, sizeof(data));
    rc = rsd_load(from, comm, state, NULL, err);
    for (int i = 0; i < TENSORS * ROWS * COLS && !rc; i++)
        if (data[i / (ROWS * COLS)][i % (ROWS * COLS)] != i % (ROWS * COLS))
            rc = rsi_fail(err, RSD_E_BUG, "element %d is wrong", i);
    return rc;
}

static rsd_err convert(rsd_comm *comm, rsd_error *err)
{
    rsd_convert_opts opts = { .size = sizeof(opts) };
    rsd_rules       *rules = NULL;
    rsd_ckpt        *source = NULL;
    rsd_err          rc = rsd_rules_parse("mesh tp=3; * shard(1)@tp", &rules, err);

    opts.rules = rules;
    if (!rc)
        rc = rsd_ckpt_open(NULL, from, &source, err);
    if (!rc)
        rc = rsd_convert(source, to, comm, &opts, err);
    rsd_ckpt_close(source);
    rsd_rules_free(rules);
    return rc;
}

/* The load that comes first finds out who shares a machine, which MPI does not do within a time. */
static rsd_err use_checkpoint(rsd_comm *comm, const doom *d, bool converts, rsd_error *err)
{
    rsd_state *state = NULL;
    rsd_err    rc;

    for (int i = 0; i < TENSORS * ROWS * COLS; i++)
        data[i / (ROWS * COLS)][i % (ROWS * COLS)] = i % (ROWS * COLS);
    rc = make_state(comm, &state, err);
    if (!rc)
        rc = rsd_save(from, comm, state, NULL, err);
    if (!rc)
        rc = load(comm, state, err);
    if (!rc)
        rc = begin(d, comm, err);
    doom_phase("use");
    if (!rc)
        rc = converts ? convert(comm, err) : load(comm, state, err);
    rsd_state_free(state);
    return rc;
}

static rsd_err use_stash(rsd_comm *comm, const doom *d, rsd_error *err)
{
    const stash_tensor t = { RSD_F32, 2, { ROWS, COLS } };
    rsd_stash         *stash = NULL;
    rsd_stashed        saved[TENSORS];
    rsd_err            rc = begin(d, comm, err);

    if (!rc)
        rc = stash_make(comm, 0, (size_t)TENSORS * ROWS * COLS * 4, TENSORS, &stash, err);
    doom_phase("use");
    for (size_t i = 0; i < TENSORS && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    for (size_t i = TENSORS; i-- > 0 && !rc;)
        rc = stash_take(&saved[i], &t, i, err);
    rsd_stash_free(stash);
    return rc;
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    char      note[256];
    rsd_comm *comm;
    rsd_err   rc;
    doom      d;

    if (argc != 6 || !doom_parse(argv[1], argv[4], argv[5], &d))
        return 2;
    snprintf(from, sizeof(from), "%s/from", argv[2]);
    snprintf(to, sizeof(to), "%s/to", argv[2]);
    snprintf(note, sizeof(note), "%s.note", argv[2]);
    d.note = note;
    snprintf(d.in, sizeof(d.in), "use");
    rc = rsd_comm_create_launched(&comm, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 2;
    }
    rc = strcmp(argv[3], "stash") == 0
             ? use_stash(comm, &d, &err)
             : use_checkpoint(comm, &d, strcmp(argv[3], "convert") == 0, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rsd_comm_rank(comm), rsd_err_name(rc), err.msg);
    else if (rsd_comm_rank(comm) == d.rank)
        printf("messages: %ld\n", doom_calls());
    fflush(stdout);
    doom_told(comm);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
