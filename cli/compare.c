/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the values of tensors in two checkpoints. Threads take one part of a pair after the
 * other, read it from both and compare it while it is in the cache; results are joined under a lock
 * so that they do not depend on the order of threads. */
#include "cli.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES   ((int64_t)1 << 20) /* both sides stay in a core's cache */
#define BLOCK        4096               /* bytes compared at once */
#define MOST_THREADS 16

typedef struct work {
    pthread_mutex_t  lock; /* guards everything below */
    rsd_ckpt        *a, *b;
    pair            *pair;
    size_t           n, at;
    pieces           pieces; /* of pair[at] */
    int64_t          first;  /* the number of the next part's first element */
    const tolerance *tol;
    progress        *bar;
    int64_t          done, total; /* bytes, of both sides */
    rsd_err          rc;
    rsd_error        err;
    bool             stop;
} work;

/* ---- elements ---- */

/* Between 64-bit integers: a double has only 53 bits. */
static double apart(rsd_dtype dtype, const char *a, const char *b)
{
    const uint64_t top = dtype == RSD_I64 ? (uint64_t)1 << 63 : 0; /* shifts -2^63 to 0 */
    uint64_t       x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    x ^= top;
    y ^= top;
    return (double)(x > y ? x - y : y - x);
}

/* Only an equal infinity is close to an infinity; an infinite part that is equal leaves the other
 * one to be compared. */
static bool within(const tolerance *tol, rsd_dtype dtype, const char *a, const char *b,
                   double *distance)
{
    double       ai, bi;
    const double ar = element_value(dtype, a, &ai), br = element_value(dtype, b, &bi);

    *distance = element_modulus(ar == br ? 0 : ar - br, ai == bi ? 0 : ai - bi);
    if (dtype == RSD_I64 || dtype == RSD_U64)
        *distance = apart(dtype, a, b);
    if (!tol->on || !isfinite(*distance))
        return false;
    return *distance <=
           tol->atol + tol->rtol * element_modulus(isinf(br) ? 0 : br, isinf(bi) ? 0 : bi);
}

/* Examines the elements of a block whose bytes differ. */
static void compare_block(const tolerance *tol, pair *p, const char *a, const char *b, int64_t n,
                          int64_t first)
{
    const size_t size = rsd_dtype_size(p->info.dtype);

    for (int64_t i = 0; i < n; i++) {
        const char *x = a + (size_t)i * size, *y = b + (size_t)i * size;
        double      distance;

        if (memcmp(x, y, size) == 0 || within(tol, p->info.dtype, x, y, &distance))
            continue;
        if (p->count == 0) {
            p->first = first + i;
            memcpy(p->a, x, size);
            memcpy(p->b, y, size);
        }
        if (p->count == 0 || distance > p->largest || isnan(distance))
            p->largest = isnan(p->largest) ? p->largest : distance;
        p->count++;
    }
}

static void compare_part(const tolerance *tol, pair *p, const char *a, const char *b, int64_t n,
                         int64_t first)
{
    const int64_t size = (int64_t)rsd_dtype_size(p->info.dtype);
    const int64_t step = BLOCK / size;

    if (memcmp(a, b, (size_t)(n * size)) == 0)
        return;
    for (int64_t i = 0; i < n; i += step) {
        const int64_t k = n - i < step ? n - i : step;

        if (memcmp(a + i * size, b + i * size, (size_t)(k * size)) != 0)
            compare_block(tol, p, a + i * size, b + i * size, k, first + i);
    }
}

void compare_elements(const tolerance *tol, pair *p, const char *a, const char *b, int64_t n)
{
    compare_part(tol, p, a, b, n, 0);
}

/* Adds the result of one part. */
static void join(pair *into, const pair *part)
{
    if (part->count == 0)
        return;
    if (into->count == 0 || part->first < into->first) {
        into->first = part->first;
        memcpy(into->a, part->a, sizeof(into->a));
        memcpy(into->b, part->b, sizeof(into->b));
    }
    if (!isnan(into->largest) && (isnan(part->largest) || part->largest > into->largest))
        into->largest = part->largest;
    into->count += part->count;
}

/* ---- threads ---- */

/* The wider of the two dtypes. */
static size_t element_bytes(const pair *p)
{
    const size_t a = rsd_dtype_size(p->from), b = rsd_dtype_size(p->info.dtype);

    return a > b ? a : b;
}

