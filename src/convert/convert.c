/* SPDX-License-Identifier: Apache-2.0 */
/* Converting, step by step; after each step the ranks agree, so that they fail together:
 *
 *   plan      every rank takes the source's catalogue (convert_state.c), lays out the target
 *             (image.c) and cuts it into blocks (convert_blocks.c); all results must be equal
 *   begin     rank 0 creates the temporary tree (C2), or the folder of a resumable run
 *   data      the ranks divide the blocks: read, sum, write, sync (C3, C6)
 *   source    checks that the source's files are unchanged
 *   metadata  rank 0 writes what makes the target readable (C4)
 *   publish   rank 0 publishes its name (C1, C5) */
#include "convert/convert.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/opts.h"
#include "comm/facts.h"
#include "convert/convert_carry.h"
#include "convert/convert_ends.h"
#include "convert/convert_megatron.h"
#include "convert/convert_partial.h"
#include "convert/convert_state.h"
#include "convert/convert_write.h"
#include "format/path_format.h"
#include "commit/outcome.h"
#include "read/check_sums.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_MEMORY ((size_t)64 << 20)
#define WIDE_LEAST     ((size_t)8 << 20) /* bytes of a turned tensor that a thread pulls at once */
#define WIDE_MOST      ((size_t)32 << 20)

typedef struct converting {
    rsd_ckpt               *source;
    const rsd_convert_opts *opts;
    bool                    no_book; /* this build does not know the checksum file's kind */
    rsi_convert_state       taken;
    rsi_carry               carry;
    rsi_st_pair            *meta; /* __metadata__ entries that are copied */
    rsi_pull                pull;
    rsi_convert_job         job;
    rsi_convert_ends        ends;
    rsi_image_spec          spec;
    rsd_rules              *layout;    /* of the recipe, if the options have none */
    int64_t                 iteration; /* of a Megatron folder; 0: "release" */
    bool                    stream;    /* files are written front to back, as in a save */
    bool                    keep;      /* the work folder stays if the run is interrupted */
    bool                    begun;     /* the work folder exists */
    bool                    adopted;   /* the work folder has become the published target */
    rsi_partial             partial;
} converting;

static rsd_err agree(const converting *c, rsd_err rc, rsd_error *err)
{
    return rsi_commit_agree(&c->job.commit, rc, err);
}

static bool leads(const converting *c)
{
    return rsi_commit_leads(&c->job.commit);
}

/* Whether the source's checksums are verified while reading, or by prove() where ranks would read
 * the same records or an interrupted run may not have reached them. */
static rsd_choice on_the_way(const converting *c)
{
    if (c->opts->verify == RSD_NEVER)
        return RSD_NEVER;
    if (c->no_book || (c->job.commit.comm && rsd_comm_size(c->job.commit.comm) > 1))
        return RSD_DEFAULT;
    return RSD_ALWAYS;
}

/* ---- plan ---- */

static rsd_err make_image(converting *c, rsd_error *err)
{
    rsd_convert_opts again = *c->opts;
    rsd_err          rc;

    again.on_left_out = NULL; /* already reported */
    for (int flat = 0; flat < 2; flat++) {
        rc = rsi_convert_state_make(&c->taken, c->source, c->spec.format, flat,
                                    flat ? &again : c->opts, err);
        if (!rc)
            rc = rsi_image_make(&c->job.commit.image, c->taken.state, &c->spec, err);
        if (rc != RSD_E_INVALID ||
            (c->spec.format != RSD_FORMAT_TORCH && c->spec.format != RSD_FORMAT_ZERO))
            break; /* else a list has holes, or a name is part of another's path */
        rsi_convert_state_release(&c->taken);
    }
    c->job.state = c->taken.state;
    return rc;
}

/* Takes the __metadata__ entries, which only safetensors can hold. "format" is the same in all
 * files, so its loss is not reported. */
