/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/facts.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- telling ---- */

static void RSI_PRINTF(2, 3) say(rsi_bytes *words, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    rsi_bytes_print(words, fmt, args);
    va_end(args);
}

/* In words, the value is `quote`, `text`, `quote`. */
static void tell(rsi_facts *f, const char *name, const void *bytes, size_t len, const char *quote,
                 const char *text)
{
    f->digest = rsi_digest(f->digest, bytes, len);
    if (!f->in_words)
        return;
    say(&f->words, "%s%s%s", f->about, *f->about && *name ? ": " : "", name);
    say(&f->words, "%s%s%s", quote, text, quote);
}

void rsi_facts_about(rsi_facts *f, const char *fmt, ...)
{
    va_list args;

    if (!f->in_words)
        return;
    va_start(args, fmt);
    vsnprintf(f->about, sizeof(f->about), fmt, args);
    va_end(args);
}

void rsi_fact_word(rsi_facts *f, const char *name, const char *value)
{
    tell(f, name, value, strlen(value), "", value);
}

void rsi_fact_text(rsi_facts *f, const char *name, const char *value)
{
    if (value)
        tell(f, name, value, strlen(value) + 1, "\"", value);
    else
        rsi_fact_word(f, name, "none");
}

void rsi_fact_number(rsi_facts *f, const char *name, uint64_t value)
{
    char text[24] = "";

    if (f->in_words)
        snprintf(text, sizeof(text), "%" PRIu64, value);
    tell(f, name, &value, sizeof(value), "", text);
}

void rsi_facts_item(rsi_facts *f, const char *kind, size_t i, const char *name)
{
    rsi_facts_about(f, "%s %zu", kind, i);
    rsi_fact_text(f, "", name);
    if (name)
        rsi_facts_about(f, "%s \"%s\"", kind, name);
}

void rsi_facts_count(rsi_facts *f, const char *what, size_t n)
{
    f->about[0] = 0;
    rsi_fact_number(f, what, n);
}

void rsi_fact_flag(rsi_facts *f, const char *name, bool value)
{
    rsi_fact_word(f, name, value ? "true" : "false");
}

void rsi_fact_shape(rsi_facts *f, const char *name, int ndim, const int64_t *shape)
{
    char     words[256] = "[]";
    rsi_text text = rsi_text_begin(words, sizeof(words));

    for (int d = 0; d < ndim && f->in_words; d++)
        rsi_text_add(&text, "%s%" PRId64 "%s", d ? ", " : "[", shape[d], d == ndim - 1 ? "]" : "");
    tell(f, name, shape, (size_t)ndim * sizeof(shape[0]), "", words);
}

#define NO_WORDS "\1" /* marks a value that is a digest */

void rsi_fact_digest(rsi_facts *f, const char *name, uint64_t digest)
{
    char text[24] = "";

    if (f->in_words)
        snprintf(text, sizeof(text), NO_WORDS "%" PRIx64, digest);
    tell(f, name, &digest, sizeof(digest), "", text);
}

/* ---- comparing ---- */

enum { SHOWN = 160 }; /* bytes of a value in a message */

/* Long values are mostly paths, which differ at the end. */
static const char *shown(const char *value, char buf[SHOWN])
{
    size_t len = strlen(value);

    if (len < SHOWN)
        return value;
    snprintf(buf, SHOWN, "...%s", value + len - (SHOWN - 4));
    return buf;
}

/* Compares this rank's facts with those of rank 0, in words. */
static rsd_err compare(const rsi_bytes *mine, const rsi_bytes *first, rsd_error *err)
{
    rsi_reader a = { .at = mine->at, .end = mine->at + mine->len };
    rsi_reader b = { .at = first->at, .end = first->at + first->len };
    char       buf[2][SHOWN];

    while (a.at < a.end || b.at < b.end) {
        const char *name = rsi_read_text(&a), *value = rsi_read_text(&a);
        const char *their_name = rsi_read_text(&b), *theirs = rsi_read_text(&b);
        bool        other = strcmp(name, their_name) != 0;

        if (!other && strcmp(value, theirs) == 0)
            continue;
        if (*value == *NO_WORDS)
            return rsi_fail(err, RSD_E_MISMATCH, "%s differs from that on rank 0", name);
        return rsi_fail(err, RSD_E_MISMATCH, "%s is %s here, but %s%s%s on rank 0", name,
                        shown(value, buf[0]), other ? their_name : "", other ? " is " : "",
                        shown(theirs, buf[1]));
    }
    return RSD_OK;
}

/* The digests differ: broadcasts rank 0's words to find out where. */
static rsd_err find_difference(rsd_comm *comm, rsi_tell_facts tell_all, const void *arg,
                               rsd_error *err)
{
    rsi_facts mine = { .in_words = true };
    rsi_bytes first = { 0 };
    rsd_err   rc;

    tell_all(&mine, arg);
    rc = mine.words.lost ? rsi_fail(err, RSD_E_NOMEM, "no memory to compare") : RSD_OK;
    first = comm->rank == 0 ? mine.words : first;
    rc = rsi_broadcast_any(comm, 0, &first, rc, err);
    if (!rc)
        rc = rsi_agree(comm, compare(&mine.words, &first, err), err);
    if (comm->rank > 0)
        rsi_free(first.at);
    rsi_free(mine.words.at);
    return rc;
}

rsd_err rsi_same_digest(rsd_comm *comm, uint64_t digest, rsd_err mine, bool *same, rsd_error *err)
{
    /* minimum over the ranks: did all succeed, the digest, and its complement */
    int64_t   said[3] = { !mine, (int64_t)digest, (int64_t)~digest };
    rsd_error spare = { 0 }, own;
    rsd_err   rc;

    err = err ? err : &spare;
    if (mine)
        own = *err;
    rc = rsi_allreduce(comm, RSI_OP_MIN, said, 3, err);
    if (rc)
        return rsi_also(rc, mine ? &own : NULL, err);
    *same = said[1] == ~said[2];
    return said[0] ? RSD_OK : rsi_agree(comm, mine, err);
}

rsd_err rsi_same_facts(rsd_comm *comm, rsi_tell_facts tell_all, const void *arg, rsd_err mine,
                       rsd_error *err)
{
    rsi_facts facts = { 0 };
    bool      same;
    rsd_err   rc;

    if (!comm)
        return mine;
    if (!mine)
        tell_all(&facts, arg);
    if (facts.words.lost)
        mine = rsi_fail(err, RSD_E_NOMEM, "no memory to compare options");
    rc = rsi_same_digest(comm, facts.digest, mine, &same, err);
    return rc || same ? rc : find_difference(comm, tell_all, arg, err);
}

static void tell_call(rsi_facts *f, const void *call)
{
    rsi_fact_word(f, "the call", call);
}

rsd_err rsi_same_call(rsd_comm *comm, const char *call, rsd_err mine, rsd_error *err)
{
    return rsi_same_facts(comm, tell_call, call, mine, err);
}
