/* SPDX-License-Identifier: Apache-2.0 */
/* Applies filters, renames, casts and layout rules to a checkpoint's catalogue. Next: image.c,
 * which lays out the state in files. */
#include "convert/convert_state.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/text.h"
#include "convert/convert_megatron.h"
#include "format/path_format.h"
#include "format/torch_archive.h"
#include "format/value_pickle.h"
#include "plan/cast.h"

#include <ctype.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 256 };
#define MOST_RAW ((uint64_t)16 << 20) /* bytes of an object that is copied as it is */

typedef struct taking {
    rsd_ckpt               *source;
    rsd_format              format;
    bool                    flat;
    const rsd_convert_opts *opts;
    rsi_convert_state      *out;
    size_t                  cap;      /* of out->from */
    bool                   *met;      /* [ninclude] patterns with a match */
    size_t                  refused;  /* tensors that the format can't hold */
    rsi_text                names;    /* their names */
    char                    buf[320]; /* for `names` */
    const rsd_value        *dict;     /* the last dict with a class that was taken as a whole */
    bool                    plain;    /* one was not, or none may be */
} taking;

static bool is_wanted(const taking *k, const char *name)
{
    const rsd_convert_opts *o = k->opts;
    bool                    wanted = o->ninclude == 0;

    for (size_t i = 0; i < o->ninclude; i++)
        if (fnmatch(o->include[i], name, 0) == 0)
            wanted = k->met[i] = true;
    for (size_t i = 0; i < o->nexclude && wanted; i++)
        wanted = fnmatch(o->exclude[i], name, 0) != 0;
    return wanted;
}

/* A filter that leaves nothing, or a pattern without a match, is a mistake: with `overwrite` it
 * would cost a checkpoint. */
static rsd_err check_filters(const taking *k, rsd_error *err)
{
    const rsd_convert_opts *o = k->opts;

    for (size_t i = 0; i < o->ninclude; i++)
        if (!k->met[i])
            return rsi_fail(err, RSD_E_INVALID, "nothing in the source matches \"%s\"",
                            o->include[i]);
    if (k->source->ntensors + k->source->nobjects > 0 &&
        k->out->state->ntensors + k->out->state->nvalues == 0)
        return rsi_fail(err, RSD_E_INVALID, "nothing of the source is left to write");
    return RSD_OK;
}

static rsd_err new_name(const taking *k, const char *name, const char **out, rsd_error *err)
{
    uint64_t value;

    *out = k->opts->rename ? k->opts->rename(k->opts->arg, name) : name;
    rsi_beat();
    if (!*name && *out && !**out)
        return rsi_fail(err, RSD_E_INVALID, "something in the source has an empty name: rename it");
    if (!*out || !**out)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" would be renamed to an empty name", name);
    if (k->opts->rename && rsi_map_get(&k->out->state->names, *out, strlen(*out), &value))
        return rsi_fail(err, RSD_E_INVALID,
                        "the name \"%s\" is given twice, the second time to \"%s\"", *out, name);
    return RSD_OK;
}

static rsd_dtype new_dtype(const taking *k, const char *name, rsd_dtype dtype)
{
    for (size_t i = 0; i < k->opts->ncasts; i++) {
        const rsd_cast *cast = &k->opts->casts[i];
        bool            real = dtype >= RSD_F16 && dtype <= RSD_F64;

        if (cast->pattern ? fnmatch(cast->pattern, name, 0) == 0 : real)
            return cast->dtype;
    }
    return dtype;
}

void rsi_leave_out(const rsd_convert_opts *opts, const char *name, const char *why)
{
    if (opts->on_left_out)
        opts->on_left_out(opts->arg, name, why);
}

/* Pushes the path of a name in the source's nesting; *pushed is its depth, *last the remaining key
 * (NULL: none). A new name, or one that is not its joined path, is added flat. */
static rsd_err push_path(const taking *k, const char *name, const char *renamed, size_t *pushed,
                         const char **last, rsd_error *err)
{
    rsd_path_part part[MOST_PARTS];
    size_t        n = k->source->ops->path(k->source, name, part, MOST_PARTS);
    bool          other = false; /* a key that is neither text nor a number */
    rsd_err       rc = RSD_OK;

    *pushed = 0;
    *last = renamed;
    if (k->flat || n == 0 || n > MOST_PARTS || strcmp(name, renamed) != 0 ||
        !rsi_path_is(name, part, n))
        return RSD_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = rsi_state_push_part(k->out->state, &part[i], err);
        *pushed += rc ? 0 : 1;
        other = other || part[i].other;
    }
    if (other && k->format == RSD_FORMAT_DCP)
        rsi_leave_out(k->opts, name, "the type of a key on its path: DCP has text instead");
    *last = NULL;
    return rc;
}

