/* SPDX-License-Identifier: Apache-2.0 */
/* A log is a sequence of entries: a head, a key, an answer. The key is a question and the name it
 * is about. */
#include "store/record.h"
#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/store_core.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { STAT = 's', OPEN = 'o', LIST = 'l', READ = 'r', FACT = 'f' };

typedef struct question {
    uint64_t kind, off, len; /* the range of a READ; otherwise 0 */
} question;

typedef struct head {
    uint64_t key_len, len;
    int64_t  rc; /* an rsd_err; then the answer is a message */
} head;

/* The answer to STAT and OPEN. */
typedef struct about {
    uint64_t size, version;
    uint32_t kind, align;
} about;

typedef struct replay {
    rsd_store       *inner;
    _Atomic bool     recording;
    _Atomic bool     quiet; /* while a fact is found: reads are not logged */
    pthread_mutex_t  lock;  /* of what follows, while recording or checking */
    rsi_bytes        log;
    rsi_replay_check check; /* replaying: called once */
    bool             asked;
    rsd_error        answer; /* its result */
    rsi_map          known;  /* replaying: key to entry */
} replay;

typedef struct handle {
    bool                known; /* the log has these: */
    uint64_t            size, version;
    pthread_mutex_t     lock; /* for opening `real` */
    _Atomic(rsi_file *) real; /* NULL: not needed yet */
    uint32_t            flags;
    char                name[];
} handle;

/* ---- the log ---- */

