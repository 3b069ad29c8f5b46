/* SPDX-License-Identifier: Apache-2.0 */
/* Groups names by the reason they share: one line per reason, however many names there are. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

bool reasons_add(reasons *r, const char *name, const char *why)
{
    reason *one = NULL;

    for (size_t i = 0; i < r->n && !one; i++)
        if (strncmp(r->at[i].why, why, sizeof(one->why) - 1) == 0)
            one = &r->at[i];
    if (!one && r->n == r->cap) {
        size_t  cap = 2 * r->cap + 8;
        reason *more = realloc(r->at, cap * sizeof(more[0]));

        if (!more)
            return false;
        r->at = more;
        r->cap = cap;
    }
    if (!one) {
        one = &r->at[r->n++];
        *one = (reason){ .n = 0 };
        snprintf(one->why, sizeof(one->why), "%s", why);
    }
    if (one->n++ >= REASON_NAMES)
        return true;
    one->name[one->n - 1] = strdup(name);
    return one->name[one->n - 1] != NULL;
}

void reasons_print(FILE *out, const char *before, const reasons *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const reason *one = &r->at[i];

        fprintf(out, "%s", before);
        for (size_t k = 0; k < one->n && k < REASON_NAMES; k++) {
            fprintf(out, k ? ", " : "");
            print_safe(out, one->name[k] ? one->name[k] : "?");
        }
        if (one->n > REASON_NAMES)
            fprintf(out, " and %zu more", one->n - REASON_NAMES);
        fprintf(out, ": ");
        print_safe(out, one->why);
        fprintf(out, "\n");
    }
}

void reasons_free(reasons *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->at[i].n && k < REASON_NAMES; k++)
            free(r->at[i].name[k]);
    free(r->at);
    *r = (reasons){ 0 };
}

void notes_print(FILE *out, const rsd_ckpt *ckpt)
{
    reasons     r = { 0 };
    const char *name, *why;

    for (size_t i = 0; rsd_ckpt_note(ckpt, i, &name, &why); i++)
        reasons_add(&r, name, why);
    reasons_print(out, "note: ", &r);
    reasons_free(&r);
}

void notes_json(json_out *j, const rsd_ckpt *ckpt)
{
    const char *name, *why;

    if (!rsd_ckpt_note(ckpt, 0, &name, &why))
        return;
    json_open_array(j, "notes");
    for (size_t i = 0; rsd_ckpt_note(ckpt, i, &name, &why); i++) {
        json_open_object(j, NULL);
        json_text(j, "name", name);
        json_text(j, "note", why);
        json_close(j);
    }
    json_close(j);
}
