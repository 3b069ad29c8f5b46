/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the files to copy, and reads their bytes. Each is opened when part of it is needed: they
 * are few and small. */
#include "convert/convert_carry.h"
#include "convert/convert_config.h"
#include "convert/convert_state.h"
#include "base/mem.h"
#include "format/dcp_catalogue.h"
#include "read/check_sums.h"
#include "commit/replace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)64 << 20)  /* of one file: a larger one is another model */
#define MOST_TOTAL ((uint64_t)256 << 20) /* of all files */
enum { MOST_FILES = 256 };

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

/* True for a name that a line of the checksum file can hold. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            return false;
    return true;
}

/* By its name: an optimizer's or a scheduler's state, random states, arguments of a training. */
static bool is_pickle(const char *name)
{
    return ends(name, ".pkl") || ends(name, ".bin") || ends(name, ".pt") || ends(name, ".pth");
}

/* The reason for leaving out a file beside the checkpoint; NULL: it is copied. */
static const char *why_not(const rsi_carry *carry, const char *name, const rsd_entry *entry)
{
    if (entry->kind == RSD_ENTRY_FOLDER)
        return "folders beside a checkpoint are not copied";
    if (entry->kind == RSD_ENTRY_OTHER && !carry->follow)
        return "links and devices are not copied";
    if (rsi_replace_is_ours(name) || ends(name, ".index.json"))
        return "not part of this checkpoint";
    if (carry->source->format == RSD_FORMAT_DCP && strcmp(name, "integrity.json") == 0)
        return "its checksums are those of the source's files";
    if (carry->safe && is_pickle(name))
        return "pickles are not copied to safetensors";
    return is_plain(name) ? NULL : "its name can't be written to a checksum file";
}

static const char *too_large(const rsi_carry *carry, uint64_t size)
{
    if (size > MOST_BYTES)
        return "files of more than 64 MiB beside a checkpoint are not copied";
    if (carry->n == MOST_FILES || carry->bytes + size > MOST_TOTAL)
        return "too many files beside the checkpoint";
    return NULL;
}

/* Inspects and opens a file; sets *why if it is left out. */
static rsd_err look_at(const rsi_carry *carry, const char *name, rsi_file **file, const char **why)
{
    const rsi_files *files = &carry->source->files;
    char            *full = rsi_files_name_beside(files, name);
    rsd_entry        entry = { 0 };

    if (!full)
        return RSD_E_NOMEM;
    if (rsi_store_stat(files->store, full, &entry, NULL))
        *why = "it can't be examined";
    rsi_free(full);
    if (!*why)
        *why = why_not(carry, name, &entry);
    if (!*why && rsi_files_open_beside(files, name, carry->follow, file, NULL))
        *why =
            entry.kind == RSD_ENTRY_OTHER ? "links and devices are not copied" : "it can't be read";
    if (!*why)
        *why = too_large(carry, (*file)->size);
    return RSD_OK;
}

/* Compares a file with the checksum file, if listed there. */
static rsd_err compare(const rsi_carry *carry, const char *name, rsi_file *file, rsd_error *err)
{
    rsd_ckpt          *source = carry->source;
    rsi_sums_book     *book = NULL;
    const rsi_sum_row *row;
    size_t             n, place = SIZE_MAX;
    rsd_err            rc;

    if (rsi_ckpt_sums_book(&source->sums, &source->files, &book, NULL) == RSD_OK && book)
        place = rsi_sums_find(book, name);
    if (place == SIZE_MAX)
        return RSD_OK;
    rc = rsi_sums_rows_near(book, place, 0, UINT64_MAX, &row, &n, err);
    if (rc)
        return rsi_while(err, rc, "checksum file \"%s\"", source->sums.file->name);
    if (file->size != book->file[place].size)
        rc = rsi_fail(err, RSD_E_CORRUPT, "its size differs from the checksum file");
    for (size_t i = 0; i < n && !rc; i++)
        rc = rsi_check_row(file, &row[i], err);
    return rc ? rsi_while(err, rc, "file \"%s\"", name) : RSD_OK;
}

static rsd_err add(rsi_carry *carry, const char *name, const rsi_file *file)
{
    if (!rsi_grow(&carry->at, carry->n, &carry->cap, sizeof(carry->at[0])))
        return RSD_E_NOMEM;
    carry->at[carry->n] = (rsi_carried){ .name = rsi_arena_text(&carry->mem, name, strlen(name)),
                                         .size = file->size,
                                         .stamp = file->stamp,
                                         .version = file->version ? file->version : file->stamp,
                                         .touched = file->touched,
                                         .mode = file->mode };
    if (!carry->at[carry->n].name)
        return RSD_E_NOMEM;
    carry->bytes += file->size;
    carry->n++;
    return RSD_OK;
}