static rsd_err take_meta(converting *c, rsd_error *err)
{
    rsi_image_spec *spec = &c->spec;
    bool            more = false;

    c->meta = rsi_calloc(c->source->nmeta, sizeof(c->meta[0]));
    if (!c->meta)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for metadata");
    for (size_t i = 0; i < c->source->nmeta; i++) {
        const rsd_meta *line = &c->source->meta[i];

        more = more || strcmp(line->key, "format") != 0;
        c->meta[i] = (rsi_st_pair){ line->key, line->value, line->value_len };
        if (line->differs && spec->format == RSD_FORMAT_SAFETENSORS) {
            char name[256];

            snprintf(name, sizeof(name), RSI_ST_METADATA ".%s", line->key);
            rsi_leave_out(c->opts, name,
                          "other files of the source have other values; the first is used");
        }
    }
    if (spec->format == RSD_FORMAT_SAFETENSORS) {
        spec->meta = c->meta;
        spec->nmeta = c->source->nmeta;
    } else if (more) {
        rsi_leave_out(c->opts, RSI_ST_METADATA, "only safetensors have it");
    }
    return RSD_OK;
}

/* Takes the files beside the checkpoint. */
static rsd_err take_files(converting *c, rsd_error *err)
{
    const char *into = c->spec.one_file ? "a single file holds no others" : NULL;
    rsd_err     rc = rsi_carry_find(&c->carry, c->source, c->spec.format, into, c->opts, err);

    rc = rc ? rc : rsi_carry_config(&c->carry, c->taken.made, err);
    if (!rc)
        rc = rsi_carry_add(&c->carry, &c->job.commit.image, c->taken.state, c->opts, err);
    if (!rc && c->opts->format == RSD_FORMAT_MEGATRON)
        rc = rsi_megatron_files(&c->taken, c->iteration, &c->job.commit.image, err);
    return rc;
}

static rsd_err open_store(converting *c, rsd_error *err)
{
    rsi_commit *to = &c->job.commit;
    rsd_err     rc = rsi_commit_store(to, !c->opts->dry_run, err);

    if (rc != RSD_E_NOTFOUND || !c->opts->dry_run)
        return rc;
    rc = rsd_store_open("mem:", &to->store, err); /* the real one's folder would be created */
    to->own_store = !rc;
    to->name = rc ? NULL : rsi_strdup("target");
    return rc || to->name ? rc : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
}

/* Applies the options to the target. */
static rsd_err choose(converting *c, rsd_error *err)
{
    const rsd_convert_opts *o = c->opts;
    rsi_commit             *to = &c->job.commit;
    rsd_err                 rc;

    c->spec = (rsi_image_spec){ .format = o->format,
                                .shard_size = o->shard_size,
                                .transform = o->transform };
    c->spec.one_file = to->one_file = rsi_path_format(to->path, &c->spec.format);
    rc = rsi_convert_form(o, to->path, &c->spec, &c->iteration, err);
    if (rc)
        return rc;
    to->flush = (rsi_write_opts){ .sync = o->sync != RSD_NEVER,
                                  .on_progress = o->on_progress,
                                  .arg = o->arg };
    if (o->rules && c->spec.one_file)
        return rsi_fail(err, RSD_E_INVALID, "a single file has no layout: write a folder");
    if (o->rules && c->spec.format == RSD_FORMAT_ZERO)
        return rsi_fail(err, RSD_E_INVALID, "DeepSpeed's universal form has no layout");
    if (o->shard_size && c->spec.format != RSD_FORMAT_SAFETENSORS)
        return rsi_fail(err, RSD_E_INVALID, "only safetensors can be split by file size");
    if (o->shard_size && c->spec.one_file)
        return rsi_fail(err, RSD_E_INVALID, "a single file can't be split by size: write a folder");
    return rsi_commit_want_sums(to, o->checksum, err);
}

/* Only a conversion written block by block can be kept and resumed. */
static rsd_err choose_way(converting *c, rsd_error *err)
{
    rsi_commit *save = &c->job.commit;
    const char *kind = rsi_store_kind(save->store);
    bool        random = rsi_store_flags(save->store) & RSD_STORE_RANDOM_WRITE;
    int32_t     ranks = save->comm ? rsd_comm_size(save->comm) : 1;
    rsd_err     rc = rsi_convert_ends_make(&c->ends, &c->taken, on_the_way(c) == RSD_ALWAYS, err);

    if (rc)
        return rc;
    c->job.turned = c->ends.turned;
    c->stream = save->image.transform || !random;
    c->keep = (c->opts->keep || c->opts->resume) && !c->stream;
    if (c->keep && !rsi_store_adopts(save->store))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a %s store can't keep an interrupted conversion",
                        kind);
    if (c->keep && !rsi_hash128_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "resuming needs xxHash, which this build lacks");
    if (!c->stream)
        return rsi_convert_blocks_make(&c->job.cuts, &save->image, rsi_convert_end, &c->ends, err);
    if (ranks > 1 && !save->image.transform)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "several ranks can't write to a %s store together",
                        kind);
    for (size_t f = 0; f < save->image.nfiles; f++) /* ranks can then only divide whole files */
        save->image.file[f].owner = (int32_t)(f % (size_t)ranks);
    return RSD_OK;
}

