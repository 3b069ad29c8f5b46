/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors' __metadata__, for inspect. */
#include "cli.h"

#include <string.h>

#define LONGEST_VALUE 200 /* characters; --json shows all */

int metas_print(const args *a, const rsd_ckpt *ckpt)
{
    static const char *const title[] = { "metadata", "value", NULL };
    columns                  c;
    rsd_meta                 m = { .size = sizeof(m) };
    char                     value[LONGEST_VALUE + 8];
    bool                     more = false;

    for (size_t i = 0; rsd_ckpt_meta(ckpt, i, &m, NULL) == RSD_OK; i++)
        more = more || strcmp(m.key, "format") != 0;
    if (!more)
        return EXIT_DONE;
    printf("\n");
    columns_begin(&c, title);
    for (size_t i = 0; rsd_ckpt_meta(ckpt, i, &m, NULL) == RSD_OK; i++) {
        snprintf(value, sizeof(value), "%.*s", (int)sizeof(value) - 1, m.value);
        text_shorten(value, LONGEST_VALUE);
        columns_add(&c, m.key);
        columns_addf(&c, "%s%s", value, m.differs ? " (other files differ)" : "");
    }
    return columns_print(&c, stdout) ? EXIT_DONE
                                     : refuse(a, EXIT_COULD_NOT, "no memory for the table");
}

void metas_json(const rsd_ckpt *ckpt, json_out *j)
{
    rsd_meta m = { .size = sizeof(m) };

    if (rsd_ckpt_metas(ckpt) == 0)
        return;
    json_open_object(j, "metadata");
    for (size_t i = 0; rsd_ckpt_meta(ckpt, i, &m, NULL) == RSD_OK; i++)
        json_text(j, m.key, m.value);
    json_close(j);
}
