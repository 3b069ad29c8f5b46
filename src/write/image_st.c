/* SPDX-License-Identifier: Apache-2.0 */
/* The image of safetensors: whole tensors in one file or in several with an index, or each rank's
 * parts in its own files: torch's distributed form, or vLLM's sharded_state. A name occurs only
 * once in a file, so a rank with several boxes of a tensor gets several files. */
#include "base/map.h"
#include "base/mem.h"
#include "write/image.h"
#include "format/st_dcp.h"
#include "format/st_index.h"
#include "format/st_write.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A tensor, or part of one, to be stored in a file. */
typedef struct piece {
    size_t         tensor;
    const int64_t *box;   /* [2][ndim] in the form that parts store */
    size_t         group; /* which file */
} piece;

/* A planned file. */
typedef struct st_group {
    int32_t     rank;
    uint32_t    nth; /* number among the rank's files */
    const char *name;
} st_group;

typedef struct building {
    rsi_image         *image;
    const rsd_state   *state;
    bool               parts; /* files hold parts of tensors and record that */
    const rsi_st_pair *meta;  /* [nmeta] */
    size_t             nmeta;
    piece             *piece;
    size_t             npieces, piece_cap;
    st_group          *group;
    size_t             ngroups, group_cap;
} building;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

static rsd_err add_piece(building *b, size_t tensor, const rsd_box *box, size_t group,
                         rsd_error *err)
{
    const int64_t *kept = rsi_image_box(b->image, box);

    if (!kept || !rsi_grow(&b->piece, b->npieces, &b->piece_cap, sizeof(b->piece[0])))
        return no_memory(err);
    b->piece[b->npieces++] = (piece){ .tensor = tensor, .box = kept, .group = group };
    return RSD_OK;
}

static uint64_t piece_bytes(const building *b, const piece *p)
{
    const rsi_state_tensor *t = &b->state->tensor[p->tensor];
    int64_t                 bytes = t->views.elem_bytes;

    for (int d = 0; d < t->ndim; d++)
        bytes *= p->box[t->ndim + d];
    return (uint64_t)bytes;
}

static rsd_err add_group(building *b, int32_t rank, uint32_t nth, rsd_error *err)
{
    if (!rsi_grow(&b->group, b->ngroups, &b->group_cap, sizeof(b->group[0])))
        return no_memory(err);
    b->group[b->ngroups++] = (st_group){ .rank = rank, .nth = nth };
    return RSD_OK;
}

/* __metadata__: the caller's entries, and the format's own. */
static rsd_err make_pairs(const building *b, const rsi_json_out *info, rsi_st_pair **out, size_t *n,
                          rsd_error *err)
{
    rsi_st_pair *pair = rsi_calloc(b->nmeta + 3, sizeof(pair[0]));
    bool         format = false;

    if (!pair)
        return no_memory(err);
    *n = 0;
    for (size_t i = 0; i < b->nmeta; i++) {
        format = format || strcmp(b->meta[i].key, "format") == 0;
        pair[(*n)++] = b->meta[i];
    }
    if (!format)
        pair[(*n)++] = (rsi_st_pair){ "format", "pt", 2 };
    if (b->parts) {
        pair[(*n)++] =
            (rsi_st_pair){ RSI_ST_DCP_VERSION_KEY, RSI_ST_DCP_VERSION, strlen(RSI_ST_DCP_VERSION) };
        pair[(*n)++] = (rsi_st_pair){ RSI_ST_DCP_INFO, info->buf, info->len };
    }
    *out = pair;
    return RSD_OK;
}

/* The header of a file with n pieces. */
static rsd_err make_head(const building *b, const piece *const *which, size_t n, rsi_st_image *out,
                         rsd_error *err)
{
    rsi_st_item    *item = rsi_calloc(n, sizeof(item[0]));
    const char    **names = rsi_calloc(n, sizeof(names[0]));
    const int64_t **off = rsi_calloc(n, sizeof(off[0]));
    int            *ndim = rsi_calloc(n, sizeof(ndim[0]));
    rsi_json_out    info = { 0 };
    rsi_st_pair    *pair = NULL;
    size_t          npairs = 0;
    rsd_err         rc = item && names && off && ndim ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_state_tensor *t = &b->state->tensor[which[i]->tensor];

        item[i] = (rsi_st_item){ t->spot.name, t->dtype, t->ndim, which[i]->box + t->ndim };
        names[i] = t->spot.name;
        off[i] = which[i]->box;
        ndim[i] = t->ndim;
    }
    if (!rc && b->parts)
        rc = rsi_st_dcp_write(n, names, ndim, off, &info, err);
    if (!rc)
        rc = make_pairs(b, &info, &pair, &npairs, err);
    if (!rc)
        rc = rsi_st_image_make(n, item, npairs, pair, out, err);
    rsi_json_out_release(&info);
    rsi_free(pair);
    rsi_free(item);
    rsi_free(names);
    rsi_free(off);
    rsi_free(ndim);
    return rc;
}