/* The same on every host: a stamp may contain an inode number. */
static uint64_t version_of(const rsi_file *file)
{
    return file->version ? file->version : file->stamp;
}

/* The source, the target and everything in between. */
static void tell_plan(rsi_facts *f, const void *arg)
{
    const converting *c = arg;
    const rsi_files  *files = &c->source->files;
    const rsd_state  *state = c->taken.state;
    const rsi_image  *image = &c->job.commit.image;
    char              seal[RSI_SUMS_TRAILER] = { 0 };

    rsi_fact_number(f, "format", (uint64_t)c->spec.format);
    rsi_fact_flag(f, "dry_run", c->opts->dry_run);
    rsi_fact_text(f, "transform", image->transform);
    if (c->opts->recipe)
        rsi_fact_digest(f, "the recipe", c->opts->recipe->digest);
    for (size_t i = 0; i < files->n; i++) {
        rsi_facts_item(f, "source file", i, files->file[i]->name);
        rsi_fact_number(f, "size", files->file[i]->size);
        rsi_fact_digest(f, "version", version_of(files->file[i]));
    }
    rsi_facts_count(f, "the number of source files", files->n);
    for (size_t i = 0; i < c->carry.n; i++) {
        rsi_facts_item(f, "copied file", i, c->carry.at[i].name);
        rsi_fact_digest(f, "version", c->carry.at[i].version);
    }
    rsi_facts_count(f, "the number of copied files", c->carry.n);
    if (c->source->sums.file)
        rsi_ckpt_sums_trailer(c->source->sums.file, seal, NULL);
    rsi_fact_digest(f, "the checksum file of the source", rsi_digest(0, seal, sizeof(seal)));
    for (size_t i = 0; i < state->ntensors; i++) {
        rsi_facts_item(f, "tensor", i, state->tensor[i].spot.name);
        rsi_fact_number(f, "its number in the source",
                        i < c->taken.n ? c->taken.from[i].t : SIZE_MAX);
        rsi_fact_word(f, "dtype", rsd_dtype_name(state->tensor[i].dtype));
    }
    rsi_facts_count(f, "the number of tensors", state->ntensors);
    for (size_t i = 0; i < image->nfiles; i++) {
        rsi_facts_item(f, "target file", i, image->file[i].name);
        rsi_fact_number(f, "size", image->file[i].bytes);
        rsi_fact_number(f, "items", image->file[i].nitems);
    }
    rsi_facts_count(f, "the number of target files", image->nfiles);
    rsi_fact_digest(f, "the content of the target", rsi_image_digest(image, state, 0));
}

static rsd_err plan(converting *c, rsd_error *err)
{
    rsi_facts f = { 0 };
    rsd_err   rc = choose(c, err);

    if (!rc)
        rc = take_meta(c, err);
    if (!rc)
        rc = make_image(c, err);
    if (!rc)
        rc = take_files(c, err);
    if (!rc)
        rc = open_store(c, err);
    if (!rc)
        rc = choose_way(c, err);
    if (!rc && c->keep) {
        tell_plan(&f, c);
        rc = rsi_partial_name(&c->partial, c->job.commit.store, c->job.commit.name, f.digest, err);
    }
    /* The options were compared before; this compares what each rank opened and how it renames. */
    return rsi_same_facts(c->job.commit.comm, tell_plan, c, rc, err);
}

/* ---- begin ---- */

/* Stamps the journals with the present source, as rank 0 found it. File change times are not part
 * of the source's digest: a rank that opens a file just after it was replaced sees a different
 * one. */
