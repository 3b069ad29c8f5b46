/* SPDX-License-Identifier: Apache-2.0 */
/* torch folds the hashes of the records' names in the order in which a C++
 * std::unordered_set<std::string> happens to hold them. This file therefore mimics libstdc++: its
 * hash (Murmur, 64 bits) and its chain of nodes, where a name goes to the front of its bucket and a
 * new bucket to the front of the chain. */
#include "format/zip_id.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OTHERS = 5 }; /* records besides storages that every archive has before its id */

/* The set's numbers of buckets as it grows: to the next one when there are more names than
 * buckets. */
static const uint32_t buckets[] = { 13,     29,     59,      127,     257,    541,   1109,
                                    2357,   5087,   10273,   20753,   42043,  85229, 172933,
                                    351061, 712697, 1447153, 2938679, 5967347 };

enum { STEPS = sizeof(buckets) / sizeof(buckets[0]) };

static uint64_t mix(uint64_t v)
{
    return v ^ v >> 47;
}

static uint64_t murmur(const char *text, size_t len)
{
    const uint64_t mul = 0xc6a4a7935bd1e995;
    uint64_t       hash = 0xc70f6907 ^ len * mul;

    for (size_t done = 0; done < len; done += 8) {
        size_t   n = len - done < 8 ? len - done : 8;
        uint64_t word = 0;

        for (size_t i = 0; i < n; i++)
            word |= (uint64_t)(unsigned char)text[done + i] << (8 * i);
        if (n == 8)
            word = mix(word * mul) * mul;
        hash = (hash ^ word) * mul;
    }
    return mix(mix(hash) * mul);
}

/* The set. Nodes are numbered from 1 in the order of insertion; 0 is the place before the first. */
typedef struct set {
    uint64_t *hash;   /* [names + 1] */
    uint32_t *next;   /* [names + 1] the node after this one; 0: none */
    uint32_t *before; /* [nbuckets] 1 + node before the bucket's first; 0: empty */
    uint32_t  nbuckets;
} set;

static void link_node(set *s, uint32_t node)
{
    uint32_t *mine = &s->before[s->hash[node] % s->nbuckets];
    uint32_t  at = *mine ? *mine - 1 : 0;

    s->next[node] = s->next[at];
    s->next[at] = node;
    if (*mine)
        return;
    *mine = 1;
    if (s->next[node])
        s->before[s->hash[s->next[node]] % s->nbuckets] = node + 1;
}

/* Inserts all nodes again, in their current order. */
static void grow(set *s, uint32_t nbuckets)
{
    uint32_t node = s->next[0];

    memset(s->before, 0, nbuckets * sizeof(s->before[0]));
    s->nbuckets = nbuckets;
    s->next[0] = 0;
    while (node) {
        uint32_t next = s->next[node];

        link_node(s, node);
        node = next;
    }
}

static uint64_t name_hash(size_t n, size_t i)
{
    static const char *const first[] = { "data.pkl", ".format_version", ".storage_alignment",
                                         "byteorder" };
    char                     name[32];

    if (i < OTHERS - 1)
        return murmur(first[i], strlen(first[i]));
    if (i - (OTHERS - 1) == n)
        return murmur("version", 7);
    snprintf(name, sizeof(name), "data/%zu", i - (OTHERS - 1));
    return murmur(name, strlen(name));
}

rsd_err rsi_zip_id_names(size_t n, uint64_t *out, rsd_error *err)
{
    set      s = { 0 };
    size_t   step = 0;
    uint64_t fold = 0;
    rsd_err  rc = RSD_OK;

    while (step < STEPS && n + OTHERS > buckets[step])
        step++;
    if (step == STEPS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%zu storages in one archive are too many", n);
    s.hash = rsi_calloc(n + OTHERS + 1, sizeof(s.hash[0]));
    s.next = rsi_calloc(n + OTHERS + 1, sizeof(s.next[0]));
    s.before = rsi_calloc(buckets[step], sizeof(s.before[0]));
    if (!s.hash || !s.next || !s.before) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu storages", n);
        goto out;
    }
    step = 0;
    for (size_t i = 0; i < n + OTHERS; i++) {
        if (i == 0 || i >= s.nbuckets)
            grow(&s, buckets[step++]);
        s.hash[i + 1] = name_hash(n, i);
        link_node(&s, (uint32_t)i + 1);
    }
    for (uint32_t node = s.next[0]; node; node = s.next[node])
        fold = rsi_zip_id_fold(fold, s.hash[node]);
    *out = fold;
out:
    rsi_free(s.hash);
    rsi_free(s.next);
    rsi_free(s.before);
    return rc;
}

void rsi_zip_id_text(uint64_t names, uint64_t crcs, char out[RSI_ZIP_ID_LEN + 1])
{
    snprintf(out, RSI_ZIP_ID_LEN + 1, "%020" PRIu64 "%020" PRIu64, names, crcs);
}
