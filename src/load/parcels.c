/* SPDX-License-Identifier: Apache-2.0 */
/* Deals out pieces in parcels: always to the rank that has read least. */
#include "load/parcels.h"
#include "base/mem.h"

#include <string.h>

/* Bytes at which a parcel is full: few enough that each rank reads several, if there is enough
 * data. */
#define LEAST   ((uint64_t)64 << 10)
#define MOST    ((uint64_t)4 << 20)
#define PARCELS 4 /* per rank */

rsd_err rsi_parcels_begin(rsi_parcels *p, const rsi_share *share, rsd_error *err)
{
    size_t   size = (size_t)share->comm->size;
    uint64_t full = share->bytes / (PARCELS * (uint64_t)size);

    *p = (rsi_parcels){ .share = share, .at.end = share->ckpt->ntensors, .more = true };
    p->full = full < LEAST ? LEAST : full > MOST ? MOST : full;
    p->load = rsi_calloc(size, sizeof(p->load[0]));
    p->shares = rsi_calloc(size, sizeof(p->shares[0]));
    return p->load && p->shares ? RSD_OK
                                : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu ranks", size);
}

void rsi_parcels_release(rsi_parcels *p)
{
    rsi_pieces_release(&p->pieces);
    rsi_free(p->parcel);
    rsi_free(p->load);
    rsi_free(p->shares);
    *p = (rsi_parcels){ 0 };
}

static bool wants(const rsi_parcels *p, const rsi_piece *piece, int32_t rank)
{
    for (size_t h = piece->first; h < piece->first + piece->n; h++)
        if (p->pieces.hit[h].rank == rank)
            return true;
    return false;
}

bool rsi_parcel_wanted(const rsi_parcels *p, const rsi_read_parcel *parcel, int32_t rank)
{
    for (size_t i = parcel->first; i < parcel->end; i++)
        if (wants(p, &p->pieces.piece[i], rank))
            return true;
    return false;
}

/* The reader of a parcel that begins with this piece. */
static int32_t choose_reader(const rsi_parcels *p, const rsi_piece *piece)
{
    int32_t best = p->anyone ? 0 : p->pieces.hit[piece->first].rank;

    for (int32_t k = best + 1; k < p->share->comm->size; k++)
        if (p->shares[k] < p->shares[best] && (p->anyone || wants(p, piece, k)))
            best = k;
    return best;
}

/* Charges a parcel to its reader and receivers; true if a rank has now reached its limit. */
static bool charge(rsi_parcels *p, const rsi_read_parcel *parcel)
{
    bool full = false;

    p->shares[parcel->reader] += parcel->bytes;
    p->load[parcel->reader] += parcel->bytes;
    for (int32_t k = 0; k < p->share->comm->size && !p->anyone; k++) {
        if (k != parcel->reader && rsi_parcel_wanted(p, parcel, k))
            p->load[k] += parcel->bytes;
        full = full || p->load[k] >= p->most;
    }
    return full;
}

/* Goes back to before these pieces. */
static void put_back(rsi_parcels *p, const rsi_share_at *before, size_t npieces, size_t nhits)
{
    p->at = *before;
    p->more = true;
    p->pieces.n = npieces;
    p->pieces.nhits = nhits;
}

/* Adds pieces with one reader until the parcel is full. A piece that would make it too long for a
 * room, or that its reader does not want but would have to send, starts the next one. */
static rsd_err next_parcel(rsi_parcels *p, rsd_error *err)
{
    rsi_read_parcel *one;

    if (!rsi_grow(&p->parcel, p->n, &p->cap, sizeof(p->parcel[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu parcels", p->n + 1);
    one = &p->parcel[p->n];
    *one = (rsi_read_parcel){ .first = p->pieces.n, .end = p->pieces.n, .reader = -1 };
    while (one->bytes < p->full) {
        rsi_share_at before = p->at;
        size_t       nhits = p->pieces.nhits, bytes;
        rsi_piece   *piece;
        rsd_err      rc = rsi_share_next(p->share, &p->at, &p->pieces, &p->more, err);

        if (rc || !p->more)
            return rc;
        piece = &p->pieces.piece[one->end];
        bytes = rsi_piece_bytes(piece, &piece->box);
        if (one->reader < 0) {
            one->reader = choose_reader(p, piece);
        } else if ((p->room && one->bytes + bytes > p->full) ||
                   (!p->anyone && !wants(p, piece, one->reader))) {
            put_back(p, &before, one->end, nhits);
            break;
        }
        one->bytes += bytes;
        one->end++;
    }
    return RSD_OK;
}

rsd_err rsi_parcels_next(rsi_parcels *p, rsd_error *err)
{
    bool full = false;

    p->pieces.n = p->pieces.nhits = p->n = 0;
    memset(p->load, 0, (size_t)p->share->comm->size * sizeof(p->load[0]));
    while (p->more && !full) {
        rsi_share_at     before = p->at;
        size_t           nhits = p->pieces.nhits;
        rsd_err          rc = next_parcel(p, err);
        rsi_read_parcel *one = &p->parcel[p->n];

        if (rc)
            return rc;
        if (one->bytes == 0)
            break;
        one->at = p->load[one->reader];
        if (p->room && one->at > 0 && one->at + one->bytes > p->room) {
            put_back(p, &before, one->first, nhits);
            break;
        }
        full = charge(p, one);
        if (p->share->reach && one->reader != p->share->comm->rank) {
            p->pieces.n = one->first;
            p->pieces.nhits = nhits;
        } else {
            p->n++;
        }
    }
    return RSD_OK;
}
