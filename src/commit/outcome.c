/* SPDX-License-Identifier: Apache-2.0 */
/* Reports go to rank 0. If all are good it asks for the rows that only the writers know, closes and
 * publishes the checkpoint (commit.c), and informs every rank. A rank that reports has no work in
 * flight, so rank 0 may remove the tree once it has all reports. Next: async.c. */
#include "commit/outcome.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum { TAG_REPORT = 0x110, TAG_ROWS, TAG_PLACES, TAG_ANSWER };
enum { IN, PLACES, OUT, SLOTS }; /* requests per peer; on ranks other than 0, OUT is received */

static bool leads(const rsi_outcome *b)
{
    return b->c->rank <= 0;
}

static void **slot(const rsi_outcome *b, int32_t peer, int what)
{
    return &b->request[(size_t)peer * SLOTS + (size_t)what];
}

rsd_err rsi_outcome_begin(rsi_outcome *b, rsi_commit *c, rsd_error *err)
{
    const rsd_comm *comm = c->comm;
    size_t          n;

    *b = (rsi_outcome){ .c = c };
    if (comm && comm->size > 1 && !comm->alone)
        b->peers = c->rank == 0 ? comm->size : 1;
    n = (size_t)b->peers * SLOTS;
    b->request = rsi_calloc(n, sizeof(b->request[0]));
    b->peer = rsi_calloc(n, sizeof(b->peer[0]));
    b->report = rsi_calloc((size_t)b->peers + 1, sizeof(b->report[0]));
    if (!b->request || !b->peer || !b->report)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the reports of %" PRId32 " ranks",
                        b->peers);
    for (size_t i = 0; i < n; i++)
        b->peer[i] = c->rank == 0 ? (int32_t)(i / SLOTS) : 0;
    return RSD_OK;
}

bool rsi_outcome_end(rsi_outcome *b)
{
    bool mine = true;

    if (b->peers && b->request)
        mine = rsi_drop(b->c->comm, (size_t)b->peers * SLOTS, b->request);
    if (!mine)
        return false;
    rsi_free(b->request);
    rsi_free(b->peer);
    rsi_free(b->report);
    rsi_free(b->place);
    *b = (rsi_outcome){ 0 };
    return true;
}

/* ---- places of items ---- */

static rsi_dcp_row *row_of(rsi_dcp_meta *meta, size_t i)
{
    return i < meta->nchunks ? &meta->row[i] : &meta->item[i - meta->nchunks].row;
}

size_t rsi_places_list(const rsi_commit *c, rsi_item_place *out)
{
    rsi_dcp_meta *meta = c->image.meta;
    size_t        n = 0;

    if (!meta || !(c->image.transform || c->uneven))
        return 0;
    for (size_t i = 0; i < meta->nchunks + meta->nitems; i++) {
        const rsi_dcp_row *row = row_of(meta, i);

        if (row->file == RSI_DCP_NO_FILE ||
            (c->rank >= 0 && c->image.file[row->file].owner != c->rank))
            continue;
        if (out)
            out[n] = (rsi_item_place){ .row = i, .offset = row->offset, .length = row->length };
        n++;
    }
    return n;
}

rsd_err rsi_places_set(rsi_commit *c, const rsi_item_place *place, size_t n, rsd_error *err)
{
    rsi_dcp_meta *meta = c->image.meta;

    for (size_t i = 0; i < n; i++) {
        const rsi_item_place *p = &place[i];

        if (!meta || p->row >= meta->nchunks + meta->nitems)
            return rsi_fail(err, RSD_E_BUG, "an item with the number %" PRIu64 " was reported",
                            p->row);
        row_of(meta, (size_t)p->row)->offset = p->offset;
        row_of(meta, (size_t)p->row)->length = p->length;
    }
    return RSD_OK;
}

/* ---- what ranks report about the files that they know apart, in the terms of rank 0's image ----
 */

/* A rank has at most one file, and files are in the order of their ranks. */
static void number_files(rsi_outcome *b)
{
    const rsi_image *image = &b->c->image;
    rsi_sum_row     *row = b->c->sums.row + b->own_sums;
    size_t           file = 0;

    for (int32_t r = 1; r < b->peers; r++) {
        while (file + 1 < image->nfiles && image->file[file].owner < r)
            file++;
        for (uint64_t i = 0; i < b->report[r].nsums; i++, row++)
            row->file = (uint32_t)file;
    }
}

