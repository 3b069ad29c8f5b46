/* SPDX-License-Identifier: Apache-2.0 */
/* Minimum, maximum, mean and norm of many tensors. Threads take one part after the other, read it
 * and sum it while it is in the cache; the sums of parts are joined in the order of the parts, so
 * that the result does not depend on the number of threads.
 *
 * Elements become doubles, one block at a time. A block has eight running sums, which compilers
 * vectorize; the sums of blocks are joined in long double, whose range holds the squares of all
 * doubles. */
#include "cli.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES   ((int64_t)1 << 20)
#define BLOCK        2048 /* elements */
#define LANES        8
#define MOST_THREADS 16
#define WIDE         1e150 /* squares beyond it, or below its inverse, overflow or underflow */

static const stats nothing = { .least = INFINITY, .most = -INFINITY };

/* ---- elements ---- */

static float          half[1 << 16]; /* every float16; filled once */
static pthread_once_t half_once = PTHREAD_ONCE_INIT;

static void fill_half(void)
{
    for (unsigned i = 0; i < 1 << 16; i++) {
        const uint16_t bits = (uint16_t)i;

        half[i] = (float)element_value(RSD_F16, &bits, NULL);
    }
}

/* One loop per type, for elements at any address. */
#define DECODE(type, expression)                                                                   \
    for (int i = 0; i < n; i++) {                                                                  \
        type v;                                                                                    \
        memcpy(&v, at + (size_t)i * sizeof(v), sizeof(v));                                         \
        x[i] = (double)(expression);                                                               \
    }                                                                                              \
    break

static float widened(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float          x;

    memcpy(&x, &wide, sizeof(x));
    return x;
}

static void decode(rsd_dtype dtype, const char *at, int n, double *x)
{
    const size_t size = rsd_dtype_size(dtype);

    switch (dtype) {
    case RSD_F32:
        DECODE(float, v);
    case RSD_F64:
        DECODE(double, v);
    case RSD_BF16:
        DECODE(uint16_t, widened(v));
    case RSD_F16:
        DECODE(uint16_t, half[v]);
    case RSD_I16:
        DECODE(int16_t, v);
    case RSD_U16:
        DECODE(uint16_t, v);
    case RSD_I32:
        DECODE(int32_t, v);
    case RSD_U32:
        DECODE(uint32_t, v);
    case RSD_I64:
        DECODE(int64_t, v);
    case RSD_U64:
        DECODE(uint64_t, v);
    default: /* complex */
        for (int i = 0; i < n; i++) {
            double       imag;
            const double real = element_value(dtype, at + (size_t)i * size, &imag);

            x[i] = isnan(real) || isnan(imag) ? NAN : element_modulus(real, imag);
        }
    }
}

/* ---- blocks ---- */

static void join(stats *into, const stats *part)
{
    into->count += part->count;
    into->nans += part->nans;
    into->infs += part->infs;
    into->least = fminl(into->least, part->least);
    into->most = fmaxl(into->most, part->most);
    into->sum += part->sum;
    into->squares += part->squares;
}

typedef struct lanes {
    double least[LANES], most[LANES], sum[LANES], squares[LANES];
    double odd[LANES]; /* 0, but NaN after a non-finite element */
} lanes;

static void lane_add(lanes *l, int k, double v)
{
    l->least[k] = v < l->least[k] ? v : l->least[k];
    l->most[k] = v > l->most[k] ? v : l->most[k];
    l->sum[k] += v;
    l->squares[k] += v * v;
    l->odd[k] += v * 0.0;
}

/* False, with nothing added, if any element is not finite. */
static bool add_finite(stats *s, const double *x, int n)
{
    lanes       l = { { 0 }, { 0 }, { 0 }, { 0 }, { 0 } };
    long double sum = 0, squares = 0;
    double      least = INFINITY, most = -INFINITY, odd = 0, far;
    int         i = 0;

    for (int k = 0; k < LANES; k++) {
        l.least[k] = INFINITY;
        l.most[k] = -INFINITY;
    }
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane_add(&l, k, x[i + k]);
    for (; i < n; i++)
        lane_add(&l, i % LANES, x[i]);
    for (int k = 0; k < LANES; k++) {
        least = l.least[k] < least ? l.least[k] : least;
        most = l.most[k] > most ? l.most[k] : most;
        sum += (long double)l.sum[k];
        squares += (long double)l.squares[k];
        odd += l.odd[k];
    }
    if (isnan(odd))
        return false;
    far = fmax(fabs(least), fabs(most));
    if (n > 0 && far > 0 && (far > WIDE || far < 1 / WIDE)) {
        sum = squares = 0;
        for (i = 0; i < n; i++) {
            sum += (long double)x[i];
            squares += (long double)x[i] * (long double)x[i];
        }
    }
    s->count += n;
    s->least = fminl(s->least, (long double)least);
    s->most = fmaxl(s->most, (long double)most);
    s->sum += sum;
    s->squares += squares;
    return true;
}

