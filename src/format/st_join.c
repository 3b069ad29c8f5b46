/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the parts in several safetensors files to whole tensors: their names, dtypes, shapes and
 * where the parts are. st_read.c and st_dcp.c read one file. */
#include "base/checked.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/json.h"
#include "format/st_dcp.h"
#include "format/weights.h"

#include <inttypes.h>
#include <string.h>

typedef struct joiner {
    const rsi_st_file *file;
    rsi_st_joined      joined;
    size_t             whole_cap;
    uint32_t          *whole_of; /* [nparts] in the order of files and their tensors */
    uint32_t          *first_in; /* [nwholes] the file of the first part */
    size_t             first_cap, replica_cap;
    rsi_map            names;
    rsd_error         *err;
} joiner;

static rsd_err no_memory(const joiner *j)
{
    return rsi_fail(j->err, RSD_E_NOMEM, "no memory to join %zu parts of tensors",
                    j->joined.nparts);
}

static rsd_err disagree(const joiner *j, const rsi_st_whole *whole, uint32_t first, uint32_t file,
                        const char *why)
{
    return rsi_fail(j->err, RSD_E_FORMAT, "tensor \"%.*s\" in \"%.100s\" and \"%.100s\": %s",
                    rsi_json_shown(whole->name->text, whole->name->len), whole->name->text,
                    j->file[first].path, j->file[file].path, why);
}

/* Extends the whole to the part's furthest corner, or to the size that the file says. Offsets were
 * checked, so the sums fit. */
static void stretch(rsi_st_whole *whole, const rsi_st_file *file, const rsi_st_tensor *tensor)
{
    const int64_t *shape = rsi_st_shape(file->header, tensor);
    const int64_t *off = file->dcp->off + tensor->shape;

    for (int d = 0; d < whole->ndim; d++)
        whole->shape[d] = rsi_max(whole->shape[d],
                                  file->dcp->whole ? file->dcp->whole[tensor->shape + (uint32_t)d]
                                                   : off[d] + shape[d]);
}

/* Why a tensor may not be in both files. */
static const char *cannot_share(const rsi_st_file *a, const rsi_st_file *b)
{
    if (a->dcp->whole || b->dcp->whole)
        return "only files with " RSI_NANOTRON_SLICES " can share a tensor";
    if (a->dcp->sharded || b->dcp->sharded || rsi_is_part(a->path))
        return "only files with " RSI_ST_DCP_INFO " can share a tensor";
    return "they are two models, or variants of one: open one of them";
}

static rsd_err add_part(joiner *j, uint32_t f, const rsi_st_tensor *tensor, uint32_t *out)
{
    rsi_st_joined     *joined = &j->joined;
    const rsi_st_file *file = &j->file[f];
    uint64_t           at = joined->nwholes;
    rsi_st_whole      *whole;
    bool               was;

    if (!rsi_grow(&joined->whole, joined->nwholes, &j->whole_cap, sizeof(joined->whole[0])) ||
        !rsi_grow(&j->first_in, joined->nwholes, &j->first_cap, sizeof(j->first_in[0])) ||
        !rsi_map_add(&j->names, tensor->name.text, tensor->name.len, &at, &was))
        return no_memory(j);
    whole = &joined->whole[at];
    if (!was) {
        *whole = (rsi_st_whole){ .name = &tensor->name,
                                 .dtype = (rsd_dtype)tensor->dtype,
                                 .ndim = tensor->ndim };
        j->first_in[at] = f;
        joined->nwholes++;
    }
    if (was && (!file->dcp->sharded || !j->file[j->first_in[at]].dcp->sharded))
        return disagree(j, whole, j->first_in[at], f,
                        cannot_share(file, &j->file[j->first_in[at]]));
    if (whole->dtype != (rsd_dtype)tensor->dtype)
        return disagree(j, whole, j->first_in[at], f, "the dtypes differ");
    if (whole->ndim != tensor->ndim)
        return disagree(j, whole, j->first_in[at], f, "the numbers of dimensions differ");
    stretch(whole, file, tensor);
    whole->parts++;
    *out = (uint32_t)at;
    return RSD_OK;
}

