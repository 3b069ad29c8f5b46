/* SPDX-License-Identifier: Apache-2.0 */
/* reshard convert: writes a checkpoint in another format or layout, with other names or dtypes. The
 * library does the work; this file reads the options and, after an interruption, says how to
 * resume. */
#include "patterns.h"
#include "recipe_args.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST_END 12 /* longest possible file extension, in characters */

static const char *const known_ends[] = { ".safetensors", ".pt", ".pth", ".bin", ".dcp", NULL };

typedef struct converting {
    const args       *a;
    rsd_convert_opts  opts;
    progress          bar;
    rsd_ckpt         *source;
    rsd_rules        *rules;
    rsd_recipe       *recipe;
    rsd_store        *store; /* null: */
    patterns          patterns;
    char              transform[64];
    char             *partial; /* where the work of an interrupted run is kept */
    reasons           left;    /* what the target can't hold, or does not receive */
    rsd_convert_stats stats;
    size_t            damages; /* found by --salvage */
} converting;

/* ---- options ---- */

static int read_format(converting *c)
{
    static const struct {
        const char *name;
        rsd_format  format;
    } known[] = { { "dcp", RSD_FORMAT_DCP },
                  { "safetensors", RSD_FORMAT_SAFETENSORS },
                  { "torch", RSD_FORMAT_TORCH },
                  { "universal", RSD_FORMAT_ZERO },
                  { "sharded_state", RSD_FORMAT_SHARDED_STATE },
                  { "megatron", RSD_FORMAT_MEGATRON } };
    const char *to = args_text(c->a, "to", NULL);

    for (size_t i = 0; to && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, to) == 0)
            c->opts.format = known[i].format;
    return EXIT_DONE;
}

/* The name of DST determines the format; refuses an unknown extension. */
static int check_end(const converting *c)
{
    const char *dst = c->a->operand[1], *dot = strrchr(dst, '.');
    struct stat st;

    if (args_has(c->a, "to") || !dot || strchr(dot, '/') || dot == dst || dot[-1] == '/')
        return EXIT_DONE;
    for (const char *const *end = known_ends; *end; end++)
        if (strcmp(dot, *end) == 0)
            return EXIT_DONE;
    for (const char *at = dot + 1; *at; at++)
        if (!isalpha((unsigned char)*at))
            return EXIT_DONE; /* "llama-3.1-8b" is a folder */
    if (dot[1] == '\0' || strlen(dot) > LONGEST_END || (stat(dst, &st) == 0 && S_ISDIR(st.st_mode)))
        return EXIT_DONE;
    return misuse(c->a,
                  "unknown format of \"%s\": name a file .safetensors, .pt, .pth or .bin; for a "
                  "folder use --to dcp or --to safetensors",
                  dst);
}

/* "bf16" for all floats, "GLOB=f32" for some; the specific ones come first. */
static int read_casts(converting *c)
{
    size_t    n = args_count(c->a, "dtype"), at = 0;
    rsd_cast *cast = calloc(n + 1, sizeof(cast[0]));

    c->opts.casts = cast;
    if (!cast)
        return refuse(c->a, EXIT_COULD_NOT, "no memory for the options");
    for (int all = 0; all < 2; all++)
        for (size_t i = 0; i < n; i++) {
            char     *text = strdup(args_at(c->a, "dtype", i)), *sign;
            rsd_error err = { .msg = "" };

            if (!text)
                return refuse(c->a, EXIT_COULD_NOT, "no memory for the options");
            sign = strrchr(text, '=');
            if (!sign == !all) {
                free(text);
                continue;
            }
            if (sign)
                *sign++ = '\0';
            cast[at].pattern = sign ? text : NULL;
            c->opts.ncasts = at + 1;
            if (rsd_dtype_parse(sign ? sign : text, &cast[at].dtype, &err)) {
                if (!sign)
                    free(text);
                return misuse(c->a, "--dtype: %s", err.msg);
            }
            if (!sign)
                free(text);
            at++;
        }
    return EXIT_DONE;
}

