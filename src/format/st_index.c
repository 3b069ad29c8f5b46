/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the index of a safetensors checkpoint of several files. Whether the files exist
 * and contain these tensors is checked when they are opened. Next: st_dcp.c. */
#include "format/st_index.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/json.h"
#include "format/st_header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    rsi_json      json;
    rsi_st_index *index;
    size_t        weight_cap, file_cap;
    rsi_map       files; /* from name to place in index->file */
    bool          has_map;
    rsd_error    *err;
} parser;

bool rsi_one_component(const char *name, size_t len)
{
    if (len == 0 || memchr(name, '/', len) || memchr(name, '\0', len))
        return false;
    return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

/* A file in the folder or below it. */
static bool is_inside(const char *name, size_t len)
{
    const char *slash;

    while ((slash = memchr(name, '/', len)) != NULL) {
        if (!rsi_one_component(name, (size_t)(slash - name)))
            return false;
        len -= (size_t)(slash + 1 - name);
        name = slash + 1;
    }
    return rsi_one_component(name, len);
}

static rsd_err no_memory(const parser *p)
{
    return rsi_fail(p->err, RSD_E_NOMEM, "no memory for an index of %zu bytes", p->json.len);
}

static rsd_err take_file(parser *p, uint32_t *out)
{
    rsi_st_index  *index = p->index;
    rsi_json_token token;
    uint64_t       place = index->nfiles;
    bool           was;
    rsd_err        rc =
        rsi_json_want(&p->json, RSI_JSON_STRING, "a file name as a string", &token, p->err);

    if (rc)
        return rc;
    if (!is_inside(token.text, token.len))
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "byte %zu: \"%.*s\" is not the name of a file in the folder", token.at,
                        rsi_json_shown(token.text, token.len), token.text);
    if (!rsi_map_add(&p->files, token.text, token.len, &place, &was))
        return no_memory(p);
    if (!was) {
        if (!rsi_grow(&index->file, index->nfiles, &p->file_cap, sizeof(index->file[0])))
            return no_memory(p);
        index->file[index->nfiles++] = rsi_json_keep(&p->json, &token);
    }
    *out = (uint32_t)place;
    return RSD_OK;
}

static rsd_err take_weights(parser *p)
{
    rsi_st_index  *index = p->index;
    rsi_json_token token;
    rsi_st_weight  weight;
    rsd_err        rc;

    rc = rsi_json_want(&p->json, RSI_JSON_OBJECT, "an object of file names as weight_map", &token,
                       p->err);
    while (rsi_json_each(&p->json, &token, &rc, p->err)) {
        rc = rsi_json_name(&p->json, &token, &weight.name, p->err);
        if (rc)
            return rc;
        if (!rsi_grow(&index->weight, index->nweights, &p->weight_cap, sizeof(index->weight[0])))
            return no_memory(p);
        rc = take_file(p, &weight.file);
        if (rc)
            return rsi_while(p->err, rc, "tensor \"%.*s\"",
                             rsi_json_shown(weight.name.text, weight.name.len), weight.name.text);
        index->weight[index->nweights++] = weight;
    }
    return rc;
}

/* The metadata, including total_size, are ignored: tools may put anything there. */
static rsd_err take_member(parser *p, const rsi_json_token *key)
{
    rsi_json_token value;
    rsd_err        rc;

    if (rsi_json_is(key, "weight_map")) {
        if (p->has_map)
            return rsi_fail(p->err, RSD_E_FORMAT, "byte %zu: \"weight_map\" is a duplicate",
                            key->at);
        p->has_map = true;
        return take_weights(p);
    }
    rc = rsi_json_next(&p->json, &value, p->err);
    if (!rc && rsi_json_is(key, "metadata") && value.kind != RSI_JSON_OBJECT)
        rc = rsi_json_expected(&p->json, &value, "an object as metadata", p->err);
    return rc ? rc : rsi_json_skip(&p->json, &value, p->err);
}

static rsd_err take_all(parser *p)
{
    rsi_json_token  token;
    const rsi_name *name;
    size_t          twice;
    rsd_err         rc =
        rsi_json_want(&p->json, RSI_JSON_OBJECT, "an object with weight_map", &token, p->err);

    while (rsi_json_each(&p->json, &token, &rc, p->err))
        rc = take_member(p, &token);
    if (!rc)
        rc = rsi_json_next(&p->json, &token, p->err); /* the end */
    if (rc)
        return rc;
    if (!p->has_map)
        return rsi_fail(p->err, RSD_E_FORMAT, "the index has no \"weight_map\"");
    rsi_map_release(&p->files);
    if (!rsi_names_build(&p->index->names, p->index->weight, sizeof(p->index->weight[0]),
                         p->index->nweights, &twice))
        return no_memory(p);
    if (twice == p->index->nweights)
        return RSD_OK;
    name = &p->index->weight[twice].name;
    return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu32 ": tensor \"%.*s\" is a duplicate",
                    name->at, rsi_json_shown(name->text, name->len), name->text);
}

