/* SPDX-License-Identifier: Apache-2.0 */
/* Finds data that several ranks want. A tensor is cut along its chunks and those into blocks; it is
 * read once only if the wanted parts of every wanted block make up a box, so that no unwanted byte
 * is read. */
#include "load/wanted_by_several.h"
#include "base/checked.h"
#include "base/mem.h"
#include "comm/rooms.h"
#include "plan/region.h"
#include "shape/box.h"

#include <string.h>

#define PIECES    8                   /* per rank, where none has to be kept whole */
#define SCATTERED ((int64_t)64 << 10) /* shorter runs are cheaper to move than to read */

/* ---- all ranks' wants ---- */

static size_t words_of(const rsi_share *s, int64_t ndim)
{
    return 2 + 2 * (size_t)ndim + (s->reach ? 1 + (size_t)ndim : 0);
}

/* One want as words: tensor, number of dimensions, offsets, sizes, place. */
static void put_words(const rsi_share *s, const rsi_want *want, int64_t *out)
{
    const rsd_view *view = want->view;
    int             ndim = view->box.ndim;

    *out++ = (int64_t)want->t;
    *out++ = ndim;
    for (int d = 0; d < ndim; d++) {
        out[d] = view->box.off[d];
        out[ndim + d] = view->box.len[d];
    }
    out += 2 * (size_t)ndim;
    if (!s->reach)
        return;
    *out++ = (int64_t)(uintptr_t)view->data;
    for (int d = 0; d < ndim; d++)
        out[d] = view->stride[d];
}

rsd_err rsi_share_go(rsd_comm *comm, rsd_err mine, bool *go, rsd_error *err)
{
    int64_t failed = mine != RSD_OK;
    rsd_err rc = rsi_allreduce(comm, RSI_OP_MAX, &failed, 1, mine ? NULL : err);

    *go = !rc && !failed;
    return mine ? mine : rc;
}

/* Makes room for the words of all ranks, whose bytes are in first[], and puts `mine` there. */
static rsd_err make_room(rsi_share *s, const int64_t *mine, rsd_error *err)
{
    size_t at = 0;

    for (int32_t r = 0; r <= s->comm->size; r++) {
        size_t bytes = s->words.first[r];

        s->words.first[r] = at;
        at += bytes;
    }
    s->words.data = rsi_alloc_aligned(64, at ? at : 1);
    if (!s->words.data)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of other ranks", at);
    at = s->words.first[s->comm->rank];
    if (s->words.first[s->comm->rank + 1] > at)
        memcpy(s->words.data + at, mine, s->words.first[s->comm->rank + 1] - at);
    return RSD_OK;
}

static rsd_err tell_all(rsi_share *s, const rsi_want *want, size_t n, bool *go, rsd_error *err)
{
    size_t   bytes = 0, at = 0;
    int64_t *mine;
    rsd_err  rc = RSD_OK;

    for (size_t i = 0; i < n; i++)
        bytes += words_of(s, want[i].view->box.ndim) * sizeof(mine[0]);
    mine = rsi_calloc(bytes, 1);
    s->words.first = rsi_calloc((size_t)s->comm->size + 1, sizeof(s->words.first[0]));
    if (!mine || !s->words.first)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);
    for (size_t i = 0; i < n && !rc; i++) {
        put_words(s, &want[i], mine + at);
        at += words_of(s, want[i].view->box.ndim);
    }
    rc = rsi_share_go(s->comm, rc, go, err);
    if (*go)
        rc = rsi_allgather(s->comm, &bytes, sizeof(bytes), s->words.first, err);
    if (*go && !rc)
        rc = rsi_share_go(s->comm, make_room(s, mine, err), go, err);
    if (*go && !rc)
        rc = rsi_allgather_at(s->comm, s->words.data, s->words.first, err);
    *go = *go && !rc;
    rsi_free(mine);
    return rc;
}

/* Visits the words of all ranks and counts them or, with `place`, puts each in its place. They come
 * from ranks with the same metadata, but are checked anyway. */
