/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a plan in words. */
#include "base/text.h"
#include "plan/planner.h"

#include <inttypes.h>

#define MOST_PEERS 16 /* lines for peers; one more sums up the rest */

static void add_bytes(rsi_text *text, int64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double                   value = (double)bytes;
    int                      u = 0;

    for (; value >= (u ? 1023.95 : 1024) && u < 6; u++) /* so that 1024.0 KiB becomes 1.0 MiB */
        value /= 1024;
    rsi_text_add(text, u ? "%.1f %s" : "%.0f %s", value, unit[u]);
}

static int64_t row_bytes(const rsd_plan *plan, const rsi_rows *rows, size_t p, bool sends)
{
    int64_t bytes = 0;

    for (size_t i = rows->first[p]; i < rows->first[p + 1]; i++) {
        rsd_move move;

        rsi_plan_move(plan, rows->entry[i], plan->peer[p], sends, &move);
        bytes += rsd_box_count(&move.box) * plan->src[move.tensor]->elem_bytes;
    }
    return bytes;
}

static void add_peer(rsi_text *text, const rsd_plan *plan, size_t p)
{
    size_t sends = plan->send.first[p + 1] - plan->send.first[p];
    size_t recvs = plan->recv.first[p + 1] - plan->recv.first[p];

    rsi_text_add(text, "  rank %" PRId32 ":", plan->peer[p]);
    if (sends) {
        rsi_text_add(text, " sends it ");
        add_bytes(text, row_bytes(plan, &plan->send, p, true));
        rsi_text_add(text, " in %zu move%s", sends, sends == 1 ? "" : "s");
    }
    if (recvs) {
        rsi_text_add(text, "%s receives from it ", sends ? "," : "");
        add_bytes(text, row_bytes(plan, &plan->recv, p, false));
        rsi_text_add(text, " in %zu move%s", recvs, recvs == 1 ? "" : "s");
    }
    rsi_text_add(text, "\n");
}

size_t rsd_plan_text(const rsd_plan *plan, char *buf, size_t cap)
{
    rsi_text              text = rsi_text_begin(buf, cap);
    const rsd_plan_stats *s = &plan->stats;

    rsi_text_add(&text, "rank %" PRId32 ": %" PRId64 " tensor%s, %" PRId64 " move%s; keeps ",
                 plan->rank, s->tensors, s->tensors == 1 ? "" : "s", s->moves,
                 s->moves == 1 ? "" : "s");
    add_bytes(&text, s->bytes_local);
    rsi_text_add(&text, ", sends ");
    add_bytes(&text, s->bytes_sent);
    rsi_text_add(&text, ", receives ");
    add_bytes(&text, s->bytes_recv);
    rsi_text_add(&text, "; %" PRId32 " peer%s, %" PRId64 " message%s\n", s->peers,
                 s->peers == 1 ? "" : "s", s->messages, s->messages == 1 ? "" : "s");
    for (size_t p = 0; p < plan->npeers && p < MOST_PEERS; p++)
        add_peer(&text, plan, p);
    if (plan->npeers > MOST_PEERS)
        rsi_text_add(&text, "  and %zu more peer%s\n", plan->npeers - MOST_PEERS,
                     plan->npeers - MOST_PEERS == 1 ? "" : "s");
    return text.len;
}
