/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the files of weights in a folder without an index belong together. */
#include "format/weights.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LOST = 4096 }; /* files of a set, each of which takes memory */

/* What a file is, by its name; the lowest one in a folder is the checkpoint. */
typedef enum role {
    MODEL,     /* a whole one: model.safetensors */
    DIFFUSION, /* diffusion_pytorch_model.safetensors */
    PYTORCH,   /* pytorch_model.bin */
    OF_RANK,   /* of vLLM's sharded_state */
    SHARD,     /* of torch's distributed form: shard-00001-model-00001-of-00002.safetensors */
    NUMBERED,  /* model-00001-of-00002.safetensors */
    OTHER_SET, /* the same of another name */
    WHOLE,     /* consolidated.safetensors: Mistral's, whole too, usually beside the others */
    OTHER,
    ADAPTER,
} role;

static const char *const stems[] = {
    [MODEL] = "model", [DIFFUSION] = "diffusion_pytorch_model", [PYTORCH] = "pytorch_model"
};

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

bool rsi_is_adapter(const char *name)
{
    return starts(name, "adapter_") || starts(name, "pytorch_lora_weights");
}

bool rsi_is_numbered(const char *name, rsi_numbered *out)
{
    const char *at = strstr(name, "-of-"), *next;

    while (at && (next = strstr(at + 1, "-of-")) != NULL)
        at = next;
    if (!at || !isdigit((unsigned char)at[4]) || strspn(at + 4, "0123456789") > 5)
        return false;
    out->first = (size_t)(at - name);
    while (out->first > 0 && isdigit((unsigned char)name[out->first - 1]))
        out->first--;
    out->digits = (size_t)(at - name) - out->first;
    if (out->digits == 0 || out->digits > 5)
        return false;
    out->number = (unsigned)strtoul(name + out->first, NULL, 10);
    out->of = (unsigned)strtoul(at + 4, NULL, 10);
    return out->of > 0 && out->number <= out->of;
}

bool rsi_is_same_set(const char *a, const char *b)
{
    rsi_numbered x, y;

    return rsi_is_numbered(a, &x) && rsi_is_numbered(b, &y) && x.first == y.first &&
           memcmp(a, b, x.first) == 0 &&
           strcmp(a + x.first + x.digits, b + y.first + y.digits) == 0;
}

bool rsi_is_bin(const char *name)
{
    rsi_numbered number;

    if (!rsi_text_ends(name, ".bin"))
        return false;
    for (role r = DIFFUSION; r <= PYTORCH; r++) {
        const size_t len = strlen(stems[r]);

        if (strncmp(name, stems[r], len) == 0 &&
            (name[len] == '.' || rsi_is_numbered(name, &number)))
            return true;
    }
    return rsi_is_adapter(name);
}

/* vLLM's sharded_state: a file for each tensor-parallel rank and part. */
static bool is_sharded_state(const char *name, unsigned *rank, unsigned *part)
{
    int end = 0;

    return sscanf(name, "model-rank-%9u-part-%9u.safetensors%n", rank, part, &end) == 2 &&
           end > 0 && !name[end];
}

bool rsi_is_part(const char *name)
{
    unsigned     rank, part;
    rsi_numbered number;

    return rsi_is_numbered(name, &number) || is_sharded_state(name, &rank, &part);
}

static role role_of(const char *name, const char *end)
{
    const size_t stem = strlen(name) - strlen(end);
    unsigned     rank, part;
    rsi_numbered number;

    for (role r = MODEL; r <= PYTORCH; r++)
        if (strlen(stems[r]) == stem && memcmp(name, stems[r], stem) == 0)
            return r;
    if (rsi_is_adapter(name))
        return ADAPTER;
    if (is_sharded_state(name, &rank, &part))
        return OF_RANK;
    if (starts(name, "shard-"))
        return SHARD;
    if (rsi_is_numbered(name, &number)) {
        for (role r = MODEL; r <= PYTORCH; r++)
            if (strlen(stems[r]) + 1 == number.first && starts(name, stems[r]))
                return NUMBERED;
        return OTHER_SET;
    }
    return stem == strlen("consolidated") && starts(name, "consolidated") ? WHOLE : OTHER;
}

static bool counts(const char *name, const char *end)
{
    return rsi_text_ends(name, end) && (strcmp(end, ".bin") != 0 || rsi_is_bin(name));
}