static rsd_err take_file(rsi_carry *carry, const char *name, const char *into,
                         const rsd_convert_opts *opts, rsd_error *err)
{
    const char *why = into;
    rsi_file   *file = NULL;
    rsd_err     rc = why ? RSD_OK : look_at(carry, name, &file, &why);

    if (!rc && why)
        rsi_leave_out(opts, name, why);
    else if (!rc && opts->verify != RSD_NEVER)
        rc = compare(carry, name, file, err);
    if (!rc && !why)
        rc = add(carry, name, file);
    rsi_file_close(file, NULL);
    return rc == RSD_E_NOMEM ? rsi_fail(err, rc, "no memory for the files beside a checkpoint")
                             : rc;
}

/* Hugging Face's cache stores every file under a hash and links to it. */
static bool has_links(const rsd_ckpt *source)
{
    bool links = false;

    for (size_t i = 0; i < source->files.n && !links; i++) {
        rsd_entry entry = { 0 };
        char     *full =
            rsi_files_name_beside(&source->files, rsi_files_name(&source->files, (uint32_t)i));

        links = full && rsi_store_stat(source->files.store, full, &entry, NULL) == RSD_OK &&
                entry.kind == RSD_ENTRY_OTHER;
        rsi_free(full);
    }
    return links;
}

/* True for a part of the checkpoint itself. DeepSpeed's has files that need not be opened. */
static bool is_source(const rsd_ckpt *source, const char *name)
{
    if (source->format == RSD_FORMAT_ZERO &&
        (strcmp(name, "zero") == 0 || rsi_zero_is_latest(name) || ends(name, "_states.pt")))
        return true;
    for (size_t i = 0; i < source->files.n; i++)
        if (strcmp(rsi_files_name(&source->files, (uint32_t)i), name) == 0)
            return true;
    return false;
}

static int by_name(const void *key, const void *entry)
{
    return strcmp(key, *(char *const *)entry);
}

/* Reports files that are listed in the checksum file but missing from the folder, whose n names are
 * sorted. */
static void tell_missing(const rsi_carry *carry, char *const *names, size_t n,
                         const rsd_convert_opts *opts)
{
    rsd_ckpt      *source = carry->source;
    rsi_sums_book *book = NULL;

    if (rsi_ckpt_sums_book(&source->sums, &source->files, &book, NULL) || !book)
        return;
    for (size_t i = 0; i < book->nfiles; i++) {
        const char *name = book->file[i].name;

        if (!bsearch(name, names, n, sizeof(names[0]), by_name) && !is_source(source, name))
            rsi_leave_out(opts, name, "the checksum file lists it, but it is missing");
    }
}

rsd_err rsi_carry_find(rsi_carry *carry, rsd_ckpt *source, rsd_format format, const char *into,
                       const rsd_convert_opts *opts, rsd_error *err)
{
    char  **names;
    size_t  n = 0;
    rsd_err rc = RSD_OK;

    rsi_carry_release(carry);
    *carry = (rsi_carry){ .source = source, .safe = format == RSD_FORMAT_SAFETENSORS };
    if (source->files.single || opts->carry == RSD_NEVER)
        return RSD_OK;
    carry->follow = source->format == RSD_FORMAT_SAFETENSORS && has_links(source);
    rc = rsi_files_list(&source->files, &names, &n, err);
    for (size_t i = 0; i < n && !rc; i++)
        if (!is_source(source, names[i]) && !rsi_sums_is_name(names[i]) &&
            strcmp(names[i], RSI_CATALOGUE_NAME) != 0)
            rc = take_file(carry, names[i], into, opts, err);
    if (!rc)
        tell_missing(carry, names, n, opts);
    return rc;
}

