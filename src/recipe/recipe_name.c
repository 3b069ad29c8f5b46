/* SPDX-License-Identifier: Apache-2.0 */
/* Names with captures: which tensors they fit, and the names that captures make. */
#include "base/checked.h"
#include "base/text.h"
#include "recipe/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is added to capture's value in the name. */
static bool shift_of(const rsi_name_part *part, const rsi_scope *scope, int64_t *out)
{
    *out = 0;
    if (part->plus && rsi_expr_whole(part->plus, scope, out, NULL))
        return false;
    *out = part->minus ? -*out : *out;
    return true;
}

typedef struct fitting {
    const rsi_name_text   *t;
    const rsi_recipe_rule *rule;
    const rsi_scope       *scope;
    rsi_captured          *out;
    uint32_t               set;
} fitting;

static bool fits_from(fitting *f, size_t p, const char *name);

/* A number without leading zeros, as trainers write them. */
static bool fits_number(fitting *f, size_t p, const char *name)
{
    const rsi_name_part *part = &f->t->part[p];
    const uint32_t       bit = 1u << part->capture;
    const uint32_t       before = f->set;
    int64_t              value = 0, shift;
    size_t               n = 0;

    for (; name[n] >= '0' && name[n] <= '9'; n++)
        if (!rsi_mul(value, 10, &value) || !rsi_add(value, name[n] - '0', &value))
            return false;
    if (n == 0 || (n > 1 && name[0] == '0') || !shift_of(part, f->scope, &shift) ||
        !rsi_add(value, -shift, &value) || value < 0)
        return false;
    if (f->set & bit)
        return f->out->number[part->capture] == value && fits_from(f, p + 1, name + n);
    f->out->number[part->capture] = value;
    f->set |= bit;
    if (fits_from(f, p + 1, name + n))
        return true;
    f->set = before;
    return false;
}

/* Any text that is not empty; the shortest that fits. */
static bool fits_text(fitting *f, size_t p, const char *name)
{
    const int      c = f->t->part[p].capture;
    const uint32_t before = f->set;

    if (f->set & (1u << c))
        return strncmp(name, f->out->text[c], f->out->len[c]) == 0 &&
               fits_from(f, p + 1, name + f->out->len[c]);
    f->set |= 1u << c;
    for (size_t n = 1; name[n - 1]; n++) {
        f->out->text[c] = name;
        f->out->len[c] = n;
        if (fits_from(f, p + 1, name + n))
            return true;
    }
    f->set = before;
    return false;
}

static bool fits_from(fitting *f, size_t p, const char *name)
{
    const rsi_name_part *part = &f->t->part[p];

    if (p == f->t->n)
        return *name == '\0';
    if (strncmp(name, part->text, part->len) != 0)
        return false;
    name += part->len;
    if (part->capture < 0)
        return fits_from(f, p + 1, name);
    return f->rule->is_text[part->capture] ? fits_text(f, p, name) : fits_number(f, p, name);
}

bool rsi_name_fits(const rsi_name_text *t, const rsi_recipe_rule *rule, const rsi_scope *scope,
                   const char *name, rsi_captured *out)
{
    fitting f = { .t = t, .rule = rule, .scope = scope, .out = out };

    *out = (rsi_captured){ .len = { 0 } };
    return fits_from(&f, 0, name);
}

char *rsi_name_make(const rsi_name_text *t, const rsi_recipe_rule *rule, const rsi_scope *scope,
                    const rsi_captured *c, rsi_arena *mem)
{
    char    *buf = NULL;
    rsi_text text = rsi_text_begin(NULL, 0);

    for (int pass = 0; pass < 2; pass++) {
        if (pass) {
            buf = rsi_arena_array(mem, text.len + 1, 1);
            if (!buf)
                return NULL;
            text = rsi_text_begin(buf, text.len + 1);
        }
        for (size_t p = 0; p < t->n; p++) {
            const rsi_name_part *part = &t->part[p];
            int64_t              shift, value;

            rsi_text_add(&text, "%.*s", (int)part->len, part->text);
            if (part->capture < 0)
                continue;
            if (rule->is_text[part->capture]) {
                rsi_text_add(&text, "%.*s", (int)c->len[part->capture], c->text[part->capture]);
                continue;
            }
            if (!shift_of(part, scope, &shift) ||
                !rsi_add(c->number[part->capture], shift, &value) || value < 0)
                return NULL;
            rsi_text_add(&text, "%" PRId64, value);
        }
    }
    return buf;
}
