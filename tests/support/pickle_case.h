/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the pickle reader share: three classes, a hook that folds two of them, reading that
 * asserts. */
#ifndef PICKLE_CASE_H
#define PICKLE_CASE_H

#include "format/pickle.h"

#define MIB (1 << 20)

/* A literal with its length: pickles have NULs in them. */
#define PICKLE(text) text, sizeof(text) - 1

/* Class, object, memo, state with one pair. */
#define FOLDING "cm\nFolds\nq\x00)\x81q\x01}q\x02\x8c\x01kK\x05s"

/* "Known", "Folds" and "Calls" of the module "m". */
extern const rsi_pickle_class pickle_classes[3];

typedef struct pickle_reading {
    rsi_pickle *p;
    rsi_pv      root;
    rsd_error   err;
    rsd_err     rc;
    uint64_t    used;
    int         folds; /* times that the hook was called */
    bool        keep;
} pickle_reading;

/* An object of "Folds" becomes the number of pairs in its state, a call of "Calls" None. */
rsd_err        pickle_fold(void *arg, const rsi_pickle *p, rsi_pickle_object *object, rsi_pv *out,
                           rsd_error *err);
pickle_reading pickle_open(void);
/* The hook's argument must stay where it is, so reading is by pointer. */
void pickle_load(pickle_reading *r, const char *bytes, size_t len);
void pickle_accept(pickle_reading *r, const char *bytes, size_t len);
void pickle_refuse(const char *bytes, size_t len, const char *message);

#endif
