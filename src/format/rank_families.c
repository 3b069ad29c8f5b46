/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a folder that ranks wrote: those whose names differ only in one number are a
 * family, such as model_world_size_4_rank_0.pt and its like. Several families may lie side by side,
 * also ones without sharded tensors. Files that don't belong are ignored, as beside any checkpoint.
 * Next: torch_ranks.c. */
#include "base/mem.h"
#include "base/text.h"
#include "format/ranks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static bool is_digit(char c)
{
    return isdigit((unsigned char)c);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c);
}

/* The last number that ends at byte `end` of the name or before. */
static bool number_before(const char *name, size_t end, rsi_rank_file *out)
{
    while (end > 0 && !is_digit(name[end - 1]))
        end--;
    out->first = end;
    while (out->first > 0 && is_digit(name[out->first - 1]))
        out->first--;
    out->digits = end - out->first;
    return out->digits > 0;
}

/* The number after the last "rank". */
static bool number_of_rank(const char *name, rsi_rank_file *out)
{
    const char *at = name;
    bool        found = false;

    while ((at = strstr(at, "rank")) != NULL) {
        for (at += 4; *at && !is_word(*at);)
            at++;
        if (is_digit(*at)) {
            out->first = (size_t)(at - name);
            out->digits = strspn(at, "0123456789");
            found = true;
        }
    }
    return found;
}

/* True for "-of-4". */
static bool is_of_world(const char *text)
{
    while (*text && !is_word(*text))
        text++;
    return strncmp(text, "of", 2) == 0 && text[2] && !isalpha((unsigned char)text[2]);
}

/* The number after "rank", else the last one, but 0 of "0-of-4". False: the name has none. */
static bool find_number(const char *name, rsi_rank_file *out)
{
    rsi_rank_file before;

    out->name = name;
    if (!number_of_rank(name, out)) {
        if (!number_before(name, strlen(name), out))
            return false;
        if (number_before(name, out->first, &before) &&
            is_of_world(name + before.first + before.digits)) {
            out->first = before.first;
            out->digits = before.digits;
        }
    }
    out->rank = out->digits < 19 ? strtoull(name + out->first, NULL, 10) : 0;
    return true;
}

/* By the name without its number, then by the rank. */
static int family_order(const rsi_rank_file *a, const rsi_rank_file *b)
{
    const size_t both = a->first < b->first ? a->first : b->first;
    int          order = strncmp(a->name, b->name, both);

    if (!order && a->first != b->first)
        order = a->first < b->first ? -1 : 1;
    return order ? order : strcmp(a->name + a->first + a->digits, b->name + b->first + b->digits);
}