/* "zstd" or "zstd:LEVEL" */
static int read_transform(converting *c)
{
    const char *text = args_text(c->a, "compress", NULL);

    if (!text)
        return EXIT_DONE;
    if (strcmp(text, "zstd") != 0 && strncmp(text, "zstd:", 5) != 0)
        return misuse(c->a, "--compress \"%s\": only zstd and zstd:N are supported", text);
    if (text[4] == ':' && (!text[5] || strspn(text + 5, "0123456789") != strlen(text + 5)))
        return misuse(c->a, "--compress \"%s\": the level must be a number", text);
    snprintf(c->transform, sizeof(c->transform), "stream.zstd%s", text + 4);
    c->opts.transform = c->transform;
    return EXIT_DONE;
}

static const char *new_name(void *arg, const char *name)
{
    const char *renamed = patterns_rename(&((converting *)arg)->patterns, name);

    return renamed ? renamed : ""; /* which is refused */
}

static int step(void *arg, int64_t done, int64_t total)
{
    return progress_step(&((converting *)arg)->bar, done, total);
}

/* Reported at the end, even with --quiet: data loss matters. */
static void note_left_out(void *arg, const char *name, const char *why)
{
    reasons_add(&((converting *)arg)->left, name, why);
}

static void note_kept(void *arg, const char *partial)
{
    converting *c = arg;

    c->partial = strdup(partial);
}

static int read_options(converting *c)
{
    rsd_convert_opts *o = &c->opts;
    const args       *a = c->a;
    const char       *layout = args_text(a, "layout", NULL);
    const char       *recipe = args_text(a, "recipe", NULL);
    int               code = read_format(c);

    if (!code)
        code = check_end(c);
    if (!code)
        code = patterns_read(a, &c->patterns);
    if (!code)
        code = read_casts(c);
    if (!code)
        code = read_transform(c);
    if (!code && layout)
        code = source_rules(a, layout, &c->rules);
    if (!code && recipe)
        code = recipe_read(a, recipe, &c->recipe);
    else if (!code && (args_has(a, "set") || args_has(a, "config") || args_has(a, "reverse")))
        code = misuse(a, "--set, --config and --reverse need --recipe");
    if (!code && args_has(a, "resume") && args_has(a, "no-keep"))
        code = misuse(a, "--resume and --no-keep can't be combined");
    o->include = c->patterns.include;
    o->ninclude = c->patterns.ninclude;
    o->exclude = c->patterns.exclude;
    o->nexclude = c->patterns.nexclude;
    o->rules = c->rules;
    o->recipe = c->recipe;
    o->rename = c->patterns.nrenamings ? new_name : NULL;
    o->shard_size = args_size(a, "shard-size", 0);
    o->max_memory = (size_t)args_size(a, "max-memory", 0);
    o->threads = args_number(a, "threads", 0);
    o->overwrite = args_has(a, "overwrite");
    o->sync = args_has(a, "no-sync") ? RSD_NEVER : RSD_DEFAULT;
    o->checksum = args_has(a, "no-checksum") ? RSD_NEVER : RSD_DEFAULT;
    o->keep = !args_has(a, "no-keep");
    o->verify = args_has(a, "no-verify") ? RSD_NEVER : RSD_DEFAULT;
    o->resume = args_has(a, "resume");
    o->dry_run = args_has(a, "dry-run");
    o->carry = args_has(a, "no-carry") ? RSD_NEVER : RSD_DEFAULT;
    c->stats.size = sizeof(c->stats);
    o->stats = &c->stats;
    o->on_progress = step;
    o->on_left_out = note_left_out;
    o->on_kept = note_kept;
    o->arg = c;
    return code;
}

/* ---- how to resume ---- */

/* A word quoted for the shell. */
static void print_word(const char *word)
{
    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_./:=,@%+-") == strlen(word)) {
        fprintf(stderr, "%s", word);
        return;
    }
    fprintf(stderr, "'");
    for (; *word; word++)
        if (*word == '\'')
            fprintf(stderr, "'\\''");
        else
            fprintf(stderr, "%c", *word);
    fprintf(stderr, "'");
}

static void say_how_to_go_on(const converting *c, bool replace)
{
    const args *a = c->a;

    if (!speaks(a) || args_has(a, "quiet") || (!c->partial && !c->opts.transform))
        return;
    if (!c->partial) {
        fprintf(stderr, "reshard: nothing was kept: compressed output can't be resumed\n");
        return;
    }
    fprintf(stderr, "reshard: the finished parts are kept in ");
    print_word(c->partial);
    fprintf(stderr, "; to resume:\n  reshard convert ");
    print_word(a->operand[0]);
    fprintf(stderr, " ");
    print_word(a->operand[1]);
    for (size_t i = 0; i < a->ngiven; i++) {
        if (strcmp(a->given[i].spec->name, "resume") == 0)
            continue;
        fprintf(stderr, " --%s", a->given[i].spec->name);
        if (a->given[i].value) {
            fprintf(stderr, " ");
            print_word(a->given[i].value);
        }
    }
    fprintf(stderr, "%s --resume\n", replace ? " --overwrite" : "");
}

