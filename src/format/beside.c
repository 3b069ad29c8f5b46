/* SPDX-License-Identifier: Apache-2.0 */
/* Tells by their names what other checkpoints lie beside an opened one: adapters, variants, second
 * models, states of a training. */
#include "format/beside.h"
#include "base/text.h"
#include "format/detect.h"
#include "format/st_index.h"
#include "format/weights.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 3, INDEXES = 8, KIND = 480, NAME = 80 };

typedef struct listing {
    const rsd_ckpt *ckpt;
    const char     *index[INDEXES]; /* [indexes] that were not opened */
    size_t          indexes;
    char            item[MOST][NAME + 1];
    size_t          items; /* those behind the first MOST are only counted */
} listing;

static bool is_opened(const rsd_ckpt *ckpt, const char *name)
{
    uint64_t number;

    return rsi_map_get(&ckpt->files.by_name, name, strlen(name), &number);
}

static bool is_plain(const char *name)
{
    for (const char *c = name; *c; c++)
        if (*c < ' ' || *c > '~')
            return false;
    return strlen(name) <= NAME;
}

static void add(listing *l, const char *text)
{
    for (size_t i = 0; i < l->items && i < MOST; i++)
        if (strcmp(l->item[i], text) == 0)
            return;
    if (l->items < MOST && is_plain(text))
        snprintf(l->item[l->items], sizeof(l->item[0]), "%s", text);
    else if (l->items < MOST)
        snprintf(l->item[l->items], sizeof(l->item[0]), "another file");
    l->items++;
}

static bool is_index(const char *name)
{
    return rsi_st_is_index(name) || rsi_torch_is_index(name);
}

static bool is_model(const char *name)
{
    return rsi_text_ends(name, ".safetensors") || rsi_is_bin(name) ||
           (rsi_text_ends(name, ".bin") && strncmp(name, "pytorch_model_", 14) == 0);
}

/* True if an index stands for this part of a set: "model.safetensors.index.fp16.json" for
 * "model.fp16-00001-of-00002.safetensors". */
static bool is_listed(const listing *l, const char *name, const rsi_numbered *number)
{
    const size_t stem = strcspn(name, ".-");
    bool         listed = false;

    for (size_t i = 0; i < l->indexes && !listed; i++) {
        const char  *variant = strstr(l->index[i], ".index.") + strlen(".index.");
        const size_t len = strlen(variant) - strlen("json"); /* with its dot */

        listed = strncmp(l->index[i], name, stem) == 0 && l->index[i][stem] == '.' &&
                 (len == 0 ? number->first == stem + 1
                           : name[stem] == '.' && strncmp(name + stem + 1, variant, len - 1) == 0);
    }
    return listed;
}

static void look_at(listing *l, const char *name)
{
    const rsd_format format = l->ckpt->format;
    rsi_numbered     number;
    char             set[NAME + 2];

    if (is_opened(l->ckpt, name))
        return;
    if (rsi_is_adapter(name) && is_model(name)) {
        add(l, "the adapter");
    } else if (rsi_zero_is_name(name) || rsi_zero_is_latest(name)) {
        if (format != RSD_FORMAT_ZERO)
            add(l, "the DeepSpeed checkpoint");
    } else if (rsi_detect_is_rank(name) && format != RSD_FORMAT_RANKS) {
        add(l, "the rank files");
    } else if (is_model(name) && rsi_is_numbered(name, &number)) {
        snprintf(set, sizeof(set), "%.*s*%s", (int)number.first, name,
                 name + number.first + number.digits);
        if (!is_listed(l, name, &number))
            add(l, set);
    } else if (is_index(name) || is_model(name)) {
        add(l, name);
    }
}

rsd_err rsi_beside(rsd_ckpt *ckpt, char *const *names, size_t n, rsd_error *err)
{
    listing  l = { .ckpt = ckpt };
    char    *kind;
    rsi_text text;

    for (size_t i = 0; i < n && l.indexes < INDEXES; i++)
        if (is_index(names[i]) && !is_opened(ckpt, names[i]))
            l.index[l.indexes++] = names[i];
    for (size_t i = 0; i < n; i++)
        look_at(&l, names[i]);
    if (l.items == 0)
        return RSD_OK;
    kind = rsi_arena_array(&ckpt->mem, KIND, 1);
    if (!kind)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the names beside a checkpoint");
    text = rsi_text_begin(kind, KIND);
    rsi_text_add(&text, "%s%swithout ", ckpt->kind ? ckpt->kind : "", ckpt->kind ? ", " : "");
    for (size_t i = 0; i < l.items && i < MOST; i++)
        rsi_text_add(&text, "%s%s", i == 0 ? "" : i + 1 == l.items ? " and " : ", ", l.item[i]);
    if (l.items > MOST)
        rsi_text_add(&text, " and %zu more", l.items - MOST);
    rsi_text_add(&text, " beside it");
    ckpt->kind = kind;
    return RSD_OK;
}
