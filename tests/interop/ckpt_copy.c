/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the interop tests what the library reads and writes:
 *
 *     ckpt_copy dump SRC OUTDIR       every tensor's bytes as OUTDIR/<n>.bin, the rest as list.json
 *     ckpt_copy copy SRC DST [--format dcp|safetensors|torch] [--layout RULES] [--distributed]
 *                            [--shard-size BYTES] [--transform NAME] [--slices]
 *
 * With --slices tensors go through memory in random boxes, with odd strides and callbacks in turn
 * (slices.c). run.py knows what has to come out. */
#include "rot13.h"
#include "slices.h"
#include "state/state.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PARTS 64 /* of a path */

static int complain(const char *what, rsd_err rc, const rsd_error *err)
{
    fprintf(stderr, "ckpt_copy: %s: %s: %s\n", what, rsd_err_name(rc), err->msg);
    return 1;
}

/* ---- JSON ---- */

static rsd_err put_value(FILE *to, const rsd_value *value, rsd_error *err)
{
    size_t len = rsd_value_json(value, NULL, 0);
    char  *text = calloc(len + 1, 1);

    if (!text) {
        snprintf(err->msg, sizeof(err->msg), "no memory for %zu bytes of JSON", len);
        return RSD_E_NOMEM;
    }
    rsd_value_json(value, text, len + 1);
    fputs(text, to);
    free(text);
    return RSD_OK;
}

static void put_text(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(to, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(to, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, to);
    fputc('"', to);
}

static void put_numbers(FILE *to, const int64_t *number, int n)
{
    fputc('[', to);
    for (int i = 0; i < n; i++)
        fprintf(to, "%s%" PRId64, i ? ", " : "", number[i]);
    fputc(']', to);
}

static void put_path(FILE *to, const rsd_ckpt *ckpt, const char *name)
{
    rsd_path_part part[MOST_PARTS];
    size_t        n = rsd_ckpt_path(ckpt, name, part, MOST_PARTS);

    fputc('[', to);
    for (size_t i = 0; i < n && i < MOST_PARTS; i++) {
        fputs(i ? ", " : "", to);
        if (part[i].key)
            put_text(to, part[i].key);
        else
            fprintf(to, "%" PRId64, part[i].index);
    }
    fputc(']', to);
}

/* ---- dump ---- */

typedef struct listing {
    rsd_ckpt   *ckpt;
    const char *folder;
    FILE       *json;
} listing;

static rsd_err dump_bytes(const listing *l, size_t t, const rsd_tensor_info *info, rsd_error *err)
{
    rsd_view view = { .box.ndim = info->ndim };
    char     path[PATH_MAX];
    FILE    *file;
    rsd_err  rc;

    memcpy(view.box.len, info->shape, sizeof(view.box.len));
    view.data = calloc((size_t)info->bytes + 1, 1);
    if (!view.data) {
        snprintf(err->msg, sizeof(err->msg), "no memory for %" PRId64 " bytes", info->bytes);
        return RSD_E_NOMEM;
    }
    rc = rsd_ckpt_read(l->ckpt, t, &view, NULL, err);
    if (!rc) {
        snprintf(path, sizeof(path), "%s/%zu.bin", l->folder, t);
        file = fopen(path, "wb");
        if (!file || fwrite(view.data, 1, (size_t)info->bytes, file) != (size_t)info->bytes) {
            snprintf(err->msg, sizeof(err->msg), "could not write \"%.400s\"", path);
            rc = RSD_E_IO;
        }
        if (file && fclose(file) != 0)
            rc = RSD_E_IO;
    }
    free(view.data);
    return rc;
}

static rsd_err dump_chunks(const listing *l, size_t t, const rsd_tensor_info *info, rsd_error *err)
{
    for (size_t i = 0; i < info->chunks; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };
        rsd_err   rc = rsd_ckpt_chunk(l->ckpt, t, i, &chunk, err);

        if (rc)
            return rc;
        fprintf(l->json, "%s{\"off\": ", i ? ", " : "");
        put_numbers(l->json, chunk.box.off, chunk.box.ndim);
        fputs(", \"len\": ", l->json);
        put_numbers(l->json, chunk.box.len, chunk.box.ndim);
        fputs(", \"file\": ", l->json);
        put_text(l->json, chunk.file);
        fputs(", \"transforms\": [", l->json);
        for (size_t k = 0; k < chunk.ntransforms; k++) {
            fputs(k ? ", " : "", l->json);
            put_text(l->json, chunk.transforms[k]);
        }
        fputs("]}", l->json);
    }
    return RSD_OK;
}

