/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder, a ring with the last bytes that it produced, and a copy of the first ones: an archive
 * is read at both of its ends. */
#include "format/decoded.h"
#include "base/crc32.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

#define WINDOW  ((size_t)256 << 10) /* at first */
#define STEP    ((size_t)128 << 10) /* bytes to decode at once: still cached when they are copied */
#define DECODER ((size_t)3 << 20)   /* what one for torch's streams takes */

struct rsi_decoded {
    const char *const *descriptor; /* [n] */
    size_t             n;
    rsi_source         source;
    uint64_t           max_out;
    pthread_mutex_t    lock;     /* for all below */
    rsi_undo          *undo;     /* NULL: before the first byte, or after the last one */
    uint64_t           from, at; /* the ring holds bytes [from, at) */
    uint64_t           end;      /* UINT64_MAX: not reached yet */
    unsigned char     *ring;     /* [window] byte i is at i % window */
    size_t             window;
    unsigned char      front[RSI_DECODED_FRONT];
    size_t             front_len;
    uint64_t           crc_off, crc_end, crc_at; /* `crc` is that of [crc_off, crc_at) */
    uint32_t           crc;
};

rsd_err rsi_decoded_create(const char *const *descriptor, size_t n, const rsi_source *source,
                           uint64_t max_out, rsi_decoded **out, rsd_error *err)
{
    rsi_decoded        *d = rsi_calloc(1, sizeof(*d));
    pthread_mutexattr_t attr;

    if (!d)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to decode");
    d->descriptor = descriptor;
    d->n = n;
    d->source = *source;
    d->max_out = max_out;
    d->end = UINT64_MAX;
    d->window = WINDOW;
    d->ring = rsi_alloc_aligned(64, WINDOW);
    if (!d->ring) {
        rsi_free(d);
        return rsi_fail(err, RSD_E_NOMEM, "no memory to decode");
    }
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&d->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    *out = d;
    return RSD_OK;
}

void rsi_decoded_free(rsi_decoded *d)
{
    if (!d)
        return;
    rsi_undo_free(d->undo);
    pthread_mutex_destroy(&d->lock);
    rsi_free(d->ring);
    rsi_free(d);
}

rsd_err rsi_decoded_widen(rsi_decoded *d, size_t window, rsd_error *err)
{
    const bool     all = window > d->max_out;
    unsigned char *ring;
    rsi_source     source;

    window = all ? (size_t)d->max_out + 1 : window;
    if (window <= d->window)
        return all ? rsi_decoded_source(d, &source, err) : RSD_OK;
    ring = rsi_alloc_aligned(64, window);
    if (!ring)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to decode");
    if (d->from == 0)
        memcpy(ring, d->ring, (size_t)d->at);
    else
        d->from = d->at; /* the bytes are elsewhere in the new one */
    rsi_free(d->ring);
    d->ring = ring;
    d->window = window;
    return all ? rsi_decoded_source(d, &source, err) : RSD_OK;
}

size_t rsi_decoded_memory(const rsi_decoded *d)
{
    return sizeof(*d) + (d->undo ? DECODER : 0) + (d->end < d->window ? (size_t)d->end : d->window);
}

/* ---- with the lock held ---- */

/* Bytes from `off` on that lie in one piece in memory. */
static size_t known(const rsi_decoded *d, uint64_t off, const unsigned char **out)
{
    const size_t spot = (size_t)(off % d->window);

    if (off < d->front_len) {
        *out = d->front + off;
        return d->front_len - (size_t)off;
    }
    if (off < d->from || off >= d->at)
        return 0;
    *out = d->ring + spot;
    return d->at - off < d->window - spot ? (size_t)(d->at - off) : d->window - spot;
}

static void pass_crc(rsi_decoded *d)
{
    const unsigned char *bytes;
    size_t               len;

    while (d->crc_at < d->crc_end && (len = known(d, d->crc_at, &bytes))) {
        if (len > d->crc_end - d->crc_at)
            len = (size_t)(d->crc_end - d->crc_at);
        d->crc = rsi_crc32(d->crc, bytes, len);
        d->crc_at += len;
    }
}

static void start_over(rsi_decoded *d)
{
    rsi_undo_free(d->undo);
    d->undo = NULL;
    d->from = d->at = 0;
}

