/* SPDX-License-Identifier: Apache-2.0 */
/* What names tell about files of weights, and which of those in a folder without an index are one
 * model: safetensors files, or Hugging Face's .bin files of torch.save. */
#ifndef RSI_WEIGHTS_H
#define RSI_WEIGHTS_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* "model-00002-of-00003.safetensors" */
typedef struct rsi_numbered {
    size_t   first, digits; /* of the number in the name */
    unsigned number, of;
} rsi_numbered;

/* What is trained beside a model that stays as it is: never merged into it. */
bool rsi_is_adapter(const char *name);
/* True for the .bin files that Hugging Face's libraries name so. */
bool rsi_is_bin(const char *name);
bool rsi_is_numbered(const char *name, rsi_numbered *out);
/* Numbered, or of a rank. */
bool rsi_is_part(const char *name);
bool rsi_is_same_set(const char *a, const char *b);
/* The files of one model among all n names, of which those that end in `end` count: *out, in `mem`,
 * has those of a numbered set that are missing as well. *nout is 0 if there are none. *kind is set
 * if there is something to say about it. Refuses files of which none is known to be the model. */
rsd_err rsi_weights_choose(char *const *names, size_t n, const char *end, rsi_arena *mem,
                           char ***out, size_t *nout, const char **kind, rsd_error *err);

#endif