static rsd_err add_file(building *b, const st_group *g, const piece *const *which, size_t n,
                        rsd_error *err)
{
    rsi_image   *image = b->image;
    rsi_st_image head = { 0 };
    rsi_out_part part = { .kind = RSI_PART_BYTES };
    rsd_err      rc = make_head(b, which, n, &head, err);

    if (!rc)
        rc = rsi_image_file(image, g->name, g->rank, err);
    if (!rc)
        rc = rsi_image_item(image, NULL, err);
    if (!rc) {
        part.len = head.head_len;
        part.bytes = rsi_arena_text(&image->mem, head.head, head.head_len);
        rc = part.bytes ? rsi_image_part(image, &part, err) : no_memory(err);
    }
    for (size_t k = 0; k < n && !rc; k++) {
        const piece *p = which[head.order[k]];

        part = (rsi_out_part){
            .kind = RSI_PART_DATA, .tensor = p->tensor, .box = p->box, .len = piece_bytes(b, p)
        };
        rc = rsi_image_part(image, &part, err);
    }
    rsi_st_image_release(&head);
    return rc;
}

/* Sorts the pieces by file and adds the files. */
static rsd_err add_files(building *b, rsd_error *err)
{
    size_t       *first = rsi_calloc(b->ngroups + 2, sizeof(first[0]));
    const piece **order = rsi_calloc(b->npieces, sizeof(order[0]));
    rsd_err       rc = first && order ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < b->npieces && !rc; i++)
        first[b->piece[i].group + 2]++;
    for (size_t g = 2; g < b->ngroups + 2 && !rc; g++)
        first[g] += first[g - 1];
    for (size_t i = 0; i < b->npieces && !rc; i++)
        order[first[b->piece[i].group + 1]++] = &b->piece[i];
    for (size_t g = 0; g < b->ngroups && !rc; g++)
        rc = add_file(b, &b->group[g], order + first[g], first[g + 1] - first[g], err);
    rsi_free(first);
    rsi_free(order);
    return rc;
}

/* ---- whole tensors ---- */

static rsd_err add_index(building *b, const uint32_t *of, rsd_error *err)
{
    size_t       n = b->state->ntensors;
    const char **names = rsi_calloc(n, sizeof(names[0]));
    const char **files = rsi_calloc(b->ngroups, sizeof(files[0]));
    rsi_json_out text = { 0 };
    rsi_out_part part = { .kind = RSI_PART_BYTES };
    uint64_t     total = 0;
    rsd_err      rc = names && files ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < n && !rc; i++)
        names[i] = b->state->tensor[i].spot.name;
    for (size_t i = 0; i < b->npieces && !rc; i++)
        total += piece_bytes(b, &b->piece[i]);
    for (size_t g = 0; g < b->ngroups && !rc; g++)
        files[g] = b->group[g].name;
    if (!rc)
        rc = rsi_st_index_write(n, names, of, files, total, &text, err);
    if (!rc)
        rc = rsi_image_file(b->image, RSI_ST_INDEX_NAME, 0, err);
    if (!rc)
        rc = rsi_image_item(b->image, NULL, err);
    if (!rc) {
        part.len = text.len;
        part.bytes = rsi_arena_text(&b->image->mem, text.buf, text.len);
        rc = part.bytes ? rsi_image_part(b->image, &part, err) : no_memory(err);
    }
    rsi_json_out_release(&text);
    rsi_free(names);
    rsi_free(files);
    return rc;
}

static rsd_err plan_whole(building *b, const rsi_image_spec *spec, uint32_t *of, rsd_error *err)
{
    size_t       n = b->state->ntensors;
    rsi_st_item *item = rsi_calloc(n, sizeof(item[0]));
    uint32_t     files = 0;
    rsd_err      rc = item ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_state_tensor *t = &b->state->tensor[i];

        item[i] = (rsi_st_item){ t->spot.name, t->dtype, t->ndim, t->shape };
    }
    if (!rc)
        rc = rsi_st_split(n, item, spec->one_file ? 0 : spec->shard_size, of, &files, err);
    for (uint32_t f = 0; f < files && !rc; f++) {
        char name[64];

        rc = add_group(b, 0, f, err);
        if (rc || spec->one_file)
            continue;
        rsi_st_file_name(f, files, name, sizeof(name));
        b->group[f].name = rsi_arena_text(&b->image->mem, name, strlen(name));
        rc = b->group[f].name ? RSD_OK : no_memory(err);
    }
    for (size_t i = 0; i < n && !rc; i++) {
        rsd_box whole = rsi_tensor_whole(&b->state->tensor[i]);

        rc = add_piece(b, i, &whole, of[i], err);
    }
    rsi_free(item);
    return rc;
}