/* Decodes the next bytes, or finds the end. */
static rsd_err advance(rsi_decoded *d, rsd_error *err)
{
    const size_t spot = (size_t)(d->at % d->window);
    size_t       got = 0, front = RSI_DECODED_FRONT - d->front_len;
    rsd_err      rc = RSD_OK;

    if (!d->undo)
        rc = rsi_undo_create(d->descriptor, d->n, &d->source, d->max_out, &d->undo, err);
    if (!rc)
        rc = rsi_undo_read(d->undo, d->ring + spot,
                           d->window - spot < STEP ? d->window - spot : STEP, &got, err);
    if (rc) {
        start_over(d); /* a decoder that has failed is of no use to the next reader */
        return rc;
    }
    if (got == 0) {
        d->end = d->at;
        rsi_undo_free(d->undo);
        d->undo = NULL;
        return RSD_OK;
    }
    if (d->at == d->front_len && front) {
        memcpy(d->front + d->front_len, d->ring + spot, got < front ? got : front);
        d->front_len += got < front ? got : front;
    }
    d->at += got;
    if (d->at - d->from > d->window)
        d->from = d->at - d->window;
    pass_crc(d);
    return RSD_OK;
}

static rsd_err read_some(rsi_decoded *d, uint64_t off, unsigned char *to, size_t len,
                         rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (len && !rc) {
        const unsigned char *bytes;
        size_t               take = known(d, off, &bytes);

        take = take < len ? take : len;
        if (take) {
            memcpy(to, bytes, take);
            to += take;
            off += take;
            len -= take;
        } else if (off < d->from) {
            start_over(d);
        } else if (d->at < d->end) {
            rc = advance(d, err);
        } else {
            rc = rsi_fail(err, RSD_E_FORMAT,
                          "file \"%s\": the bytes at byte %" PRIu64
                          " are needed after byte %" PRIu64 " of what they give, which is the end",
                          d->source.name, d->source.start, off);
        }
    }
    return rc;
}

/* ---- for other files ---- */

void rsi_decoded_hold(rsi_decoded *d, bool on)
{
    if (on)
        pthread_mutex_lock(&d->lock);
    else
        pthread_mutex_unlock(&d->lock);
}

rsd_err rsi_decoded_read(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    rsi_decoded *d = arg;
    rsd_err      rc;

    pthread_mutex_lock(&d->lock);
    rc = read_some(d, off, buf, len, err);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

rsd_err rsi_decoded_front(rsi_decoded *d, const unsigned char **out, size_t *len, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&d->lock);
    while (d->front_len < RSI_DECODED_FRONT && d->at < d->end && !rc)
        rc = advance(d, err);
    *out = d->front;
    *len = d->front_len;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

rsd_err rsi_decoded_source(rsi_decoded *d, rsi_source *out, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&d->lock);
    while (d->end == UINT64_MAX && !rc)
        rc = advance(d, err);
    *out =
        (rsi_source){ .read = rsi_decoded_read, .arg = d, .size = d->end, .name = d->source.name };
    pthread_mutex_unlock(&d->lock);
    return rc;
}

static void watch(rsi_decoded *d, uint64_t off, uint64_t len)
{
    d->crc_off = d->crc_at = off;
    d->crc_end = off + len;
    d->crc = 0;
    pass_crc(d);
}

void rsi_decoded_watch(rsi_decoded *d, uint64_t off, uint64_t len)
{
    pthread_mutex_lock(&d->lock);
    watch(d, off, len);
    pthread_mutex_unlock(&d->lock);
}

rsd_err rsi_decoded_crc(rsi_decoded *d, uint64_t off, uint64_t len, uint32_t *out, rsd_error *err)
{
    unsigned char one;
    rsd_err       rc = RSD_OK;

    pthread_mutex_lock(&d->lock);
    if (d->crc_off != off || d->crc_end != off + len)
        watch(d, off, len);
    while (d->crc_at < d->crc_end && !rc) {
        rc = read_some(d, d->crc_at, &one, 1, err);
        pass_crc(d);
    }
    *out = d->crc;
    pthread_mutex_unlock(&d->lock);
    return rc;
}