static rsd_err dump_tensor(const listing *l, size_t t, rsd_error *err)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_err         rc = rsd_ckpt_tensor(l->ckpt, t, &info, err);

    if (rc)
        return rc;
    fputs(t ? ",\n  {\"name\": " : "\n  {\"name\": ", l->json);
    put_text(l->json, info.name);
    fprintf(l->json, ", \"file\": \"%zu.bin\", \"dtype\": \"%s\", \"shape\": ", t,
            rsd_dtype_name(info.dtype));
    put_numbers(l->json, info.shape, info.ndim);
    fputs(", \"path\": ", l->json);
    put_path(l->json, l->ckpt, info.name);
    fputs(", \"chunks\": [", l->json);
    rc = dump_chunks(l, t, &info, err);
    fputs("]}", l->json);
    return rc ? rc : dump_bytes(l, t, &info, err);
}

static rsd_err dump_object(const listing *l, size_t i, rsd_error *err)
{
    const rsd_value *value;
    const char      *name;
    rsd_values      *owner;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = rsd_ckpt_object(l->ckpt, i, &name, owner, &value, err);
    if (!rc) {
        fputs(i ? ",\n  {\"name\": " : "\n  {\"name\": ", l->json);
        put_text(l->json, name);
        fputs(", \"path\": ", l->json);
        put_path(l->json, l->ckpt, name);
        fputs(", \"value\": ", l->json);
        rc = put_value(l->json, value, err);
        fputs("}", l->json);
    }
    rsd_values_free(owner);
    return rc;
}

static void print_damage(void *arg, const rsd_error *what)
{
    (void)arg;
    fprintf(stderr, "ckpt_copy: damage: %s\n", what->msg);
}

static rsd_err dump_all(const listing *l, rsd_error *err)
{
    static const char *const name[] = { "auto", "dcp", "safetensors", "torch" };
    const size_t             format = (size_t)rsd_ckpt_format(l->ckpt);
    size_t                   damages = 0;
    rsd_err                  rc = RSD_OK;

    fprintf(l->json, "{\"format\": \"%s\",\n \"tensors\": [",
            format < sizeof(name) / sizeof(name[0]) ? name[format] : "another");
    for (size_t t = 0; t < rsd_ckpt_tensors(l->ckpt) && !rc; t++)
        rc = dump_tensor(l, t, err);
    fputs("],\n \"objects\": [", l->json);
    for (size_t i = 0; i < rsd_ckpt_objects(l->ckpt) && !rc; i++)
        rc = dump_object(l, i, err);
    if (!rc)
        rc = rsd_ckpt_verify(l->ckpt, NULL, print_damage, NULL, &damages, err);
    fprintf(l->json, "],\n \"damages\": %zu}\n", damages);
    return rc;
}

static int dump(const char *src, const char *folder)
{
    listing   l = { .folder = folder };
    rsd_error err = { 0 };
    char      path[PATH_MAX];
    rsd_err   rc = rsd_ckpt_open(NULL, src, &l.ckpt, &err);

    if (rc)
        return complain("open", rc, &err);
    snprintf(path, sizeof(path), "%s/list.json", folder);
    l.json = fopen(path, "w");
    if (!l.json) {
        rsd_ckpt_close(l.ckpt);
        fprintf(stderr, "ckpt_copy: could not create \"%s\"\n", path);
        return 1;
    }
    rc = dump_all(&l, &err);
    rsd_ckpt_close(l.ckpt);
    if (fclose(l.json) != 0) {
        fprintf(stderr, "ckpt_copy: could not write \"%s\"\n", path);
        return 1;
    }
    return rc ? complain("dump", rc, &err) : 0;
}

/* ---- copy ---- */

typedef struct copying {
    const char   *src, *dst, *layout;
    rsd_save_opts save;
    bool          slices;
    rsd_ckpt     *ckpt;
    rsd_state    *state;
    rsd_rules    *rules;
    rsd_values   *values;
    slices       *slice; /* [ntensors] memory of the tensors */
} copying;

/* Walks into the nesting of a name; *depth is what leave() has to undo, *last the name to add. */
static rsd_err enter(copying *c, const char *name, size_t *depth, const char **last, rsd_error *err)
{
    rsd_path_part part[MOST_PARTS];
    size_t        n = rsd_ckpt_path(c->ckpt, name, part, MOST_PARTS);
    rsd_err       rc = RSD_OK;

    *depth = 0;
    *last = n ? NULL : name;
    for (size_t i = 0; i < n && i < MOST_PARTS && !rc; i++) {
        rc = rsi_state_push_part(c->state, &part[i], err);
        *depth += !rc;
    }
    return rc;
}

static void leave(copying *c, size_t depth)
{
    for (; depth > 0; depth--)
        rsd_state_pop(c->state, NULL);
}