static rsd_err each_ref(rsi_share *s, int32_t ranks, bool place, rsd_error *err)
{
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t *w = (const int64_t *)(const void *)(s->words.data + s->words.first[r]);
        const int64_t *end = (const int64_t *)(const void *)(s->words.data + s->words.first[r + 1]);
        uint32_t       number = 0;
        rsd_tensor_info info;

        for (; w < end; w += words_of(s, w[1]), number++) {
            if (end - w < 2 || w[0] < 0 || (size_t)w[0] >= s->ckpt->ntensors || w[1] < 0 ||
                w[1] > RSD_MAX_NDIM || (size_t)(end - w) < words_of(s, w[1]))
                return rsi_fail(err, RSD_E_BUG, "rank %d sent a malformed request", (int)r);
            s->ckpt->ops->tensor(s->ckpt, (size_t)w[0], &info);
            if (info.ndim != w[1])
                return rsi_fail(err, RSD_E_BUG, "rank %d has a different \"%s\"", (int)r,
                                info.name);
            if (place)
                s->ref[s->first[w[0] + 1]++] = (rsi_ref){ .rank = r, .want = number, .box = w + 2 };
            else
                s->first[w[0] + 2]++;
        }
    }
    return RSD_OK;
}

static rsd_err sort_refs(rsi_share *s, int32_t ranks, rsd_error *err)
{
    size_t  n = s->ckpt->ntensors, all = 0;
    rsd_err rc;

    s->first = rsi_calloc(n + 2, sizeof(s->first[0]));
    s->once = rsi_calloc(n, sizeof(s->once[0]));
    if (!s->first || !s->once)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", n);
    rc = each_ref(s, ranks, false, err);
    if (rc)
        return rc;
    for (size_t t = 2; t < n + 2; t++)
        all = s->first[t] += s->first[t - 1];
    s->ref = rsi_calloc(all, sizeof(s->ref[0]));
    if (!s->ref)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", all);
    return each_ref(s, ranks, true, err);
}

/* ---- pieces ---- */

static rsd_box box_of(const rsi_ref *ref, int ndim)
{
    rsd_box box = { .ndim = ndim };

    if (ndim > 0) {
        memcpy(box.off, ref->box, (size_t)ndim * sizeof(box.off[0]));
        memcpy(box.len, ref->box + ndim, (size_t)ndim * sizeof(box.len[0]));
    }
    return box;
}

/* The smallest box around both. */
static void widen(rsd_box *box, const rsd_box *more)
{
    for (int d = 0; d < box->ndim; d++) {
        int64_t end = rsi_max(box->off[d] + box->len[d], more->off[d] + more->len[d]);

        box->off[d] = rsi_min(box->off[d], more->off[d]);
        box->len[d] = end - box->off[d];
    }
}

/* True if the hits cover the whole piece: one is all of it, or the distinct ones are disjoint and
 * add up to it. */
static bool exact(const rsi_piece *piece, const rsi_hit *hit)
{
    int64_t left = rsd_box_count(&piece->box);

    for (size_t i = 0; i < piece->n; i++)
        if (rsi_box_equal(&hit[i].box, &piece->box))
            return true;
    for (size_t i = 0; i < piece->n; i++) {
        bool again = false;

        for (size_t k = 0; k < i && !again; k++) {
            again = rsi_box_equal(&hit[i].box, &hit[k].box);
            if (!again && rsd_box_intersect(&hit[i].box, &hit[k].box, NULL))
                return false;
        }
        left -= again ? 0 : rsd_box_count(&hit[i].box);
    }
    return left == 0;
}

