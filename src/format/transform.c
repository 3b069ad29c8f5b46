/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of stream transforms and the streams that run them. What a transform does to the
 * bytes is up to it; the code here ensures that it makes progress and that its output stays within
 * the caller's limit. */
#include "base/opts.h"
#include "format/transform.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { REGISTRY_MAX = 64, CHUNK = 1 << 16 };

/* ---- registry -------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rsd_transform
              registry[REGISTRY_MAX]; /* only grows, so entries can be used without the lock */
static size_t registered;

/* Length of the part before the version. */
static size_t name_len(const char *descriptor)
{
    return strcspn(descriptor, "/");
}

/* Call with the lock held. */
static const rsd_transform *lookup(const char *name, size_t len)
{
    const rsd_transform *zstd = rsi_transform_zstd(0);

    if (zstd && strlen(zstd->name) == len && memcmp(zstd->name, name, len) == 0)
        return zstd;
    for (size_t i = 0; i < registered; i++)
        if (strlen(registry[i].name) == len && memcmp(registry[i].name, name, len) == 0)
            return &registry[i];
    return NULL;
}

rsd_err rsd_transform_register(const rsd_transform *transform, rsd_error *err)
{
    rsd_transform known = { .size = sizeof(known) }, *t = &known;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), transform, "rsd_transform", err);

    if (rc)
        return rc;
    if (!t->name || !t->version || !t->begin || !t->feed || !t->end || !t->free)
        return rsi_fail(err, RSD_E_INVALID,
                        "a transform needs a name, a version and all functions");
    if (!t->name[0] || t->name[name_len(t->name)] || !t->version[0])
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" with version \"%s\" can't name a transform",
                        t->name, t->version);
    pthread_mutex_lock(&lock);
    if (lookup(t->name, strlen(t->name)))
        rc = rsi_fail(err, RSD_E_EXISTS, "there is a transform \"%s\" already", t->name);
    else if (registered == REGISTRY_MAX)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "no more than %d transforms can be registered",
                      (int)REGISTRY_MAX);
    else
        registry[registered++] = *t;
    pthread_mutex_unlock(&lock);
    return rc;
}

void rsi_transform_lock(bool on)
{
    if (on)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

/* The number before the first dot must be equal. A descriptor without a version accepts any. */
static bool version_fits(const char *have, const char *wanted)
{
    size_t len = strcspn(have, ".");

    return !*wanted || (strcspn(wanted, ".") == len && memcmp(have, wanted, len) == 0);
}

/* "stream.zstd:9" */
static rsd_err find_level(const char *descriptor, const rsd_transform **out, rsd_error *err)
{
    const char          *digit = descriptor + 12;
    const rsd_transform *found = NULL;
    int                  level = 0;

    for (; *digit >= '0' && *digit <= '9' && level < 100; digit++)
        level = 10 * level + (*digit - '0');
    if (*digit == '\0' && level > 0)
        found = rsi_transform_zstd(level);
    if (!found)
        return rsi_fail(err, RSD_E_INVALID, "transform \"%s\": the levels of zstd are 1 to 19",
                        descriptor);
    *out = found;
    return RSD_OK;
}

rsd_err rsi_transform_find(const char *descriptor, const rsd_transform **out, rsd_error *err)
{
    size_t               len = name_len(descriptor);
    const char          *version = descriptor + len + (descriptor[len] ? 1 : 0);
    const rsd_transform *found;

    if (strncmp(descriptor, "stream.zstd:", 12) == 0 && rsi_transform_zstd(0))
        return find_level(descriptor, out, err);
    pthread_mutex_lock(&lock);
    found = lookup(descriptor, len);
    pthread_mutex_unlock(&lock);
    if (!found && len == 11 && memcmp(descriptor, "stream.zstd", 11) == 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "transform \"%s\": this build has no zstd",
                        descriptor);
    if (!found)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "unknown transform \"%s\": register it with rsd_transform_register",
                        descriptor);
    if (!version_fits(found->version, version))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "transform \"%s\" is needed, version %s is registered", descriptor,
                        found->version);
    *out = found;
    return RSD_OK;
}

size_t rsi_transform_descriptor(const rsd_transform *t, char *buf, size_t cap)
{
    return (size_t)snprintf(buf, cap, "%s/%s", t->name, t->version);
}

/* ---- one stream ------------------------------------------------------------------------------ */

typedef struct stream {
    const rsd_transform *transform;
    void                *state;
    bool                 done; /* its last byte has been produced */
} stream;

static rsd_err begin(stream *s, const char *descriptor, bool encode, rsd_error *err)
{
    rsd_err rc = rsi_transform_find(descriptor, &s->transform, err);

    return rc ? rc : s->transform->begin(s->transform->arg, encode, &s->state, err);
}

/* `state` is NULL before begin and after a failed begin. */
static void finish(stream *s)
{
    if (s->state)
        s->transform->free(s->state);
    s->state = NULL;
}

static rsd_err refuse(const stream *s, rsd_error *err)
{
    return rsi_fail(err, RSD_E_BUG, "the transform \"%s\" breaks its contract", s->transform->name);
}