enum { MOST_RANKS = 1 << 20 }; /* limit for ranks in names: memory is allocated for all up to it */

/* The rank that wrote a file: "__3_0.distcp" names it. Other names get the file's number after the
 * metadata, which come first. */
static int32_t old_rank(const char *name, uint32_t file)
{
    char *end;
    long  rank;

    if (strncmp(name, "__", 2) == 0 && isdigit((unsigned char)name[2])) {
        rank = strtol(name + 2, &end, 10);
        if (*end == '_' && rank < MOST_RANKS)
            return (int32_t)rank;
    }
    return file > 0 ? (int32_t)(file - 1) : 0;
}

/* The layout that DCP to DCP keeps: the chunks as they are, each with the rank that wrote it. */
static rsd_err old_layout(const rsi_convert_state *cs, size_t t, const rsd_tensor_info *info,
                          rsd_dtype dtype, rsd_layout **out, rsd_error *err)
{
    int32_t *owner = rsi_calloc(info->chunks, sizeof(owner[0]));
    rsd_box *box = rsi_calloc(info->chunks, sizeof(box[0]));
    rsd_err  rc = owner && box ? RSD_OK
                               : rsi_fail(err, RSD_E_NOMEM, "no memory for a layout of %zu chunks",
                                          info->chunks);

    for (size_t i = 0; i < info->chunks && !rc; i++) {
        rsd_chunk chunk;
        uint32_t  file;

        cs->source->ops->chunk(cs->source, t, i, &chunk, &file);
        owner[i] = old_rank(chunk.file, file);
        box[i] = chunk.box;
    }
    if (!rc)
        rc = rsd_layout_create_boxes(dtype, info->ndim, info->shape, info->chunks, owner, box, out,
                                     err);
    rsi_free(owner);
    rsi_free(box);
    return rc;
}

/* For rsd_state: the layout of its tensor i. */
static rsd_err make_layout(void *arg, size_t i, rsd_layout **out, rsd_error *err)
{
    const rsi_convert_state *cs = arg;
    const rsi_state_tensor  *tensor = &cs->state->tensor[i];
    rsd_tensor_info          info;

    if (cs->rules)
        return rsd_rules_layout(cs->rules, tensor->spot.name, tensor->dtype, tensor->ndim,
                                tensor->shape, out, err);
    if (!cs->keeps)
        return RSD_OK;
    cs->source->ops->tensor(cs->source, cs->from[i].t, &info);
    return info.bytes > 0 ? old_layout(cs, cs->from[i].t, &info, tensor->dtype, out, err) : RSD_OK;
}

/* A format has no name for some dtypes: all their tensors are reported at once. */
static void note_refused(taking *k, const char *name, rsd_dtype dtype)
{
    if (k->format != RSD_FORMAT_SAFETENSORS || rsd_dtype_safetensors_name(dtype))
        return;
    rsi_text_add(&k->names, "%s\"%s\" (%s)", k->refused ? ", " : "", name, rsd_dtype_name(dtype));
    k->refused++;
}

/* True if it can be taken from a damaged source; `number` counts tensors, then objects. */
static bool is_whole(const taking *k, const char *name, size_t number)
{
    const rsd_ckpt *source = k->source;

    if (!k->opts->salvage || !source->health || source->health[number] == RSD_WHOLE)
        return true;
    rsi_leave_out(k->opts, name,
                  source->health[number] == RSD_GONE ? "nothing is left of it" : "damaged");
    return false;
}

/* Adds a tensor of the source, or one that a recipe made, under its new name. */
static rsd_err add_tensor(taking *k, size_t t, const char *old, rsd_dtype stored, int32_t ndim,
                          const int64_t *shape, rsd_error *err)
{
    const char *name, *last;
    rsd_dtype   dtype;
    size_t      pushed = 0;
    rsd_err     rc = new_name(k, old, &name, err);

    if (rc)
        return rc;
    dtype = new_dtype(k, name, stored);
    note_refused(k, name, dtype);
    if (dtype != stored)
        rc = rsi_cast_check(dtype, stored, err);
    if (!rc && !rsi_grow(&k->out->from, k->out->state->ntensors, &k->cap, sizeof(k->out->from[0])))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a list of tensors");
    if (!rc)
        rc = push_path(k, old, name, &pushed, &last, err);
    if (!rc)
        rc = rsd_state_tensor(k->out->state, last, NULL, dtype, ndim, shape, 0, NULL, err);
    if (!rc)
        k->out->from[k->out->state->ntensors - 1] = (rsi_pulled){ .t = t, .dtype = dtype };
    while (pushed-- > 0)
        rsd_state_pop(k->out->state, NULL);
    return rc;
}

