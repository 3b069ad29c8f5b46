/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes what several ranks hold. Every rank hears all hashes and comes to the same verdict. */
#include "save/replicas.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/hash128.h"
#include "base/mem.h"
#include "base/text.h"
#include "state/tensor.h"
#include "plan/side.h"

#include <inttypes.h>
#include <string.h>

enum { PIECE = 1 << 20, RANKS_NAMED = 8 };

typedef struct copy_of {
    uint64_t tensor, box; /* which box of the holder */
    int64_t  chunk;
    uint64_t hash; /* behind what it is compared by */
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
    copy_of c = { .tensor = t, .box = nth, .chunk = chunk };
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

/* The ranks that have another hash than the first holder of the same box, from `at` on. */
static rsd_err tell(const hashing *h, const rsi_gathered *all, int32_t size, const copy_of *wrong,
                    int32_t than, uint64_t hash, rsd_error *err)
{
    char     text[128];
    rsi_text ranks = rsi_text_begin(text, sizeof(text));
    int32_t  first = -1, n = 0;
    rsd_err  rc;

    for (int32_t r = 0; r < size; r++) {
        for (size_t at = all->first[r]; at < all->first[r + 1]; at += sizeof(copy_of)) {
            copy_of c;

            memcpy(&c, all->data + at, sizeof(c));
            if (memcmp(&c, wrong, offsetof(copy_of, hash)) != 0 || c.hash == hash)
                continue;
            if (n < RANKS_NAMED)
                rsi_text_add(&ranks, "%s%" PRId32, n ? ", " : "", r);
            else if (n == RANKS_NAMED)
                rsi_text_add(&ranks, " and others");
            first = n++ ? first : r;
        }
    }
    rc = rsi_fail(err, RSD_E_MISMATCH,
                  "tensor \"%s\" is meant to be equal, but not the same as on rank %" PRId32
                  " on rank%s %s",
                  h->state->tensor[wrong->tensor].spot.name, than, n > 1 ? "s" : "", text);
    if (err) {
        err->rank = first;
        err->nfailed = n;
    }
    return rc;
}

static rsd_err compare(const hashing *h, const rsi_gathered *all, int32_t size, rsd_error *err)
{
    rsi_map known = { 0 };
    rsd_err rc = RSD_OK;

    for (int32_t r = 0; r < size && !rc; r++) {
        for (size_t at = all->first[r]; at < all->first[r + 1] && !rc; at += sizeof(copy_of)) {
            const char *key = all->data + at;
            uint64_t    place = at;
            copy_of     c, first;
            int32_t     owner = 0;

            if (!rsi_map_add(&known, key, offsetof(copy_of, hash), &place, NULL)) {
                rc = rsi_fail(err, RSD_E_NOMEM, "no memory to compare hashes");
                break;
            }
            memcpy(&c, key, sizeof(c));
            memcpy(&first, all->data + place, sizeof(first));
            while (all->first[owner + 1] <= place)
                owner++;
            if (c.hash != first.hash)
                rc = tell(h, all, size, &c, owner, first.hash, err);
        }
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
    for (size_t t = 0; t < state->ntensors && !rc; t++) {
        rc = add_tensor(&h, t, err);
        if (rc)
            rc = rsi_while(err, rc, "tensor \"%s\"", state->tensor[t].spot.name);
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_allgather_any(comm, h.copy, h.n * sizeof(h.copy[0]), &all, err);
    if (!rc) {
        rsd_error why = { .rank = -1 };
        rsd_err   verdict = compare(&h, &all, rsd_comm_size(comm), &why);

        /* All come to the same one, unless a rank had no memory to. */
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