/* Sorts the parts by tensor; within a tensor they keep their order. */
static rsd_err gather(joiner *j, size_t nfiles)
{
    rsi_st_joined *joined = &j->joined;
    size_t         first = 0, part = 0;
    int64_t        bytes;

    for (size_t i = 0; i < joined->nwholes; i++) {
        rsi_st_whole *whole = &joined->whole[i];

        if (!rsi_product(whole->ndim, whole->shape, (int64_t)rsd_dtype_size(whole->dtype), &bytes))
            return rsi_fail(
                j->err, RSD_E_FORMAT,
                "tensor \"%.*s\": the size of all parts together does not fit into 64 bits",
                rsi_json_shown(whole->name->text, whole->name->len), whole->name->text);
        whole->first = first;
        first += whole->parts;
        whole->parts = 0;
    }
    for (size_t f = 0; f < nfiles; f++)
        for (size_t t = 0; t < j->file[f].header->ntensors; t++) {
            rsi_st_whole *whole = &joined->whole[j->whole_of[part++]];

            joined->part[whole->first + whole->parts++] = (rsi_st_part){ (uint32_t)f, (uint32_t)t };
        }
    return RSD_OK;
}

static const rsi_st_tensor *tensor_of(const joiner *j, const rsi_st_part *part)
{
    return &j->file[part->file].header->tensor[part->tensor];
}

static bool same_shape(const joiner *j, const rsi_st_part *a, const rsi_st_part *b)
{
    const rsi_st_tensor *of = tensor_of(j, a), *other = tensor_of(j, b);

    return memcmp(rsi_st_shape(j->file[a->file].header, of),
                  rsi_st_shape(j->file[b->file].header, other), of->ndim * sizeof(int64_t)) == 0;
}

/* Moves the parts of a tensor that earlier files have too from its list to that of the replicas. */
static rsd_err drop_replicas(joiner *j, rsi_st_whole *whole)
{
    rsi_st_joined *joined = &j->joined;
    rsi_st_part   *part = joined->part + whole->first;
    rsi_map        known = { 0 };
    size_t         kept = 0;
    rsd_err        rc = RSD_OK;

    for (size_t i = 0; i < whole->parts && !rc; i++) {
        const int64_t *off = j->file[part[i].file].dcp->off + tensor_of(j, &part[i])->shape;
        uint64_t       at = kept;
        bool           was = false;

        if (!rsi_map_add(&known, off, (size_t)whole->ndim * sizeof(off[0]), &at, &was)) {
            rc = no_memory(j);
        } else if (!was || !same_shape(j, &part[i], &part[at])) {
            part[kept++] = part[i];
        } else if (!rsi_grow(&joined->replica, joined->nreplicas, &j->replica_cap,
                             sizeof(joined->replica[0]))) {
            rc = no_memory(j);
        } else {
            joined->replica[joined->nreplicas++] = (rsi_st_replica){ part[i], part[at] };
        }
    }
    whole->parts = kept;
    rsi_map_release(&known);
    return rc;
}

rsd_err rsi_st_join(size_t nfiles, const rsi_st_file *file, rsi_st_joined *out, rsd_error *err)
{
    joiner  j = { .file = file, .err = err };
    size_t  part = 0;
    rsd_err rc = RSD_OK;

    for (size_t f = 0; f < nfiles; f++)
        j.joined.nparts += file[f].header->ntensors;
    if (j.joined.nparts >= UINT32_MAX || nfiles >= UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "%zu parts of tensors in %zu files are not supported", j.joined.nparts,
                        nfiles);
    j.joined.part = rsi_calloc(j.joined.nparts, sizeof(j.joined.part[0]));
    j.whole_of = rsi_calloc(j.joined.nparts, sizeof(j.whole_of[0]));
    if (!j.joined.part || !j.whole_of)
        rc = no_memory(&j);
    for (size_t f = 0; f < nfiles && !rc; f++)
        for (size_t t = 0; t < file[f].header->ntensors && !rc; t++)
            rc = add_part(&j, (uint32_t)f, &file[f].header->tensor[t], &j.whole_of[part++]);
    if (!rc)
        rc = gather(&j, nfiles);
    for (size_t i = 0; i < j.joined.nwholes && !rc; i++)
        if (j.joined.whole[i].parts > 1)
            rc = drop_replicas(&j, &j.joined.whole[i]);
    rsi_map_release(&j.names);
    rsi_free(j.whole_of);
    rsi_free(j.first_in);
    if (rc)
        rsi_st_joined_release(&j.joined);
    else
        *out = j.joined;
    return rc;
}

void rsi_st_joined_release(rsi_st_joined *joined)
{
    rsi_free(joined->whole);
    rsi_free(joined->part);
    rsi_free(joined->replica);
    *joined = (rsi_st_joined){ 0 };
}
