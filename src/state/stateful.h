/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that supply their own tensors and values when a state is saved or loaded. */
#ifndef RSI_STATEFUL_H
#define RSI_STATEFUL_H

#include "state/state.h"

/* *out: a state with everything in `state` plus the contents of its objects, or NULL if it has no
 * objects. It borrows names from `state`. `loading`: the additions are to be filled. Calls the
 * objects. */
rsd_err rsi_stateful_expand(const rsd_state *state, bool loading, rsd_state **out, rsd_error *err);
/* Tells the objects of an expanded state (or NULL) that they have been filled; an object that
 * another one added comes before the one that added it. */
rsd_err rsi_stateful_restored(const rsd_state *expanded, rsd_error *err);

#endif