/* A rank lists its chunks, then its items, in the order of the metadata. Each file's next place is
 * at[file]; n[file] counts them. */
static rsd_err spread_places(rsi_outcome *b, size_t *at, size_t *n, rsd_error *err)
{
    rsi_dcp_meta    *meta = b->c->image.meta;
    const rsi_image *image = &b->c->image;
    rsd_err          rc = RSD_OK;

    for (size_t i = 0; i < meta->nchunks + meta->nitems && !rc; i++) {
        rsi_dcp_row *row = row_of(meta, i);
        const size_t f = row->file;

        if (image->file[f].owner <= 0 || at[f] == SIZE_MAX)
            continue;
        if (at[f] >= b->nplaces || b->place[at[f]].row != n[f])
            rc = rsi_fail(err, RSD_E_BUG, "rank %" PRId32 " reported other items than expected",
                          image->file[f].owner);
        if (!rc) {
            row->offset = b->place[at[f]].offset;
            row->length = b->place[at[f]++].length;
        }
        n[f]++;
    }
    return rc;
}

static rsd_err take_places(rsi_outcome *b, rsd_error *err)
{
    const rsi_image *image = &b->c->image;
    size_t          *at, *n, place = 0;
    int32_t          r = 1;
    rsd_err          rc;

    if (!b->c->apart || b->nplaces == 0)
        return rsi_places_set(b->c, b->place, b->nplaces, err);
    at = rsi_calloc(image->nfiles, sizeof(at[0]));
    n = rsi_calloc(image->nfiles, sizeof(n[0]));
    rc = at && n ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", image->nfiles);
    for (size_t f = 0; f < image->nfiles && !rc; f++) {
        for (; r < image->file[f].owner; r++)
            place += (size_t)b->report[r].nplaces;
        at[f] = r < b->peers && b->report[r].nplaces ? place : SIZE_MAX;
    }
    if (!rc)
        rc = spread_places(b, at, n, err);
    rsi_free(at);
    rsi_free(n);
    return rc;
}

/* ---- messages: a rank posts the receive for an answer before it sends the question. So rank 0,
 * which has published by then, needs no memory to inform the others ---- */

static rsd_err hear(rsi_outcome *b, int32_t peer, int what, int32_t tag, void *to, size_t bytes,
                    rsd_error *err)
{
    int32_t from = b->peer[(size_t)peer * SLOTS];

    return rsi_recv(b->c->comm, from, tag, to, bytes, slot(b, peer, what), err);
}

static rsd_err tell(rsi_outcome *b, int32_t peer, int what, int32_t tag, const void *data,
                    size_t bytes, rsd_error *err)
{
    int32_t to = b->peer[(size_t)peer * SLOTS];

    return rsi_send(b->c->comm, to, tag, data, bytes, slot(b, peer, what), err);
}

static bool all_ended(const rsi_outcome *b)
{
    for (size_t i = 0; i < (size_t)b->peers * SLOTS; i++)
        if (b->request[i])
            return false;
    return true;
}

/* ---- rank 0 ---- */

/* The first failed rank's error stands for all; false: none failed. */
static bool take_failure(rsi_outcome *b)
{
    int32_t   n = b->peers ? b->peers : 1, count = 0;
    rsd_error first = { 0 };

    for (int32_t r = 0; r < n; r++) {
        if (b->report[r].err.code == 0)
            continue;
        if (count++ == 0)
            first = b->report[r].err;
    }
    if (count == 0)
        return false;
    b->answer.err = first;
    if (b->c->comm) {
        b->answer.err.nfailed = count;
        rsi_name_rank(&b->answer.err);
    }
    return true;
}

static void fail_here(rsi_outcome *b, rsd_err rc, const rsd_error *err)
{
    b->report[0].err = rsi_failure_of(b->c->comm ? b->c->rank : -1, rc, err);
    take_failure(b);
}