/* Finds the wanted parts of `block`; n == 0: none. */
static rsd_err find_hits(const rsi_share *s, size_t t, const rsd_box *block, rsi_pieces *out,
                         rsi_piece *piece, rsd_error *err)
{
    *piece = (rsi_piece){ .t = t, .first = out->nhits };
    for (size_t k = s->first[t]; k < s->first[t + 1]; k++) {
        rsd_box want = box_of(&s->ref[k], block->ndim), part;

        if (!rsd_box_intersect(&want, block, &part))
            continue;
        if (!rsi_grow(&out->hit, out->nhits, &out->hit_cap, sizeof(out->hit[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", out->nhits + 1);
        out->hit[out->nhits++] = (rsi_hit){
            .rank = s->ref[k].rank, .want = s->ref[k].want, .ref = &s->ref[k], .box = part
        };
        if (piece->n++ == 0)
            piece->box = part;
        else
            widen(&piece->box, &part);
    }
    return RSD_OK;
}

/* The blocks of chunk i, as if it were packed. One that is too long to be checked by its CRC, and
 * has no checksums of rows, is cut so that pieces stay in a cache on their way. */
static void cut_chunk(const rsi_share *s, size_t t, size_t i, rsi_region *out)
{
    rsd_tensor_info info;
    rsd_chunk       chunk;
    uint32_t        file;
    int64_t         stride[RSD_MAX_NDIM], elem, most = s->piece;

    s->ckpt->ops->tensor(s->ckpt, t, &info);
    s->ckpt->ops->chunk(s->ckpt, t, i, &chunk, &file);
    elem = (int64_t)rsd_dtype_size(info.dtype);
    *out = (rsi_region){ 0 };
    if (rsd_box_count(&chunk.box) == 0)
        return;
    if (!s->reach && !s->ckpt->sums.file && rsd_box_count(&chunk.box) * elem > most)
        most /= 2;
    rsi_strides(info.ndim, chunk.box.len, elem, stride);
    rsi_region_make(out, &chunk.box, &chunk.box, elem, 0, stride, most);
}

rsd_err rsi_share_next(const rsi_share *s, rsi_share_at *at, rsi_pieces *out, bool *more,
                       rsd_error *err)
{
    *more = true;
    if (!rsi_grow(&out->piece, out->n, &out->cap, sizeof(out->piece[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu pieces", out->n + 1);
    for (; at->t < at->end; at->t++, at->chunk = 0) {
        rsd_tensor_info info;

        if (!s->once[at->t])
            continue;
        s->ckpt->ops->tensor(s->ckpt, at->t, &info);
        for (; at->chunk < info.chunks; at->chunk++, at->block = 0) {
            rsi_region region;

            cut_chunk(s, at->t, at->chunk, &region);
            while (at->block < region.nblocks) {
                rsi_block block;
                rsd_box   box;
                rsd_err   rc;

                rsi_region_block(&region, at->block++, &block);
                rsi_region_box(&region, &block.box, &box);
                rc = find_hits(s, at->t, &box, out, &out->piece[out->n], err);
                out->piece[out->n].elem_bytes = region.elem_bytes;
                if (rc || out->piece[out->n].n > 0) {
                    out->n += !rc;
                    return rc;
                }
            }
        }
    }
    *more = false;
    return RSD_OK;
}

void rsi_pieces_release(rsi_pieces *pieces)
{
    rsi_free(pieces->piece);
    rsi_free(pieces->hit);
    *pieces = (rsi_pieces){ 0 };
}

/* ---- which tensors ---- */

/* Counts the elements that the ranks want, with repeats, and those of the box around them. */
static void weigh(const rsi_share *s, size_t t, int64_t *wanted, int64_t *around)
{
    rsd_tensor_info info;
    rsd_box         all = { 0 };

    *wanted = 0;
    s->ckpt->ops->tensor(s->ckpt, t, &info);
    for (size_t k = s->first[t]; k < s->first[t + 1]; k++) {
        rsd_box box = box_of(&s->ref[k], info.ndim);

        *wanted += rsd_box_count(&box);
        if (k == s->first[t])
            all = box;
        else
            widen(&all, &box);
    }
    *around = rsd_box_count(&all);
}

static bool by_several(const rsi_share *s, size_t t)
{
    return s->first[t + 1] > s->first[t] &&
           s->ref[s->first[t]].rank != s->ref[s->first[t + 1] - 1].rank;
}

/* True if a want leaves gaps in the tensor's order: only such a one can be scattered. */
static bool has_gaps(const rsi_share *s, size_t t)
{
    rsd_tensor_info info;

    s->ckpt->ops->tensor(s->ckpt, t, &info);
    for (size_t k = s->first[t]; k < s->first[t + 1]; k++) {
        const int64_t *len = s->ref[k].box + info.ndim;
        int            d = info.ndim - 1;

        while (d >= 0 && len[d] == info.shape[d])
            d--;
        for (d = d - 1; d >= 0; d--)
            if (len[d] > 1)
                return true;
    }
    return false;
}

/* True if a hit would be read in short, separate runs. */
static bool scattered(const rsi_piece *piece, const rsi_hit *hit)
{
    for (size_t i = 0; i < piece->n; i++) {
        int64_t run = piece->elem_bytes;
        int     d = piece->box.ndim - 1;

        for (; d >= 0; d--) {
            run *= hit[i].box.len[d];
            if (hit[i].box.len[d] != piece->box.len[d])
                break;
        }
        for (d = d - 1; d >= 0 && run < SCATTERED; d--)
            if (hit[i].box.len[d] > 1)
                return true;
    }
    return false;
}

/* Marks the tensor if all its pieces are boxes and, unless `anyway` is set, one is scattered. */
static rsd_err try_once(rsi_share *s, size_t t, bool anyway, rsi_pieces *spare, rsd_error *err)
{
    rsi_share_at at = { .t = t, .end = t + 1 };
    uint64_t     bytes = 0;
    bool         more = true, fit = true;
    rsd_err      rc = RSD_OK;

    s->once[t] = true;
    while (fit && !rc) {
        spare->n = spare->nhits = 0;
        rc = rsi_share_next(s, &at, spare, &more, err);
        if (rc || !more)
            break;
        anyway = anyway || scattered(&spare->piece[0], spare->hit);
        fit = exact(&spare->piece[0], spare->hit);
        bytes += (uint64_t)(rsd_box_count(&spare->piece[0].box) * spare->piece[0].elem_bytes);
    }
    s->once[t] = !rc && fit && anyway;
    s->nonce += s->once[t];
    s->bytes += s->once[t] ? bytes : 0;
    return rc;
}

static rsd_err choose(rsi_share *s, bool always, rsd_error *err)
{
    rsi_pieces spare = { 0 };
    rsd_err    rc = RSD_OK;

    for (size_t t = 0; t < s->ckpt->ntensors && !rc; t++) {
        int64_t wanted, around;
        bool    anyway;

        if (!by_several(s, t))
            continue;
        weigh(s, t, &wanted, &around);
        anyway = always || wanted - around >= around / 4;
        if (anyway || ((s->reach || rsi_rooms_may(s->comm)) && has_gaps(s, t)))
            rc = try_once(s, t, anyway, &spare, err);
    }
    rsi_pieces_release(&spare);
    return rc;
}

/* A record that is one piece is checked as a whole, but every rank should get some pieces. */
static int64_t piece_bytes(const rsi_share *s, int32_t ranks)
{
    int64_t all = 0;

    for (size_t t = 0; t < s->ckpt->ntensors && s->reach; t++) {
        rsd_tensor_info info;

        s->ckpt->ops->tensor(s->ckpt, t, &info);
        all += by_several(s, t) ? info.bytes : 0;
    }
    return rsi_max(RSI_PIECE_MOST, all / ranks / PIECES);
}

/* ---- all together ---- */

/* True if other ranks can write data they read directly into all views. */
static bool can_show(const rsd_comm *comm, const rsd_ckpt *ckpt, const rsi_want *want, size_t n)
{
    bool can = comm->ops.flags & RSD_COMM_THREADS;

    for (size_t i = 0; i < n && can; i++) {
        rsd_tensor_info info;

        ckpt->ops->tensor(ckpt, want[i].t, &info);
        can = want[i].view->data && want[i].dtype == info.dtype;
    }
    return can;
}

static rsd_err find_shared(rsi_share *s, const rsi_want *want, size_t n, bool always, bool *go,
                           rsd_error *err)
{
    rsd_err rc = tell_all(s, want, n, go, err);

    if (!*go)
        return rc;
    rc = sort_refs(s, s->comm->size, err);
    if (!rc) {
        s->piece = piece_bytes(s, s->comm->size);
        rc = choose(s, always, err);
    }
    return rsi_share_go(s->comm, rc, go, err);
}

rsd_err rsi_share_make(rsi_share *share, rsd_comm *comm, rsd_ckpt *ckpt, const rsi_want *want,
                       size_t n, rsd_choice cooperate, bool *go, rsd_error *err)
{
    int64_t said[3] = { cooperate == RSD_NEVER, cooperate == RSD_ALWAYS,
                        cooperate == RSD_NEVER || !can_show(comm, ckpt, want, n) };
    rsd_err rc = rsi_allreduce(comm, RSI_OP_MAX, said, 3, err);

    *share = (rsi_share){ .comm = comm, .ckpt = ckpt, .reach = !said[2] };
    *go = !rc;
    if (!rc && !said[0])
        rc = find_shared(share, want, n, said[1], go, err);
    if (!*go)
        rsi_share_release(share);
    return rc;
}

void rsi_share_release(rsi_share *share)
{
    rsi_gathered_release(&share->words);
    rsi_free(share->ref);
    rsi_free(share->first);
    rsi_free(share->once);
    *share = (rsi_share){ 0 };
}
