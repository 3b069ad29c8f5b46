/* SPDX-License-Identifier: Apache-2.0 */
/* The way to something through nested dicts and lists, and its name. */
#ifndef RSI_PATH_H
#define RSI_PATH_H

#include <reshard/reshard.h>

/* The parts joined by dots, into buf like snprintf. */
size_t rsi_path_join(const rsd_path_part *part, size_t n, char *buf, size_t cap);
/* True if these parts, joined by dots, are `name`. */
bool rsi_path_is(const char *name, const rsd_path_part *part, size_t n);

#endif
