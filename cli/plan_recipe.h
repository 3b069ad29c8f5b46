/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_RECIPE_H
#define PLAN_RECIPE_H

#include "cli.h"

/* `reshard plan` with --recipe: what each rank would read under these rules. */
int plan_recipe(const args *a, const rsd_rules *rules, rsd_ckpt *source);

#endif