static rsd_err take_tensor(taking *k, size_t t, rsd_error *err)
{
    rsd_tensor_info info;
    rsd_err         rc;

    k->source->ops->tensor(k->source, t, &info);
    if (!is_wanted(k, info.name) || !is_whole(k, info.name, t))
        return RSD_OK;
    rc = add_tensor(k, t, info.name, info.dtype, info.ndim, info.shape, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\" of the source", info.name) : RSD_OK;
}

static bool is_left_out(void *arg, size_t t, const char *name)
{
    const taking *k = arg;

    return !is_wanted(k, name) || !is_whole(k, name, t);
}

/* With a recipe, what it makes of the wanted tensors takes their place. */
static rsd_err take_made(taking *k, rsd_error *err)
{
    rsi_convert_state *out = k->out;
    rsd_err rc = rsi_made_of(k->opts->recipe, k->source, is_left_out, k, &out->made, err);

    for (size_t t = 0; !rc && t < out->made->n; t++) {
        const rsi_made_tensor *made = &out->made->tensor[t];

        rc = add_tensor(k, t, made->name, made->dtype, made->ndim, made->shape, err);
        if (rc)
            rsi_while(err, rc, "tensor \"%s\" of the recipe", made->name);
    }
    return rc;
}

/* Checks that a value can be written: its foreign objects have opcodes, and the bytes of tensors
 * inside it are available. DeepSpeed makes the foreign objects of its universal form anew. */
static rsd_err try_value(const taking *k, const rsd_value *value, rsd_error *err)
{
    const rsd_value *foreign = rsi_value_find_opaque(value);
    rsi_bytes        pickle = { 0 };
    rsi_storages     storages = { 0 };
    rsd_err          rc = rsi_value_to_pickle(value, &pickle, &storages, err);

    if (!rc && foreign && k->format == RSD_FORMAT_ZERO)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "an object of the class %s can't be written",
                      rsd_value_bytes(foreign, NULL));

    for (size_t i = 0; i < storages.n && !rc; i++)
        if (!storages.tensor[i]->bytes && storages.tensor[i]->storage_bytes > 0)
            rc = rsi_fail(err, RSD_E_UNSUPPORTED, "a tensor of %" PRId64 " bytes inside an object",
                          storages.tensor[i]->storage_bytes);
    rsi_free(pickle.at);
    rsi_free(storages.tensor);
    return rc;
}

static rsd_err count_tensor(void *arg, rsd_value_tensor *tensor, bool opaque, rsd_error *err)
{
    (void)tensor, (void)opaque, (void)err;
    ++*(size_t *)arg;
    return RSD_OK;
}

/* Safetensors can't hold objects; one with tensors inside is a greater loss, so it is reported
 * separately. */
static rsd_err leave_object(const taking *k, size_t i, const char *name, rsd_error *err)
{
    rsi_archive a;
    size_t      tensors = 0;
    rsd_err     rc = k->source->ops->archive(k->source, i, &a, err);

    if (!rc)
        rc = rsi_torch_each_tensor(a.value, count_tensor, &tensors, err);
    rsi_archive_close(&a);
    if (rc)
        return rsi_while(err, rc, "object \"%s\"", name);
    rsi_leave_out(k->opts, name,
                  tensors ? "safetensors hold no objects, and these have tensors inside"
                          : "safetensors hold no objects");
    return RSD_OK;
}

/* From DCP to DCP, an object that can't be written from its value is copied as it is: the bytes of
 * its archive, in `owner`. *out stays NULL if there are too many. */
static rsd_err copy_archive(const taking *k, size_t i, const unsigned char **out, size_t *len,
                            rsd_error *err)
{
    rsi_archive    a = { 0 };
    unsigned char *raw = NULL;
    rsd_err        rc = k->source->ops->archive(k->source, i, &a, err);

    if (!rc && a.source.size <= MOST_RAW) {
        raw = rsi_arena_array(&k->out->owner->mem, (size_t)a.source.size, 1);
        rc = raw ? rsi_source_read(&a.source, 0, raw, (size_t)a.source.size, err)
                 : rsi_fail(err, RSD_E_NOMEM, "no memory for an object");
        *len = (size_t)a.source.size;
    }
    rsi_archive_close(&a);
    *out = rc ? NULL : raw;
    return rc;
}

