/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes the boxes that several ranks hold. Every rank receives all hashes and reaches the same
 * verdict. */
#include "save/replicas.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/hash128.h"
#include "base/mem.h"
#include "base/text.h"
#include "state/tensor.h"
#include "plan/piece_holders.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 1 << 20, RANKS_NAMED = 8 };

typedef struct copy_of {
    uint64_t tensor, box; /* which of the holder's boxes */
    int64_t  chunk;
    uint64_t hash; /* the fields before it are the key */
    int64_t  rank;
} copy_of;

typedef struct hashing {
    const rsd_state *state;
    int32_t          rank;
    unsigned char   *buf; /* [PIECE] */
    copy_of         *copy;
    size_t           n, cap;
} hashing;

static rsd_err hash_box(const hashing *h, const rsi_state_tensor *t, const rsd_box *box,
                        uint64_t *out, rsd_error *err)
{
    uint64_t bytes = (uint64_t)(rsd_box_count(box) * t->views.elem_bytes);
    rsd_err  rc = RSD_OK;

    *out = bytes;
    for (uint64_t at = 0; at < bytes && !rc; at += PIECE) {
        size_t        len = (size_t)rsi_min((int64_t)(bytes - at), PIECE);
        unsigned char hash[RSI_HASH128_BYTES];

        rc = rsi_tensor_bytes(t, box, at, len, h->buf, err);
        if (rc)
            break;
        if (!rsi_hash128_available()) {
            *out = rsi_digest(*out, h->buf, len);
            continue;
        }
        rsi_hash128(h->buf, len, hash);
        *out = rsi_digest(*out, hash, sizeof(hash));
    }
    return rc;
}

static rsd_err add_box(hashing *h, size_t t, const rsd_box *box, int64_t chunk, size_t nth,
                       rsd_error *err)
{
    copy_of c = { .tensor = t, .box = nth, .chunk = chunk, .rank = h->rank };
    rsd_err rc = rsi_tensor_check(&h->state->tensor[t], box, err);

    if (!rc)
        rc = hash_box(h, &h->state->tensor[t], box, &c.hash, err);
    if (!rc && !rsi_grow(&h->copy, h->n, &h->cap, sizeof(c)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for hashes");
    if (!rc)
        h->copy[h->n++] = c;
    return rc;
}

static rsd_err add_tensor(hashing *h, size_t t, rsd_error *err)
{
    const rsi_state_tensor *tensor = &h->state->tensor[t];
    size_t   n = tensor->layout ? rsd_layout_boxes(tensor->layout, h->rank, NULL, 0) : 0;
    rsd_box  whole = rsi_tensor_whole(tensor), *box;
    rsi_side side;
    rsd_err  rc = RSD_OK;

    if (!tensor->layout)
        return rsi_tensor_check(tensor, &whole, NULL) ? RSD_OK : add_box(h, t, &whole, 0, 0, err);
    rsi_side_make(&side, tensor->layout, h->rank, true);
    box = rsi_calloc(n, sizeof(box[0]));
    if (!box)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);
    rsd_layout_boxes(tensor->layout, h->rank, box, n);
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t chunk, copy, where = side.my_where;
        bool    mesh = tensor->layout->mesh != NULL;

        rsi_side_mine(&side, i, &chunk, &copy);
        if (rsi_side_copies(&side, mesh ? where : chunk) > 1)
            rc = add_box(h, t, &box[i], chunk, mesh ? i : 0, err);
    }
    rsi_free(box);
    return rc;
}

/* Names the ranks whose hash of the same box differs from that of `first`. */
static rsd_err tell(const hashing *h, const copy_of *all, size_t n, const copy_of *first,
                    rsd_error *err)
{
    char     text[128];
    rsi_text ranks = rsi_text_begin(text, sizeof(text));
    int32_t  lowest = -1, count = 0;
    rsd_err  rc;

    for (size_t i = 0; i < n; i++) {
        if (memcmp(&all[i], first, offsetof(copy_of, hash)) != 0 || all[i].hash == first->hash)
            continue;
        if (count < RANKS_NAMED)
            rsi_text_add(&ranks, "%s%" PRId64, count ? ", " : "", all[i].rank);
        else if (count == RANKS_NAMED)
            rsi_text_add(&ranks, " and others");
        lowest = count++ ? lowest : (int32_t)all[i].rank;
    }
    rc = rsi_fail(err, RSD_E_MISMATCH,
                  "tensor \"%s\": replicas differ: rank%s %s %s not match rank %" PRId64,
                  h->state->tensor[first->tensor].spot.name, count > 1 ? "s" : "", text,
                  count > 1 ? "do" : "does", first->rank);
    err->rank = lowest;
    err->nfailed = count;
    return rc;
}

static rsd_err compare(const hashing *h, const copy_of *all, size_t n, rsd_error *err)
{
    rsi_map known = { 0 };
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        uint64_t first = i;

        if (!rsi_map_add(&known, &all[i], offsetof(copy_of, hash), &first, NULL))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory to compare hashes");
        else if (all[i].hash != all[first].hash)
            rc = tell(h, all, n, &all[first], err);
    }
    rsi_map_release(&known);
    return rc;
}

rsd_err rsi_replicas_equal(rsd_comm *comm, const rsd_state *state, rsd_error *err)
{
    hashing      h = { .state = state, .rank = rsd_comm_rank(comm) };
    rsi_gathered all = { 0 };
    rsd_err      rc;

    h.buf = rsi_alloc_aligned(4096, PIECE);
    rc = h.buf ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to hash tensors");
    for (size_t t = 0; t < state->ntensors && !rc; t++)
        rc = add_tensor(&h, t, err);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_allgather_any(comm, h.copy, h.n * sizeof(h.copy[0]), &all, err);
    if (!rc) {
        rsd_error why = { .rank = -1 };
        rsd_err   verdict = compare(&h, (const copy_of *)(const void *)all.data,
                                    all.first[rsd_comm_size(comm)] / sizeof(copy_of), &why);

        /* All ranks reach the same verdict, unless one ran out of memory. */
        rc = rsi_agree(comm, verdict == RSD_E_NOMEM ? verdict : RSD_OK, &why);
        rc = rc ? rc : verdict;
        if (rc && err)
            *err = why;
    }
    rsi_gathered_release(&all);
    rsi_free(h.copy);
    rsi_free(h.buf);
    return rc;
}
