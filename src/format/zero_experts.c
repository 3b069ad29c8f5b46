/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that the ranks of DeepSpeed divide: which ranks have which, and their names. MoE layers
 * have a parameter for each expert, which every rank numbers from 0; AutoEP has one parameter for
 * all experts of a rank and says in the model files which they are. */
#include "format/zero_core.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const rsd_value *rsi_zero_layer(const rsi_zero *z, size_t rank, const char *name)
{
    const rsd_value *all = rsd_value_get(z->t->file[z->model[rank]].root, "ds_autoep_layers");

    for (size_t i = 0; all && rsd_value_type_of(all) == RSD_VALUE_LIST && i < rsd_value_count(all);
         i++) {
        const rsd_value *v = rsd_value_get(rsd_value_item(all, i), "expert_key_prefix");
        const char      *prefix = v ? rsd_value_bytes(v, NULL) : NULL;
        const size_t     len = prefix ? strlen(prefix) : 0;

        if (len && strncmp(name, prefix, len) == 0 && name[len] == '.')
            return rsd_value_item(all, i);
    }
    return NULL;
}

/* The number of a rank's own expert in a name, and where it stands; -1: none. */
static long own_number(const char *name, const char **digits, const char **rest)
{
    static const char key[] = "deepspeed_experts.";
    const char       *at = strstr(name, key);
    char             *end;
    long              n;

    if (!at || !isdigit((unsigned char)at[sizeof(key) - 1]))
        return -1;
    *digits = at + sizeof(key) - 1;
    n = strtol(*digits, &end, 10);
    *rest = end;
    return *end == '.' && n < 1 << 20 ? n : -1;
}

rsd_err rsi_zero_name_expert(const rsi_zero *z, const rsd_value *shapes, const char *name,
                             size_t owner, const char **out, rsd_error *err)
{
    const char *digits, *rest, *at, *end;
    const long  own = own_number(name, &digits, &rest);
    long        each = 0;
    size_t      len;
    char       *text;

    if (own < 0) {
        *out = NULL;
        return RSD_OK;
    }
    for (size_t i = 0; i < rsd_value_count(shapes); i++) {
        const char *other = rsd_value_bytes(rsd_value_key(shapes, i), NULL);
        const long  n = other ? own_number(other, &at, &end) : -1;

        if (n >= each && at - other == digits - name &&
            strncmp(other, name, (size_t)(at - other)) == 0)
            each = n + 1;
    }
    len = strlen(name) + 24;
    text = rsi_arena_array(&z->ckpt->mem, len, 1);
    if (!text)
        return rsi_torch_no_memory(err);
    snprintf(text, len, "%.*s%zu%s", (int)(digits - name), name, owner * (size_t)each + (size_t)own,
             rest);
    *out = text;
    return RSD_OK;
}

/* Which of the ranks that divide the experts a rank is, and which part of them it has. */
static void expert_place(const rsi_zero *z, size_t rank, size_t g, size_t parts, size_t *owner,
                         size_t *part)
{
    const rsd_value *groups = rsd_value_get(z->state[rank], "ds_zero_partition_groups");
    const rsd_value *root = z->t->file[z->model[rank]].root;
    const rsd_value *all = rsd_value_get(root, "ds_autoep_layers");
    const rsd_value *config = rsd_value_get(root, "ds_config"), *v;

    v = config ? rsd_value_get(config, "use_data_before_expert_parallelism") : NULL;
    *owner = v && rsd_value_int(v) ? rank / parts : rank % (z->ranks / parts);
    *part = v && rsd_value_int(v) ? rank % parts : rank / (z->ranks / parts);
    if (!groups || g >= rsd_value_count(groups) || !all || !rsd_value_count(all))
        return;
    v = rsd_value_get(rsd_value_item(groups, g), "partition_rank"); /* stage 3 says it */
    *part = v && rsd_value_int(v) >= 0 ? (size_t)rsd_value_int(v) : *part;
    v = rsd_value_get(rsd_value_item(all, 0), "ep_rank");
    *owner = v && rsd_value_int(v) >= 0 ? (size_t)rsd_value_int(v) : *owner;
}

rsd_err rsi_zero_expert_team(const rsi_zero *z, size_t g, size_t parts, size_t owner, size_t *rank,
                             rsd_error *err)
{
    size_t found = 0;

    memset(rank, 0xff, parts * sizeof(rank[0]));
    for (size_t r = 0; r < z->ranks; r++) {
        size_t o, p;

        expert_place(z, r, g, parts, &o, &p);
        if (o != owner || p >= parts || rank[p] != SIZE_MAX)
            continue;
        rank[p] = r;
        found++;
    }
    if (found != parts)
        return rsi_fail(err, RSD_E_FORMAT,
                        "expert-parallel rank %zu has %zu of %zu parts of its experts", owner,
                        found, parts);
    return RSD_OK;
}