static int by_family(const void *pa, const void *pb)
{
    const rsi_rank_file *a = pa, *b = pb;
    int                  order = family_order(a, b);

    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* A part of the name without anything around it that separates words. */
static char *trimmed(const char *text, size_t len, rsi_arena *mem)
{
    while (len > 0 && !is_word(*text)) {
        text++;
        len--;
    }
    while (len > 0 && !is_word(text[len - 1]))
        len--;
    return rsi_arena_text(mem, text, len);
}

/* What the name says besides ranks: before the number or, if nothing, between it and the ending. */
static const char *label_of(const rsi_rank_file *f, rsi_arena *mem)
{
    static const char *const ends[] = { "world_size", "rank" };
    const char              *rest = f->name + f->first + f->digits, *dot = strrchr(rest, '.');
    char                    *label = rsi_arena_text(mem, f->name, f->first);

    for (size_t i = 0; label && i < sizeof(ends) / sizeof(ends[0]); i++) {
        char *at = strstr(label, ends[i]);

        if (at)
            *at = '\0';
    }
    label = label ? trimmed(label, strlen(label), mem) : NULL;
    if (!label || *label || is_of_world(rest) || strstr(rest, ends[0]))
        return label;
    return trimmed(rest, dot ? (size_t)(dot - rest) : strlen(rest), mem);
}

/* ---- which families belong together ---- */

/* What looking into files gave. */
typedef struct looking {
    bool      readable; /* at least one was */
    rsd_error why;      /* the first was not */
} looking;

/* Looks for parts of tensors in the files, up to the first that has some. */
static rsd_err look_inside(rsd_ckpt *ckpt, rsi_rank_family *f, looking *l, rsd_error *err)
{
    for (size_t i = 0; i < f->n && !f->sharded; i++) {
        rsd_error one = { .msg = "" };
        rsd_err   rc = rsi_torch_is_sharded(ckpt, f->file[i].name, &f->sharded, &one);

        if (rc && rc != RSD_E_FORMAT && rc != RSD_E_UNSUPPORTED) {
            if (err)
                *err = one;
            return rc;
        }
        l->readable = l->readable || !rc;
        if (rc && !l->why.code)
            l->why = one;
    }
    return RSD_OK;
}

/* True if the names are alike but for their labels: "_world_size_4_rank_0.pt". */
static bool is_alike(const rsi_rank_family *a, const rsi_rank_family *b)
{
    const char  *x = a->file->name + strlen(a->label), *y = b->file->name + strlen(b->label);
    const size_t nx = a->file->first - strlen(a->label), ny = b->file->first - strlen(b->label);

    return strncmp(a->file->name, a->label, strlen(a->label)) == 0 &&
           strncmp(b->file->name, b->label, strlen(b->label)) == 0 && nx == ny &&
           strncmp(x, y, nx) == 0 && strstr(x, "rank") &&
           strcmp(x + nx + a->file->digits, y + ny + b->file->digits) == 0;
}

/* A family without parts of tensors belongs to one with, if it has as many files, or fewer and
 * names alike: one rank may save the rest for all. */
static bool belongs(const rsi_rank_family *all, size_t n, const rsi_rank_family *f)
{
    bool with = f->sharded;

    for (size_t i = 0; i < n && !with; i++)
        with = all[i].sharded && (all[i].n == f->n || (all[i].n > f->n && is_alike(&all[i], f)));
    return with;
}

static rsd_err refuse_same_label(const rsi_rank_family *all, size_t n, rsd_error *err)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(all[i].label, all[k].label) == 0)
                return rsi_fail(err, RSD_E_FORMAT,
                                "it has two sets of rank files, with \"%s\" and with \"%s\": move "
                                "one of them to another folder",
                                all[k].file->name, all[i].file->name);
    return RSD_OK;
}

static rsd_err find_families(rsd_ckpt *ckpt, rsi_rank_family *out, size_t *n, rsi_rank_file *at,
                             size_t nfiles, looking *l, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *n = 0;
    qsort(at, nfiles, sizeof(at[0]), by_family);
    for (size_t i = 0, end; i < nfiles && !rc; i = end) {
        rsi_rank_family *f = &out[(*n)++];

        for (end = i + 1; end < nfiles && family_order(&at[i], &at[end]) == 0; end++)
            ;
        *f = (rsi_rank_family){ .file = at + i, .n = end - i };
        f->label = label_of(&at[i], &ckpt->mem);
        rc = f->label ? look_inside(ckpt, f, l, err) : rsi_torch_no_memory(err);
    }
    return rc;
}

rsd_err rsi_rank_families(rsd_ckpt *ckpt, rsi_rank_family **out, size_t *n, size_t *found,
                          rsd_error *err)
{
    looking          l = { .why.msg = "" };
    rsi_rank_file   *at;
    rsi_rank_family *all;
    char           **names;
    size_t           nnames, nall, kept = 0, nfiles = 0;
    rsd_err          rc = rsi_files_list(&ckpt->files, &names, &nnames, err);

    if (rc)
        return rc;
    at = rsi_arena_array(&ckpt->mem, nnames, sizeof(at[0]));
    all = rsi_arena_array(&ckpt->mem, nnames, sizeof(all[0]));
    if (!at || !all)
        return rsi_torch_no_memory(err);
    for (size_t i = 0; i < nnames; i++)
        nfiles += rsi_torch_is_name(names[i]) && find_number(names[i], &at[nfiles]);
    rc = find_families(ckpt, all, &nall, at, nfiles, &l, err);
    if (rc)
        return rc;
    *out = rsi_arena_array(&ckpt->mem, nall, sizeof(all[0]));
    if (!*out)
        return rsi_torch_no_memory(err);
    for (size_t i = 0; i < nall; i++)
        if (belongs(all, nall, &all[i]))
            (*out)[kept++] = all[i];
    if (kept == 0 && l.why.code && !l.readable) { /* they may be the checkpoint */
        if (err)
            *err = l.why;
        return (rsd_err)l.why.code;
    }
    *n = kept;
    *found = nfiles;
    return refuse_same_label(*out, kept, err);
}