rsd_err rsi_st_index_read(char *text, size_t len, rsi_st_index *out, rsd_error *err)
{
    rsi_st_index index = { 0 };
    parser       p = { .index = &index, .err = err };
    rsd_err      rc;

    if (len >= UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "an index of %zu bytes is not supported", len);
    rsi_json_begin(&p.json, text, len, 0, &index.mem);
    rc = take_all(&p);
    rsi_map_release(&p.files);
    if (rc)
        rsi_st_index_release(&index);
    else
        *out = index;
    return rc;
}

rsd_err rsi_st_index_load(rsi_files *files, const char *name, uint32_t *number, rsi_st_index *out,
                          rsd_error *err)
{
    char    *text;
    uint64_t size;
    rsd_err  rc = rsi_files_add(files, name, true, number, err);

    if (rc)
        return rc;
    size = files->file[*number]->size;
    if (size > RSI_ST_HEADER_MAX)
        return rsi_fail(err, RSD_E_FORMAT, "file \"%s\" has %" PRIu64 " bytes, the maximum is %d",
                        name, size, RSI_ST_HEADER_MAX);
    text = rsi_calloc((size_t)size + 1, 1);
    if (!text)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an index of %" PRIu64 " bytes", size);
    rc = rsi_files_read(files, *number, 0, text, (size_t)size, err);
    if (!rc) {
        rc = rsi_st_index_read(text, (size_t)size, out, err);
        rc = rc ? rsi_while(err, rc, "file \"%s\"", name) : RSD_OK;
    }
    out->text = text;
    return rc;
}

void rsi_st_index_release(rsi_st_index *index)
{
    rsi_free(index->text);
    rsi_free(index->weight);
    rsi_free(index->file);
    rsi_names_release(&index->names);
    rsi_arena_release(&index->mem);
    *index = (rsi_st_index){ 0 };
}

bool rsi_st_is_index(const char *name)
{
    const char *at = strstr(name, ".safetensors.index.");

    return at && rsi_text_ends(at, ".json");
}

rsd_err rsi_st_index_choose(rsi_files *files, bool (*is)(const char *), const char *usual,
                            const char **out, rsd_error *err)
{
    const char *wanted = files->index ? files->index : usual, *index = NULL, *other = NULL;
    char      **names;
    size_t      n;
    rsd_err     rc = rsi_files_list(files, &names, &n, err);

    *out = NULL;
    for (size_t i = 0; !rc && i < n; i++) {
        if (strcmp(names[i], wanted) == 0)
            *out = names[i];
        if (!is(names[i]))
            continue;
        other = index;
        index = names[i];
    }
    if (rc || *out)
        return rc;
    if (files->index)
        return rsi_fail(err, RSD_E_NOTFOUND, "the folder has no file \"%s\"", files->index);
    if (other)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "\"%s\" and \"%s\" are the indexes of two models: open one of them", other,
                        index);
    *out = index;
    return RSD_OK;
}

const char *rsi_st_index_file(const rsi_st_index *index, const char *name, size_t len)
{
    size_t i = rsi_names_find(&index->names, name, len);

    return i == SIZE_MAX ? NULL : index->file[index->weight[i].file];
}

/* ---- writing ---- */

static int by_name(const void *left, const void *right, void *arg)
{
    const char *const *name = arg;

    return strcmp(name[*(const size_t *)left], name[*(const size_t *)right]);
}

rsd_err rsi_st_index_write(size_t n, const char *const *name, const uint32_t *of,
                           const char *const *file, uint64_t total_size, rsi_json_out *out,
                           rsd_error *err)
{
    size_t *order = rsi_calloc(n, sizeof(order[0]));
    rsd_err rc = RSD_OK;

    if (!order)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an index of %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof(order[0]), by_name, (void *)(uintptr_t)name);
    for (size_t i = 1; i < n && !rc; i++)
        if (strcmp(name[order[i]], name[order[i - 1]]) == 0)
            rc = rsi_fail(err, RSD_E_INVALID, "tensor \"%.120s\" is a duplicate", name[order[i]]);
    if (rc)
        goto out;
    out->style = RSI_JSON_INDENTED;
    out->ascii = true;
    rsi_json_open(out, '{');
    rsi_json_key(out, "metadata", 8);
    rsi_json_open(out, '{');
    rsi_json_key(out, "total_size", 10);
    rsi_json_u64(out, total_size);
    rsi_json_close(out, '}');
    rsi_json_key(out, "weight_map", 10);
    rsi_json_open(out, '{');
    for (size_t i = 0; i < n; i++) {
        const char *in = file[of[order[i]]];

        rsi_json_key(out, name[order[i]], strlen(name[order[i]]));
        rsi_json_string(out, in, strlen(in));
    }
    rsi_json_close(out, '}');
    rsi_json_close(out, '}');
    rsi_json_raw(out, "\n", 1);
    rc = rsi_json_out_end(out, err);
out:
    rsi_free(order);
    return rc;
}
