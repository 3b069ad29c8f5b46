/* SPDX-License-Identifier: Apache-2.0 */
/* Whether memory to load into is written twice: two targets that share a byte, or one whose strides
 * meet. Most targets are apart, which their first and last bytes show; the others are cut into
 * runs. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    uintptr_t lo, end;
    size_t    read;
} span;

static int by_place(const void *left, const void *right)
{
    const span *a = left, *b = right;

    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

static bool is_packed(const rsd_view *v)
{
    for (int d = 0; d < v->box.ndim; d++)
        if (v->stride[d])
            return false;
    return true;
}

/* From the first to the last byte. */
static span extent(const rsd_view *v, size_t bytes)
{
    span s = { .lo = (uintptr_t)v->data };

    s.end = s.lo + bytes;
    if (is_packed(v)) {
        s.end = s.lo + bytes * (uintptr_t)rsd_box_count(&v->box);
        return s;
    }
    for (int d = 0; d < v->box.ndim; d++) {
        const int64_t reach = (v->box.len[d] - 1) * v->stride[d];

        if (reach < 0)
            s.lo -= (uintptr_t)-reach;
        else
            s.end += (uintptr_t)reach;
    }
    return s;
}

/* Dimensions that the last ones leave to be walked; *run becomes the bytes of one packed run. */
static int outer(const rsd_view *v, size_t bytes, size_t *run)
{
    int d = v->box.ndim;

    *run = bytes;
    if (is_packed(v)) {
        *run = bytes * (size_t)rsd_box_count(&v->box);
        return 0;
    }
    while (d > 0 && (v->box.len[d - 1] == 1 || v->stride[d - 1] == (int64_t)*run))
        *run *= (size_t)v->box.len[--d];
    return d;
}

static bool room_for(span **all, size_t *cap, size_t n)
{
    span *more;

    if (n < *cap)
        return true;
    more = realloc(*all, 2 * (n + 8) * sizeof(**all));
    if (more) {
        *all = more;
        *cap = 2 * (n + 8);
    }
    return more != NULL;
}

/* Adds every run of a view; false: no memory. */
static bool add_runs(const rsd_view *v, size_t bytes, span **all, size_t *cap, size_t *n)
{
    size_t    run;
    const int dims = outer(v, bytes, &run);
    int64_t   at[RSD_MAX_NDIM] = { 0 };
    uintptr_t place = (uintptr_t)v->data;
    int       d;

    do {
        if (!room_for(all, cap, *n))
            return false;
        (*all)[(*n)++] = (span){ .lo = place, .end = place + run };
        for (d = dims - 1; d >= 0; d--) {
            place += (uintptr_t)v->stride[d];
            if (++at[d] < v->box.len[d])
                break;
            place -= (uintptr_t)(at[d] * v->stride[d]);
            at[d] = 0;
        }
    } while (d >= 0);
    return true;
}

static bool any_meet(span *s, size_t n)
{
    uintptr_t end = 0;

    qsort(s, n, sizeof(*s), by_place);
    for (size_t i = 0; i < n; i++) {
        if (s[i].lo < end)
            return true;
        end = s[i].end;
    }
    return false;
}

/* True if the strides, from the largest to the smallest, step over what lies below them. */
static bool steps_over_itself(const rsd_view *v, size_t bytes)
{
    int64_t reach = (int64_t)bytes;

    if (is_packed(v))
        return true;
    for (int d = v->box.ndim - 1; d >= 0; d--) {
        const int64_t step = v->stride[d] < 0 ? -v->stride[d] : v->stride[d];

        if (v->box.len[d] > 1 && step < reach)
            return false;
        reach += (v->box.len[d] - 1) * step;
    }
    return true;
}

bool reads_overlap(size_t n, const rsd_read *read, bool *no_memory)
{
    span     *whole = malloc((n + 1) * sizeof(*whole)), *runs = NULL;
    size_t    count = 0, cap = 0, nruns = 0;
    uintptr_t end = 0;
    bool      ok = whole != NULL, meet;

    for (size_t i = 0; ok && i < n; i++)
        if (rsd_box_count(&read[i].view.box) > 0) {
            whole[count] = extent(&read[i].view, rsd_dtype_size(read[i].dtype));
            whole[count++].read = i;
        }
    if (ok)
        qsort(whole, count, sizeof(*whole), by_place);
    for (size_t i = 0; ok && i < count; i++) {
        const rsd_view *into = &read[whole[i].read].view;
        const size_t    bytes = rsd_dtype_size(read[whole[i].read].dtype);
        const bool      next_meets = i + 1 < count && whole[i + 1].lo < whole[i].end;

        if (whole[i].lo < end || next_meets || !steps_over_itself(into, bytes))
            ok = add_runs(into, bytes, &runs, &cap, &nruns);
        end = whole[i].end > end ? whole[i].end : end;
    }
    meet = ok && nruns > 0 && any_meet(runs, nruns);
    free(runs);
    free(whole);
    *no_memory = !ok;
    return meet;
}