/* Takes the whole dict around object i, so that it keeps its class; *taken stays false if there is
 * none, or if it has to be rebuilt from its items. */
static rsd_err take_dict(taking *k, size_t i, const char *name, bool *taken, rsd_error *err)
{
    rsd_path_part    part[MOST_PARTS];
    size_t           parts = 0, pushed = 0, n;
    const rsd_value *dict =
        k->source->ops->dict ? k->source->ops->dict(k->source, i, &parts) : NULL;
    rsd_err rc = RSD_OK;

    if (!dict || k->plain)
        return RSD_OK;
    n = k->source->ops->path(k->source, name, part, MOST_PARTS);
    k->plain = parts == 0 || n > MOST_PARTS || !rsi_path_is(name, part, n);
    *taken = !k->plain;
    if (k->plain || dict == k->dict)
        return RSD_OK;
    k->dict = dict;
    for (; pushed < parts && !rc; pushed += !rc)
        rc = rsi_state_push_part(k->out->state, &part[pushed], err);
    if (!rc)
        rc = rsd_state_value(k->out->state, NULL, dict, err);
    while (pushed-- > 0)
        rsd_state_pop(k->out->state, NULL);
    return rc ? rsi_while(err, rc, "the dict around \"%s\"", name) : RSD_OK;
}

static rsd_err add_value(taking *k, const char *old, const char *name, const rsd_value *value,
                         const unsigned char *raw, size_t raw_len, rsd_error *err)
{
    rsd_state  *state = k->out->state;
    size_t      pushed = 0;
    const char *last;
    rsd_err     rc = push_path(k, old, name, &pushed, &last, err);

    if (!rc)
        rc = rsd_state_value(state, last, value, err);
    if (!rc) {
        state->value[state->nvalues - 1].raw = raw;
        state->value[state->nvalues - 1].raw_len = raw_len;
    }
    while (pushed-- > 0)
        rsd_state_pop(state, NULL);
    return rc;
}

static rsd_err take_object(taking *k, size_t i, rsd_error *err)
{
    rsd_error        why = { .rank = -1 };
    const char      *old = "", *name;
    const rsd_value *value = NULL;
    rsi_attributes  *lost = &k->out->owner->lost, *classes = &k->out->owner->classes;
    const size_t     before = lost->n;

    const unsigned char *raw = NULL;
    size_t               raw_len = 0;
    bool                 taken = false;
    rsd_err              rc = k->source->ops->object(k->source, i, &old, NULL, NULL, err);

    if (rc || !is_wanted(k, old) || !is_whole(k, old, k->source->ntensors + i))
        return rc;
    if (k->source->format == RSD_FORMAT_SAFETENSORS) {
        rsi_leave_out(k->opts, old, "a dtype or number of dimensions that is not supported");
        return RSD_OK;
    }
    if (k->format == RSD_FORMAT_SAFETENSORS)
        return leave_object(k, i, old, err);
    rc = take_dict(k, i, old, &taken, err);
    if (rc || taken)
        return rc;
    rc = new_name(k, old, &name, err);
    if (!rc)
        rc = k->source->ops->object(k->source, i, &old, k->out->owner, &value, err);
    if (rc)
        return rsi_while(err, rc, "object \"%s\"", old);
    if (k->format == RSD_FORMAT_DCP && k->source->format == RSD_FORMAT_TORCH &&
        rsd_value_type_of(value) == RSD_VALUE_DICT && rsd_value_count(value) == 0) {
        /* PyTorch would treat a key that is not among the leaves of its state as one of an old
         * version, and then miss others. */
        rsi_leave_out(k->opts, old, "DCP can't hold an empty dict");
        return RSD_OK;
    }
    rc = try_value(k, value, &why);
    if (k->format == RSD_FORMAT_DCP && k->source->format == RSD_FORMAT_DCP &&
        (rc == RSD_E_UNSUPPORTED || lost->n > before || classes->n > 0 ||
         rsi_value_find_opaque(value))) {
        rsd_err failed = copy_archive(k, i, &raw, &raw_len, err);

        if (failed)
            return rsi_while(err, failed, "object \"%s\"", old);
        if (raw) {
            rc = RSD_OK;
            lost->n = before;
        }
    }
    classes->n = 0; /* written with the value */
    if (rc == RSD_E_UNSUPPORTED) {
        rsi_leave_out(k->opts, old, why.msg);
        return RSD_OK;
    }
    if (rc && err)
        *err = why;
    if (!rc)
        rc = add_value(k, old, name, value, raw, raw_len, err);
    return rc ? rsi_while(err, rc, "object \"%s\"", old) : RSD_OK;
}

