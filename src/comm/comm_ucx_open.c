/* SPDX-License-Identifier: Apache-2.0 */
/* How a comm on UCX begins and ends. All ranks put the address of their worker where the others get
 * it (rounds.c); connections are made when something is sent. At the end all ranks wait for each
 * other before they close them, so that nothing on its way is lost. */
#include "comm/comm_ucx_end.h"
#include "comm/clock.h"
#include "comm/rounds.h"
#include "comm/ucx_plugin.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define MAGIC      UINT64_C(0x317863756b727372) /* of this protocol and byte order */
#define MESH_RANKS 128
#define TELL_MS    5000 /* for ranks to hear that the family is broken */
#define LAST_MS    1000 /* for the last messages to leave */

/* ---- closing ---- */

static bool all_closed(const rsi_ucx_family *f)
{
    bool all = true;

    for (int32_t r = 0; r < f->size && all; r++)
        all = !f->peer[r].bye || f->peer[r].bye->done;
    return all;
}

/* What breaks the family has left for all ranks that are to hear of it; for one that this rank has
 * no connection with yet, that takes an answer. */
static bool all_told(const rsi_ucx_family *f)
{
    bool all = true;

    for (int32_t r = 0; r < f->size && all; r++)
        all = !f->peer[r].told || f->peer[r].failed || f->peer[r].told->done;
    return all;
}

/* Those that know will not take it for the reason that this rank leaves. */
static bool all_know(const rsi_ucx_family *f)
{
    bool all = true;

    for (int32_t r = 0; r < f->size && all; r++)
        all = !f->peer[r].told || f->peer[r].failed || f->peer[r].knows;
    return all;
}

static void progress_until(rsi_ucx_family *f, bool (*is)(const rsi_ucx_family *), int64_t ms)
{
    int64_t until = rsi_clock_ms() + ms;

    while (!is(f) && rsi_clock_ms() < until)
        if (!rsi_ucx_progress(f))
            rsi_ucx_relax(0);
}

static void close_endpoints(rsi_ucx_family *f)
{
    if (f->broken) {
        progress_until(f, all_told, TELL_MS);
        progress_until(f, all_know, LAST_MS);
    }
    for (int32_t r = 0; r < f->size; r++)
        rsi_ucx_hang_up(&f->peer[r], f->broken);
    progress_until(f, all_closed, LAST_MS);
}

static void family_free(rsi_ucx_family *f)
{
    rsi_ucx_message *listen;

    f->closing = true;
    if (f->worker && f->peer)
        close_endpoints(f);
    listen = f->listen;
    f->listen = NULL;
    if (listen)
        rsi_ucx_withdraw(f, listen);
    for (int32_t r = 0; r < f->size && f->peer; r++) {
        rsi_ucx_drop(f, f->peer[r].told);
        rsi_ucx_drop(f, f->peer[r].bye);
    }
    if (f->worker)
        ucp_worker_destroy(f->worker);
    if (f->context)
        ucp_cleanup(f->context);
    rsi_free_list_release(&f->spares);
    rsi_free(f->addresses);
    rsi_free(f->peer);
    rsi_ucx_unlock(f);
    pthread_mutex_destroy(&f->lock);
    if (f->meeting.hangup)
        f->meeting.hangup(f->meeting.arg, f->broken);
    rsi_free(f);
}

void rsi_ucx_close(void *self)
{
    rsi_ucx_end    *e = self;
    rsi_ucx_family *f = e->family;
    rsi_ucx_end   **at = &f->ends;
    rsd_error       err;

    if (rsi_ucx_lock(f, &err)) /* a child's copy */
        return;
    rsi_shared_memory_free(&e->memory);
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    rsi_free(e->ranks);
    rsi_free(e);
    if (f->ends)
        rsi_ucx_unlock(f);
    else
        family_free(f);
}

/* Twice: once the first is over all have come, and one whose connection ends has only been faster;
 * until then none has closed its own. */