static rsd_err make_room(rsi_outcome *b, rsd_error *err)
{
    rsi_sums    *sums = &b->c->sums;
    uint64_t     rows = sums->n, places = 0;
    rsi_sum_row *grown;

    for (int32_t r = 1; r < b->peers; r++) {
        rows += b->report[r].nsums;
        places += b->report[r].nplaces;
    }
    grown = rsi_realloc(sums->row, (size_t)rows + 1, sizeof(sums->row[0]));
    if (grown) {
        sums->row = grown;
        sums->cap = (size_t)rows + 1;
        rsi_free(b->place);
        b->place = rsi_calloc((size_t)places, sizeof(b->place[0]));
    }
    if (!grown || !b->place)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the %zu rows of all ranks", (size_t)rows);
    b->nplaces = (size_t)places;
    return RSD_OK;
}

/* Asks every rank that has rows for them; they are received directly in place. */
static rsd_err ask_rows(rsi_outcome *b, rsd_error *err)
{
    rsi_sums *sums = &b->c->sums;
    size_t    place = 0;
    rsd_err   rc = RSD_OK;

    b->own_sums = sums->n;
    b->ask = (rsi_report){ .nsums = 1 };
    for (int32_t r = 1; r < b->peers && !rc; r++) {
        const rsi_report *from = &b->report[r];

        if (from->nsums == 0 && from->nplaces == 0)
            continue;
        if (from->nsums)
            rc = hear(b, r, IN, TAG_ROWS, sums->row + sums->n,
                      (size_t)from->nsums * sizeof(sums->row[0]), err);
        if (!rc && from->nplaces)
            rc = hear(b, r, PLACES, TAG_PLACES, b->place + place,
                      (size_t)from->nplaces * sizeof(b->place[0]), err);
        if (!rc)
            rc = tell(b, r, OUT, TAG_ANSWER, &b->ask, sizeof(b->ask), err);
        sums->n += (size_t)from->nsums;
        place += (size_t)from->nplaces;
    }
    b->step = RSI_OUTCOME_ROWS;
    return rc;
}

static rsd_err tell_all(rsi_outcome *b, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t r = 1; r < b->peers && !rc; r++)
        rc = tell(b, r, OUT, TAG_ANSWER, &b->answer, sizeof(b->answer), err);
    b->step = RSI_OUTCOME_VERDICT;
    return rc;
}

/* Every rank has reported success, and all rows have arrived. */
static rsd_err publish(rsi_outcome *b, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = take_places(b, &why);

    if (b->c->apart)
        number_files(b);
    if (!rc)
        rc = rsi_commit_close(b->c, &why); /* C4 */
    if (!rc && b->last)
        rc = b->last(b->arg, &why);
    if (!rc)
        rc = rsi_commit_name(b->c, &why); /* C5 */
    if (rc)
        fail_here(b, rc, &why);
    return tell_all(b, err);
}

/* All reports have arrived. */
static rsd_err count(rsi_outcome *b, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc;

    if (take_failure(b))
        return tell_all(b, err);
    rc = make_room(b, &why);
    if (rc) {
        fail_here(b, rc, &why);
        return tell_all(b, err);
    }
    return ask_rows(b, err);
}

/* ---- other ranks ---- */

static rsd_err give_rows(rsi_outcome *b, rsd_error *err)
{
    const rsi_sums *sums = &b->c->sums;
    rsd_err         rc;

    rc = hear(b, 0, OUT, TAG_ANSWER, &b->answer, sizeof(b->answer), err);
    if (!rc && sums->n)
        rc = tell(b, 0, IN, TAG_ROWS, sums->row, sums->n * sizeof(sums->row[0]), err);
    if (!rc && b->nplaces)
        rc = tell(b, 0, PLACES, TAG_PLACES, b->place, b->nplaces * sizeof(b->place[0]), err);
    b->step = RSI_OUTCOME_ROWS;
    return rc;
}

/* ---- both roles ---- */

/* Sends the report, or posts receives for all reports. */
static rsd_err open_vote(rsi_outcome *b, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    b->step = RSI_OUTCOME_REPORTS;
    if (!b->peers)
        return RSD_OK;
    if (!leads(b)) {
        rc = hear(b, 0, OUT, TAG_ANSWER, &b->answer, sizeof(b->answer), err);
        return rc ? rc : tell(b, 0, IN, TAG_REPORT, &b->report[0], sizeof(b->report[0]), err);
    }
    for (int32_t r = 1; r < b->peers && !rc; r++)
        rc = hear(b, r, IN, TAG_REPORT, &b->report[r], sizeof(b->report[r]), err);
    return rc;
}

