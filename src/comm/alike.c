/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/alike.h"
#include "base/digest.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- telling ---- */

static void add(rsi_terms *g, const char *text)
{
    size_t len = strlen(text) + 1;
    char  *grown;

    if (len > g->cap - g->len) {
        grown = g->full ? NULL : rsi_realloc(g->at, 2 * (g->len + len), 1);
        g->full = !grown;
        if (g->full)
            return;
        g->at = grown;
        g->cap = 2 * (g->len + len);
    }
    memcpy(g->at + g->len, text, len);
    g->len += len;
}

void rsi_terms_word(rsi_terms *g, const char *name, const char *value)
{
    add(g, name);
    add(g, value);
}

void rsi_terms_call(rsi_terms *g, const char *call)
{
    rsi_terms_word(g, "the call", call);
}

void rsi_terms_text(rsi_terms *g, const char *name, const char *value)
{
    add(g, name);
    if (!value) {
        add(g, "none");
        return;
    }
    add(g, "\"");
    if (g->full)
        return;
    g->len--; /* one text: the NUL goes */
    add(g, value);
    if (g->full)
        return;
    g->len--;
    add(g, "\"");
}

void rsi_terms_number(rsi_terms *g, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    rsi_terms_word(g, name, text);
}

void rsi_terms_flag(rsi_terms *g, const char *name, bool value)
{
    rsi_terms_word(g, name, value ? "true" : "false");
}

/* ---- comparing ---- */

enum { SHOWN = 160 }; /* bytes of a value in a message */

/* Long values are mostly paths, which differ at their end. */
static const char *shown(const char *value, char buf[SHOWN])
{
    size_t len = strlen(value);

    if (len < SHOWN)
        return value;
    snprintf(buf, SHOWN, "...%s", value + len - (SHOWN - 4));
    return buf;
}

/* This rank's list against that of rank 0; both are whole, and they differ. */
static rsd_err compare(const rsi_terms *mine, const rsi_terms *first, rsd_error *err)
{
    const char *a = mine->at, *b = first->at;
    char        buf[2][SHOWN];

    while (a < mine->at + mine->len && b < first->at + first->len) {
        const char *name = a, *value = a + strlen(a) + 1, *theirs = b + strlen(b) + 1;

        if (strcmp(name, b) != 0)
            break; /* another kind of call: that came first */
        if (strcmp(value, theirs) != 0)
            return rsi_fail(err, RSD_E_MISMATCH, "%s is %s here, but %s on rank 0", name,
                            shown(value, buf[0]), shown(theirs, buf[1]));
        a = value + strlen(value) + 1;
        b = theirs + strlen(theirs) + 1;
    }
    return a == mine->at + mine->len && b == first->at + first->len
               ? RSD_OK
               : rsi_fail(err, RSD_E_MISMATCH, "has other options than rank 0");
}

/* The digests differ: rank 0's list goes to all. */
static rsd_err find_difference(rsd_comm *comm, const rsi_terms *mine, rsd_error *err)
{
    rsi_terms first = { 0 };
    uint64_t  bytes = mine->len;
    rsd_err   rc = rsi_broadcast(comm, 0, &bytes, sizeof(bytes), err);

    if (rc)
        return rc;
    first.at = rsi_calloc((size_t)bytes + 2, 1); /* whatever came: it ends in NULs */
    first.len = (size_t)bytes;
    rc = rsi_agree(comm, first.at ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to compare"),
                   err);
    if (!rc && comm->rank == 0 && bytes)
        memcpy(first.at, mine->at, first.len);
    if (!rc)
        rc = rsi_broadcast(comm, 0, first.at, first.len, err);
    if (!rc)
        rc = rsi_agree(comm, compare(mine, &first, err), err);
    rsi_free(first.at);
    return rc;
}

rsd_err rsi_alike(rsd_comm *comm, rsi_terms *terms, rsd_err mine, rsd_error *err)
{
    rsd_error spare, own = { .rank = -1 };
    uint64_t  digest;
    int64_t   said[3]; /* the lowest of each: did all do well; digests, and upside down */
    rsd_err   rc;

    err = err ? err : &spare;
    if (!mine && terms->full)
        mine = rsi_fail(err, RSD_E_NOMEM, "no memory to compare options");
    if (mine)
        own = *err;
    rc = mine;
    if (comm) {
        digest = mine ? 0 : rsi_digest(terms->len, terms->at, terms->len);
        said[0] = !mine;
        said[1] = (int64_t)digest;
        said[2] = (int64_t)~digest;
        rc = rsi_allreduce(comm, RSI_OP_MIN, said, 3, err);
        if (rc)
            rc = rsi_also(rc, mine ? &own : NULL, err);
        else if (!said[0])
            rc = rsi_agree(comm, mine, err);
        else if (said[1] != ~said[2])
            rc = find_difference(comm, terms, err);
    }
    rsi_free(terms->at);
    *terms = (rsi_terms){ 0 };
    return rc;
}