static void add_block(stats *s, double *x, int n)
{
    int finite = 0, nans = 0;

    if (add_finite(s, x, n))
        return;
    for (int i = 0; i < n; i++) {
        const double v = x[i];

        x[finite] = v;
        finite += fabs(v) <= DBL_MAX;
        nans += v != v;
    }
    s->nans += nans;
    s->infs += n - finite - nans;
    add_finite(s, x, finite);
}

/* A double does not hold every 64-bit integer, but a long double does. */
static void exact_bounds(stats *s, rsd_dtype dtype, const char *at, int64_t n)
{
    s->least = INFINITY;
    s->most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        uint64_t    bits;
        long double v;

        memcpy(&bits, at + (size_t)i * sizeof(bits), sizeof(bits));
        v = dtype == RSD_I64 ? (long double)(int64_t)bits : (long double)bits;
        s->least = v < s->least ? v : s->least;
        s->most = v > s->most ? v : s->most;
    }
}

/* Counts each value of one-byte elements. */
static void add_bytes(stats *s, rsd_dtype dtype, const unsigned char *at, int64_t n)
{
    int64_t often[4][256] = { { 0 } }; /* several, since neighbours are often equal */
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            often[k][at[i + k]]++;
    for (; i < n; i++)
        often[0][at[i]]++;
    for (int v = 0; v < 256; v++) {
        const unsigned char bits = (unsigned char)v;
        const double        x = element_value(dtype, &bits, NULL);
        const int64_t       k = often[0][v] + often[1][v] + often[2][v] + often[3][v];

        if (k == 0)
            continue;
        s->nans += isnan(x) ? k : 0;
        s->infs += isinf(x) ? k : 0;
        if (isfinite(x)) {
            const stats same = { .count = k,
                                 .least = x,
                                 .most = x,
                                 .sum = (long double)x * k,
                                 .squares = (long double)x * x * k };
            join(s, &same);
        }
    }
}

static void add_part(stats *s, rsd_dtype dtype, const char *data, int64_t n)
{
    const size_t size = rsd_dtype_size(dtype);
    double       x[BLOCK];

    *s = nothing;
    if (size == 1)
        add_bytes(s, dtype, (const unsigned char *)data, n);
    for (int64_t i = 0; size > 1 && i < n; i += BLOCK) {
        const int k = n - i < BLOCK ? (int)(n - i) : BLOCK;

        decode(dtype, data + (size_t)i * size, k, x);
        add_block(s, x, k);
    }
    if (dtype == RSD_I64 || dtype == RSD_U64)
        exact_bounds(s, dtype, data, n);
}

/* ---- threads ---- */

typedef struct work {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t  turn; /* `joined` has changed */
    rsd_ckpt       *ckpt;
    const size_t   *tensor; /* [n] */
    stats          *out;    /* [n] */
    size_t          n, at, chunk;
    rsd_tensor_info info;  /* of tensor[at] */
    bool            begun; /* `pieces` are those of chunk - 1 */
    pieces          pieces;
    int64_t         taken, joined; /* parts */
    progress       *bar;
    int64_t         done, total; /* bytes */
    rsd_err         rc;
    rsd_error       err;
    bool            stop;
} work;

/* A part of a tensor that a thread has taken. */
typedef struct share {
    int64_t   number; /* in the order of all parts */
    size_t    at;
    rsd_dtype dtype;
    rsd_box   box;
} share;

static bool counted(rsd_dtype dtype)
{
    return dtype != RSD_F4_E2M1FN_X2;
}

/* The next chunk with a part, of this tensor or a later one. */
static bool next_piece(work *w, rsd_box *box)
{
    while (w->at < w->n) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

        if (w->begun && pieces_next(&w->pieces, box))
            return true;
        if (!w->begun && w->chunk == 0)
            w->rc = rsd_ckpt_tensor(w->ckpt, w->tensor[w->at], &w->info, &w->err);
        w->begun = !w->rc && w->chunk < w->info.chunks && counted(w->info.dtype);
        if (w->begun)
            w->rc = rsd_ckpt_chunk(w->ckpt, w->tensor[w->at], w->chunk++, &chunk, &w->err);
        if (w->rc)
            return false;
        if (w->begun) {
            pieces_begin(&w->pieces, &chunk.box,
                         PART_BYTES / (int64_t)rsd_dtype_size(w->info.dtype));
        } else {
            w->at++;
            w->chunk = 0;
        }
    }
    return false;
}