/* Reports those that `known`, if not NULL, does not have. */
static void leave_attributes(const taking *k, const rsi_attributes *lost,
                             const rsi_attributes *known)
{
    for (size_t i = 0; i < lost->n; i++) {
        bool told = false;

        for (size_t j = 0; known && j < known->n; j++)
            told = told || strcmp(known->name[j], lost->name[i]) == 0;
        if (told)
            continue;
        rsi_leave_out(
            k->opts, lost->name[i],
            strncmp(lost->name[i], "collections.", 12) == 0
                ? "the class of a dict: it is copied as a plain one"
                : "an attribute of a dict or a tensor: only items and elements are copied");
    }
}

rsd_err rsi_convert_state_make(rsi_convert_state *out, rsd_ckpt *source, rsd_format format,
                               bool flat, const rsd_convert_opts *opts, rsd_error *err)
{
    taking  k = { .source = source, .format = format, .flat = flat, .opts = opts, .out = out };
    rsd_err rc;

    *out = (rsi_convert_state){ .source = source, .rules = opts->rules };
    out->keeps = format == RSD_FORMAT_DCP && source->format == RSD_FORMAT_DCP && !opts->recipe;
    k.names = rsi_text_begin(k.buf, sizeof(k.buf));
    k.plain = format != RSD_FORMAT_TORCH || flat || opts->ninclude || opts->nexclude ||
              opts->rename || opts->recipe;
    rc = rsd_state_create(&out->state, err);
    if (!rc)
        rc = rsd_values_create(&out->owner, err);
    if (!rc)
        out->owner->borrows = true; /* the source is closed after this is released */
    k.met = rsi_calloc(opts->ninclude, sizeof(k.met[0]));
    if (!rc && !k.met)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu patterns", opts->ninclude);
    if (!rc && opts->recipe)
        rc = take_made(&k, err);
    for (size_t t = 0; t < source->ntensors && !rc && !opts->recipe; t++)
        rc = take_tensor(&k, t, err);
    out->n = out->state ? out->state->ntensors : 0;
    for (size_t i = 0; opts->salvage && i < source->nlost && !rc; i++)
        if (is_wanted(&k, source->lost[i]))
            rsi_leave_out(opts, source->lost[i], "nothing is left of it");
    if (!rc && k.refused)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "safetensors can't hold %zu of the tensors: %s%s",
                      k.refused, k.buf, k.names.len >= sizeof(k.buf) ? " ..." : "");
    for (size_t i = 0; i < source->nobjects && !rc; i++)
        rc = take_object(&k, i, err);
    if (!rc && opts->format == RSD_FORMAT_MEGATRON)
        rc = rsi_megatron_values(out, err);
    for (size_t i = 0; i < source->nnotes + source->ndiffering && !rc; i++)
        if (is_wanted(&k, source->note[i].name))
            rsi_leave_out(opts, source->note[i].name, source->note[i].why);
    if (!rc)
        rc = check_filters(&k, err);
    if (!rc) {
        leave_attributes(&k, &source->lost_attributes, NULL);
        if (k.plain)
            leave_attributes(&k, &source->classes, &source->lost_attributes);
        leave_attributes(&k, &out->owner->lost, NULL);
    }
    rsi_free(k.met);
    if (rc) {
        rsi_convert_state_release(out);
        return rc;
    }
    out->state->layout = make_layout;
    out->state->layout_arg = out;
    rsi_map_release(&out->state->names); /* no more names are added */
    return RSD_OK;
}

rsd_err rsi_convert_layout(const char *path, rsd_convert_opts *opts, rsd_rules **out,
                           rsd_error *err)
{
    rsd_format format = opts->format;
    bool       one_file = rsi_path_format(path, &format);
    rsd_err    rc = RSD_OK;

    if (opts->recipe && !opts->rules && !one_file && format != RSD_FORMAT_ZERO)
        rc = rsi_recipe_layout(opts->recipe, out, err);
    if (!rc && *out)
        opts->rules = *out;
    return rc;
}

void rsi_convert_state_release(rsi_convert_state *cs)
{
    rsd_state_free(cs->state);
    rsd_values_free(cs->owner);
    rsi_free(cs->from);
    rsi_made_drop(cs->made);
    *cs = (rsi_convert_state){ 0 };
}
