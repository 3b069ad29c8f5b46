/* SPDX-License-Identifier: Apache-2.0 */
#include "save/states_same.h"
#include "comm/facts.h"

static void tell_state(rsi_facts *f, const void *arg)
{
    const rsd_state *state = arg;

    for (size_t i = 0; i < state->ntensors; i++) {
        const rsi_state_tensor *t = &state->tensor[i];

        rsi_facts_item(f, "tensor", i, t->spot.name);
        rsi_fact_word(f, "dtype", rsd_dtype_name(t->dtype));
        rsi_fact_shape(f, "shape", t->ndim, t->shape);
        rsi_fact_digest(f, "layout", t->layout ? rsi_layout_digest(t->layout) : 1);
    }
    rsi_facts_count(f, "the number of tensors", state->ntensors);
    for (size_t i = 0; i < state->nvalues; i++)
        rsi_facts_item(f, "value", i, state->value[i].spot.name);
    rsi_facts_count(f, "the number of values", state->nvalues);
}

rsd_err rsi_states_same(rsd_comm *comm, const rsd_state *state, rsd_err mine, rsd_error *err)
{
    return rsi_same_facts(comm, tell_state, state, mine, err);
}