rsd_err rsi_ucx_meet(void *self, int64_t timeout_ms, rsd_error *err)
{
    rsi_ucx_end    *e = self;
    rsi_ucx_family *f = e->family;
    rsd_error       late;
    bool            all;
    rsd_err         rc = rsi_ucx_enter(f, err);

    if (rc)
        return rc;
    if (!e->next && f->ends == e) {
        rc = rsi_ucx_all(f, NULL, true, timeout_ms, &all, err);
        if (!rc) {
            f->closing = true;
            rsi_ucx_all(f, NULL, true, LAST_MS, &all, &late);
        }
    }
    rsi_ucx_unlock(f);
    return rc ? rsi_while(err, rc, "freeing the comm") : RSD_OK;
}

/* ---- opening ---- */

static rsd_err open_worker(rsi_ucx_family *f, rsd_error *err)
{
    const ucp_params_t        want = { .field_mask =
                                           UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                                       .features = UCP_FEATURE_TAG,
                                       .estimated_num_eps = (size_t)f->size };
    const ucp_worker_params_t one = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                      .thread_mode = UCS_THREAD_MODE_SERIALIZED };
    ucp_config_t             *config = NULL;
    ucs_status_t              status = ucp_config_read(NULL, NULL, &config);

    /* Connect without waiting: otherwise UCX (all versions up to 1.22) ends the program if a rank
     * dies while it takes this one's connection. 1.18 and newer want the setting's whole name,
     * older ones without the prefix; either ignores the other. */
    if (status == UCS_OK)
        ucp_config_modify(config, "TCP_CONN_NB", "y");
    if (status == UCS_OK)
        ucp_config_modify(config, "CONN_NB", "y");
    if (status == UCS_OK)
        status = ucp_init(&want, config, &f->context);
    if (config)
        ucp_config_release(config);
    if (status == UCS_OK)
        status = ucp_worker_create(f->context, &one, &f->worker);
    if (status != UCS_OK)
        return rsi_fail(err, RSD_E_COMM, "UCX can't be used here: %s", ucs_status_string(status));
    return RSD_OK;
}

/* Appends this rank's card and its worker's address. */
static rsd_err describe(rsi_ucx_family *f, rsi_bytes *out, rsd_error *err)
{
    rsi_ucx_card   mine = { .magic = MAGIC, .pid = getpid() };
    ucp_address_t *address;
    size_t         bytes;
    ucs_status_t   status;
    bool           added;

    if (getrandom(mine.cookie, sizeof(mine.cookie), 0) != (ssize_t)sizeof(mine.cookie))
        return rsi_fail_errno(err, RSD_E_COMM, errno, "no random numbers");
    status = ucp_worker_get_address(f->worker, &address, &bytes);
    if (status != UCS_OK)
        return rsi_fail(err, RSD_E_COMM, "UCX gives no address: %s", ucs_status_string(status));
    added = rsi_bytes_add(out, &mine, sizeof(mine)) && rsi_bytes_add(out, address, bytes);
    ucp_worker_release_address(f->worker, address);
    return added ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for an address");
}

/* Takes the cards and addresses of all ranks; `all` becomes the family's. */
static rsd_err take_all(rsi_ucx_family *f, rsi_bytes *all, rsd_error *err)
{
    rsi_reader in = { all->at, all->at + all->len, false };

    f->addresses = all->at;
    *all = (rsi_bytes){ 0 };
    for (int32_t r = 0; r < f->size; r++) {
        rsi_ucx_peer *p = &f->peer[r];
        uint64_t      n = 0;

        rsi_read_copy(&in, &n, sizeof(n));
        if (n <= sizeof(p->card) || !rsi_read_copy(&in, &p->card, sizeof(p->card)) ||
            p->card.magic != MAGIC)
            return rsi_fail(
                err, RSD_E_MISMATCH,
                "the ranks have different versions of the library or different machines");
        p->address = rsi_read_next(&in, n - sizeof(p->card));
        if (!p->address)
            return rsi_fail(err, RSD_E_COMM, "the address of rank %" PRId32 " is truncated", r);
    }
    return RSD_OK;
}