static rsd_err stamp_journals(converting *c, rsd_error *err)
{
    const rsi_files *files = &c->source->files;
    uint64_t         d = c->partial.id;

    for (size_t i = 0; i < files->n; i++)
        d = rsi_digest(d, &files->file[i]->touched, sizeof(files->file[i]->touched));
    for (size_t i = 0; i < c->carry.n; i++)
        d = rsi_digest(d, &c->carry.at[i].touched, sizeof(c->carry.at[i].touched));
    c->partial.id = d;
    return c->job.commit.comm
               ? rsi_broadcast(c->job.commit.comm, 0, &c->partial.id, sizeof(c->partial.id), err)
               : RSD_OK;
}

static void not_resumed(void *arg, const char *folder, const char *why)
{
    rsi_leave_out(((const converting *)arg)->opts, folder, why);
}

/* Rank 0 checks that the target could be published before any work is done, then takes the
 * folder. */
static rsd_err begin_folder(converting *c, rsd_error *err)
{
    rsi_commit *save = &c->job.commit;
    rsi_tree   *trial = NULL;
    rsd_err     rc = rsi_commit_may_replace(save, err);

    if (!rc)
        rc = rsi_tree_begin(save->store, save->name, rsi_commit_tree_flags(save), &trial, err);
    if (rc)
        return rc;
    rc = rsi_tree_abort(trial, err);
    if (!rc && c->opts->resume)
        rc = rsi_partial_look(&c->partial, save->name, not_resumed, c, err);
    if (!rc)
        rc = rsi_partial_begin(&c->partial, save->name, c->opts->resume, err);
    if (!rc && c->opts->resume)
        rc = rsi_partial_compare(&c->partial, not_resumed, c, err);
    if (!rc && c->opts->resume)
        rc = rsi_partial_tidy(&c->partial, &save->image, err);
    if (!rc && !save->one_file)
        rc = rsi_store_make_folder(save->store, c->partial.tree, err);
    return rc;
}

static rsd_err begin_partial(converting *c, rsd_error *err)
{
    rsi_commit *save = &c->job.commit;
    char       *journal;
    rsd_err     rc = stamp_journals(c, err);

    if (!rc)
        rc = agree(c, leads(c) ? begin_folder(c, err) : RSD_OK, err);
    if (rc)
        return rc;
    c->begun = true;
    save->flush.top = c->partial.tree;
    if (c->opts->resume)
        rc = rsi_partial_read(&c->partial, &c->job.cuts, err);
    rc = agree(c, rc, err); /* before any rank adds to a journal */
    if (rc)
        return rc;
    journal = rsi_partial_journal(&c->partial, save->comm ? rsd_comm_rank(save->comm) : 0);
    rc = journal ? rsi_journal_open(save->store, journal, c->partial.id, &c->job.journal, err)
                 : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    rsi_free(journal);
    return agree(c, rc, err);
}

/* ---- data ---- */

/* Opens the checksum file first: if it or the metadata are damaged, the conversion ends; if this
 * build can't read it, the conversion continues. */
static rsd_err open_book(converting *c, rsd_error *err)
{
    rsd_choice verify = c->opts->verify == RSD_NEVER ? RSD_NEVER : RSD_ALWAYS;
    rsd_error  why = { .rank = -1 };
    bool       on;
    rsd_err    rc = rsi_check_begin(c->source, verify, &on, &why);

    c->no_book = rc == RSD_E_UNSUPPORTED;
    if (rc && !c->no_book && err)
        *err = why;
    return agree(c, c->no_book ? RSD_OK : rc, err);
}

static rsd_err prove(converting *c, rsd_error *err)
{
    rsd_comm *comm = c->job.commit.comm;
    bool      needed = c->opts->resume || on_the_way(c) == RSD_DEFAULT;
    rsd_err   rc =
        c->pull.tools.streams ? rsi_row_streams_finish(c->pull.tools.streams, err) : RSD_OK;

    if (!rc && c->pull.tools.records)
        rc = rsi_record_crcs_finish(c->pull.tools.records, c->job.workers, err);
    if (!rc && needed && !c->no_book && c->opts->verify != RSD_NEVER)
        rc = rsi_pull_prove(&c->pull, c->taken.n, c->job.workers, comm ? (size_t)comm->rank : 0,
                            comm ? (size_t)comm->size : 1, err);
    return agree(c, rc, err);
}

