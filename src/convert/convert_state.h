/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a conversion writes: what is taken from the source, under which names, as which
 * dtypes, in which layout. Its tensors have no views: their bytes are in the source. */
#ifndef RSI_CONVERT_STATE_H
#define RSI_CONVERT_STATE_H

#include "convert/convert_pull.h"
#include "state/state.h"

typedef struct rsi_convert_state {
    rsd_state       *state;
    rsd_values      *owner; /* of its values */
    rsi_pulled      *from;  /* [n] where its tensors come from; behind them are files (carry) */
    size_t           n;
    rsd_ckpt        *source;
    const rsd_rules *rules; /* that make the layouts; NULL: none, or as the source has it */
    bool             keeps; /* the chunks of the source */
} rsi_convert_state;        /* zeroed: empty. It does not move: `state` points to it */

/* `flat`: no nesting, everything stands under its whole name. */
rsd_err rsi_convert_state_make(rsi_convert_state *out, rsd_ckpt *source, rsd_format format,
                               bool flat, const rsd_convert_opts *opts, rsd_error *err);
void    rsi_convert_state_release(rsi_convert_state *cs);
/* Tells the caller that something of the source does not go along. */
void rsi_leave_out(const rsd_convert_opts *opts, const char *name, const char *why);

#endif