static rsd_err feed(stream *s, const unsigned char *in, size_t in_len, size_t *used,
                    unsigned char *out, size_t cap, size_t *made, rsd_error *err)
{
    rsd_err rc;

    *used = *made = 0;
    rc = s->transform->feed(s->state, in, in_len, used, out, cap, made, err);
    if (!rc && (*used > in_len || *made > cap || (*used < in_len && *made < cap)))
        rc = refuse(s, err);
    return rc;
}

static rsd_err end(stream *s, unsigned char *out, size_t cap, size_t *made, rsd_error *err)
{
    rsd_err rc;

    *made = 0;
    if (s->done)
        return RSD_OK;
    rc = s->transform->end(s->state, out, cap, made, &s->done, err);
    if (!rc && (*made > cap || (*made == 0 && !s->done)))
        rc = refuse(s, err);
    return rc;
}

/* ---- undoing --------------------------------------------------------------------------------- */

/* A stream and its pending input. */
typedef struct stage {
    stream         stream;
    unsigned char *in; /* [CHUNK] */
    size_t         at, len;
    bool           over;        /* no more input follows */
    uint64_t       total, most; /* bytes produced, and their limit */
} stage;

struct rsi_undo {
    rsi_source source;
    uint64_t   at; /* next byte of the source */
    size_t     n;
    stage      stage[RSI_UNDO_MAX]; /* [n] the first reads the file */
};

/* The bytes between two transforms can be slightly longer than the final output. */
static uint64_t most_between(uint64_t max_out)
{
    uint64_t slack = max_out / 128 + ((uint64_t)1 << 20);

    return max_out > UINT64_MAX - slack ? UINT64_MAX : max_out + slack;
}

