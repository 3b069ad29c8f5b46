/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which parts of tensors one of torch's distributed safetensors files holds; st_join.c joins
 * the files. */
#include "format/st_dcp.h"
#include "base/checked.h"
#include "base/mem.h"
#include "format/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct parser {
    rsi_json             json;
    const rsi_st_header *header;
    int64_t             *off;
    bool                *seen; /* [ntensors + nlisted] */
    rsd_error           *err;
} parser;

/* As many offsets as the tensor has dimensions, each such that the part's end fits in 64 bits. */
static rsd_err take_offsets(parser *p, const rsi_st_tensor *tensor)
{
    const int64_t *shape = rsi_st_shape(p->header, tensor);
    rsi_json_token token;
    int64_t        end;
    int            n = 0;
    rsd_err        rc;

    rc = rsi_json_want(&p->json, RSI_JSON_ARRAY, "an array of offsets", &token, p->err);
    for (; rsi_json_each(&p->json, &token, &rc, p->err); n++) {
        if (token.kind != RSI_JSON_INTEGER || token.negative)
            return rsi_json_expected(&p->json, &token, "an offset as a whole number", p->err);
        if (n == tensor->ndim)
            return rsi_json_expected(&p->json, &token, "one offset for each dimension", p->err);
        if (token.number > INT64_MAX || !rsi_add((int64_t)token.number, shape[n], &end))
            return rsi_json_expected(&p->json, &token, "an offset that fits into 63 bits", p->err);
        p->off[tensor->shape + (uint32_t)n] = (int64_t)token.number;
    }
    if (!rc && n < tensor->ndim)
        rc = rsi_json_expected(&p->json, &token, "one offset for each dimension", p->err);
    return rc;
}

/* {"saved_offsets": [..]} */
static rsd_err take_entry(parser *p, const rsi_st_tensor *tensor)
{
    rsi_json_token token;
    rsd_err        rc;

    rc = rsi_json_want(&p->json, RSI_JSON_OBJECT, "an object with saved_offsets", &token, p->err);
    if (!rc)
        rc = rsi_json_want(&p->json, RSI_JSON_KEY, "the key \"saved_offsets\"", &token, p->err);
    if (!rc && !rsi_json_is(&token, "saved_offsets"))
        rc = rsi_json_expected(&p->json, &token, "the key \"saved_offsets\"", p->err);
    if (!rc)
        rc = take_offsets(p, tensor);
    if (!rc)
        rc = rsi_json_want(&p->json, RSI_JSON_OBJECT_END, "nothing but saved_offsets", &token,
                           p->err);
    return rc;
}

static rsd_err take_name(parser *p, const rsi_json_token *key)
{
    const rsi_st_tensor *tensor = rsi_st_find(p->header, key->text, key->len);
    size_t               i;
    rsd_err              rc;

    if (!tensor)
        return rsi_json_expected(&p->json, key, "a tensor that the file has", p->err);
    i = (size_t)(tensor - p->header->tensor);
    if (p->seen[i])
        return rsi_json_expected(&p->json, key, "each tensor once", p->err);
    p->seen[i] = true;
    rc = take_entry(p, tensor);
    if (rc)
        rc = rsi_while(p->err, rc, "tensor \"%.*s\"",
                       rsi_json_shown(tensor->name.text, tensor->name.len), tensor->name.text);
    return rc;
}

static rsd_err take_all(parser *p)
{
    rsi_json_token  token;
    const rsi_name *name;
    rsd_err         rc;

    rc = rsi_json_want(&p->json, RSI_JSON_OBJECT, "an object", &token, p->err);
    while (rsi_json_each(&p->json, &token, &rc, p->err))
        rc = take_name(p, &token);
    if (!rc)
        rc = rsi_json_next(&p->json, &token, p->err); /* the end */
    for (size_t i = 0; i < p->header->ntensors && !rc; i++) {
        name = &p->header->tensor[i].name;
        if (!p->seen[i])
            rc = rsi_fail(p->err, RSD_E_FORMAT, "tensor \"%.*s\" has no saved_offsets",
                          rsi_json_shown(name->text, name->len), name->text);
    }
    return rc;
}