static bool take(work *w, share *out)
{
    bool got;

    pthread_mutex_lock(&w->lock);
    got = !w->stop && next_piece(w, &out->box);
    if (got) {
        out->number = w->taken++;
        out->at = w->at;
        out->dtype = w->info.dtype;
    } else {
        w->stop = w->stop || w->rc;
    }
    pthread_mutex_unlock(&w->lock);
    return got;
}

/* Waits until all parts before this one are joined. */
static void give(work *w, const share *s, const stats *part, rsd_err rc, const rsd_error *err)
{
    pthread_mutex_lock(&w->lock);
    while (w->joined < s->number)
        pthread_cond_wait(&w->turn, &w->lock);
    w->joined++;
    pthread_cond_broadcast(&w->turn);
    if (rc && !w->rc) {
        w->rc = rc;
        w->err = *err;
    }
    if (!rc)
        join(&w->out[s->at], part);
    w->done += rsd_box_count(&s->box) * (int64_t)rsd_dtype_size(s->dtype);
    if (rc || (w->bar && progress_step(w->bar, w->done, w->total)))
        w->stop = true;
    pthread_mutex_unlock(&w->lock);
}

/* Verifies no checksums: that is the job of `reshard verify`. */
static rsd_err look(work *w, const share *s, char *data, stats *part, rsd_error *err)
{
    const rsd_read_opts opts = {
        .size = sizeof(opts), .verify = RSD_NEVER, .threads = 1, .max_memory = PART_BYTES
    };
    const rsd_view view = { .box = s->box, .data = data };
    rsd_err        rc = rsd_ckpt_read(w->ckpt, w->tensor[s->at], &view, &opts, err);

    if (!rc)
        add_part(part, s->dtype, data, rsd_box_count(&s->box));
    return rc;
}

static void *worker(void *arg)
{
    work     *w = arg;
    char     *data = malloc((size_t)PART_BYTES);
    rsd_error err = { .code = RSD_E_NOMEM, .rank = -1, .msg = "no memory to read tensors" };
    share     s;

    while (take(w, &s)) {
        stats   part;
        rsd_err rc = data ? look(w, &s, data, &part, &err) : RSD_E_NOMEM;

        give(w, &s, &part, rc, &err);
    }
    free(data);
    return NULL;
}

static void finish(stats *s, rsd_dtype dtype)
{
    s->known = counted(dtype) && s->count > 0;
    s->whole = dtype <= RSD_I64;
    s->mean = s->known ? (double)(s->sum / (long double)s->count) : NAN;
    s->norm = (double)sqrtl(s->squares);
}

rsd_err stats_read(rsd_ckpt *ckpt, const size_t *tensor, size_t n, stats *out, int32_t threads,
                   progress *bar, rsd_error *err)
{
    work w = {
        .ckpt = ckpt, .tensor = tensor, .out = out, .n = n, .bar = bar, .info.size = sizeof(w.info)
    };
    pthread_t id[MOST_THREADS];
    int32_t   started = 0;

    for (size_t i = 0; i < n; i++) {
        out[i] = nothing;
        if (rsd_ckpt_tensor(ckpt, tensor[i], &w.info, err))
            return (rsd_err)err->code;
        w.total += w.info.bytes;
    }
    pthread_once(&half_once, fill_half);
    threads = threads > 0 ? threads : processors();
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.turn, NULL);
    while (started < threads - 1 && pthread_create(&id[started], NULL, worker, &w) == 0)
        started++;
    worker(&w);
    for (int32_t i = 0; i < started; i++)
        pthread_join(id[i], NULL);
    pthread_cond_destroy(&w.turn);
    pthread_mutex_destroy(&w.lock);
    for (size_t i = 0; i < n && !w.rc; i++) {
        w.rc = rsd_ckpt_tensor(ckpt, tensor[i], &w.info, &w.err);
        finish(&out[i], w.info.dtype);
    }
    if (!w.rc && w.stop) {
        w.rc = RSD_E_CANCELED;
        w.err = (rsd_error){ .code = RSD_E_CANCELED, .rank = -1, .msg = "stopped" };
    }
    if (w.rc)
        *err = w.err;
    return w.rc;
}
