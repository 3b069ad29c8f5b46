/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a conversion writes: what is taken from the source, with which names, dtypes and
 * layout. Its tensors have no views: their bytes are in the source. */
#ifndef RSI_CONVERT_STATE_H
#define RSI_CONVERT_STATE_H

#include "convert/convert_pull.h"
#include "state/state.h"

typedef struct rsi_convert_state {
    rsd_state       *state;
    rsd_values      *owner; /* of its values */
    rsi_pulled      *from;  /* [n] sources of its tensors; files (carry) come after them */
    size_t           n;
    rsd_ckpt        *source;
    rsi_made        *made;  /* what the recipe makes of it; NULL: there is none */
    const rsd_rules *rules; /* define the layouts; NULL: none, or the source's */
    bool             keeps; /* keeps the source's chunks */
} rsi_convert_state;        /* zeroed: empty. Must not move: `state` points to it */

/* `flat`: no nesting; every entry has its full name. */
rsd_err rsi_convert_state_make(rsi_convert_state *out, rsd_ckpt *source, rsd_format format,
                               bool flat, const rsd_convert_opts *opts, rsd_error *err);
void    rsi_convert_state_release(rsi_convert_state *cs);
/* The recipe's own layout, for rsd_rules_free: it counts if the options have none and the target
 * can have one; then opts->rules is set. */
rsd_err rsi_convert_layout(const char *path, rsd_convert_opts *opts, rsd_rules **out,
                           rsd_error *err);
/* Reports to the caller that something in the source is left out. */
void rsi_leave_out(const rsd_convert_opts *opts, const char *name, const char *why);

#endif