static void begin_pair(work *w)
{
    const pair *p = &w->pair[w->at];
    rsd_box     whole = { .ndim = 0 };

    if (w->at == w->n)
        return;
    whole.ndim = p->info.ndim;
    memcpy(whole.len, p->info.shape, sizeof(whole.len));
    pieces_begin(&w->pieces, &whole, PART_BYTES / (int64_t)element_bytes(p));
    w->first = 0;
}

/* Takes the next part of a pair, as a new pair without differences. */
static bool take(work *w, size_t *at, pair *part, rsd_box *box, int64_t *first)
{
    bool got = false;

    pthread_mutex_lock(&w->lock);
    while (!got && !w->stop && w->at < w->n) {
        got = pieces_next(&w->pieces, box);
        if (got)
            break;
        w->at++;
        begin_pair(w);
    }
    if (got) {
        *at = w->at;
        *part = w->pair[w->at];
        part->count = 0;
        part->largest = 0;
        *first = w->first;
        w->first += rsd_box_count(box);
    }
    pthread_mutex_unlock(&w->lock);
    return got;
}

static void give(work *w, size_t at, const pair *part, int64_t bytes, rsd_err rc,
                 const rsd_error *err)
{
    pthread_mutex_lock(&w->lock);
    if (rc && !w->rc) {
        w->rc = rc;
        w->err = *err;
    }
    if (!rc)
        join(&w->pair[at], part);
    w->done += bytes;
    if (rc || (w->bar && progress_step(w->bar, w->done, w->total)))
        w->stop = true;
    pthread_mutex_unlock(&w->lock);
}

/* Reads both sides of a part into 3 * `bytes` bytes, casts the first one and compares them. No
 * checksums are verified: that is the job of `reshard verify`. */
static rsd_err look(work *w, pair *part, const rsd_box *box, int64_t first, char *data,
                    size_t bytes, rsd_error *err)
{
    const rsd_read_opts opts = {
        .size = sizeof(opts), .verify = RSD_NEVER, .threads = 1, .max_memory = PART_BYTES
    };
    const rsd_view a = { .box = *box, .data = data }, b = { .box = *box, .data = data + bytes };
    const bool     cast = part->from != part->info.dtype;
    char          *own = cast ? data + 2 * bytes : data;
    rsd_err        rc = rsd_ckpt_read(w->a, part->ta, &a, &opts, err);

    if (!rc)
        rc = rsd_ckpt_read(w->b, part->tb, &b, &opts, err);
    if (!rc && cast)
        rc = rsd_dtype_cast(part->info.dtype, own, part->from, data, (size_t)rsd_box_count(box),
                            err);
    if (!rc)
        compare_part(w->tol, part, own, data + bytes, rsd_box_count(box), first);
    return rc;
}

static void *worker(void *arg)
{
    work     *w = arg;
    char     *data = malloc(3 * (size_t)PART_BYTES);
    rsd_error err = { .code = RSD_E_NOMEM, .rank = -1, .msg = "no memory to compare tensors" };
    rsd_box   box;
    pair      part = { 0 };
    int64_t   first;
    size_t    at;

    if (!data)
        give(w, 0, &part, 0, RSD_E_NOMEM, &err);
    while (data && take(w, &at, &part, &box, &first)) {
        const size_t bytes = (size_t)rsd_box_count(&box) * element_bytes(&part);
        rsd_err      rc = look(w, &part, &box, first, data, bytes, &err);

        give(w, at, &part, 2 * (int64_t)bytes, rc, &err);
    }
    free(data);
    return NULL;
}

int32_t processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

rsd_err compare_pairs(rsd_ckpt *a, rsd_ckpt *b, pair *p, size_t n, const tolerance *tol,
                      int32_t threads, progress *bar, rsd_error *err)
{
    work      w = { .a = a, .b = b, .pair = p, .n = n, .tol = tol, .bar = bar };
    pthread_t id[MOST_THREADS];
    int32_t   started = 0;

    for (size_t i = 0; i < n; i++)
        w.total += 2 * p[i].info.bytes;
    threads = threads > 0 ? threads : processors();
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    pthread_mutex_init(&w.lock, NULL);
    begin_pair(&w);
    while (started < threads - 1 && pthread_create(&id[started], NULL, worker, &w) == 0)
        started++;
    worker(&w);
    for (int32_t i = 0; i < started; i++)
        pthread_join(id[i], NULL);
    pthread_mutex_destroy(&w.lock);
    if (w.rc)
        *err = w.err;
    if (!w.rc && w.stop) {
        *err = (rsd_error){ .code = RSD_E_CANCELED, .rank = -1, .msg = "stopped" };
        w.rc = RSD_E_CANCELED;
    }
    return w.rc;
}