void rsi_outcome_vote(rsi_outcome *b, rsd_err mine, const rsd_error *err)
{
    rsi_report *own = &b->report[0];
    rsd_error   why;
    size_t      n = rsi_places_list(b->c, NULL);

    if (!mine && b->peers && !leads(b)) {
        b->place = rsi_calloc(n, sizeof(b->place[0]));
        if (!b->place) {
            mine = rsi_fail(&why, RSD_E_NOMEM, "no memory for the places of %zu items", n);
            err = &why;
        } else {
            b->nplaces = rsi_places_list(b->c, b->place);
            for (size_t i = 0; b->c->apart && i < b->nplaces; i++)
                b->place[i].row = i; /* rank 0 numbers items differently */
        }
    }
    own->nsums = b->c->sums.n;
    own->nplaces = b->nplaces;
    if (mine)
        own->err = rsi_failure_of(b->c->comm ? b->c->rank : -1, mine, err);
    b->step = RSI_OUTCOME_IDLE;
}

/* Takes one step once everything in flight has arrived. */
static rsd_err advance(rsi_outcome *b, rsd_error *err)
{
    if (b->step == RSI_OUTCOME_IDLE)
        return open_vote(b, err);
    if (b->step == RSI_OUTCOME_VERDICT) {
        b->step = RSI_OUTCOME_DONE;
        return RSD_OK;
    }
    if (leads(b))
        return b->step == RSI_OUTCOME_REPORTS ? count(b, err) : publish(b, err);
    if (b->peers && b->answer.nsums && b->step == RSI_OUTCOME_REPORTS)
        return give_rows(b, err);
    if (!b->peers)
        take_failure(b);
    b->step = RSI_OUTCOME_DONE;
    return RSD_OK;
}

static rsd_err look(rsi_outcome *b, bool wait, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (wait)
        return rsi_wait_all(b->c->comm, (size_t)b->peers * SLOTS, b->request, b->peer, "save", err);
    for (size_t i = 0; i < (size_t)b->peers * SLOTS && !rc; i++)
        if (b->request[i])
            rc = rsi_test(b->c->comm, &b->request[i], err);
    return rc;
}

rsd_err rsi_outcome_go(rsi_outcome *b, bool wait, bool *done, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (b->step != RSI_OUTCOME_DONE && !rc) {
        if (b->peers)
            rc = look(b, wait, err);
        if (!rc && !all_ended(b))
            break;
        if (!rc)
            rc = advance(b, err);
    }
    *done = rc || b->step == RSI_OUTCOME_DONE;
    if (rc)
        return rsi_break(b->c->comm, rc, err);
    if (*done && b->answer.err.code && err)
        *err = b->answer.err;
    return *done ? (rsd_err)b->answer.err.code : RSD_OK;
}

rsd_err rsi_outcome_settle(rsi_commit *c, rsd_err mine, rsd_err (*last)(void *arg, rsd_error *err),
                           void *arg, rsd_error *err)
{
    rsi_outcome b = { 0 };
    rsd_error   spare;
    bool        done;
    rsd_err     rc = mine;

    err = err ? err : &spare;
    if (!rc)
        rc = rsi_outcome_begin(&b, c, err);
    rc = rsi_commit_agree(c, rc, err);
    if (!rc) {
        b.last = last;
        b.arg = arg;
        rsi_outcome_vote(&b, RSD_OK, NULL);
        rc = rsi_outcome_go(&b, true, &done, err);
    }
    if (rc && b.peers && b.answer.err.code) { /* so that rsd_comm_failures includes it */
        if (rsi_commit_leads(c))
            *err = b.report[0].err;
        rc = rsi_commit_agree(c, rsi_commit_leads(c) ? rc : RSD_OK, err);
    }
    if (!rsi_outcome_end(&b))
        c->sums = (rsi_sums){ 0 }; /* still used by the transport: never freed */
    return rc;
}