/* Starts as many threads as memory allows, and opens their readers. */
static rsd_err make_workers(converting *c, rsd_error *err)
{
    size_t memory = c->opts->max_memory ? c->opts->max_memory : DEFAULT_MEMORY;
    size_t each = RSI_CONVERT_BUFFER + RSI_PULL_CAST_BYTES + RSI_PULL_FETCH_BYTES +
                  (c->taken.made ? RSI_MADE_BYTES : 0);
    size_t       most = memory / (each + (c->job.turned ? WIDE_LEAST : 0)), rest;
    rsi_workers *workers;
    rsd_err      rc = rsi_workers_create(c->opts->threads, &workers, err);

    most = most < 1 ? 1 : most;
    if (!rc && (size_t)rsi_workers_count(workers) > most) {
        rsi_workers_free(workers);
        rc = rsi_workers_create((int)most, &workers, err);
    }
    if (rc)
        return rc;
    rest = memory / (size_t)rsi_workers_count(workers);
    rest = rest > each + WIDE_LEAST ? rest - each : WIDE_LEAST;
    c->job.wide = rest < WIDE_MOST ? rest : WIDE_MOST;
    c->job.workers = workers;
    c->job.commit.flush.threads = rsi_workers_count(workers);
    c->job.commit.flush.staging = memory / 2;
    rc = rsi_pull_open(&c->pull, c->source, c->taken.from, c->taken.made, on_the_way(c),
                       (size_t)rsi_workers_count(workers), memory / 2, err);
    for (size_t i = 0; i < c->taken.n; i++) {
        rsi_state_tensor *t = &c->taken.state->tensor[i];

        t->pull = rsi_pull_bytes;
        t->pull_arg = &c->pull;
        t->number = i;
    }
    return rc;
}

static rsd_err write_data(converting *c, rsd_error *err)
{
    rsi_commit *to = &c->job.commit;
    rsd_err     rc = make_workers(c, err);

    if (!rc && c->stream)
        rc = rsi_write_files(&to->image, c->job.state, to->rank, to->store, &to->flush, err);
    else if (!rc && leads(c))
        rc = rsi_convert_make_files(&c->job, err);
    rc = agree(c, rc, err);
    return rc || c->stream ? rc : rsi_convert_write(&c->job, err);
}

static rsd_err check_source(converting *c, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < c->source->files.n && !rc; i++)
        rc = rsi_file_unchanged(c->source->files.file[i], err);
    return agree(c, rc, err);
}

/* Removes the work folder: the source was damaged or changed midway, or the target has been
 * published. */
static void drop_partial(converting *c)
{
    if (c->begun && leads(c)) /* if this fails, the next conversion removes it */
        rsi_partial_remove(&c->partial, NULL);
    c->begun = false;
}

/* ---- publish ---- */

/* The work of a resumable run stays in its folder until the final rename. */
static rsd_err adopt_work(void *arg, rsd_error *err)
{
    converting *c = arg;
    rsi_commit *to = &c->job.commit;
    rsd_err     rc = rsi_carry_protect(&c->carry, to->store, to->flush.top, err);

    if (!rc && c->keep)
        rc = rsi_tree_adopt(to->store, to->name, rsi_commit_tree_flags(to), c->partial.tree,
                            &to->tree, err);
    c->adopted = c->keep && !rc;
    return rc;
}

static rsd_err publish(converting *c, rsd_error *err)
{
    rsd_err rc;

    rsi_journal_close(c->job.journal); /* on every rank, before the folder is removed */
    c->job.journal = NULL;
    rc = rsi_outcome_settle(&c->job.commit, RSD_OK, adopt_work, c, err);
    if (c->adopted && !c->job.commit.tree) /* published, even if its checksums are not */
        drop_partial(c);
    if (rc || c->opts->format != RSD_FORMAT_MEGATRON)
        return rc;
    return agree(c, leads(c) ? rsi_megatron_track(&c->job.commit, err) : RSD_OK, err);
}

/* Reports where the work of a failed run is kept. */
static void tell_kept(const converting *c)
{
    const char *path = c->job.commit.path;
    size_t      len = strlen(path);
    char        kept[4096];

    if (!c->begun || !leads(c) || !c->opts->on_kept)
        return;
    while (len > 1 && path[len - 1] == '/')
        len--;
    snprintf(kept, sizeof(kept), "%.*s%s", (int)(len - strlen(rsi_last_part(c->job.commit.name))),
             path, rsi_last_part(c->partial.name));
    c->opts->on_kept(c->opts->arg, kept);
}