/* Adds an answer; a failure is stored as its message. */
static void note(replay *r, question q, const char *name, rsd_err rc, const rsd_error *err,
                 const void *data, size_t len)
{
    head  h = { .key_len = sizeof(q) + strlen(name), .len = len, .rc = rc };
    char *at = NULL;

    if (!atomic_load(&r->recording) || atomic_load(&r->quiet))
        return;
    if (rc) {
        h.len = strlen(err->msg) + 1;
        data = err->msg;
    }
    pthread_mutex_lock(&r->lock);
    if (atomic_load(&r->recording))
        at = rsi_bytes_more(&r->log, sizeof(h) + (size_t)(h.key_len + h.len));
    if (at) {
        memcpy(at, &h, sizeof(h));
        memcpy(at + sizeof(h), &q, sizeof(q));
        memcpy(at + sizeof(h) + sizeof(q), name, strlen(name));
        if (h.len)
            memcpy(at + sizeof(h) + h.key_len, data, (size_t)h.len);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Finds an answer; false: the log has none. */
static bool recall(const replay *r, question q, const char *name, head *out, const char **data)
{
    size_t   len = strlen(name);
    uint64_t at;
    char    *key;
    bool     found;

    if (r->known.count == 0)
        return false;
    key = rsi_calloc(sizeof(q) + len, 1);
    if (!key)
        return false;
    memcpy(key, &q, sizeof(q));
    memcpy(key + sizeof(q), name, len);
    found = rsi_map_get(&r->known, key, sizeof(q) + len, &at);
    rsi_free(key);
    if (!found)
        return false;
    memcpy(out, r->log.at + at, sizeof(*out));
    *data = (const char *)r->log.at + at + sizeof(*out) + out->key_len;
    return true;
}

static bool is_entry(const replay *r, size_t at, head *out)
{
    size_t   left = r->log.len - at;
    question q;

    if (left < sizeof(*out))
        return false;
    memcpy(out, r->log.at + at, sizeof(*out));
    left -= sizeof(*out);
    if (out->key_len < sizeof(q) || out->key_len > left || out->len > left - out->key_len)
        return false;
    if (out->rc)
        return out->len && r->log.at[at + sizeof(*out) + out->key_len + out->len - 1] == '\0';
    memcpy(&q, r->log.at + at + sizeof(*out), sizeof(q));
    return (q.kind != STAT && q.kind != OPEN) || out->len == sizeof(about);
}

static rsd_err index_log(replay *r, rsd_error *err)
{
    head h;

    for (size_t at = 0; at < r->log.len; at += sizeof(h) + (size_t)(h.key_len + h.len)) {
        uint64_t value = at;

        if (!is_entry(r, at, &h))
            return rsi_fail(err, RSD_E_FORMAT, "byte %zu of a log of %zu bytes is not an entry", at,
                            r->log.len);
        if (!rsi_map_add(&r->known, r->log.at + at + sizeof(h), (size_t)h.key_len, &value, NULL))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a log");
    }
    return RSD_OK;
}

/* ---- the table ---- */

static rsd_err answer(const head *h, const char *data, rsd_error *err)
{
    return h->rc ? rsi_fail(err, (rsd_err)h->rc, "%s", data) : RSD_OK;
}

static rsd_err replay_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    replay     *r = self;
    about       a = { 0 };
    const char *data;
    head        h;
    rsd_err     rc;

    if (recall(r, (question){ .kind = STAT }, name, &h, &data)) {
        rc = answer(&h, data, err);
        if (rc)
            return rc;
        memcpy(&a, data, sizeof(a));
        *out = (rsd_entry){ .name = name, .kind = (rsd_entry_kind)a.kind, .size = a.size };
        return RSD_OK;
    }
    rc = rsi_store_stat(r->inner, name, out, err);
    if (!rc)
        a = (about){ .size = out->size, .kind = (uint32_t)out->kind };
    note(r, (question){ .kind = STAT }, name, rc, err, &a, sizeof(a));
    return rc;
}

static rsd_err ask(replay *r, rsd_error *err)
{
    rsd_err rc;

    pthread_mutex_lock(&r->lock);
    if (r->check.check && !r->asked)
        r->check.check(r->check.arg, &r->answer);
    r->asked = true;
    rc = (rsd_err)r->answer.code;
    if (rc && err)
        *err = r->answer;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* Opens the real file, which must be the one in the log. */
static rsd_err open_same(replay *r, const handle *f, rsi_file **out, rsd_error *err)
{
    rsi_file *file;
    rsd_err   rc = ask(r, err);

    if (!rc)
        rc = rsi_file_open(r->inner, f->name, f->flags, 0, &file, err);
    if (rc)
        return rc;
    if (f->known && (file->size != f->size || (r->check.strict && file->version && f->version &&
                                               file->version != f->version))) {
        rsi_file_close(file, NULL);
        return rsi_fail(err, RSD_E_MISMATCH, "file \"%s\" is not the one that rank 0 found",
                        f->name);
    }
    *out = file;
    return RSD_OK;
}

static rsd_err open_real(replay *r, handle *f, rsi_file **out, rsd_error *err)
{
    rsi_file *file = atomic_load(&f->real);
    rsd_err   rc = RSD_OK;

    if (!file) {
        pthread_mutex_lock(&f->lock);
        file = atomic_load(&f->real);
        if (!file)
            rc = open_same(r, f, &file, err);
        if (!rc)
            atomic_store(&f->real, file);
        pthread_mutex_unlock(&f->lock);
    }
    *out = file;
    return rc;
}

static void free_handle(handle *f)
{
    pthread_mutex_destroy(&f->lock);
    rsi_free(f);
}

static rsd_err replay_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                           rsd_opened *out, rsd_error *err)
{
    replay     *r = self;
    about       a = { .align = 1 };
    const char *data;
    rsi_file   *real;
    handle     *f;
    head        h;
    bool        known = recall(r, (question){ .kind = OPEN }, name, &h, &data);
    rsd_err     rc = known ? answer(&h, data, err) : RSD_OK;

    (void)bytes;
    if (rc)
        return rc;
    if (!(flags & RSD_OPEN_READ))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "\"%s\" is read-only here", name);
    f = rsi_calloc(1, sizeof(*f) + strlen(name) + 1);
    if (!f)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", name);
    pthread_mutex_init(&f->lock, NULL);
    f->flags = flags;
    memcpy(f->name, name, strlen(name));
    if (known) {
        memcpy(&a, data, sizeof(a));
        f->known = true;
        f->size = a.size;
        f->version = a.version;
    } else {
        rc = open_real(r, f, &real, err);
        if (!rc)
            a = (about){ .size = real->size, .version = real->version, .align = real->align };
        note(r, (question){ .kind = OPEN }, name, rc, err, &a, sizeof(a));
    }
    if (rc) {
        free_handle(f);
        return rc;
    }
    *out = (rsd_opened){ .file = f, .size = a.size, .align = a.align };
    return RSD_OK;
}

