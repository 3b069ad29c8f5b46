/* SPDX-License-Identifier: Apache-2.0 */
#include "api/terms.h"
#include "base/mem.h"
#include "format/path_format.h"
#include "format/sums.h"
#include "store/store.h"

static void give_store(rsi_terms *g, const rsd_store *store)
{
    rsi_terms_word(g, "store", store ? rsi_store_kind(store) : "none");
}

/* The format that is meant, whoever says it: the option or the path. */
static void give_format(rsi_terms *g, const char *path, rsd_format format)
{
    static const char *const name[] = { "auto", "DCP", "safetensors", "torch.save" };

    rsi_path_format(path, &format);
    if ((unsigned)format < sizeof(name) / sizeof(name[0]))
        rsi_terms_word(g, "format", name[format]);
    else
        rsi_terms_number(g, "format", (uint64_t)format);
}

/* What comes of it here: a library may have been built without xxHash. */
static void give_checksum(rsi_terms *g, rsd_choice checksum)
{
    rsi_terms_word(g, "checksum",
                   checksum != RSD_NEVER && rsi_sums_available() ? "always" : "never");
}

static void give_sync(rsi_terms *g, rsd_choice sync)
{
    rsi_terms_word(g, "sync", sync == RSD_NEVER ? "never" : "always");
}

void rsi_terms_save(rsi_terms *g, const char *path, rsd_stage_way how, const rsd_save_opts *o)
{
    rsi_terms_call(g, how ? "rsd_save_begin" : "rsd_save");
    rsi_terms_text(g, "path", path);
    give_store(g, o->store);
    give_format(g, path, o->format);
    rsi_terms_flag(g, "overwrite", o->overwrite);
    rsi_terms_flag(g, "distributed", o->distributed);
    give_sync(g, o->sync);
    rsi_terms_number(g, "shard_size", o->shard_size);
    rsi_terms_text(g, "transform", o->transform);
    give_checksum(g, o->checksum);
    rsi_terms_flag(g, "uneven_keys", o->uneven_keys);
    rsi_terms_flag(g, "check_equal", o->check_equal);
    rsi_terms_word(g, "the way of staging", how == RSD_STAGE_FORK ? "fork" : "copy");
}

void rsi_terms_load(rsi_terms *g, const char *path, const rsd_load_opts *o)
{
    rsi_terms_call(g, "rsd_load");
    rsi_terms_text(g, "path", path);
    give_store(g, o->store);
}

static void give_patterns(rsi_terms *g, const char *number, size_t n, const char *name,
                          const char *const *pattern)
{
    rsi_terms_number(g, number, n);
    for (size_t i = 0; i < n; i++)
        rsi_terms_text(g, name, pattern[i]);
}

/* The rules in words, as long as they are. */
static void give_layout(rsi_terms *g, const rsd_rules *rules)
{
    size_t len = rules ? rsd_rules_text(rules, NULL, 0) : 0;
    char  *text = rules ? rsi_calloc(len + 1, 1) : NULL;

    if (text)
        rsd_rules_text(rules, text, len + 1);
    g->full = g->full || (rules && !text);
    rsi_terms_text(g, "layout", text);
    rsi_free(text);
}

void rsi_terms_convert(rsi_terms *g, const char *path, const rsd_convert_opts *o)
{
    rsi_terms_call(g, "rsd_convert");
    rsi_terms_text(g, "path", path);
    give_store(g, o->store);
    give_format(g, path, o->format);
    give_layout(g, o->layout);
    give_patterns(g, "ninclude", o->ninclude, "include", o->include);
    give_patterns(g, "nexclude", o->nexclude, "exclude", o->exclude);
    rsi_terms_number(g, "ncasts", o->ncasts);
    for (size_t i = 0; i < o->ncasts; i++) {
        rsi_terms_text(g, "the pattern of a cast", o->cast[i].pattern);
        rsi_terms_word(g, "the dtype of a cast", rsd_dtype_name(o->cast[i].dtype));
    }
    rsi_terms_number(g, "shard_size", o->shard_size);
    rsi_terms_text(g, "transform", o->transform);
    rsi_terms_flag(g, "overwrite", o->overwrite);
    rsi_terms_flag(g, "keep", o->keep || o->resume);
    rsi_terms_flag(g, "resume", o->resume);
    give_sync(g, o->sync);
    give_checksum(g, o->checksum);
    rsi_terms_word(g, "verify", o->verify == RSD_NEVER ? "never" : "always");
    rsi_terms_flag(g, "dry_run", o->dry_run);
    rsi_terms_word(g, "carry", o->carry == RSD_NEVER ? "never" : "always");
    rsi_terms_flag(g, "salvage", o->salvage);
}