static rsd_err two_variants(const char *a, const char *b, rsd_error *err)
{
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "\"%s\" and \"%s\" are two variants of one model: open one of them", a, b);
}

/* "model.fp16.safetensors" beside "model.safetensors" is another copy of the same model. */
static rsd_err refuse_variants(char *const *names, size_t n, const char *name, const char *end,
                               rsd_error *err)
{
    const size_t stem = strlen(name) - strlen(end);

    for (size_t i = 0; i < n; i++)
        if (counts(names[i], end) && strcmp(names[i], name) != 0 &&
            strncmp(names[i], name, stem) == 0 && names[i][stem] == '.')
            return two_variants(name, names[i], err);
    return RSD_OK;
}

/* The files don't say along which dimension a tensor is cut, or whether it is replicated. */
static rsd_err check_sharded_state(char *const *names, size_t n, rsd_error *err)
{
    unsigned rank = 0, part = 0, most = 0, last = 0;

    for (size_t i = 0; i < n && is_sharded_state(names[i], &rank, &part); i++) {
        most = rank > most ? rank : most;
        last = part > last ? part : last;
    }
    if (most > 0)
        return rsi_fail(
            err, RSD_E_UNSUPPORTED,
            "it is vLLM's sharded_state of %u tensor-parallel ranks, which does not say how "
            "their parts make whole tensors: open the files of one rank",
            most + 1);
    if (n != (size_t)last + 1)
        return rsi_fail(err, RSD_E_NOTFOUND,
                        "it has %zu files of vLLM's sharded_state, of which the last is part %u", n,
                        last);
    return RSD_OK;
}

/* All names of the set that `name` belongs to; they count from 1, in old checkpoints from 0. */
static rsd_err list_set(const char *name, bool zero, size_t found, rsi_arena *mem, char ***out,
                        size_t *nout, rsd_error *err)
{
    rsi_numbered at = { 0 };
    size_t       n;

    rsi_is_numbered(name, &at);
    n = at.of;
    if (n > found + MOST_LOST)
        return rsi_fail(err, RSD_E_NOTFOUND, "it has %zu of the %zu files that \"%s\" is one of",
                        found, n, name);
    *nout = n;
    *out = rsi_arena_array(mem, n, sizeof((*out)[0]));
    for (size_t i = 0; *out && i < n; i++) {
        const size_t len = strlen(name) + sizeof("99999");
        char        *text = rsi_arena_array(mem, len, 1);

        if (!text)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu files", n);
        snprintf(text, len, "%.*s%0*zu%s", (int)at.first, name, (int)at.digits, i + !zero,
                 name + at.first + at.digits);
        (*out)[i] = text;
    }
    return *out ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu files", n);
}

rsd_err rsi_weights_choose(char *const *names, size_t n, const char *end, rsi_arena *mem,
                           char ***out, size_t *nout, const char **kind, rsd_error *err)
{
    char      **at = rsi_arena_array(mem, n + 1, sizeof(at[0]));
    const char *first = NULL;
    role        best = ADAPTER;
    bool        zero = false, set;
    size_t      found = 0;
    rsd_err     rc = RSD_OK;

    if (!at)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu files", n);
    for (size_t i = 0; i < n; i++)
        if (counts(names[i], end) && (!first || role_of(names[i], end) < best)) {
            first = names[i];
            best = role_of(first, end);
        }
    set = first && (best == NUMBERED || best == OTHER_SET);
    for (size_t i = 0; i < n && !rc; i++) {
        rsi_numbered number = { 0 };

        if (!counts(names[i], end) || role_of(names[i], end) != best)
            continue;
        if (set && !rsi_is_same_set(names[i], first))
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "\"%s\" and \"%s\" are parts of two models: put the files of one into "
                            "a folder",
                            first, names[i]);
        zero = zero || (rsi_is_numbered(names[i], &number) && number.number == 0);
        at[found++] = names[i];
        rc = refuse_variants(names, n, names[i], end, err);
    }
    if (!rc && best == OTHER && found > 1 && strcmp(end, ".bin") == 0)
        rc = two_variants(at[0], at[1], err);
    *out = at;
    *nout = found;
    if (!rc && best == OF_RANK) {
        *kind = "vLLM sharded_state";
        rc = check_sharded_state(at, found, err);
    }
    return !rc && set ? list_set(first, zero, found, mem, out, nout, err) : rc;
}
