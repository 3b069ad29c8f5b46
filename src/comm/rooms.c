/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: a rank reads or packs something once, and the others copy what they want of it out of its
 * room. Whoever uses them sees to it that a room is full before it is read, and read before it is
 * filled again. */
#include "comm/rooms.h"
#include "base/mem.h"

#include <reshard/reshard_live.h>

typedef struct token {
    rsd_exposed room;
    uint64_t    host;
    int64_t     shown; /* `room` is set */
} token;

bool rsi_rooms_may(const rsd_comm *comm)
{
    return comm->ops.alloc && comm->ops.expose && !(comm->ops.flags & RSD_COMM_THREADS);
}

/* Exposes my room and reaches those of my machine. *all: every rank could. [collective] */
static rsd_err reach_all(rsi_rooms *r, size_t bytes, token *tokens, int64_t *all, rsd_error *err)
{
    token   mine = { .host = rsi_host_id(r->comm) };
    rsd_err rc;

    mine.shown = rsi_expose(r->comm, r->mine, bytes, &mine.room, NULL) == RSD_OK;
    rc = rsi_allgather(r->comm, &mine, sizeof(mine), tokens, err);
    *all = !rc;
    for (int32_t k = 0; k < r->comm->size && *all; k++) {
        void *at = k == r->comm->rank ? r->mine : NULL;

        if (tokens[k].host != mine.host)
            continue;
        *all =
            tokens[k].shown && (at || rsi_reach(r->comm, k, &tokens[k].room, &at, NULL) == RSD_OK);
        r->of[k] = at;
    }
    return rc ? rc : rsi_allreduce(r->comm, RSI_OP_MIN, all, 1, err);
}

rsd_err rsi_rooms_make(rsd_comm *comm, size_t bytes, rsi_rooms **out, rsd_error *err)
{
    size_t     size = (size_t)comm->size;
    rsi_rooms *r = rsi_calloc(1, sizeof(*r));
    token     *tokens = rsi_calloc(size, sizeof(tokens[0]));
    void      *room = NULL;
    int64_t    all = r && tokens;
    rsd_err    rc;

    *out = NULL;
    if (all) {
        r->comm = comm;
        r->one_cache = rsi_one_cache();
        r->of = rsi_calloc(size, sizeof(r->of[0]));
        all = r->of != NULL;
    }
    rc = rsi_allreduce(comm, RSI_OP_MIN, &all, 1, err);
    if (!rc && all) {
        all = rsd_comm_alloc(comm, bytes, &room, NULL) == RSD_OK; /* the same on all ranks */
        r->mine = room;
        rc = all ? reach_all(r, bytes, tokens, &all, err) : RSD_OK;
    }
    rsi_free(tokens);
    if (!rc && all) {
        *out = r;
        return RSD_OK;
    }
    if (r) {
        rsd_comm_dealloc(comm, r->mine);
        rsi_free(r->of);
    }
    rsi_free(r);
    return rc;
}

void rsi_rooms_free(rsi_rooms *rooms)
{
    if (!rooms)
        return;
    rsd_comm_dealloc(rooms->comm, rooms->mine);
    rsi_free(rooms->of);
    rsi_free(rooms);
}

rsd_err rsi_rooms_open(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (!comm->rooms_known && rsi_rooms_may(comm))
        rc = rsi_rooms_make(comm, RSI_ROOM_BYTES, &comm->rooms, err);
    comm->rooms_known = !rc;
    return rc;
}

void rsi_rooms_close(rsd_comm *comm)
{
    if (!comm->rooms)
        return;
    comm->ops.dealloc(comm->self, comm->rooms->mine);
    rsi_free(comm->rooms->of);
    rsi_free(comm->rooms);
}
