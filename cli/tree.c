/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as a tree. The names are sorted part by part; a branch is then a range of them, so that
 * no nodes are needed. */
#include "cli.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LEVELS 24 /* below that, the rest of a name is one leaf */

/* A range of sorted tensors whose names share their first `skip` characters. */
typedef struct branch {
    const rsd_tensor_info *t;
    size_t                 n, skip;
    int                    level;
} branch;

static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

static int by_name(const void *a, const void *b)
{
    return name_compare(((const rsd_tensor_info *)a)->name, ((const rsd_tensor_info *)b)->name);
}

/* ---- branches ---- */

/* How many tensors, starting with t[0], have the same part after `skip`. */
static size_t same_part(const rsd_tensor_info *t, size_t n, size_t skip)
{
    const char  *name = t[0].name + skip;
    const size_t len = strcspn(name, ".");
    size_t       k = 1;

    if (!name[len])
        return 1;
    while (k < n && strncmp(t[k].name + skip, name, len + 1) == 0)
        k++;
    return k;
}

/* True if two branches hold tensors of the same names (after their part), dtypes and shapes. */
static bool alike(const rsd_tensor_info *a, const rsd_tensor_info *b, size_t n, size_t skip)
{
    for (size_t i = 0; i < n; i++) {
        const char *x = a[i].name + skip, *y = b[i].name + skip;

        if (strcmp(x + strcspn(x, "."), y + strcspn(y, ".")) != 0 || a[i].dtype != b[i].dtype ||
            a[i].ndim != b[i].ndim ||
            memcmp(a[i].shape, b[i].shape, (size_t)a[i].ndim * sizeof(a[i].shape[0])) != 0)
            return false;
    }
    return true;
}

/* How many consecutive branches of n tensors each, including the first, are named by rising numbers
 * and are alike. */
static size_t count_alike(const rsd_tensor_info *t, size_t left, size_t n, size_t skip)
{
    const unsigned long long number = strtoull(t->name + skip, NULL, 10);
    size_t                   k = 1;

    if (!isdigit((unsigned char)t->name[skip]) ||
        digits(t->name + skip) != strcspn(t->name + skip, "."))
        return 1;
    while ((k + 1) * n <= left) {
        const rsd_tensor_info *next = t + k * n;
        const char            *part = next->name + skip;

        if (digits(part) != strcspn(part, ".") || strtoull(part, NULL, 10) != number + k ||
            same_part(next, left - k * n, skip) != n || !alike(t, next, n, skip))
            break;
        k++;
    }
    return k;
}

/* ---- printing ---- */

static void add_name(columns *c, int level, const char *name, size_t len)
{
    char *cell = malloc((size_t)level * 2 + len + 1);

    if (!cell) {
        c->failed = true;
        return;
    }
    snprintf(cell, (size_t)level * 2 + len + 1, "%*s%.*s", level * 2, "", (int)len, name);
    columns_add(c, cell);
    free(cell);
}

static void add_leaf(columns *c, int level, const char *name, const rsd_tensor_info *t)
{
    char text[256];

    add_name(c, level, name, strlen(name));
    columns_add(c, rsd_dtype_name(t->dtype));
    columns_add(c, shape_text(t->ndim, t->shape, text, sizeof(text)));
    columns_add(c, "");
    columns_add(c, count_text(tensor_elements(t), text, sizeof(text)));
    columns_add(c, size_text((uint64_t)t->bytes, text, sizeof(text)));
}

static void add_sum(columns *c, int level, const char *name, size_t len, const rsd_tensor_info *t,
                    size_t n)
{
    uint64_t bytes = 0, elements = 0;
    char     text[32];

    for (size_t i = 0; i < n; i++) {
        bytes += (uint64_t)t[i].bytes;
        elements += tensor_elements(&t[i]);
    }
    add_name(c, level, name, len);
    columns_add(c, "");
    columns_add(c, "");
    columns_addf(c, "%zu", n);
    columns_add(c, count_text(elements, text, sizeof(text)));
    columns_add(c, size_text(bytes, text, sizeof(text)));
}

/* Joins parts that lead to only one branch: "model.layers". */
static size_t join_parts(const rsd_tensor_info *t, size_t n, size_t skip)
{
    size_t end = skip;

    for (;;) {
        size_t len = strcspn(t->name + end, ".");

        if (!t->name[end + len] || same_part(t, n, end) != n)
            return end;
        end += len + 1;
    }
}

static void add_branch(columns *c, branch b);

static void add_folded(columns *c, const branch *b, size_t at, size_t n, size_t k)
{
    const rsd_tensor_info *first = b->t + at, *last = first + (k - 1) * n;
    const char            *from = first->name + b->skip, *to = last->name + b->skip;
    const size_t           len = strcspn(from, ".");
    char                   name[96];

    snprintf(name, sizeof(name), "[%.*s-%.*s]", (int)len, from, (int)strcspn(to, "."), to);
    if (!from[len]) { /* leaves */
        add_sum(c, b->level, name, strlen(name), first, n * k);
        add_leaf(c, b->level + 1, "each", first);
        return;
    }
    add_sum(c, b->level, name, strlen(name), first, n * k);
    add_branch(c, (branch){ first, n, b->skip + len + 1, b->level + 1 });
}

/* The recursion is at most MOST_LEVELS deep. */
static void add_branch(columns *c, branch b)
{
    for (size_t i = 0; i < b.n;) {
        const rsd_tensor_info *t = b.t + i;
        const size_t           n = same_part(t, b.n - i, b.skip);
        const size_t           k = count_alike(t, b.n - i, n, b.skip);

        if (b.level >= MOST_LEVELS || (n == 1 && k == 1)) {
            add_leaf(c, b.level, t->name + b.skip, t);
            i++;
        } else if (k > 1) {
            add_folded(c, &b, i, n, k);
            i += n * k;
        } else {
            size_t end = join_parts(t, n, b.skip);

            add_sum(c, b.level, t->name + b.skip, end - b.skip - 1, t, n);
            add_branch(c, (branch){ t, n, end, b.level + 1 });
            i += n;
        }
    }
}

bool tree_print(FILE *out, rsd_tensor_info *t, size_t n)
{
    static const char *const title[] = { "name",         "?dtype", "?shape", ">tensors",
                                         "?>parameters", ">bytes", NULL };
    columns                  c;

    qsort(t, n, sizeof(*t), by_name);
    columns_begin(&c, title);
    add_branch(&c, (branch){ t, n, 0, 0 });
    return columns_print(&c, out);
}
