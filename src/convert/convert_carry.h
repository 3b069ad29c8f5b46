/* SPDX-License-Identifier: Apache-2.0 */
/* Files beside a checkpoint that are not part of it: a model's config, a tokenizer, notes. They are
 * copied into the target's folder and listed with its checksums. */
#ifndef RSI_CONVERT_CARRY_H
#define RSI_CONVERT_CARRY_H

#include "write/image.h"
#include "format/ckpt.h"
#include "recipe/made.h"

typedef struct rsi_carried {
    const char *name;
    uint64_t    size, stamp, version, touched;
    uint32_t    mode;   /* see rsd_opened */
    bool        behind; /* left out after all */
    const char *text;   /* [size] instead of its bytes; NULL: these */
} rsi_carried;

typedef struct rsi_carry {
    rsd_ckpt    *source;
    bool         follow; /* the checkpoint's own files are symbolic links, as in HF's cache */
    bool         safe; /* the target is safetensors, which people read in order to run no pickle */
    rsi_carried *at;   /* [n] by name */
    size_t       n, cap;
    uint64_t     bytes;
    rsi_arena    mem;
} rsi_carry; /* zeroed: nothing */

/* Finds what a target of this format takes, and compares those listed in the checksum file with it
 * unless opts->verify is NEVER. `into` NULL: the target is a folder; else the reason why it takes
 * no files. Reports files that are left out through opts->on_left_out. */
rsd_err rsi_carry_find(rsi_carry *carry, rsd_ckpt *source, rsd_format format, const char *into,
                       const rsd_convert_opts *opts, rsd_error *err);
/* Makes the config.json say how the recipe's tensors are quantised. */
rsd_err rsi_carry_config(rsi_carry *carry, const rsi_made *made, rsd_error *err);
/* Adds them to the image as files of one tensor each, appended to the state's own. Leaves out names
 * that the image already has. */
rsd_err rsi_carry_add(rsi_carry *carry, rsi_image *image, rsd_state *state,
                      const rsd_convert_opts *opts, rsd_error *err);
/* Makes their permissions in the folder `top` no wider than the originals'; rank 0. */
rsd_err rsi_carry_protect(const rsi_carry *carry, rsd_store *store, const char *top,
                          rsd_error *err);
void    rsi_carry_release(rsi_carry *carry);

#endif