static void replay_transfer(void *self, rsd_io *io)
{
    replay     *r = self;
    handle     *f = io->file;
    question    q = { .kind = READ, .off = io->off, .len = io->len };
    rsd_error   err = { 0 };
    rsi_file   *real;
    const char *data;
    head        h;

    io->done = 0;
    io->sys_errno = 0;
    if (recall(r, q, f->name, &h, &data)) {
        io->rc = RSD_OK;
        io->done = (size_t)h.len < io->len ? (size_t)h.len : io->len;
        if (io->done)
            memcpy(io->buf, data, io->done);
        return;
    }
    io->rc = open_real(r, f, &real, &err);
    if (io->rc) {
        io->sys_errno = err.sys_errno;
        return;
    }
    rsi_file_transfer(real, io);
    io->file = f;
    if (!io->rc)
        note(r, q, f->name, RSD_OK, NULL, io->buf, io->done);
}

static rsd_err replay_close(void *self, void *file, rsd_error *err)
{
    handle *f = file;
    rsd_err rc = rsi_file_close(atomic_load(&f->real), err);

    (void)self;
    free_handle(f);
    return rc;
}

/* A running listing: collects entries while visiting them. */
typedef struct listing {
    rsi_visit visit;
    void     *arg;
    rsi_bytes data; /* not logged if incomplete */
} listing;

typedef struct listed {
    uint64_t size;
    uint32_t kind, name_len; /* the name follows, with its NUL */
} listed;

static rsd_err note_entry(void *arg, const rsd_entry *entry, rsd_error *err)
{
    listing *l = arg;
    listed   e = { .size = entry->size,
                   .kind = (uint32_t)entry->kind,
                   .name_len = (uint32_t)strlen(entry->name) + 1 };

    rsi_bytes_add(&l->data, &e, sizeof(e));
    rsi_bytes_add(&l->data, entry->name, e.name_len);
    return l->visit(l->arg, entry, err);
}

static rsd_err show_listing(const head *h, const char *data, rsi_visit visit, void *arg,
                            rsd_error *err)
{
    const char *end = data + h->len;
    listed      e;

    while ((size_t)(end - data) > sizeof(e)) {
        rsd_entry entry;
        rsd_err   rc;

        memcpy(&e, data, sizeof(e));
        data += sizeof(e);
        if (e.name_len == 0 || e.name_len > (size_t)(end - data) || data[e.name_len - 1] != '\0')
            return rsi_fail(err, RSD_E_FORMAT, "a listing in a log is cut short");
        entry = (rsd_entry){ .name = data, .kind = (rsd_entry_kind)e.kind, .size = e.size };
        rc = visit(arg, &entry, err);
        if (rc)
            return rc;
        data += e.name_len;
    }
    return RSD_OK;
}

static rsd_err replay_list(void *self, const char *name, rsi_visit visit, void *arg, rsd_error *err)
{
    replay     *r = self;
    listing     l = { .visit = visit, .arg = arg };
    const char *data;
    head        h;
    rsd_err     rc;

    if (recall(r, (question){ .kind = LIST }, name, &h, &data)) {
        rc = answer(&h, data, err);
        return rc ? rc : show_listing(&h, data, visit, arg, err);
    }
    if (!atomic_load(&r->recording))
        return rsi_store_list(r->inner, name, visit, arg, err);
    rc = rsi_store_list(r->inner, name, note_entry, &l, err);
    if (!rc && !l.data.lost)
        note(r, (question){ .kind = LIST }, name, RSD_OK, NULL, l.data.at, l.data.len);
    rsi_free(l.data.at);
    return rc;
}

/* Always 0, or an error: the real file's state decides, once it is open. */
static rsd_err replay_stamp(void *self, void *file, uint64_t *out, rsd_error *err)
{
    handle   *f = file;
    rsi_file *real = atomic_load(&f->real);

    (void)self;
    *out = 0;
    return real ? rsi_file_unchanged(real, err) : RSD_OK;
}

static rsd_held replay_replaced(void *self)
{
    const replay *r = self;

    return rsi_store_replaced(r->inner);
}

static rsd_err no_hold(void *self, const char *name, const char *tail, uint32_t flags,
                       rsd_store **out, rsd_error *err)
{
    (void)self, (void)name, (void)tail, (void)flags, (void)err;
    *out = NULL; /* callers hold the inner store instead */
    return RSD_OK;
}