/* ---- the command ---- */

static void tell_damage(void *arg, const rsd_error *what)
{
    const converting *c = arg;

    if (!speaks(c->a))
        return;
    fprintf(stderr, "reshard: damage: ");
    print_safe(stderr, what->msg);
    fprintf(stderr, "\n");
}

/* Suggests --salvage if anything can be rescued. */
static void say_salvage(const args *a)
{
    const rsd_open_opts opts = { .size = sizeof(opts), .salvage = true };
    rsd_ckpt           *ckpt;

    if (!speaks(a) || rsd_ckpt_open_with(NULL, a->operand[0], &opts, &ckpt, NULL))
        return;
    rsd_ckpt_close(ckpt);
    fprintf(stderr, "reshard: `reshard verify` lists the damage, --salvage converts the rest\n");
}

/* With --salvage, finds what is left of a damaged checkpoint. */
static int open_source(converting *c)
{
    const args         *a = c->a;
    const rsd_read_opts opts = { .size = sizeof(opts),
                                 .threads = args_number(a, "threads", 0),
                                 .on_progress = progress_step,
                                 .arg = &c->bar };
    rsd_error           err = { .msg = "" };
    rsd_err             rc;
    int                 code;

    if (!args_has(a, "salvage")) {
        code = source_open(a, a->operand[0], &c->source);
        if (code == EXIT_INVALID)
            say_salvage(a);
        return code;
    }
    if (!c->opts.overwrite && !c->store && access(a->operand[1], F_OK) == 0) /* verifying is long */
        return refuse(a, EXIT_COULD_NOT,
                      "checkpoint \"%s\": it exists already, and overwrite was not asked for",
                      a->operand[1]);
    code = source_salvage(a, a->operand[0], &c->source);
    if (code)
        return code;
    progress_begin(&c->bar, a, "verifying");
    rc = rsd_ckpt_verify(c->source, &opts, tell_damage, c, &c->damages, &err);
    progress_end(&c->bar);
    c->opts.salvage = true;
    return rc ? fail(a, &err) : EXIT_DONE;
}

/* The new names of what is taken: --dtype applies to those. False: no memory. */
static bool new_names(converting *c, const char *const *name, size_t n, char ***out, size_t *count)
{
    *out = calloc(n + 1, sizeof(**out));
    for (size_t i = 0; *out && i < n; i++) {
        const char *renamed;

        if (!patterns_want(&c->patterns, name[i]))
            continue;
        renamed = patterns_rename(&c->patterns, name[i]);
        (*out)[*count] = renamed ? strdup(renamed) : NULL;
        if (!(*out)[*count])
            return false;
        ++*count;
    }
    return *out != NULL;
}

/* Patterns without effect are mistakes. */
static int warn(converting *c)
{
    const char **name = NULL;
    char       **renamed = NULL;
    size_t       n = 0, count = 0;
    bool         ok = patterns_names(c->source, &name, &n);

    if (ok) {
        for (size_t i = 0; i < c->patterns.ninclude; i++)
            patterns_warn_glob(c->a, "include", c->patterns.include[i], name, n);
        patterns_warn_exclude(c->a, &c->patterns, name, n);
    }
    if (ok && !c->recipe) { /* else these see other names */
        patterns_warn_rename(c->a, &c->patterns, name, n);
        ok = new_names(c, name, n, &renamed, &count);
    }
    for (size_t i = 0; ok && !c->recipe && i < c->opts.ncasts; i++)
        if (c->opts.casts[i].pattern)
            patterns_warn_glob(c->a, "dtype", c->opts.casts[i].pattern,
                               (const char *const *)renamed, count);
    for (size_t i = 0; i < count; i++)
        free(renamed[i]);
    free(renamed);
    free(name);
    return ok ? EXIT_DONE : refuse(c->a, EXIT_COULD_NOT, "no memory for the names");
}