static rsd_err add_tensor(copying *c, size_t t, rsd_error *err)
{
    rsd_layout     *layout = NULL;
    const char     *last;
    size_t          depth = 0;
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_err         rc = rsd_ckpt_tensor(c->ckpt, t, &info, err);

    if (!rc)
        rc = slices_cut(&c->slice[t], &info, c->slices ? t + 1 : 0, err);
    for (size_t i = 0; !rc && i < c->slice[t].n; i++) {
        rc = rsd_ckpt_read(c->ckpt, t, &c->slice[t].view[i], NULL, err);
        if (!rc)
            rc = slices_check(&c->slice[t], i, err);
    }
    if (!rc && c->rules) {
        rc = rsd_rules_layout(c->rules, info.name, info.dtype, info.ndim, info.shape, &layout, err);
        if (rc == RSD_E_NOTFOUND) /* the tensor is written whole */
            rc = RSD_OK;
    }
    if (!rc)
        rc = enter(c, info.name, &depth, &last, err);
    if (!rc)
        rc = rsd_state_tensor(c->state, last, layout, info.dtype, info.ndim, info.shape,
                              c->slice[t].n, c->slice[t].view, err);
    leave(c, depth);
    rsd_layout_free(layout);
    return rc;
}

static rsd_err add_object(copying *c, size_t i, rsd_error *err)
{
    const rsd_value *value;
    const char      *name, *last;
    size_t           depth = 0;
    rsd_err          rc = rsd_ckpt_object(c->ckpt, i, &name, c->values, &value, err);

    if (!rc)
        rc = enter(c, name, &depth, &last, err);
    if (!rc)
        rc = rsd_state_value(c->state, last, value, err);
    leave(c, depth);
    return rc;
}

static bool writes_safetensors(const copying *c)
{
    const char *end = strrchr(c->dst, '.');

    return c->save.format == RSD_FORMAT_SAFETENSORS ||
           (!c->save.format && end && strcmp(end, ".safetensors") == 0);
}

static rsd_err copy_all(copying *c, rsd_error *err)
{
    size_t  n = 0;
    rsd_err rc = rsd_ckpt_open(NULL, c->src, &c->ckpt, err);

    if (!rc && c->layout)
        rc = rsd_rules_parse(c->layout, &c->rules, err);
    if (!rc)
        rc = rsd_state_create(&c->state, err);
    if (!rc)
        rc = rsd_values_create(&c->values, err);
    if (!rc) {
        n = rsd_ckpt_tensors(c->ckpt);
        c->slice = calloc(n + 1, sizeof(c->slice[0]));
        rc = c->slice ? RSD_OK : RSD_E_NOMEM;
    }
    for (size_t t = 0; t < n && !rc; t++)
        rc = add_tensor(c, t, err);
    for (size_t i = 0; !writes_safetensors(c) && !rc && i < rsd_ckpt_objects(c->ckpt); i++)
        rc = add_object(c, i, err);
    if (!rc)
        rc = rsd_save(c->dst, NULL, c->state, &c->save, err);
    for (size_t t = 0; c->slice && t < n; t++)
        slices_free(&c->slice[t]);
    free(c->slice);
    rsd_state_free(c->state);
    rsd_values_free(c->values);
    rsd_rules_free(c->rules);
    rsd_ckpt_close(c->ckpt);
    return rc;
}

/* ---- arguments ---- */

static bool parse_format(const char *name, rsd_format *out)
{
    static const char *const known[] = { NULL, "dcp", "safetensors", "torch" };

    for (int i = 1; i < 4; i++)
        if (strcmp(name, known[i]) == 0) {
            *out = (rsd_format)i;
            return true;
        }
    return false;
}

static bool parse_option(copying *c, char **arg, int *i)
{
    const char *name = arg[*i], *value = arg[*i + 1];

    if (strcmp(name, "--distributed") == 0)
        c->save.distributed = true;
    else if (strcmp(name, "--slices") == 0)
        c->slices = true;
    else if (!value)
        return false;
    else if (strcmp(name, "--format") == 0)
        return parse_format(arg[++*i], &c->save.format);
    else if (strcmp(name, "--layout") == 0)
        c->layout = arg[++*i];
    else if (strcmp(name, "--transform") == 0)
        c->save.transform = arg[++*i];
    else if (strcmp(name, "--shard-size") == 0)
        c->save.shard_size = strtoull(arg[++*i], NULL, 10);
    else
        return false;
    return true;
}

static int usage(void)
{
    fputs("usage: ckpt_copy dump SRC OUTDIR\n"
          "       ckpt_copy copy SRC DST [--format dcp|safetensors|torch] [--layout RULES]\n"
          "                      [--distributed] [--shard-size BYTES] [--transform NAME]"
          " [--slices]\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    copying   c = { .save.size = sizeof(c.save) };
    rsd_error err = { 0 };
    rsd_err   rc = rsd_transform_register(rot13(), &err);

    if (rc)
        return complain("register", rc, &err);
    if (argc == 4 && strcmp(argv[1], "dump") == 0)
        return dump(argv[2], argv[3]);
    if (argc < 4 || strcmp(argv[1], "copy") != 0)
        return usage();
    c.src = argv[2];
    c.dst = argv[3];
    for (int i = 4; i < argc; i++)
        if (!parse_option(&c, argv, &i))
            return usage();
    rc = copy_all(&c, &err);
    return rc ? complain("copy", rc, &err) : 0;
}
