/* SPDX-License-Identifier: Apache-2.0 */
/* Values that differ from rank to rank: one of them is saved, whole and readable. */
#include "ranks_case.h"

#include <stdio.h>
#include <string.h>

/* Saves the state of this rank in every way and looks at what is there. */
static rsd_err save_and_look(rsd_comm *comm, rsd_state *state, rsd_save_opts opts, const char *name,
                             const int32_t *value_of, rsd_error *err)
{
    rsd_stage_way how;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    opts.size = sizeof(opts);
    opts.overwrite = true;
    opts.threads = 1;
    ranks_bed_name(&bed, name);
    for (int i = 0; ranks_way(comm, i, &how) && !rc; i++) {
        /* A file that all write together is not staged by fork. */
        if (how == RSD_STAGE_FORK && strchr(name, '.'))
            continue;
        rc = ranks_save(bed.path, comm, state, how, &opts, err);
        if (!rc && comm->rank == 0)
            rc = ranks_saved(bed.path, value_of, err);
        rc = rsi_agree(comm, rc, err);
        if (rc)
            rsi_while(err, rc, "way %d", i);
    }
    ranks_bed_close(&bed, NULL);
    return rc;
}

static rsd_err save_values(rsd_comm *comm, rsd_save_opts opts, const char *name, rsd_error *err)
{
    ranks_state s;
    rsd_err     rc = ranks_state_make(&s, comm, true, err);

    if (!rc)
        rc = save_and_look(comm, s.state, opts, name, NULL, err);
    ranks_state_free(&s);
    return rc;
}

static rsd_err what_rank_0_holds_is_what_is_saved(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ 0 }, "ck", err);
}

static rsd_err so_it_is_when_items_are_transformed(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ .transform = "stream.zstd" }, "ck", err);
}

static rsd_err so_it_is_without_checksums(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ .checksum = RSD_NEVER }, "ck", err);
}

static rsd_err so_it_is_with_keys_that_may_differ(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ .uneven_keys = true }, "ck", err);
}

static rsd_err so_it_is_in_a_file_that_all_write_together(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ 0 }, "ck.pt", err);
}

static rsd_err so_it_is_there_with_keys_that_may_differ(rsd_comm *comm, rsd_error *err)
{
    return save_values(comm, (rsd_save_opts){ .uneven_keys = true }, "ck.pt", err);
}

/* Value i is held by ranks i % size and above. */
static rsd_err of_what_rank_0_lacks_the_lowest_holder_s_is_saved(rsd_comm *comm, rsd_error *err)
{
    static const char *const transform[] = { NULL, "stream.zstd" };
    int32_t                  value_of[RANKS_VALUES];
    rsd_err                  rc = RSD_OK;

    for (size_t k = 0; k < 2 && !rc; k++) {
        rsd_save_opts opts = { .uneven_keys = true, .transform = transform[k] };
        ranks_state   s;

        rc = ranks_state_make(&s, comm, false, err);
        for (int32_t i = 0; i < RANKS_VALUES && !rc; i++) {
            const rsd_value *v;

            value_of[i] = i % comm->size;
            if (comm->rank < value_of[i])
                continue;
            rc = ranks_value((size_t)i, comm->rank, s.owner, &v, err);
            if (!rc)
                rc = rsd_state_value(s.state, ranks_value_name[i], v, err);
        }
        if (!rc)
            rc = save_and_look(comm, s.state, opts, "ck", value_of, err);
        ranks_state_free(&s);
    }
    return rc;
}

/* The second save of a state uses the plan of the first. */
static rsd_err values_that_change_between_saves_are_those_of_each(rsd_comm *comm, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts), .overwrite = true, .threads = 1 };
    int32_t       now[RANKS_VALUES] = { 0 };
    ranks_state   s;
    ranks_bed     bed;
    rsd_err       rc = ranks_bed_open(&bed, comm, err);

    if (!rc)
        rc = ranks_state_make(&s, comm, true, err);
    for (int32_t turn = 0; turn < 6 && !rc; turn++) {
        const rsd_value *v;

        ranks_bed_name(&bed, turn < 3 ? "ck" : "ck.pt");
        now[0] = turn;
        rc = ranks_value(0, turn + comm->rank, s.owner, &v, err);
        if (!rc &&
            (turn == 1 || turn == 4 || comm->rank == 0)) /* also where only rank 0's is new */
            rc = rsd_state_set_value(s.state, ranks_value_name[0], v, err);
        rc = rsi_agree(comm, rc, err);
        if (!rc)
            rc = rsd_save(bed.path, comm, s.state, &opts, err);
        if (!rc && comm->rank == 0)
            rc = ranks_saved(bed.path, now, err);
        rc = rsi_agree(comm, rc, err);
    }
    ranks_state_free(&s);
    ranks_bed_close(&bed, NULL);
    return rc;
}

const comm_case ranks_values[] = {
    { COMM_CASE(what_rank_0_holds_is_what_is_saved), .min_ranks = 1 },
    { COMM_CASE(so_it_is_when_items_are_transformed), .min_ranks = 1 },
    { COMM_CASE(so_it_is_without_checksums), .min_ranks = 1 },
    { COMM_CASE(so_it_is_with_keys_that_may_differ), .min_ranks = 1 },
    { COMM_CASE(so_it_is_in_a_file_that_all_write_together), .min_ranks = 1 },
    { COMM_CASE(so_it_is_there_with_keys_that_may_differ), .min_ranks = 1 },
    { COMM_CASE(of_what_rank_0_lacks_the_lowest_holder_s_is_saved), .min_ranks = 1 },
    { COMM_CASE(values_that_change_between_saves_are_those_of_each), .min_ranks = 1 },
    { .name = NULL },
};
