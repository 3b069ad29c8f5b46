/* SPDX-License-Identifier: Apache-2.0 */
/* The path to something through nested dicts and lists, and its name. */
#ifndef RSI_PATH_H
#define RSI_PATH_H

#include <reshard/reshard.h>

/* Joins the parts with dots, into buf like snprintf. */
size_t rsi_path_join(const rsd_path_part *part, size_t n, char *buf, size_t cap);
/* The rest of a name after part i of its path (a key or, if that is NULL, an index) and the dot
 * before it; NULL: the name continues differently. */
const char *rsi_path_step(const char *name, size_t i, const char *key, int64_t index);
/* True if the parts, joined by dots, give `name`. */
bool rsi_path_is(const char *name, const rsd_path_part *part, size_t n);

#endif