static rsd_err image_whole(building *b, const rsi_image_spec *spec, rsd_error *err)
{
    uint32_t *of = rsi_calloc(b->state->ntensors, sizeof(of[0]));
    rsd_err   rc = of ? plan_whole(b, spec, of, err) : no_memory(err);

    if (!rc)
        rc = add_files(b, err);
    if (!rc && b->ngroups > 1)
        rc = add_index(b, of, err);
    rsi_free(of);
    return rc;
}

/* ---- parts ---- */

/* The file for a rank's nth box of a tensor. Each rank has few files; the search starts with the
 * last. */
static rsd_err group_for(building *b, rsi_map *known, int32_t rank, uint32_t nth, size_t *out,
                         rsd_error *err)
{
    uint32_t *key = rsi_arena_array(&b->image->mem, 2, sizeof(key[0]));
    uint64_t  number = b->ngroups;
    bool      was;
    rsd_err   rc = RSD_OK;

    if (!key)
        return no_memory(err);
    key[0] = (uint32_t)rank;
    key[1] = nth;
    if (!rsi_map_add(known, key, 2 * sizeof(key[0]), &number, &was))
        return no_memory(err);
    if (!was)
        rc = add_group(b, rank, nth, err);
    *out = (size_t)number;
    return rc;
}

/* Counts each rank's parts of a tensor. */
typedef struct counting {
    uint32_t *had; /* [ranks] 0 between tensors */
    size_t    ranks;
} counting;

static rsd_err count_to(counting *c, int32_t rank, rsd_error *err)
{
    size_t    more = (size_t)rank + 1;
    uint32_t *bigger;

    if (more <= c->ranks)
        return RSD_OK;
    bigger = rsi_realloc(c->had, more, sizeof(bigger[0]));
    if (!bigger)
        return no_memory(err);
    memset(bigger + c->ranks, 0, (more - c->ranks) * sizeof(bigger[0]));
    *c = (counting){ bigger, more };
    return RSD_OK;
}

/* Plans the parts of one tensor. */
static rsd_err plan_tensor(building *b, rsi_map *known, size_t t, rsi_stored_list *chunks,
                           counting *c, rsd_error *err)
{
    rsd_err rc = rsi_stored_chunks(b->state, t, false, -1, chunks, err);

    for (size_t i = 0; i < chunks->n && !rc; i++) {
        size_t  group = 0;
        int32_t rank = chunks->at[i].rank;

        rc = count_to(c, rank, err);
        if (!rc)
            rc = group_for(b, known, rank, c->had[rank]++, &group, err);
        if (!rc)
            rc = add_piece(b, t, &chunks->at[i].box, group, err);
    }
    for (size_t i = 0; i < chunks->n && !rc; i++)
        c->had[chunks->at[i].rank] = 0;
    return rc;
}

static rsd_err plan_parts(building *b, rsi_map *known, rsd_error *err)
{
    rsi_stored_list chunks = { 0 };
    counting        c = { 0 };
    rsd_err         rc = RSD_OK;

    for (size_t t = 0; t < b->state->ntensors && !rc; t++)
        rc = plan_tensor(b, known, t, &chunks, &c, err);
    rsi_free(chunks.at);
    rsi_free(c.had);
    return rc;
}

static rsd_err name_group(building *b, size_t g, const char *name, rsd_error *err)
{
    b->group[g].name = rsi_arena_text(&b->image->mem, name, strlen(name));
    return b->group[g].name ? RSD_OK : no_memory(err);
}

static rsd_err image_parts(building *b, rsd_error *err)
{
    rsi_map  known = { 0 };
    uint32_t files = 1;
    rsd_err  rc = plan_parts(b, &known, err);

    for (size_t g = 0; g < b->ngroups; g++)
        files = b->group[g].nth >= files ? b->group[g].nth + 1 : files;
    for (size_t g = 0; g < b->ngroups && !rc; g++) {
        char name[RSI_ST_FILE_NAME];

        rsi_st_shard_name(b->group[g].rank + 1, b->group[g].nth + 1, files, name, sizeof(name));
        rc = name_group(b, g, name, err);
    }
    if (!rc)
        rc = add_files(b, err);
    rsi_map_release(&known);
    return rc;
}

/* ---- vLLM's sharded_state ---- */

/* A rank's part of a tensor; all ranks have parts of one shape, whose shape the file states. */
static rsd_err rank_box(const rsi_state_tensor *t, const rsd_layout *layout, int32_t rank,
                        rsd_box *out, rsd_error *err)
{
    rsd_box first;
    size_t  n = rsd_layout_boxes(layout, rank, out, 1);

    if (n == 1 && rsd_layout_boxes(layout, 0, &first, 1) == 1 &&
        memcmp(first.len, out->len, (size_t)t->ndim * sizeof(first.len[0])) == 0)
        return RSD_OK;
    return rsi_fail(err, RSD_E_INVALID,
                    "tensor \"%s\": rank %" PRId32 " has %s part; a sharded_state needs one of the "
                    "same shape on every rank",
                    t->spot.name, rank,
                    n == 1 ? "another"
                    : n    ? "more than one"
                           : "no");
}

