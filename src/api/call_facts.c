/* SPDX-License-Identifier: Apache-2.0 */
#include "api/call_facts.h"
#include "base/mem.h"
#include "format/path_format.h"
#include "format/sums.h"
#include "recipe/recipe.h"
#include "store/store.h"

static void tell_store(rsi_facts *f, const rsd_store *store)
{
    rsi_fact_word(f, "store", store ? rsi_store_kind(store) : "none");
}

/* The effective format, whether it comes from the option or from the path. */
static void tell_format(rsi_facts *f, const char *path, rsd_format format)
{
    static const char *const name[] = { "auto", "DCP", "safetensors", "torch.save" };

    rsi_path_format(path, &format);
    if ((unsigned)format < sizeof(name) / sizeof(name[0]))
        rsi_fact_word(f, "format", name[format]);
    else
        rsi_fact_number(f, "format", (uint64_t)format);
}

static void tell_choice(rsi_facts *f, const char *name, rsd_choice choice)
{
    rsi_fact_word(f, name, choice == RSD_NEVER ? "never" : "always");
}

/* The effective choice: a library may have been built without xxHash. */
static void tell_checksum(rsi_facts *f, rsd_choice checksum)
{
    tell_choice(f, "checksum", rsi_sums_available() ? checksum : RSD_NEVER);
}

void rsi_save_facts(rsi_facts *f, const void *arg)
{
    const rsi_call      *call = arg;
    const rsd_save_opts *o = call->opts;

    rsi_fact_word(f, "the call", call->how ? "rsd_save_begin" : "rsd_save");
    rsi_fact_text(f, "path", call->path);
    tell_store(f, o->store);
    tell_format(f, call->path, o->format);
    rsi_fact_flag(f, "overwrite", o->overwrite);
    rsi_fact_flag(f, "distributed", o->distributed);
    tell_choice(f, "sync", o->sync);
    rsi_fact_number(f, "shard_size", o->shard_size);
    rsi_fact_text(f, "transform", o->transform);
    tell_checksum(f, o->checksum);
    rsi_fact_flag(f, "uneven_keys", o->uneven_keys);
    rsi_fact_flag(f, "check_equal", o->check_equal);
    rsi_fact_word(f, "the way of staging", call->how == RSD_STAGE_FORK ? "fork" : "copy");
}

void rsi_load_facts(rsi_facts *f, const void *arg)
{
    const rsi_call      *call = arg;
    const rsd_load_opts *o = call->opts;

    rsi_fact_word(f, "the call", "rsd_load");
    rsi_fact_text(f, "path", call->path);
    tell_store(f, o->store);
}

static void tell_patterns(rsi_facts *f, const char *number, size_t n, const char *name,
                          const char *const *pattern)
{
    rsi_fact_number(f, number, n);
    for (size_t i = 0; i < n; i++)
        rsi_fact_text(f, name, pattern[i]);
}

/* The rules as text, in full. */
static void tell_layout(rsi_facts *f, const rsd_rules *rules)
{
    size_t len = rules ? rsd_rules_text(rules, NULL, 0) : 0;
    char  *text = rules ? rsi_calloc(len + 1, 1) : NULL;

    if (text)
        rsd_rules_text(rules, text, len + 1);
    f->words.lost = f->words.lost || (rules && !text);
    rsi_fact_text(f, "layout", text);
    rsi_free(text);
}

void rsi_convert_facts(rsi_facts *f, const void *arg)
{
    const rsi_call         *call = arg;
    const rsd_convert_opts *o = call->opts;

    rsi_fact_word(f, "the call", "rsd_convert");
    rsi_fact_text(f, "path", call->path);
    tell_store(f, o->store);
    tell_format(f, call->path, o->format);
    tell_layout(f, o->rules);
    tell_patterns(f, "ninclude", o->ninclude, "include", o->include);
    tell_patterns(f, "nexclude", o->nexclude, "exclude", o->exclude);
    rsi_fact_number(f, "ncasts", o->ncasts);
    for (size_t i = 0; i < o->ncasts; i++) {
        rsi_fact_text(f, "the pattern of a cast", o->casts[i].pattern);
        rsi_fact_word(f, "the dtype of a cast", rsd_dtype_name(o->casts[i].dtype));
    }
    rsi_fact_number(f, "shard_size", o->shard_size);
    rsi_fact_text(f, "transform", o->transform);
    rsi_fact_flag(f, "overwrite", o->overwrite);
    rsi_fact_flag(f, "keep", o->keep || o->resume);
    rsi_fact_flag(f, "resume", o->resume);
    tell_choice(f, "sync", o->sync);
    tell_checksum(f, o->checksum);
    tell_choice(f, "verify", o->verify);
    rsi_fact_flag(f, "dry_run", o->dry_run);
    tell_choice(f, "carry", o->carry);
    rsi_fact_flag(f, "salvage", o->salvage);
    rsi_fact_digest(f, "the recipe", o->recipe ? o->recipe->digest : 0);
}