/* torch writes "1.0" and never checks it; another major version would mean something unknown. */
static rsd_err check_version(const rsi_st_header *header, rsd_error *err)
{
    const rsi_st_meta *version = rsi_st_meta_find(header, RSI_ST_DCP_VERSION_KEY);

    if (!version || strncmp(version->value, "1.", 2) == 0 || strcmp(version->value, "1") == 0)
        return RSD_OK;
    return rsi_fail(err, RSD_E_UNSUPPORTED, "%s is \"%.20s\", only 1.x is supported",
                    RSI_ST_DCP_VERSION_KEY, version->value);
}

rsd_err rsi_st_dcp_read(const rsi_st_header *header, rsi_st_dcp *out, rsd_error *err)
{
    const rsi_st_meta *info = rsi_st_meta_find(header, RSI_ST_DCP_INFO);
    parser             p = { .header = header, .err = err };
    rsi_arena          mem = { 0 };
    rsd_err            rc = info ? check_version(header, err) : RSD_OK;

    if (rc)
        return rc;
    p.off = rsi_calloc(header->ndims, sizeof(p.off[0]));
    p.seen = rsi_calloc(header->ntensors + header->nlisted, sizeof(p.seen[0]));
    if (!p.off || !p.seen) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the offsets of %zu tensors",
                      header->ntensors);
        goto out;
    }
    if (info) {
        rsi_json_begin(&p.json, info->value, info->value_len, 0, &mem);
        rc = take_all(&p);
    }
    if (rc) {
        rc = rsi_while(err, rc, "%s", RSI_ST_DCP_INFO);
        goto out;
    }
    *out = (rsi_st_dcp){ .sharded = info != NULL, .off = p.off };
    p.off = NULL;
out:
    rsi_free(p.off);
    rsi_free(p.seen);
    rsi_arena_release(&mem);
    return rc;
}

void rsi_st_dcp_release(rsi_st_dcp *dcp)
{
    rsi_free(dcp->off);
    rsi_free(dcp->whole);
    *dcp = (rsi_st_dcp){ 0 };
}

rsd_err rsi_st_dcp_write(size_t n, const char *const *name, const int *ndim,
                         const int64_t *const *off, rsi_json_out *out, rsd_error *err)
{
    out->style = RSI_JSON_SPACED;
    out->ascii = true;
    rsi_json_open(out, '{');
    for (size_t i = 0; i < n; i++) {
        rsi_json_key(out, name[i], strlen(name[i]));
        rsi_json_open(out, '{');
        rsi_json_key(out, "saved_offsets", 13);
        rsi_json_open(out, '[');
        for (int d = 0; d < ndim[i]; d++)
            rsi_json_i64(out, off[i][d]);
        rsi_json_close(out, ']');
        rsi_json_close(out, '}');
    }
    rsi_json_close(out, '}');
    return rsi_json_out_end(out, err);
}

/* ---- file names ---- */

size_t rsi_st_shard_name(int64_t shard, int64_t file, int64_t files, char *buf, size_t cap)
{
    int n =
        snprintf(buf, cap, "shard-%05" PRId64 "-model-%05" PRId64 "-of-%05" PRId64 ".safetensors",
                 shard, file, files);

    return n < 0 ? 0 : (size_t)n;
}

/* `word`, then at least five digits. */
static bool take_part(const char **at, const char *word, int64_t *out)
{
    size_t  len = strlen(word), digits = 0;
    int64_t value = 0;

    if (strncmp(*at, word, len) != 0)
        return false;
    for (*at += len; **at >= '0' && **at <= '9'; (*at)++, digits++)
        if (!rsi_mul(value, 10, &value) || !rsi_add(value, **at - '0', &value))
            return false;
    *out = value;
    return digits >= 5;
}

bool rsi_st_shard_parse(const char *name, int64_t *shard, int64_t *file, int64_t *files)
{
    const char *at = name;
    int64_t     s, f, n;

    if (!take_part(&at, "shard-", &s) || !take_part(&at, "-model-", &f) ||
        !take_part(&at, "-of-", &n) || strcmp(at, ".safetensors") != 0)
        return false;
    *shard = s;
    *file = f;
    *files = n;
    return true;
}