static rsd_err begin_stages(rsi_undo *undo, const char *const *descriptor, uint64_t max_out,
                            rsd_error *err)
{
    for (size_t k = 0; k < undo->n; k++) {
        stage  *s = &undo->stage[k];
        rsd_err rc;

        s->most = k + 1 < undo->n ? most_between(max_out) : max_out;
        s->in = rsi_alloc_aligned(64, CHUNK);
        if (!s->in)
            return rsi_fail(err, RSD_E_NOMEM, "no memory to undo %zu transforms", undo->n);
        rc = begin(&s->stream, descriptor[undo->n - 1 - k], false, err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

rsd_err rsi_undo_create(const char *const *descriptor, size_t n, const rsi_source *source,
                        uint64_t max_out, rsi_undo **out, rsd_error *err)
{
    rsi_undo *undo;
    rsd_err   rc;

    if (n > RSI_UNDO_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "file \"%s\": a stack of %zu transforms",
                        source->name, n);
    if (n == 0 && source->size > max_out)
        return rsi_fail(err, RSD_E_FORMAT,
                        "file \"%s\": %" PRIu64 " bytes where %" PRIu64 " are allowed",
                        source->name, source->size, max_out);
    undo = rsi_calloc(1, sizeof(*undo));
    if (!undo)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to undo %zu transforms", n);
    undo->source = *source;
    undo->n = n;
    rc = begin_stages(undo, descriptor, max_out, err);
    if (rc) {
        rsi_undo_free(undo);
        return rsi_while(err, rc, "file \"%s\"", source->name);
    }
    *out = undo;
    return RSD_OK;
}

void rsi_undo_free(rsi_undo *undo)
{
    if (!undo)
        return;
    for (size_t k = 0; k < undo->n; k++) {
        finish(&undo->stage[k].stream);
        rsi_free(undo->stage[k].in);
    }
    rsi_free(undo);
}

/* The next bytes of the file. *got 0: end of file. */
static rsd_err next_of_file(rsi_undo *undo, void *buf, size_t cap, size_t *got, rsd_error *err)
{
    uint64_t rest = undo->source.size - undo->at;
    size_t   take = rest < cap ? (size_t)rest : cap;
    rsd_err  rc = rsi_source_read(&undo->source, undo->at, buf, take, err);

    if (rc)
        return rc;
    undo->at += take;
    *got = take;
    return RSD_OK;
}

/* Runs a stage on its pending input. *made 0 and not done: it needs more. */
static rsd_err run(const rsi_undo *undo, stage *s, unsigned char *out, size_t cap, size_t *made,
                   rsd_error *err)
{
    size_t  used = 0;
    rsd_err rc;

    if (s->len)
        rc = feed(&s->stream, s->in + s->at, s->len, &used, out, cap, made, err);
    else
        rc = end(&s->stream, out, cap, made, err);
    if (rc)
        return rsi_while(err, rc, "transform \"%s\" of the %" PRIu64 " bytes at byte %" PRIu64,
                         s->stream.transform->name, undo->source.size, undo->source.start);
    s->at += used;
    s->len -= used;
    s->total += *made;
    if (s->total > s->most)
        return rsi_fail(err, RSD_E_FORMAT,
                        "transform \"%s\" of the %" PRIu64 " bytes at byte %" PRIu64
                        " gives more than the %" PRIu64 " bytes that are allowed",
                        s->stream.transform->name, undo->source.size, undo->source.start, s->most);
    return RSD_OK;
}

/* Passes the `made` bytes in its buffer to a stage, or tells it that there will be none. */
static void hand_over(stage *s, size_t made)
{
    s->at = 0;
    s->len = made;
    s->over = made == 0;
}

/* Walks down the stages to one with something to work on, and back up with its output. */
static rsd_err pull(rsi_undo *undo, unsigned char *buf, size_t cap, size_t *got, rsd_error *err)
{
    size_t k = undo->n - 1, last = undo->n - 1;

    for (;;) {
        stage  *s = &undo->stage[k];
        size_t  made = 0;
        rsd_err rc;

        if (s->len == 0 && !s->over && k > 0) {
            k--;
            continue;
        }
        if (s->len == 0 && !s->over) {
            rc = next_of_file(undo, s->in, CHUNK, &made, err);
            if (rc)
                return rc;
            hand_over(s, made);
        }
        rc = run(undo, s, k == last ? buf : undo->stage[k + 1].in, k == last ? cap : CHUNK, &made,
                 err);
        if (rc)
            return rc;
        if (made == 0 && !s->stream.done)
            continue;
        if (k == last) {
            *got = made;
            return RSD_OK;
        }
        hand_over(&undo->stage[++k], made);
    }
}

rsd_err rsi_undo_read(rsi_undo *undo, void *buf, size_t cap, size_t *got, rsd_error *err)
{
    rsd_err rc;

    rc = undo->n ? pull(undo, buf, cap, got, err) : next_of_file(undo, buf, cap, got, err);
    return rc ? rsi_while(err, rc, "file \"%s\"", undo->source.name) : RSD_OK;
}

/* Room for at least one byte more than `len`. Doubles, starting from a size that suits most
 * items. */
static rsd_err more_room(unsigned char **bytes, size_t *cap, size_t len, rsd_error *err)
{
    size_t         want = *cap ? *cap * 2 : 4096;
    unsigned char *larger;

    if (len < *cap)
        return RSD_OK;
    larger = want > *cap ? rsi_realloc(*bytes, want, 1) : NULL;
    if (!larger)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu decoded bytes", want);
    *bytes = larger;
    *cap = want;
    return RSD_OK;
}

rsd_err rsi_undo_all(const char *const *descriptor, size_t n, const rsi_source *source,
                     uint64_t max_out, unsigned char **bytes, size_t *len, rsd_error *err)
{
    rsi_undo      *undo = NULL;
    unsigned char *all = NULL;
    size_t         cap = 0, used = 0, got = 1;
    rsd_err        rc = rsi_undo_create(descriptor, n, source, max_out, &undo, err);

    while (!rc && got) {
        rc = more_room(&all, &cap, used, err);
        if (!rc)
            rc = rsi_undo_read(undo, all + used, cap - used, &got, err);
        if (!rc)
            used += got;
    }
    rsi_undo_free(undo);
    if (rc) {
        rsi_free(all);
        return rc;
    }
    *bytes = all;
    *len = used;
    return RSD_OK;
}

/* ---- encoding -------------------------------------------------------------------------------- */

struct rsi_encoder {
    stream        stream;
    rsi_sink      sink;
    void         *arg;
    unsigned char out[CHUNK];
};

rsd_err rsi_encoder_create(const char *descriptor, rsi_sink sink, void *arg, rsi_encoder **out,
                           rsd_error *err)
{
    rsi_encoder *encoder = rsi_calloc(1, sizeof(*encoder));
    rsd_err      rc;

    if (!encoder)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the transform \"%s\"", descriptor);
    encoder->sink = sink;
    encoder->arg = arg;
    rc = begin(&encoder->stream, descriptor, true, err);
    if (rc) {
        rsi_encoder_free(encoder);
        return rc;
    }
    *out = encoder;
    return RSD_OK;
}

rsd_err rsi_encoder_feed(rsi_encoder *encoder, const void *bytes, size_t len, rsd_error *err)
{
    const unsigned char *at = bytes;

    while (len) {
        size_t  used, made;
        rsd_err rc;

        rc = feed(&encoder->stream, at, len, &used, encoder->out, CHUNK, &made, err);
        if (!rc && made)
            rc = encoder->sink(encoder->arg, encoder->out, made, err);
        if (rc)
            return rc;
        at += used;
        len -= used;
    }
    return RSD_OK;
}

rsd_err rsi_encoder_end(rsi_encoder *encoder, rsd_error *err)
{
    while (!encoder->stream.done) {
        size_t  made;
        rsd_err rc = end(&encoder->stream, encoder->out, CHUNK, &made, err);

        if (!rc && made)
            rc = encoder->sink(encoder->arg, encoder->out, made, err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

void rsi_encoder_free(rsi_encoder *encoder)
{
    if (!encoder)
        return;
    finish(&encoder->stream);
    rsi_free(encoder);
}