static rsd_err no_sync(void *self, void *file, rsd_error *err)
{
    (void)self, (void)file;
    return rsi_fail(err, RSD_E_UNSUPPORTED, "this store is read-only");
}

static rsd_err no_name(void *self, const char *name, rsd_error *err)
{
    return no_sync(self, (void *)(uintptr_t)name, err);
}

static rsd_err no_begin(void *self, const char *name, uint32_t flags, void **tree,
                        const char **temp, rsd_error *err)
{
    (void)flags, (void)tree, (void)temp;
    return no_name(self, name, err);
}

static rsd_err no_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    (void)tree;
    return no_name(self, temp, err);
}

static void replay_destroy(void *self)
{
    replay *r = self;

    if (r->log.cap) /* a replayed log belongs to the caller */
        rsi_free(r->log.at);
    rsi_map_release(&r->known);
    pthread_mutex_destroy(&r->lock);
    rsi_free(r);
}

static rsd_err make(rsd_store *inner, replay **self, rsd_store **out, rsd_error *err)
{
    static const rsd_store_ops ops = { .size = sizeof(ops),
                                       .name = "replay",
                                       .destroy = replay_destroy,
                                       .open = replay_open,
                                       .transfer = replay_transfer,
                                       .sync = no_sync,
                                       .close = replay_close,
                                       .list = replay_list,
                                       .stat = replay_stat,
                                       .make_folder = no_name,
                                       .remove = no_name,
                                       .begin = no_begin,
                                       .attach = no_attach,
                                       .commit = no_sync,
                                       .abort = no_sync,
                                       .stamp = replay_stamp,
                                       .hold = no_hold,
                                       .replaced = replay_replaced };
    replay                    *r = rsi_calloc(1, sizeof(*r));
    rsd_err                    rc;

    if (!r)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    r->inner = inner;
    rc = rsd_store_open_custom(&ops, r, out, err);
    if (rc) {
        rsi_free(r);
        return rc;
    }
    pthread_mutex_init(&r->lock, NULL);
    *self = r;
    return RSD_OK;
}

rsd_err rsi_record_fact(rsd_store *store, const char                     *name,
                        rsd_err (*look)(void *arg, rsd_error *err), void *arg, void *out,
                        size_t len, rsd_error *err)
{
    const question q = { .kind = FACT };
    replay        *r = store->ops.destroy == replay_destroy ? rsi_store_self(store) : NULL;
    const char    *data;
    head           h;
    rsd_err        rc;

    if (!r)
        return look(arg, err);
    if (recall(r, q, name, &h, &data) && !h.rc && h.len == len) {
        memcpy(out, data, len);
        return RSD_OK;
    }
    atomic_store(&r->quiet, true);
    rc = look(arg, err);
    atomic_store(&r->quiet, false);
    if (!rc)
        note(r, q, name, RSD_OK, NULL, out, len);
    return rc;
}

rsd_err rsi_record_open(rsd_store *inner, rsd_store **out, rsd_error *err)
{
    replay *r;
    rsd_err rc = make(inner, &r, out, err);

    if (!rc)
        atomic_store(&r->recording, true);
    return rc;
}

void rsi_record_end(rsd_store *store, const void **log, size_t *len)
{
    replay *r = rsi_store_self(store);

    atomic_store(&r->recording, false);
    *log = r->log.at;
    *len = r->log.len;
}

rsd_err rsi_replay_open(rsd_store *inner, const void *log, size_t len, rsd_store **out,
                        rsd_error *err)
{
    rsd_store *store;
    replay    *r;
    rsd_err    rc = make(inner, &r, &store, err);

    if (rc)
        return rc;
    r->log = (rsi_bytes){ .at = (unsigned char *)(uintptr_t)log, .len = len };
    rc = index_log(r, err);
    if (rc) {
        rsd_store_close(store);
        return rc;
    }
    *out = store;
    return RSD_OK;
}

void rsi_replay_end(rsd_store *store, const rsi_replay_check *check)
{
    replay *r = rsi_store_self(store);

    if (check)
        r->check = *check;
    rsi_map_release(&r->known);
    r->log = (rsi_bytes){ 0 };
}