/* "wrote model.pt: torch, 3 tensors, 344 B in 1 file, 0.1 s" */
static void say_end(const converting *c, double seconds)
{
    const rsd_convert_stats *s = &c->stats;
    char                     size[32] = "compressed";

    if (!speaks(c->a) || args_has(c->a, "quiet"))
        return;
    if (s->bytes >= 0)
        size_text((uint64_t)s->bytes, size, sizeof(size));
    fprintf(stderr, "reshard: %s ", c->opts.dry_run ? "would write" : "wrote");
    print_safe(stderr, c->a->operand[1]);
    fprintf(stderr, ": %s, %" PRId64 " tensor%s, %" PRId64 " object%s, %s in %" PRId64 " file%s",
            format_name(s->format), s->tensors, plural((uint64_t)s->tensors), s->objects,
            plural((uint64_t)s->objects), size, s->files, plural((uint64_t)s->files));
    if (s->carried)
        fprintf(stderr, ", %" PRId64 " of them copied along", s->carried);
    if (s->reused) {
        size_text((uint64_t)s->reused, size, sizeof(size));
        fprintf(stderr, ", %s of it from the interrupted run", size);
    }
    if (!c->opts.dry_run)
        fprintf(stderr, ", %.1f s", seconds);
    fprintf(stderr, "\n");
}

static void release(converting *c)
{
    reasons_free(&c->left);
    for (size_t i = 0; i < c->opts.ncasts; i++)
        free((char *)(uintptr_t)c->opts.casts[i].pattern);
    free((void *)(uintptr_t)c->opts.casts);
    patterns_free(&c->patterns);
    free(c->partial);
    rsd_rules_free(c->rules);
    rsd_recipe_free(c->recipe);
    rsd_ckpt_close(c->source);
    rsd_store_close(c->store);
}

static int run(const args *a)
{
    converting  c = { .a = a, .opts = { .size = sizeof(c.opts) } };
    const char *to = a->operand[1];
    rsd_error   err = { .msg = "" };
    int         code = read_options(&c);
    double      start = now();
    rsd_err     rc = RSD_OK;

    if (!code && strcmp(to, "null:") == 0) { /* accepts everything, keeps nothing */
        if (rsd_store_open(to, &c.store, &err))
            code = fail(a, &err);
        c.opts.store = c.store;
        c.opts.keep = false;
        to = "null";
    }
    if (!code)
        code = open_source(&c);
    if (!code)
        code = warn(&c);
    if (!code) {
        progress_begin(&c.bar, a, "converting");
        rc = rsd_convert(c.source, to, rsd_comm_size(a->comm) > 1 ? a->comm : NULL, &c.opts, &err);
        progress_end(&c.bar);
        if (speaks(a))
            reasons_print(stderr, "reshard: left out: ", &c.left);
        if (!rc)
            say_end(&c, now() - start);
        if (!rc && c.damages)
            code = EXIT_NO; /* the source was damaged */
    }
    if (rc) {
        const bool there = rc == RSD_E_EXISTS && !c.opts.overwrite;

        code = fail(a, &err);
        if (!there || c.partial) /* it appeared during this run */
            say_how_to_go_on(&c, there);
        if (code == EXIT_INVALID && !args_has(a, "salvage"))
            say_salvage(a);
        if (rc == RSD_E_INVALID && c.damages)
            code = EXIT_NO; /* nothing was left */
        if (rc == RSD_E_MISMATCH)
            code = EXIT_COULD_NOT; /* the source changed, or ranks differ: not a usage error */
    }
    release(&c);
    return code;
}