/* For rsi_state_tensor: bytes of a file; its box covers the whole file. */
static rsd_err pull_file(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                         unsigned char *out, rsd_error *err)
{
    const rsi_carry   *carry = arg;
    const rsi_carried *c = &carry->at[number];
    rsi_file          *file = NULL;
    rsd_err            rc;

    (void)box;
    if (c->text) {
        memcpy(out, c->text + off, len);
        return RSD_OK;
    }
    rc = rsi_files_open_beside(&carry->source->files, c->name, carry->follow, &file, err);
    if (!rc && (file->size != c->size || file->stamp != c->stamp))
        rc = rsi_fail(err, RSD_E_MISMATCH, "file \"%s\" changed during the conversion", c->name);
    if (!rc)
        rc = rsi_file_read(file, off, out, len, err);
    rsi_file_close(file, NULL);
    return rc;
}

rsd_err rsi_carry_config(rsi_carry *carry, const rsi_made *made, rsd_error *err)
{
    const char *wanted = rsi_config_wanted(made);
    size_t      i = 0;
    rsi_bytes   text = { 0 };
    rsi_file   *file = NULL;
    char       *was;
    rsd_err     rc;

    while (i < carry->n && strcmp(carry->at[i].name, "config.json") != 0)
        i++;
    if (!wanted || i == carry->n)
        return RSD_OK;
    was = rsi_calloc(carry->at[i].size + 1, 1);
    rc = was ? rsi_files_open_beside(&carry->source->files, carry->at[i].name, carry->follow, &file,
                                     err)
             : rsi_fail(err, RSD_E_NOMEM, "no memory for a config");
    if (!rc)
        rc = rsi_file_read(file, 0, was, carry->at[i].size, err);
    if (!rc)
        rc = rsi_config_edit(was, carry->at[i].size, wanted, &text, err);
    if (!rc) {
        carry->at[i].text = rsi_arena_text(&carry->mem, (const char *)text.at, text.len);
        carry->at[i].size = text.len;
        rc = carry->at[i].text ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a config");
    }
    rsi_file_close(file, NULL);
    rsi_free(text.at);
    rsi_free(was);
    return rc ? rsi_while(err, rc, "file \"config.json\"") : RSD_OK;
}

static bool has_file(const rsi_image *image, const char *name)
{
    for (size_t i = 0; i < image->nfiles; i++)
        if (strcmp(image->file[i].name, name) == 0)
            return true;
    return false;
}

static rsd_err add_file(rsi_carry *carry, size_t i, rsi_image *image, rsd_state *state,
                        rsd_error *err)
{
    const rsi_carried *c = &carry->at[i];
    const rsd_box      all = { .ndim = 1, .len[0] = (int64_t)c->size };
    rsi_out_part       part = { .kind = RSI_PART_DATA,
                                .len = c->size,
                                .box = rsi_image_box(image, &all) };
    rsd_err            rc;

    if (!part.box ||
        !rsi_grow(&state->tensor, state->ntensors, &state->tensor_cap, sizeof(state->tensor[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the files beside a checkpoint");
    part.tensor = state->ntensors;
    state->tensor[state->ntensors++] = (rsi_state_tensor){ .spot.name = c->name,
                                                           .dtype = RSD_U8,
                                                           .ndim = 1,
                                                           .shape = part.box + 1,
                                                           .views.elem_bytes = 1,
                                                           .pull = pull_file,
                                                           .pull_arg = carry,
                                                           .number = i };
    rc = rsi_image_file(image, c->name, 0, err);
    image->file[image->nfiles - 1].plain = true;
    if (!rc)
        rc = rsi_image_item(image, NULL, err);
    if (!rc && c->size > 0)
        rc = rsi_image_part(image, &part, err);
    return rc;
}

rsd_err rsi_carry_add(rsi_carry *carry, rsi_image *image, rsd_state *state,
                      const rsd_convert_opts *opts, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < carry->n && !rc; i++) {
        carry->at[i].behind = has_file(image, carry->at[i].name);
        if (carry->at[i].behind)
            rsi_leave_out(opts, carry->at[i].name, "the target has a file of that name");
        else
            rc = add_file(carry, i, image, state, err);
    }
    return rc;
}

rsd_err rsi_carry_protect(const rsi_carry *carry, rsd_store *store, const char *top, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < carry->n && !rc; i++) {
        const rsi_carried *c = &carry->at[i];
        char              *name;

        if (c->behind || !c->mode)
            continue;
        name = rsi_name_below(top, c->name);
        if (!name)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
        rc = rsi_store_protect(store, name, c->mode, err);
        rsi_free(name);
    }
    return rc;
}

void rsi_carry_release(rsi_carry *carry)
{
    rsi_free(carry->at);
    rsi_arena_release(&carry->mem);
    *carry = (rsi_carry){ 0 };
}