static rsd_err end(converting *c, rsd_err rc, rsd_error *err)
{
    rsi_journal_close(c->job.journal);
    if (rc)
        tell_kept(c);
    rsi_partial_release(&c->partial);
    rsi_workers_free(c->job.workers);
    rsi_convert_blocks_release(&c->job.cuts);
    rsi_free(c->ends.turned);
    rc = rsi_commit_end(&c->job.commit, rc, err);
    rsi_image_release(&c->job.commit.image);
    rsi_pull_close(&c->pull);
    rsi_convert_state_release(&c->taken);
    rsi_carry_release(&c->carry);
    rsd_rules_free(c->layout);
    rsi_free(c->meta);
    return rc;
}

static void tell_stats(const converting *c)
{
    const rsi_image  *image = &c->job.commit.image;
    rsd_convert_stats stats;
    const bool        unknown = image->transform && c->opts->dry_run;

    if (!c->opts->stats)
        return;
    stats = (rsd_convert_stats){ .format = image->format,
                                 .tensors = (int64_t)c->taken.n,
                                 .objects = (int64_t)c->taken.state->nvalues,
                                 .files = (int64_t)(image->nfiles + (image->meta != NULL)),
                                 .bytes = unknown ? -1 : (int64_t)c->job.commit.metadata,
                                 .reused = (int64_t)c->job.reused };
    for (size_t i = 0; i < image->nfiles; i++) {
        stats.carried += image->file[i].plain;
        stats.bytes += unknown ? 0 : (int64_t)image->file[i].bytes;
    }
    rsi_result_give(c->opts->stats, &stats, sizeof(stats));
}

/* Checks for remaining obstacles to a planned conversion. */
static rsd_err try_target(const converting *c, rsd_error *err)
{
    const rsi_commit *save = &c->job.commit;
    rsd_entry         entry;
    rsd_err           rc = RSD_OK;

    if (leads(c) && c->opts->overwrite)
        rc = rsi_commit_may_replace(save, err);
    else if (leads(c) && rsi_store_stat(save->store, save->name, &entry, NULL) == RSD_OK)
        rc = rsi_fail(err, RSD_E_EXISTS, RSI_EXISTS_ALREADY);
    return agree(c, rc, err);
}

rsd_err rsi_convert(rsd_ckpt *source, const char *path, rsd_comm *comm,
                    const rsd_convert_opts *opts, rsd_error *err)
{
    rsd_convert_opts own = *opts;
    converting       c = { .source = source, .opts = &own };
    rsd_err          rc;

    c.job.commit = (rsi_commit){ .path = path,
                                 .comm = comm,
                                 .rank = comm ? rsd_comm_rank(comm) : -1,
                                 .overwrite = opts->overwrite,
                                 .store = opts->store };
    own.on_left_out = leads(&c) ? own.on_left_out : NULL; /* only one rank reports */
    own.verify = own.salvage ? RSD_NEVER : own.verify;
    own.keep = own.keep && !own.dry_run;
    own.resume = own.resume && !own.dry_run;
    rc = open_book(&c, err);
    if (!rc)
        rc = agree(&c, rsi_convert_layout(path, &own, &c.layout, err), err);
    if (!rc)
        rc = plan(&c, err);
    if (!rc && own.dry_run) {
        rc = try_target(&c, err);
        if (!rc)
            tell_stats(&c);
        return end(&c, rc, err);
    }
    if (!rc)
        rc = c.keep ? begin_partial(&c, err) : rsi_commit_open(&c.job.commit, err);
    if (!rc)
        rc = write_data(&c, err);
    rc = rc ? rc : prove(&c, err);
    rc = rc ? rc : check_source(&c, err);
    if (rc == RSD_E_CORRUPT || rc == RSD_E_FORMAT || rc == RSD_E_MISMATCH)
        drop_partial(&c); /* the source is damaged, or changed meanwhile */
    if (!rc)
        rc = publish(&c, err);
    if (!rc)
        tell_stats(&c);
    return end(&c, rc, err);
}
