/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that bring their own tensors and values when a state is saved or loaded. */
#ifndef RSI_STATEFUL_H
#define RSI_STATEFUL_H

#include "state/state.h"

/* *out: a state with all that `state` has and what its objects add, or NULL if it has no objects.
 * It borrows names of `state`. `loading`: what is added is to be filled. Calls the objects. */
rsd_err rsi_stateful_expand(const rsd_state *state, bool loading, rsd_state **out, rsd_error *err);
/* Tells the objects of an expanded state, or NULL, that they are filled; those that others added
 * before those that added them. */
rsd_err rsi_stateful_restored(const rsd_state *expanded, rsd_error *err);

#endif