static const option_spec options[] = {
    { "to", 0, OPT_CHOICE, "dcp|safetensors|torch|universal|sharded_state|megatron",
      "format of DST; default: chosen by its name" },
    { "layout", 'l', OPT_PATH, "SPEC",
      "distribute the tensors over ranks: rules, or a file with rules" },
    { "include", 0, OPT_NAME, "GLOB", "convert only names that match; may be repeated" },
    { "exclude", 0, OPT_NAME, "GLOB", "skip names that match; may be repeated" },
    { "recipe", 0, OPT_PATH, "RECIPE",
      "make tensors from others: a file with rules, or a recipe that came with the tool" },
    OPTIONS_RECIPE,
    { "rename", 0, OPT_TEXT, "s/RE/TO/",
      "rename tensors and objects, as sed -E does; may be repeated" },
    { "dtype", 0, OPT_DTYPE, "[GLOB=]DTYPE",
      "cast floating tensors, or those that match; may be repeated" },
    { "shard-size", 0, OPT_SIZE, "SIZE",
      "safetensors: largest file; a larger tensor has one of its own" },
    { "compress", 0, OPT_TEXT, "zstd[:N]", "DCP: compress each item" },
    { "max-memory", 0, OPT_SIZE, "SIZE", "memory for buffers; default: 64M" },
    { "threads", 'j', OPT_COUNT, "N", "number of threads; default: all processors" },
    { "overwrite", 0, OPT_FLAG, NULL,
      "replace DST if it exists; a folder that holds other files is not replaced" },
    { "no-sync", 0, OPT_FLAG, NULL, "don't sync to disk: a power cut may lose DST" },
    { "no-checksum", 0, OPT_FLAG, NULL, "write no checksum file" },
    { "resume", 0, OPT_FLAG, NULL, "resume an interrupted run" },
    { "no-keep", 0, OPT_FLAG, NULL, "keep nothing if interrupted" },
    { "no-verify", 0, OPT_FLAG, NULL, "don't compare the checksums of SRC" },
    { "salvage", 0, OPT_FLAG, NULL, "convert the intact part of a damaged SRC, and exit with 1" },
    { "no-carry", 0, OPT_FLAG, NULL, "don't copy the other files in SRC's folder" },
    { "dry-run", 0, OPT_FLAG, NULL, "say what would be written, but write nothing" },
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_convert = {
    .name = "convert",
    .line = "write a checkpoint with another format, layout, names or dtypes",
    .operands = "SRC DST",
    .min = 2,
    .max = 2,
    .options = options,
    .text =
        "Copies SRC to DST in one pass, using at most --max-memory, whatever the model's size. "
        "A DST that ends in .safetensors, .pt, .pth or .bin is one file; one without such an "
        "ending is a folder, in DCP format unless --to says otherwise; --to torch writes a "
        "file. Folders above DST are made. DST appears only when it is complete.\n"
        "\n"
        "Patterns are shell-style globs; * also matches dots. --include and --exclude see the "
        "old names, --dtype and --layout the new ones. A pattern that matches nothing causes a "
        "warning. A recipe sees the names that the filters leave; --rename, --dtype and --layout "
        "see what it makes (`reshard help recipe`). Non-tensor objects are copied if DST's format "
        "supports them, and so is "
        "safetensors' __metadata__; from folder to folder also other files of up to 64 MiB, "
        "such as a config or a tokenizer. Everything left out is reported, even with -q.\n"
        "\n"
        "An interrupted run keeps its finished parts in DST.partial-...; the same command with "
        "--resume checks them and resumes. A run without --resume starts over and deletes "
        "them; one with --no-keep leaves them alone. Compressed output can't be resumed.\n"
        "\n"
        "Checksums of the data read from SRC are compared. Data read in order are compared on "
        "the way; columns and other scattered parts are read a second time. "
        "Damage ends the conversion, and "
        "nothing is published or kept. With --salvage SRC is verified first, its files may be "
        "missing or truncated, and DST gets the tensors and objects that are intact; the "
        "others are named, and the exit code is 1.\n"
        "\n"
        "Under mpirun the ranks divide the work. The DST \"null:\" discards everything, for "
        "measurements.",
    .examples =
        "# one Hugging Face folder with files of 5 GB and an index\n"
        "reshard convert step_1000 hf --to safetensors --shard-size 5GB\n"
        "# sharded for a mesh, in bfloat16, but norms in float32\n"
        "reshard convert model.safetensors dcp --layout 'mesh tp=4; * shard(0)@tp' --dtype "
        "bf16 --dtype '*norm*=f32'\n"
        "# what DeepSpeed resumes from on any number of ranks\n"
        "reshard convert zero_run universal --to universal\n"
        "# what Megatron-Core and vLLM load, from Hugging Face\n"
        "reshard convert llama run/release --to megatron --recipe hf-megatron --config "
        "llama/config.json\n"
        "reshard convert llama served --to sharded_state --recipe hf-sharded-state --config "
        "llama/config.json --set tp=8\n"
        "# only the model, with shorter names\n"
        "reshard convert step_1000 model.pt --include 'model.*' --rename 's/^model\\.//'",
    .ranks = true,
    .run = run,
};
