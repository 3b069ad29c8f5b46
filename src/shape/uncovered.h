/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what a set of boxes leaves uncovered. */
#ifndef RSI_UNCOVERED_H
#define RSI_UNCOVERED_H

#include "shape/boxtree.h"

/* Refuses disjoint boxes that do not cover `shape` and names the first uncovered element in
 * row-major order. */
rsd_err rsi_refuse_hole(const rsi_boxes *boxes, const int64_t *shape, rsd_error *err);

#endif
