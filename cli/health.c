/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a damaged checkpoint: which tensors and objects are intact, damaged or gone. */
#include "cli.h"

#include <stdlib.h>

static const char *const word[] = { "whole", "damaged", "gone" };

/* Calls `say` for every entry of that health; returns their number. */
static size_t each(rsd_ckpt *ckpt, rsd_health                                         health,
                   void (*say)(void *arg, const char *name, rsd_health health), void *arg)
{
    const size_t    tensors = rsd_ckpt_tensors(ckpt), objects = rsd_ckpt_objects(ckpt);
    rsd_tensor_info info = { .size = sizeof(info) };
    const char     *name;
    size_t          n = 0;

    for (size_t t = 0; t < tensors; t++)
        if (rsd_ckpt_health(ckpt, t) == health && rsd_ckpt_tensor(ckpt, t, &info, NULL) == RSD_OK) {
            n++;
            if (say)
                say(arg, info.name, health);
        }
    for (size_t i = 0; health == RSD_GONE && (name = rsd_ckpt_lost(ckpt, i)); i++, n++)
        if (say)
            say(arg, name, health);
    for (size_t i = 0; i < objects; i++)
        if (rsd_ckpt_object_health(ckpt, i) == health &&
            rsd_ckpt_object(ckpt, i, &name, NULL, NULL, NULL) == RSD_OK) {
            n++;
            if (say)
                say(arg, name, health);
        }
    return n;
}

size_t health_lost(rsd_ckpt *ckpt)
{
    return each(ckpt, RSD_DAMAGED, NULL, NULL) + each(ckpt, RSD_GONE, NULL, NULL);
}

static void print(void *arg, const char *name, rsd_health health)
{
    fprintf(arg, "%s: ", word[health]);
    print_safe(arg, name);
    fprintf(arg, "\n");
}

void health_print(FILE *out, rsd_ckpt *ckpt)
{
    size_t damaged, gone;

    if (health_lost(ckpt) == 0)
        return;
    damaged = each(ckpt, RSD_DAMAGED, print, out);
    gone = each(ckpt, RSD_GONE, print, out);
    fprintf(out, "%zu whole, %zu damaged, %zu gone\n", each(ckpt, RSD_WHOLE, NULL, NULL), damaged,
            gone);
}

static void add_json(void *arg, const char *name, rsd_health health)
{
    (void)health;
    json_text(arg, NULL, name);
}

void health_json(json_out *j, rsd_ckpt *ckpt)
{
    for (int h = RSD_DAMAGED; h <= RSD_GONE; h++) {
        json_open_array(j, word[h]);
        each(ckpt, (rsd_health)h, add_json, j);
        json_close(j);
    }
}
