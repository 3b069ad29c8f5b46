/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of unfinished rows behind a lock. fetch_jobs.c feeds them, a conversion finishes
 * those that are left. */
#include "read/row_streams.h"
#include "base/mem.h"

#include <pthread.h>

enum { MOST = 64 };              /* rows at a time; few threads read more than two each */
#define FEW ((uint64_t)64 << 10) /* bytes around the elements that are read for the hash alone */

struct rsi_row_stream {
    const rsi_sum_row  *row; /* NULL: not in use */
    rsi_hash128_stream *hash;
    uint64_t            next; /* the first byte of the file that was not fed */
    size_t              t;
    uint32_t            file;
    bool                busy; /* a thread reads bytes of it */
};

struct rsi_row_streams {
    rsd_ckpt       *ckpt;
    pthread_mutex_t lock;
    rsi_row_stream  list[MOST];
};

rsd_err rsi_row_streams_create(rsd_ckpt *ckpt, rsi_row_streams **out, rsd_error *err)
{
    rsi_row_streams *s = rsi_calloc(1, sizeof(*s));

    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for checksums");
    s->ckpt = ckpt;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return RSD_OK;
}

void rsi_row_streams_free(rsi_row_streams *s)
{
    if (!s)
        return;
    for (int i = 0; i < MOST; i++)
        rsi_hash128_free(s->list[i].hash);
    pthread_mutex_destroy(&s->lock);
    rsi_free(s);
}

/* The row's stream, or one that is free; NULL: none. */
static rsi_row_stream *find(rsi_row_streams *s, const rsi_sum_row *row)
{
    rsi_row_stream *free = NULL;

    for (int i = 0; i < MOST; i++) {
        if (s->list[i].row == row)
            return &s->list[i];
        if (!s->list[i].row)
            free = &s->list[i];
    }
    return free;
}

static bool is_known(rsi_row_streams *s, const rsi_sum_row *row)
{
    const rsi_row_stream *stream = find(s, row);

    return stream && stream->row;
}

/* Feeds bytes that no element is in. */
static rsd_err feed(const rsi_row_streams *s, rsi_row_stream *stream, uint64_t end, rsd_error *err)
{
    const uint64_t bytes = end - stream->next;
    rsi_steps      steps = { .file = s->ckpt->files.file[stream->file], .hash = stream->hash };
    void          *buf;
    rsd_err        rc;

    if (bytes == 0)
        return RSD_OK;
    buf = rsi_alloc_aligned(4096, FEW);
    rc = buf ? rsi_steps_read(&steps, stream->next, bytes, buf, err)
             : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    rsi_free(buf);
    stream->next = end;
    return rc;
}

static void release(rsi_row_streams *s, rsi_row_stream *stream)
{
    pthread_mutex_lock(&s->lock);
    stream->row = NULL;
    stream->busy = false;
    pthread_mutex_unlock(&s->lock);
}

/* With the lock held: the row's stream, made and claimed if nobody has; NULL: there can be none.
 * Short rows are read again in one call, so they get none. */
static rsd_err find_or_make(rsi_row_streams *s, rsi_extents *claims, size_t t, uint32_t file,
                            const rsi_sum_row *row, rsi_row_stream **out, rsd_error *err)
{
    rsi_row_stream *stream = find(s, row);
    bool            first = false;
    rsd_err         rc;

    *out = stream;
    if (stream && stream->row)
        return RSD_OK;
    *out = NULL;
    if (!stream || row->len <= RSI_CHECK_STEP)
        return RSD_OK;
    if (!stream->hash)
        stream->hash = rsi_hash128_create();
    if (!stream->hash)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checksum");
    rc = rsi_extents_first(claims, file, row->off, &first, err);
    if (rc || !first)
        return rc;
    rsi_hash128_begin(stream->hash);
    *stream = (rsi_row_stream){
        .row = row, .hash = stream->hash, .next = row->off, .t = t, .file = file
    };
    *out = stream;
    return RSD_OK;
}

rsd_err rsi_row_stream_owe(rsi_row_streams *s, rsi_extents *claims, size_t t, uint32_t file,
                           const rsi_sum_row *row, bool *owed, rsd_error *err)
{
    rsi_row_stream *stream;
    rsd_err         rc;

    pthread_mutex_lock(&s->lock);
    rc = find_or_make(s, claims, t, file, row, &stream, err);
    pthread_mutex_unlock(&s->lock);
    *owed = !rc && stream;
    return rc;
}

rsd_err rsi_row_stream_take(rsi_row_streams *s, rsi_extents *claims, size_t t, uint32_t file,
                            const rsi_sum_row *row, uint64_t at, rsi_row_stream **out,
                            rsi_hash128_stream **hash, rsd_error *err)
{
    rsi_row_stream *stream = NULL;
    rsd_err         rc = RSD_OK;

    *out = NULL;
    pthread_mutex_lock(&s->lock);
    if (at - row->off <= FEW || is_known(s, row))
        rc = find_or_make(s, claims, t, file, row, &stream, err);
    if (stream &&
        (stream->busy || (stream->next != at && (stream->next != row->off || at - row->off > FEW))))
        stream = NULL; /* out of order: finished at the end */
    if (stream)
        stream->busy = true;
    pthread_mutex_unlock(&s->lock);
    if (rc || !stream)
        return rc;
    rc = feed(s, stream, at, err);
    if (rc) {
        release(s, stream);
        return rc;
    }
    *out = stream;
    *hash = stream->hash;
    return RSD_OK;
}

rsd_err rsi_row_stream_put(rsi_row_streams *s, rsi_row_stream *stream, uint64_t end, bool failed,
                           rsd_error *err)
{
    const uint64_t row_end = stream->row->off + stream->row->len;
    rsd_err        rc = RSD_OK;

    stream->next = end;
    if (!failed && row_end - end > FEW) {
        pthread_mutex_lock(&s->lock);
        stream->busy = false;
        pthread_mutex_unlock(&s->lock);
        return RSD_OK;
    }
    if (!failed)
        rc = feed(s, stream, row_end, err);
    if (!failed && !rc)
        rc = rsi_check_hash(stream->row, stream->hash, err);
    release(s, stream);
    return rc;
}

rsd_err rsi_row_streams_finish(rsi_row_streams *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < MOST && !rc; i++) {
        const rsi_row_stream *stream = &s->list[i];
        rsd_tensor_info       info;

        if (!stream->row)
            continue;
        s->ckpt->ops->tensor(s->ckpt, stream->t, &info);
        rc = rsi_check_row(s->ckpt->files.file[stream->file], stream->row, err);
        if (rc)
            rsi_while(err, rc, "file \"%s\"", rsi_files_name(&s->ckpt->files, stream->file));
        if (rc)
            rsi_while(err, rc, "tensor \"%s\"", info.name);
    }
    return rc;
}