/* Ranks of a state, by number: bytes of the file that is being filled, and that file's number. */
typedef struct filling {
    uint64_t *bytes;
    uint32_t *nth;
    int64_t   ranks;
} filling;

static rsd_err plan_rank(building *b, rsi_map *known, size_t t, const rsd_layout *layout,
                         uint64_t shard_size, filling *f, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t r = 0; r < f->ranks && !rc; r++) {
        rsd_box  box;
        size_t   group = 0;
        uint64_t bytes;

        rc = rank_box(&b->state->tensor[t], layout, r, &box, err);
        if (rc)
            break;
        bytes = (uint64_t)(rsd_box_count(&box) * b->state->tensor[t].views.elem_bytes);
        if (shard_size && f->bytes[r] && f->bytes[r] + bytes > shard_size) {
            f->nth[r]++;
            f->bytes[r] = 0;
        }
        f->bytes[r] += bytes;
        rc = group_for(b, known, r, f->nth[r], &group, err);
        if (!rc)
            rc = add_piece(b, t, &box, group, err);
    }
    return rc;
}

/* Every rank has its part of every tensor. */
static rsd_err plan_ranks(building *b, rsi_map *known, uint64_t shard_size, rsd_error *err)
{
    filling f = { 0 };
    rsd_err rc = RSD_OK;

    for (size_t t = 0; t < b->state->ntensors && !rc; t++) {
        rsd_layout *layout = NULL;

        rc = rsi_state_layout(b->state, t, &layout, err);
        if (!rc && (!layout || !layout->mesh))
            rc =
                rsi_fail(err, RSD_E_INVALID, "a sharded_state needs a layout: which rank has what");
        if (!rc && !f.bytes) {
            f.ranks = layout->mesh->size;
            f.bytes = rsi_calloc((size_t)f.ranks, sizeof(f.bytes[0]));
            f.nth = rsi_calloc((size_t)f.ranks, sizeof(f.nth[0]));
            rc = f.bytes && f.nth ? RSD_OK : no_memory(err);
        }
        if (!rc)
            rc = plan_rank(b, known, t, layout, shard_size, &f, err);
        rsd_layout_free(layout);
    }
    rsi_free(f.bytes);
    rsi_free(f.nth);
    return rc;
}

static rsd_err image_ranks(building *b, const rsi_image_spec *spec, rsd_error *err)
{
    rsi_map known = { 0 };
    rsd_err rc = plan_ranks(b, &known, spec->shard_size, err);

    for (size_t g = 0; g < b->ngroups && !rc; g++) {
        char name[64];

        snprintf(name, sizeof(name), "model-rank-%" PRId32 "-part-%" PRIu32 ".safetensors",
                 b->group[g].rank, b->group[g].nth);
        rc = name_group(b, g, name, err);
    }
    if (!rc)
        rc = add_files(b, err);
    rsi_map_release(&known);
    return rc;
}

/* Refuses, before anything is written, whatever the format can't hold. */
static rsd_err refuse(const rsd_state *state, const rsi_image_spec *spec, rsd_error *err)
{
    if (spec->distributed && spec->one_file)
        return rsi_fail(err, RSD_E_INVALID, "distributed safetensors are a folder, not a file");
    if (spec->rank_states && spec->one_file)
        return rsi_fail(err, RSD_E_INVALID, "a sharded_state is a folder, not a file");
    for (size_t i = 0; i < state->ntensors; i++) {
        const rsi_state_tensor *t = &state->tensor[i];
        rsi_st_item             item = { t->spot.name, t->dtype, t->ndim, t->shape };
        uint64_t                bytes;
        rsd_err                 rc = rsi_st_item_bytes(&item, &bytes, err);

        if (rc)
            return rc;
    }
    if (state->nvalues > 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "safetensors hold tensors only, not the value \"%s\"",
                        state->value[0].spot.name);
    return RSD_OK;
}

rsd_err rsi_image_st(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                     rsd_error *err)
{
    building b = { .image = image,
                   .state = state,
                   .parts = spec->distributed,
                   .meta = spec->meta,
                   .nmeta = spec->nmeta };
    rsd_err  rc = refuse(state, spec, err);

    if (!rc)
        rc = b.parts             ? image_parts(&b, err)
             : spec->rank_states ? image_ranks(&b, spec, err)
                                 : image_whole(&b, spec, err);
    rsi_free(b.piece);
    rsi_free(b.group);
    return rc;
}