/* Waits until the connection to a rank is made. */
static rsd_err await_connection(rsi_ucx_family *f, int32_t rank, int64_t until, rsd_error *err)
{
    const ucp_request_param_t how = { 0 };
    rsi_ucx_peer             *p = &f->peer[rank];
    ucs_status_ptr_t          flush = p->ep ? ucp_ep_flush_nbx(p->ep, &how) : NULL;
    rsd_err                   rc = RSD_OK;

    while (!rc && UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS) {
        if (!rsi_ucx_progress(f))
            rsi_ucx_relax(0);
        rc = rsi_ucx_usable(f, err);
        if (!rc && rsi_clock_ms() > until) {
            rc = rsi_fail(err, RSD_E_TIMEOUT, "rank %" PRId32 " did not answer", rank);
            err->rank = rank;
            err->nfailed = 1;
        }
    }
    if (UCS_PTR_IS_PTR(flush))
        ucp_request_free(flush);
    return rc;
}

/* Connects all ranks unless they are very many. Those connections are there before anything can go
 * wrong: a rank that has none learns later that another is gone, or why. Without progress before
 * all have begun: until then UCX has taken up no rank's connection (see look_around). */
static rsd_err connect_all(rsi_ucx_family *f, int64_t until, rsd_error *err)
{
    int64_t left;
    bool    all;
    rsd_err rc = RSD_OK;

    if (f->size > MESH_RANKS)
        return RSD_OK;
    for (int32_t r = 0; r < f->size; r++) {
        rsd_error more;
        rsd_err   one = rsi_ucx_connect(&f->peer[r], rc ? &more : err);

        rc = rc ? rc : one;
    }
    for (int32_t r = 0; r < f->size && !rc; r++)
        rc = await_connection(f, r, until, err);
    left = until - rsi_clock_ms();
    if (!rc)
        rc = rsi_ucx_all(f, NULL, true, left > 0 ? left : 0, &all, err);
    if (f->broken) /* by a rank that is further: the next call says why */
        return RSD_OK;
    if (rc) /* or the others would take this rank's leaving for the reason */
        rsi_ucx_break(f, err);
    return rc ? rsi_while(err, rc, "connecting %" PRId32 " ranks", f->size) : RSD_OK;
}

static rsi_ucx_family *family_create(int32_t rank, int32_t size)
{
    rsi_ucx_family *f = rsi_calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->pid = getpid();
    f->rank = rank;
    f->size = size;
    f->lost = -1;
    while ((int64_t)1 << f->rank_bits < size)
        f->rank_bits++;
    f->peer = rsi_calloc((size_t)size, sizeof(f->peer[0]));
    for (int32_t r = 0; r < size && f->peer; r++)
        f->peer[r].family = f;
    return f;
}

static rsd_err open_all(rsi_ucx_family *f, const rsd_meeting *with, rsd_error *err)
{
    rsi_rounds rounds = rsi_rounds_begin(f->rank, f->size, with);
    rsi_bytes  mine = { 0 }, all = { 0 };
    rsd_err    rc = RSD_OK;

    if (!f->peer || !rsi_ucx_end_open(f, 0, f->rank, f->size, NULL))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " ranks", f->size);
    if (!rc)
        rc = open_worker(f, err);
    if (!rc)
        rc = describe(f, &mine, err);
    rc = rsi_round(&rounds, "ucx", rc, mine.at, mine.len, &all, err);
    if (!rc)
        rc = take_all(f, &all, err);
    if (!rc)
        rsi_ucx_listen(f);
    if (!rc && !f->listen)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a comm");
    if (!rc)
        rc = connect_all(f, rounds.until, err);
    rsi_free(mine.at);
    rsi_free(all.at);
    return rc;
}

rsd_err rsd_ucx_transport(int32_t rank, int32_t count, const rsd_meeting *with,
                          const rsd_comm_ops **ops, void **self, rsd_error *err)
{
    rsi_ucx_family *f = family_create(rank, count);
    rsd_err         rc;

    if (!f)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " ranks", count);
    rsi_ucx_lock(f, err);
    rc = open_all(f, with, err);
    if (rc) {
        if (f->ends)
            rsi_free(f->ends->ranks);
        rsi_free(f->ends);
        family_free(f);
        return rc;
    }
    f->meeting = *with;
    *ops = &rsi_ucx_ops;
    *self = f->ends;
    rsi_ucx_unlock(f);
    return RSD_OK;
}
