/* SPDX-License-Identifier: Apache-2.0 */
/* Rules: choose a tensor's layout by its name, and express layouts as text. rules_parse.c does the
 * parsing. */
#include "shape/rules.h"
#include "base/mem.h"
#include "base/text.h"
#include "shape/box.h"
#include "shape/layout.h"

#include <fnmatch.h>
#include <inttypes.h>

const char *const rsi_reductions[] = { "?", "sum", "avg", "min", "max", "product" };

void rsd_rules_free(rsd_rules *rules)
{
    if (!rules)
        return;
    for (size_t i = 0; i < rules->n; i++)
        rsd_mesh_free(rules->rule[i].mesh);
    rsd_mesh_free(rules->mesh);
    rsi_free(rules->rule);
    rsi_arena_release(&rules->mem);
    rsi_free(rules);
}

const rsd_mesh *rsd_rules_mesh(const rsd_rules *rules)
{
    return rules->mesh;
}

rsd_err rsd_rules_layout(const rsd_rules *rules, const char *name, rsd_dtype dtype, int ndim,
                         const int64_t *shape, rsd_layout **out, rsd_error *err)
{
    const rsi_rule *rule = NULL;
    rsd_placement   place[RSD_MAX_NDIM];
    int             n = 0;
    rsd_err         rc;

    if (!rules || !name || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: rules, name or output pointer");
    for (size_t i = 0; i < rules->n && !rule; i++)
        if (fnmatch(rules->rule[i].pattern, name, 0) == 0)
            rule = &rules->rule[i];
    if (!rule)
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "no rule matches the tensor \"%s\"; a last rule \"* replicate\" would",
                        name);
    for (int a = 0; a < rules->mesh->ndim; a++)
        if (rule->on[a] < 0) {
            bool shards = rule->place[a].kind == RSD_SHARD || rule->place[a].kind == RSD_STRIDED;

            place[n++] =
                ndim == 0 && shards ? (rsd_placement){ .kind = RSD_REPLICATE } : rule->place[a];
        }
    rc = rsd_layout_create(rule->mesh, place, dtype, ndim, shape, out, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\", rule in line %d", name, rule->line) : RSD_OK;
}

static void add_mesh(rsi_text *text, const rsd_mesh *mesh)
{
    rsi_text_add(text, "mesh");
    for (int a = 0; a < mesh->ndim; a++)
        rsi_text_add(text, " %s=%" PRId64, mesh->axis[a], mesh->shape[a]);
}

static void add_place(rsi_text *text, const char *axis, const rsd_placement *place)
{
    switch (place->kind) {
    case RSD_REPLICATE:
        break;
    case RSD_SHARD:
        rsi_text_add(text, " shard(%" PRId32 ")@%s", place->dim, axis);
        break;
    case RSD_STRIDED:
        rsi_text_add(text, " strided(%" PRId32 ",%" PRId64 ")@%s", place->dim, place->split, axis);
        break;
    case RSD_PARTIAL:
        rsi_text_add(text, " partial(%s)@%s", rsi_reductions[place->reduce], axis);
        break;
    }
}

/* " shard(0)@dp ..." or " replicate" */
static void add_places(rsi_text *text, const rsd_mesh *mesh, const rsd_placement *place)
{
    size_t before = text->len;

    for (int a = 0; a < mesh->ndim; a++)
        add_place(text, mesh->axis[a], &place[a]);
    if (text->len == before)
        rsi_text_add(text, " replicate");
}

size_t rsd_rules_text(const rsd_rules *rules, char *buf, size_t cap)
{
    rsi_text        text = rsi_text_begin(buf, cap);
    const rsd_mesh *mesh = rules->mesh;

    add_mesh(&text, mesh);
    for (int64_t i = 0; mesh->ranks && i < mesh->size; i++)
        rsi_text_add(&text, "%s%" PRId32, i ? "," : " ranks=", mesh->ranks[i]);
    rsi_text_add(&text, "\n");
    for (size_t i = 0; i < rules->n; i++) {
        const rsi_rule *rule = &rules->rule[i];
        bool            first = true;

        rsi_text_add(&text, "%s", rule->pattern);
        add_places(&text, mesh, rule->place);
        for (int a = 0; a < mesh->ndim; a++)
            if (rule->on[a] >= 0) {
                rsi_text_add(&text, "%s %s=%" PRId64, first ? " on" : "", mesh->axis[a],
                             rule->on[a]);
                first = false;
            }
        rsi_text_add(&text, "\n");
    }
    return text.len;
}

static void add_table(rsi_text *text, const rsd_layout *layout)
{
    const rsi_table *table = &layout->table;
    char             words[RSI_BOX_TEXT];

    rsi_text_add(text, "%zu boxes on %zu ranks", table->boxes.n, table->nranks);
    for (size_t r = 0; r < table->nranks; r++)
        for (size_t i = table->part_first[r]; i < table->part_first[r + 1]; i++) {
            rsd_box box = rsi_boxes_get(&table->boxes, table->part[i]);

            rsd_box_text(&box, words, sizeof(words));
            rsi_text_add(text, "; %" PRId32 " %s", table->rank[r], words);
        }
}

size_t rsd_layout_text(const rsd_layout *layout, char *buf, size_t cap)
{
    rsi_text        text = rsi_text_begin(buf, cap);
    const rsd_mesh *mesh = layout->mesh;
    int64_t         coord[RSD_MAX_NDIM] = { 0 };
    bool            counting = mesh && mesh->world == mesh->size && !mesh->ranks;

    if (!mesh) {
        add_table(&text, layout);
        return text.len;
    }
    add_mesh(&text, mesh);
    for (int64_t i = 0; !counting && i < mesh->size; i++) {
        rsi_text_add(&text, "%s%" PRId32, i ? "," : " ranks=", rsd_mesh_rank(mesh, coord));
        for (int a = mesh->ndim - 1; a >= 0 && ++coord[a] == mesh->shape[a]; a--)
            coord[a] = 0;
    }
    rsi_text_add(&text, "; *");
    add_places(&text, mesh, layout->place);
    return text.len;
}
